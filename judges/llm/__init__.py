"""Judges: language models that are asked about answers, and rules with the same interface if there is no model.

`match.py`, `pairwise.py`, `style.py` (style and content) and `grounding.py` are the judges; `rules.py` and
`rule_grounding.py` have those without a model. `ask.py` has their shared parts: how judged text gets into a prompt without
getting out of its place, how it is asked, how replies are read.
"""
