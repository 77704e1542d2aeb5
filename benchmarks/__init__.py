"""What is asked: the schema, one loader per dataset, retrieval settings, style shift, embedded worlds, text primitives.

Start at `schema.py` (what a question is, and what of it a method may see), then `registry.py` (how a
dataset is declared and loaded) and `settings.py` (which evidence a method is offered). This room imports
nothing of ours; every other room may import it.
"""
