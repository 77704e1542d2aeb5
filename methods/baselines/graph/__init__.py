"""Baseline retrievers of triples, for comparison with GPR.

They rank the triples of a question's own graph, or of the whole corpus (`benchmarks.graphs.TripleCorpus`) if the question has
none; `methods.retrieval.triples` has shared code. Lexical: `bm25.py`. Graph structure over the vectors of `question_graph.py`:
`g_retriever.py` (Steiner trees: `pcst.py`) and `grag.py` (ego graphs). Bi-encoders: `two_towers.py` (untrained, DPR), `skp.py`.
Hybrid with a cross-encoder: `cross_encoder.py`, trained in `cross_encoder_training.py`.
"""
