"""What retrievers and rerankers share: rankings over a scope, dense vectors, cross-encoders, towers over triples."""
