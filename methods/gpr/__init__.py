"""GPR: a retriever of triples that is pretrained on the graph itself.

In the order of the work: `questions` about triples with one end hidden (`masked`; by `questions_llm`, `questions_file`,
`questions_templates` or `questions_worlds`) → `sampling` of neighbours and negatives → `rows` → `trainer` (`towers`,
`loss`) → `training`, whose checkpoints `retriever` uses. `validation` gives the curves, `explain` shows what it ranks.
The search itself, shared with all retrievers of triples, is `baselines/graph/towers.py`.
"""
