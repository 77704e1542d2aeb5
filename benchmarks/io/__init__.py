"""How data is read: `hub.py` brings files from the hub, `files.py` opens and checks them, `records.py` reads them."""
