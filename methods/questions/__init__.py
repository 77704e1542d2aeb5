"""Evaluation questions for documents that have none: written by a language model and filtered, or by rule.

Start at `material.py` (what questions are written about), then `writing.py` (one program per question: write, check) and `rules.py`
(questions without a model). `sets.py` filters near-duplicates, divides by document and writes the file that people correct and the
dataset `files` reads.
"""
