"""Retrievers, rerankers and the code that they share.

`ranking.py`: the passages that a query may use, rankings from scores, indexes built once. `dense.py`: vectors.
`splade.py`: weights of terms. `colbert.py`: one vector per token. `cross_encoder.py`: query and passage read together.
`triples.py`: towers over triples.
"""
