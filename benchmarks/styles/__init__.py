"""The same passage rewritten in another style.

`rules.py` declares what a `Rewriter` is and holds the rule-based one: two sets of rules, one for training and one for
testing, which share nothing. `rewrite.py` rewrites passages and resumes if it was killed; `pairs.py` keeps them,
by question, passage and style, and reads texts that others paired, `sark_files.py` SARK's layouts. `mix.py` makes of a
benchmark the same benchmark over mixed styles, and reads off what that left of the answers.
"""

STYLED = "styled"
"""Name of these benchmarks; key of `Benchmark.extra` that says how, of `Question.metadata` what a question met."""
FORMAL = "formal"
"""The style that passages are written in if nobody restyled them."""
