"""The front door: command line, experiment files, the run loop, scale-out.

Start at `cli.py` (the commands), then `experiment.py` (what an experiment file may say) and `run.py` (what a run
does). Imports every other room; nobody imports it.
"""
