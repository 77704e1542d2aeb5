"""The embedded benchmark: questions about fictional worlds, generated from a seed, with complete ground truth.

`world.py` makes a `World` (entities and facts) from a seed, the relations in `relations/*.txt`, and the invented names of
`names.py`. `text.py` writes facts as sentences, articles and long documents. `questions.py` generates questions, distractors
(relevant passages without the answer) and a knowledge graph per question. `dataset.py` is the loader (`worlds/long:test`), and
serves training code. All randomness comes from `benchmarks.core.random`.
"""
