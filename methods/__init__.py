"""Answer questions: the method contract and registry, models, the four approaches, and the baselines.

Start at `api.py` (the roles and what passes between them), then `registry.py` (how a method is declared) and
`pipeline.py` (how roles chain into a method). `prompts.py` reads all templates, `presets.py` all presets. What
approaches and baselines share is in `retrieval/`, `readers/`, `training/`, `graphs/` and `models/`; they never import
one another. Imports `benchmarks` only.
"""
