"""GPR: a retriever of knowledge-graph triples, pretrained on questions generated from the graph itself.

In order of use: `questions` about triples with one entity masked (from a language model, a file, templates or worlds) →
`sampling` of neighbors and negatives → `data` (rows) → `train` (two encoders, `loss`, validation). `retriever` uses the
checkpoints, `explain` shows rankings, `config` has all options. The search itself, shared with all retrievers of triples, is
`methods.retrieval.triples`.
"""
