"""The same passage told in another style.

`rewriter.py` declares what a `Rewriter` is and holds the rule-based one; `rules.py` its two sets of rules, one for
training and one for testing, which share nothing. `pairs.py` keeps what was rewritten, by question, passage and style;
`rewriting.py` fills such a file, and goes on where it was killed. `draw.py` says which candidates of a question are
told in which style, `mix.py` makes of a benchmark the same benchmark over mixed styles, `survival.py` reads off what
that left of the answers. `parallel.py` and `sark_layouts.py` read texts that others paired.
"""
