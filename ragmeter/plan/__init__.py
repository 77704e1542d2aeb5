"""What an experiment would take, before anything is spent: no key, GPU, network, weights or data are needed for it.

Start at `plan.py`. Data that are here are sampled, others taken at their stated numbers and typical lengths
(`shapes.py`); what a part of a method does with a question is in `parts.py`, what a training does in `trainings.py`;
`hardware.py` turns tokens into GPU hours. What cannot be told is listed as unknown, never guessed.
"""
