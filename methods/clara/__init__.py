"""CLaRa: passages compressed into a few vectors that the same language model retrieves by and answers from.

One frozen base, shared by three adapters: the compressor turns a document into memory vectors, the query reasoner a
question into vectors of the same shape, the generator answers from the memory of the documents that are nearest.

`model.py` is the model with its compressor, `generator.py` chooses documents and answers, `checkpoint.py` is its
folder, `config.py` has all options; frozen base, adapters and memory tokens are in `methods.training`. `methods.py` puts it
into pipelines, over a `store.py` of compressed documents. `train.py` is registered: `stages.py` (what trains when),
`objective.py` (losses), `data.py` and `rows.py` (what is learned from; the rows of worlds too). `synthesis.py` has a
language model write rows; `prompts.py` has all prompts; `explain.py` shows what memory holds.

Source: He et al. 2025, CLaRa: Bridging Retrieval and Generation with Continuous Latent Reasoning (arXiv 2511.18659).
"""
