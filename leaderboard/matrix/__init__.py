"""Methods against benchmarks, or against the metrics of one, for board, report and JSON: rows, the table (`table.py`), exports."""
