"""Retrievers and controls that everything else is measured against; one small file each.

`ranking.py` holds what they share: which passages a query may use, and how scores become a ranking without ties
left to chance.
"""
