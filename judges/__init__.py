"""How an answer is scored: metrics over stored predictions, and LLM judges.

Start at `api.py` (what a metric is and what it is handed), then `registry.py` (how an id such as `recall@5#v1`
prints and parses). Imports `benchmarks`, `methods.api` and `methods.models` only.
"""
