"""What an experiment would take, before anything is run: no key, GPU, network, weights or data are needed for it.

`plan.py` sums what parts, judges and trainings state of themselves (`methods/work.py`), of data that are here or taken at
their stated numbers and typical lengths (`shapes.py`). What is not stated is listed as unknown, never guessed.
"""
