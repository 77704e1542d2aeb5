"""The embedded benchmark: fictional worlds with known truth, made from a seed.

`generate.py` makes a `World` (entities and facts, `world.py`) from a seed, an ontology (`ontology.py`,
`relations/*.txt`) and an invented lexicon. `surface.py` tells facts in sentences, `documents.py` gathers them in
articles and long documents, `questions.py` asks, `candidates.py` adds passages that look right and do not answer,
`graph.py` cuts a knowledge graph per question. `dataset.py` is the loader (`worlds/long:test`), `native.py` writes
the files of other datasets, `material.py` serves training code. All chance comes from `benchmarks.core.random`.
"""
