"""Retrievers of triples that graph retrieval is measured against.

They read a corpus of triples (`benchmarks.graphs.TripleCorpus`) and rank those of a question's own graph, or of the
whole corpus where a question names none; `methods.retrieval.triples` holds what they share. By their words: `bm25.py`.
By the graph, over the vectors of `question_graph.py`: `g_retriever.py` (a tree that collects prizes: `pcst.py`) and
`grag.py` (the surroundings of every entity). By a pair of towers: `two_towers.py` (untrained, DPR), `skp.py`. By words,
towers and a cross-encoder: `cross_encoder.py`, trained in `cross_encoder_training.py`.
"""
