"""Retrievers of triples that graph retrieval is measured against.

They read a corpus of triples (`benchmarks.graphs.TripleCorpus`) and rank those of a question's own graph, or of the
whole corpus where a question names none. `triples.py` holds what they share. By their words: `bm25.py`. By the graph:
`g_retriever.py` (a prize-collecting tree, solved in `pcst.py`) and `grag.py` (the surroundings of every entity, in
`ego_graphs.py`), both over the vectors of `encoded.py`. By a pair of towers: `two_tower.py`, `dpr.py`, `skp.py`. By all
of it and a cross-encoder: `hybrid.py`. `verbalise.py` writes triples in natural words.
"""
