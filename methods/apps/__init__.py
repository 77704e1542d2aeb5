"""Applications that answer by themselves: behind HTTP (`http.py`), and as Python functions (`function.py`).

Begin with `http.py`. `paths.py` reads places of a JSON document, `reply.py` makes a prediction of a reply, and `client.py`
sends requests.
"""
