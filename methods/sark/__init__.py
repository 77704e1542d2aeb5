"""SARK: a reranker trained to rank passages by their help in answering, independent of style (paper: SARK, section 4).

In order of use: `data` (candidates) → `answers` (generated answers and their correctness) → `labels` and `lists` →
`style_pairs` → `rows` → `train` with `loss`. `model` is the reranker, `reranker` uses it in a pipeline, `config` has all
options.
"""
