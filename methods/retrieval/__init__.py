"""Retrievers, rerankers and shared code.

`ranking.py`: candidates of a query, rankings from scores, and index storage. `dense.py`: vectors. `splade.py`: weights of
terms. `colbert.py`: one vector per token. `cross_encoder.py`: joint encoding of query and passage. `triples.py`: bi-encoders
over triples. `function.py`: a Python function of the user.
"""
