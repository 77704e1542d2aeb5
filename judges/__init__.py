"""Score answers: metrics over stored predictions, and LLM judges.

Start at `metric.py`: the definition of a metric, its input, and how an id such as `recall@5#v2` prints and parses.
`score.py` applies metrics, which are in `metrics/`; `judge.py` defines judges, `llm/` has them. `style.py`
measures rewritten texts. Imports `benchmarks` and, of `methods`, only `api`, `flow`, `work`, `prompts` and `models`.
"""
