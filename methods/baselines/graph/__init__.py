"""Retrievers of triples that graph retrieval is measured against.

They read a corpus of triples (`benchmarks.graphs.TripleCorpus`) and rank those of a question's own graph, or of the
whole corpus where a question names none. `triples.py` holds what they share, `verbalise.py` writes triples in natural
words. By their words: `bm25.py`. By the graph, over the vectors of `encoded.py`: `g_retriever.py` (a tree that collects
prizes: `pcst.py`, solved in `prize_collecting.py`) and `grag.py` (the surroundings of every entity: `ego_graphs.py`).
By a pair of towers: `two_tower.py`, `dpr.py`, `skp.py`. By words, towers and a cross-encoder: `hybrid.py`.
"""
