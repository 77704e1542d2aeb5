"""Provide what retrievers and rerankers share.

`ranking.py`: which passages a query may use, scores into rankings, indexes built once. `dense.py`: vectors.
`splade.py`: weights of terms. `colbert.py`: a vector a token. `cross_encoder.py`: query and passage read together.
`triples.py`: towers over triples.
"""
