"""Submissions: predictions that somebody made elsewhere, checked, scored here and kept beside our own runs.

`validate` (checks.py) is a pure function from a card, a stream of rows and a benchmark to a `Report`; `store_report`
(storing.py) keeps what passed; `bundle.py`, `template.py` and `verifying.py` are the doors around them. Everything in
a submission is text from strangers: nothing of it is executed, unpickled, rendered or used as a path.
"""
