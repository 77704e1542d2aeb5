"""Display results: the Streamlit pages, their charts, the report in one file, and the server that shows them.

Start at `pages/app.py`: it lists the pages, a file each. A page asks by `widgets.py` (all that a view depends on is in
its URL: `state.py`), reads by `read.py`, and shows by `drawing.py` the `views/` or the `matrix/`, which are made of `elements/`
(`elements/nodes.py`: how untrusted text becomes a page without ever being HTML). `server.py` starts it all,
`report.py` writes boards as one file. Imports `results` only.
"""
