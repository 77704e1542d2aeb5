"""Where scores live: the DuckDB store, statistics, submissions, gates, the papers' published figures.

Start at `store.py` (what is kept and how it survives a crash), then `queries.py` (every question that tables and
pages ask of it) and `statistics/` (intervals and tests on plain arrays). Imports `benchmarks`, `methods.api`
and `judges`.
"""
