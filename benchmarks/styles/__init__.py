"""The same passage told in another style.

`rewriter.py` declares what a `Rewriter` is and holds the rule-based one; `rules.py` its two sets of rules, one for
training and one for testing, which share nothing.
"""
