"""Users' own data: question files in any layout, read through a field mapping, and folders of documents cut into passages.

Start at `fields.py` (which field is the question), then `records.py` (from a file, folder or repository to records),
`documents.py` (from a folder to texts), `chunks.py` (from a text to passages) and `library.py` (from names in gold evidence to
passages). The dataset `files` (`datasets/files.py`) puts them together.
"""
