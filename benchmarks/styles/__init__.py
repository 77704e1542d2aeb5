"""Style shift: rewrite passages in another style without changing their content, to measure style bias.

`rules.py` defines `Rewriter` and the rule-based rewriter, which has separate rules for training and testing. `rewrite.py`
rewrites all candidates and resumes after interruptions. `pairs.py` stores the rewrites by question, passage and style, and
imports parallel texts; `sark_files.py` reads SARK's layouts. `mix.py` builds a benchmark with mixed styles, and measures how
many answers survive rewriting.
"""

STYLED = "styled"
"""Name of style-shifted benchmarks. It is also the key in `Benchmark.extra` (how the benchmark was mixed) and in
`Question.metadata` (which styles a question got).
"""
FORMAL = "formal"
"""Name of the passages' original style."""
