"""Load benchmarks: schema, one loader per dataset, retrieval settings, style shift, embedded worlds and text primitives.

Start at `schema.py` (what a question is, and what of it a method may see), then `registry.py` (how a dataset is
declared and loaded) and `settings.py` (which evidence a method is offered). `datasets/` are the loaders, `worlds/`
makes data, `styles/` tells passages otherwise; `io/` reads files, `core/` is what every package may import. Imports
nothing of ours; every other package may import it.
"""
