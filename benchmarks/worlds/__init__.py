"""The embedded benchmark: fictional worlds with known truth, made from a seed.

`world.py` makes a `World` (entities and facts) from a seed, the relations in `relations/*.txt`, and the invented names
of `names.py`. `text.py` tells facts in sentences, articles and long documents; `questions.py` asks, adds passages that
look right and do not answer, and cuts a knowledge graph per question. `dataset.py` is the loader (`worlds/long:test`),
and serves training code. All chance comes from `benchmarks.core.random`.
"""
