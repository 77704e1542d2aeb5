"""ARK: fine-tune a retriever on documents and questions in three stages, with hard negatives from knowledge graphs.

In order of use: `data` (chunks, rows, batches) → `alignment` (positives: chunks that support the answer) → `negatives` (chunks
that augmented queries retrieve) → `train` with `loss` and `tower`. `retriever` uses the result in a pipeline, `explain` shows
all steps for one question, `config` has all options.
"""
