"""GPR: a retriever of triples that is pretrained on the graph itself.

In the order of the work: `questions` about triples with one end hidden (by a language model, a file, templates or
worlds) → `sampling` of neighbors and negatives → `data` (rows) → `train` (towers, `loss`, validation), whose
checkpoints `retriever` uses. `explain` shows what it ranks, `config` has all options. The search itself, shared with
all retrievers of triples, is `methods.retrieval.triples`.
"""
