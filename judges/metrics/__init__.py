"""Metrics: one small function each, from a batch to one number per question; its docstring is its definition.

`answer.py` (em, f1, cover_em …; which gold strings count, and how several are read), `graph_qa.py` (RoG's evaluator, a
strict one, and what was found of the answers), `retrieval.py`, `support.py` (sentences, paragraphs, triples, joint),
`generation.py` (rouge, bertscore, perplexity) and `entities.py`. All of them, with how to choose: docs/metrics.md.
"""
