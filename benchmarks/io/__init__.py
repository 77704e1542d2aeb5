"""Read data: `hub.py` fetches files from the hub, `files.py` opens and checks them, `records.py` parses them."""
