"""People's own data: files in any layout, read by a mapping of fields, and documents of a folder, cut into passages.

Start at `fields.py` (which field is the question), then `records.py` (from a file, folder or repository to records), `documents.py`
(from a folder to texts), `chunks.py` (from a text to passages) and `library.py` (what gold evidence names). The dataset `files`
(`datasets/files.py`) puts them together.
"""
