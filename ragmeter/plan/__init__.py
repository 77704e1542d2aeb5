"""What an experiment would cost, before anything is run: no key, GPU, network, weights or data are needed for it.

Start at `plan.py`. Data that are here are sampled, others taken at their stated numbers and typical lengths
(`shapes.py`); what parts of methods and judges do with a question, and what that costs, is in `cost.py`, what trainings
cost in `training.py`. What cannot be estimated is listed as unknown, never guessed.
"""
