"""Generate evaluation questions for documents that have none, with a language model or by rules.

Start at `material.py` (selection of passages), then `writing.py` (one program per question: write and check) and `rules.py`
(questions without a model). `sets.py` removes near-duplicates and writes the table that users correct and the dataset `files`
loads.
"""
