"""Baselines: retrievers, rerankers, systems and controls.

Baselines over triples are in `graph/`. Shared code is in `methods.retrieval`.
"""
