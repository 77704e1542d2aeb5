"""Running an experiment: tasks, trainings, the loop over questions, judges, progress, provenance."""
