"""How people see results: the Streamlit pages, their charts, and the server that shows them.

Start at `app.py` (the pages), then `nodes.py` (how text from strangers becomes a page without ever being HTML) and
`state.py` (everything that a view depends on is in its URL). `server.py` starts it all. Imports `results` only.
"""
