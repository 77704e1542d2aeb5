"""Methods against benchmarks, for board, report and embeddable JSON: what is shown (`rows.py`), the table, exports."""
