"""How people see results: the Streamlit pages, their charts, and the server that shows them.

Start at `app.py`: it lists the pages, which are `screens/`. A screen asks by `widgets/` (all that a view depends on is
in its URL: `state.py`), reads by `reading/`, and shows `views/` or the `matrix/`, which are made of `elements/`
(`nodes.py`: how text from strangers becomes a page without ever being HTML). `server.py` starts it all.
Imports `results` only.
"""
