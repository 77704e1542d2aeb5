"""Statistics on plain arrays: intervals, paired tests, ranks, gates, planning. Vectorized and deterministic.

Scores come as arrays of questions (or of methods × questions). NaN marks an unscorable question; it is left out of a
mean and of its denominator, and every result has the number of questions that it is based on. Questions of one cluster
(a document, a world) are analyzed together (`clusters`). Start with `difference.py`: the difference of two methods,
with all sources of randomness. `tested.py` is its test and interval, `sums.py` and `betting.py` compute their inputs,
`intervals.py` the results as plain values; each other file answers one question. Judging has its own: `battles.py` (win
rates), `bradley_terry.py` (strengths), `judges.py` (agreement, biases), `prediction_powered.py` (means with labels).
"""
