"""The commands' bodies, one file per kind of work; `ragmeter/cli/__init__.py` names them."""
