"""Published sizes of models that presets and shipped experiments name, rounded to three digits or better.

Read where a model's `config.json` is not here. Sources: the models' cards and `config.json` files on the hub.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Published(NamedTuple):
    """A published size.

    Attributes:
        millions: Parameters in millions.
        width: Hidden size; of encoders also the length of vectors.
        layers: Of the (de)coder.
        kv_width: Width of keys, all heads together; of encoders the hidden size.
        embedding: Of the parameters those, in millions, that are looked up and never multiplied with.
    """

    millions: float
    width: int
    layers: int
    kv_width: int
    embedding: float = 0.0


_BERT_BASE = Published(109.5, 768, 12, 768, 23.8)
_BERT_LARGE = Published(335.0, 1024, 24, 1024, 31.8)
_XLMR_BASE = Published(278.0, 768, 12, 768, 192.4)
_XLMR_LARGE = Published(560.0, 1024, 24, 1024, 256.5)

PUBLISHED: Mapping[str, Published] = {
    # language models
    "mistralai/Mistral-7B-Instruct-v0.2": Published(7242, 4096, 32, 1024),
    "microsoft/Phi-4-mini-instruct": Published(3836, 3072, 32, 1024),
    "meta-llama/Llama-2-7b-chat-hf": Published(6738, 4096, 32, 4096),
    "meta-llama/Llama-3.1-8B-Instruct": Published(8030, 4096, 32, 1024),
    "Qwen/Qwen2.5-7B-Instruct": Published(7616, 3584, 28, 512),
    "Qwen/Qwen2.5-14B-Instruct": Published(14770, 5120, 48, 1024),
    "Qwen/Qwen3-4B-Instruct-2507": Published(4022, 2560, 36, 1024),
    "google/gemma-3-4b-it": Published(4300, 2560, 34, 1024),
    "google/gemma-3-12b-it": Published(12187, 3840, 48, 2048),
    "google/flan-t5-xl": Published(2850, 2048, 48, 2048),
    "zorowin123/rq_rag_llama2_7B": Published(6738, 4096, 32, 4096),
    # encoders
    "sentence-transformers/all-MiniLM-L6-v2": Published(22.7, 384, 6, 384, 11.9),
    "Qwen/Qwen3-Embedding-0.6B": Published(596, 1024, 28, 1024, 155.6),
    "Qwen/Qwen3-Embedding-4B": Published(4022, 2560, 36, 1024, 388.3),
    "Qwen/Qwen3-Embedding-8B": Published(7568, 4096, 36, 1024, 621.5),
    "BAAI/bge-m3": Published(568, 1024, 24, 1024, 264.4),
    "NovaSearch/stella_en_400M_v5": Published(435, 1024, 24, 1024, 31.3),
    "NovaSearch/stella_en_1.5B_v5": Published(1543, 1536, 28, 256, 232.8),
    "jinaai/jina-embeddings-v3": Published(572, 1024, 24, 1024, 256.1),
    "facebook/dpr-ctx_encoder-single-nq-base": _BERT_BASE,
    "facebook/dpr-question_encoder-single-nq-base": _BERT_BASE,
    "facebook/dpr-ctx_encoder-multiset-base": _BERT_BASE,
    "facebook/dpr-question_encoder-multiset-base": _BERT_BASE,
    "BAAI/bge-large-en-v1.5": _BERT_LARGE,
    "facebook/contriever": _BERT_BASE,
    "facebook/contriever-msmarco": _BERT_BASE,
    "intfloat/e5-base-v2": _BERT_BASE,
    "intfloat/e5-large-v2": _BERT_LARGE,
    "intfloat/multilingual-e5-large": _XLMR_LARGE,
    "thenlper/gte-large": _BERT_LARGE,
    "Alibaba-NLP/gte-large-en-v1.5": Published(434, 1024, 24, 1024, 31.3),
    "Alibaba-NLP/gte-multilingual-base": Published(305, 768, 12, 768, 192.0),
    "Alibaba-NLP/gte-multilingual-reranker-base": Published(306, 768, 12, 768, 192.0),
    "sentence-transformers/all-roberta-large-v1": Published(355, 1024, 24, 1024, 52.0),
    "Salesforce/SFR-Embedding-Mistral": Published(7111, 4096, 32, 1024, 131.1),
    "distilbert-base-uncased": Published(66.4, 768, 6, 768, 23.8),
    "distilbert/distilbert-base-uncased": Published(66.4, 768, 6, 768, 23.8),
    # rerankers
    "cross-encoder/ms-marco-MiniLM-L-6-v2": Published(22.7, 384, 6, 384, 11.9),
    "cross-encoder/ms-marco-MiniLM-L6-v2": Published(22.7, 384, 6, 384, 11.9),
    "BAAI/bge-reranker-base": _XLMR_BASE,
    "BAAI/bge-reranker-large": _XLMR_LARGE,
}
