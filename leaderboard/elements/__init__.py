"""What pages are made of: trees of elements, tables, charts, and how numbers are written. Nothing here knows a page."""
