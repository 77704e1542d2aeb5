"""How each published encoder wants to be used: prompts, pooling, normalisation, lengths, dtype.

A preset is a set of options of `encoder.EncoderConfig`: `{id: dense, config: {preset: bge-large-en-v1.5}}` in an
experiment, `EncoderConfig.preset("bge-large-en-v1.5")` in code. Pooling and prompts are stated even where a model's own
folder states them too: a fine-tuned or converted copy often lost them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

WEB_SEARCH = "Given a web search query, retrieve relevant passages that answer the query"
"""The task sentence that instruction-tuned encoders were trained and evaluated with for retrieval."""

QWEN3: dict[str, Any] = {
    # No space after "Query:", and no full stop after the instruction: as on the model's card.
    "query_prompt": "Instruct: {instruction}\nQuery:",
    "instruction": WEB_SEARCH,
    "passage_prompt": "",
    "pooling": "lasttoken",
    "end_token": "<|endoftext|>",
    "max_length": 8192,
}
STELLA: dict[str, Any] = {
    # Unlike Qwen3: a full stop and a space. The retrieval ("s2p") prompt; documents are encoded as they are.
    "query_prompt": "Instruct: {instruction}.\nQuery: ",
    "instruction": WEB_SEARCH,
    "passage_prompt": "",
    "pooling": "mean",
    # The card recommends 512 tokens; chunks of 512 words need about 700.
    "max_length": 1024,
}
JINA_V3: dict[str, Any] = {
    "model": "jinaai/jina-embeddings-v3",
    "query_task": "retrieval.query",
    "passage_task": "retrieval.passage",
    "query_prompt": "Represent the query for retrieving evidence documents: ",
    "passage_prompt": "Represent the document for retrieval: ",
    "max_length": 8192,
}
E5: dict[str, Any] = {"query_prompt": "query: ", "passage_prompt": "passage: ", "pooling": "mean", "max_length": 512}
DPR: dict[str, Any] = {"architecture": "dpr", "query_prompt": "", "passage_prompt": "", "normalise": False, "max_length": 256}

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "minilm": {"model": "minilm"},
    "qwen3-embedding-0.6b": {"model": "Qwen/Qwen3-Embedding-0.6B", **QWEN3},
    "qwen3-embedding-4b": {"model": "Qwen/Qwen3-Embedding-4B", **QWEN3, "dtype": "bfloat16"},
    "qwen3-embedding-8b": {"model": "Qwen/Qwen3-Embedding-8B", **QWEN3, "dtype": "bfloat16"},
    # The dense mode; sparse and multi-vector modes are `sparse_multivector.py`. The library's 512 cuts long chunks.
    "bge-m3": {"model": "BAAI/bge-m3", "query_prompt": "", "passage_prompt": "", "pooling": "cls", "max_length": 1024},
    "stella-en-400m-v5": {
        "model": "NovaSearch/stella_en_400M_v5",
        **STELLA,
        # Both need xformers.
        "model_options": {"use_memory_efficient_attention": False, "unpad_inputs": False},
    },
    "stella-en-1.5b-v5": {"model": "NovaSearch/stella_en_1.5B_v5", **STELLA},
    "jina-v3": JINA_V3,
    # As ARK's released code used it: neither adapter nor prefix.
    "jina-v3-released": {**JINA_V3, "query_task": "", "passage_task": "", "query_prompt": "", "passage_prompt": ""},
    "dpr-nq": {**DPR, "model": "facebook/dpr-ctx_encoder-single-nq-base", "query_model": "facebook/dpr-question_encoder-single-nq-base"},
    "dpr-multiset": {
        **DPR,
        "model": "facebook/dpr-ctx_encoder-multiset-base",
        "query_model": "facebook/dpr-question_encoder-multiset-base",
    },
    "bge-large-en-v1.5": {
        "model": "BAAI/bge-large-en-v1.5",
        "query_prompt": "Represent this sentence for searching relevant passages: ",
        "passage_prompt": "",
        "pooling": "cls",
        "max_length": 512,
    },
    # Contriever compares by inner product of plain means.
    "contriever": {
        "model": "facebook/contriever",
        "query_prompt": "",
        "passage_prompt": "",
        "pooling": "mean",
        "normalise": False,
        "max_length": 512,
    },
    "contriever-msmarco": {
        "model": "facebook/contriever-msmarco",
        "query_prompt": "",
        "passage_prompt": "",
        "pooling": "mean",
        "normalise": False,
        "max_length": 512,
    },
    "e5-base-v2": {"model": "intfloat/e5-base-v2", **E5},
    "e5-large-v2": {"model": "intfloat/e5-large-v2", **E5},
    "multilingual-e5-large": {"model": "intfloat/multilingual-e5-large", **E5},
    "gte-large": {"model": "thenlper/gte-large", "query_prompt": "", "passage_prompt": "", "pooling": "mean", "max_length": 512},
    "gte-large-en-v1.5": {
        "model": "Alibaba-NLP/gte-large-en-v1.5",
        "query_prompt": "",
        "passage_prompt": "",
        "pooling": "cls",
        "max_length": 8192,
    },
    # mGTE as an embedding model: the other reading of SARK's text, see `cross_encoder` for its reranker.
    "gte-multilingual-base": {
        "model": "Alibaba-NLP/gte-multilingual-base",
        "query_prompt": "",
        "passage_prompt": "",
        "pooling": "cls",
        "max_length": 512,
    },
    "all-roberta-large-v1": {
        "model": "sentence-transformers/all-roberta-large-v1",
        "query_prompt": "",
        "passage_prompt": "",
        "pooling": "mean",
    },
    "sfr-embedding-mistral": {
        "model": "Salesforce/SFR-Embedding-Mistral",
        "query_prompt": "Instruct: {instruction}\nQuery: ",
        "instruction": WEB_SEARCH,
        "passage_prompt": "",
        "pooling": "lasttoken",
        "end_token": "</s>",
        "max_length": 4096,
        "dtype": "bfloat16",
    },
}

REMOTE_CODE = frozenset(
    {
        "NovaSearch/stella_en_400M_v5",
        "NovaSearch/stella_en_1.5B_v5",
        "dunzhang/stella_en_400M_v5",
        "dunzhang/stella_en_1.5B_v5",
        "jinaai/jina-embeddings-v3",
        "Alibaba-NLP/gte-large-en-v1.5",
        "Alibaba-NLP/gte-multilingual-base",
        "Alibaba-NLP/gte-multilingual-reranker-base",
    }
)
"""Models whose code lives in their repository, so that loading them executes it."""
