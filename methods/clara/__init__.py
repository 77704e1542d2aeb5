"""CLaRa: passages compressed into a few vectors that the same language model retrieves by and answers from.

One frozen base, shared by three adapters: the compressor turns a document into memory vectors, the query reasoner a
question into vectors of the same shape, the generator answers from the memory of the documents that are nearest.

`config.py` what a model is; `base.py` the frozen model; `adapters.py` its adapters; `memory.py` the learnt tokens;
`compressor.py`, `selector.py` and `generator.py` the three parts; `model.py` all of it; `checkpoint.py` its folder.

Source: He et al. 2025, CLaRa: Bridging Retrieval and Generation with Continuous Latent Reasoning (arXiv 2511.18659).
"""
