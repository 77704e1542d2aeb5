"""Estimate the cost of an experiment before it runs, without keys, GPU, network, weights or data.

`plan.py` sums what parts, judges and trainings state of themselves (`methods/work.py`), of data that are here or taken at
their stated numbers and typical lengths (`shapes.py`). What is not stated is listed as unknown, never guessed.
"""
