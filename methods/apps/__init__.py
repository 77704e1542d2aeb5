"""Evaluate complete applications: behind HTTP (`http.py`), and as Python functions (`function.py`).

Start at `http.py`. `paths.py` evaluates paths in a JSON document, `reply.py` converts a reply to a prediction, and `client.py`
sends requests. `calls.py` calls functions; `results.py` reads the results of search functions (`methods.retrieval.function`).
"""
