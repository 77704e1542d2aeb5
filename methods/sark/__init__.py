"""SARK: a reranker that learns what helps to answer, whatever its style (paper: SARK, section 4).

In the order of the work: `data` (candidates) → `answers` (who answers, and whether rightly) → `labels` and `lists` →
`style_pairs` → `rows` → `train` with `loss`, which runs it all. `model` is the reranker, `reranker` puts it into a
pipeline, `config` has all options.
"""
