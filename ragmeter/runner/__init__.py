"""Running an experiment: tasks, trainings, the loop over questions, judges, progress, provenance.

Start at `experiment.py` (one carried through), then `tasks.py` and `loop.py` (a run's questions). `preflight.py` says what is
missing, `trainings.py` makes checkpoints, `judging.py` judges stored answers, `rewriting.py` builds rewriters, `progress.py`
tells how far it is, `provenance.py` where it ran.
"""
