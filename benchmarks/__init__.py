"""Load benchmarks: schema, one loader per dataset, retrieval settings, style shift, embedded worlds and text primitives.

Start at `schema.py` (what a question is, and what of it a method may see), then `registry.py` (how a dataset is
declared and loaded) and `settings.py` (which evidence a method is offered). `datasets/` are the loaders, `worlds/`
makes data, `styles/` rewrites passages in another style; `io/` reads files, `core/` is what every package may import. Imports
no other package of ragmeter; every other package may import it.
"""
