"""What an experiment would take, before anything is spent: no key, GPU, network, weights or data are needed for it.

Start at `plan.py`. Data that are here are sampled, others taken at their stated numbers and typical lengths
(`shapes.py`); what parts of methods and judges do with a question, and what that costs, is in `cost.py`, what trainings
take in `training.py`. What cannot be told is listed as unknown, never guessed.
"""
