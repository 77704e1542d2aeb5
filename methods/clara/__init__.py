"""CLaRa: compress passages into a few memory vectors, with which the same language model retrieves and answers.

One frozen base model has three adapters. The compressor turns a document into memory vectors, the query reasoner turns a
question into vectors of the same shape, and the generator answers from the memory of the nearest documents.

`model.py` is the model with its compressor, `generator.py` chooses documents and answers, `checkpoint.py` is its folder,
`config.py` has all options; frozen base, adapters and memory tokens are in `methods.training`. `methods.py` puts it into
pipelines, over a `store.py` of compressed documents. `train.py` is registered: `stages.py` (what trains when), `objective.py`
(losses), `data.py` and `rows.py` (training rows, including those of worlds). `synthesis.py` generates rows with a language
model; `prompts.py` has all prompts; `explain.py` shows what the memory vectors represent.

Source: He et al. 2025, CLaRa: Bridging Retrieval and Generation with Continuous Latent Reasoning (arXiv 2511.18659).
"""
