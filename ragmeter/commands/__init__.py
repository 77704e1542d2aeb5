"""The commands' bodies, one file per kind of work; `ragmeter/cli.py` names them."""
