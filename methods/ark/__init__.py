"""ARK: a retriever tuned on documents and questions, with negatives from knowledge graphs, in three stages.

In the order of the work: `data` (chunks, rows, batches) → `alignment` (which chunks support the answer: positives) →
`negatives` (what augmented queries retrieve) → `train` with `loss` and `tower`, which runs it all. `retriever` puts the
result into a pipeline, `explain` shows what happened to a question, `config` has all options.
"""
