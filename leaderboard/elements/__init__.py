"""Build pages: trees of elements and tables (`nodes.py`), charts, passages, how numbers are written.

Nothing here knows a page.
"""
