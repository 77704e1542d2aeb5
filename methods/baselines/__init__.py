"""Retrievers, rerankers, systems and controls that everything else is measured against.

Those of triples are in `graph/`. What they share is in `methods.retrieval`.
"""
