"""Benchmarks of speed, as ratios against named alternatives in one run: `make perf`."""
