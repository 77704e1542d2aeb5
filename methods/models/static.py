"""Static encoders (Model2Vec): one fixed vector per token, distilled from another encoder; a text is the mean of its tokens'
vectors.

After distillation no transformer is used, so encoding is much faster but less accurate. `python -m perf.backends` measures the
overlap of the rankings.

Source: Tulkens and van Dongen 2024, Model2Vec (github.com/MinishLab/model2vec): each token of the vocabulary is encoded on its
own, principal components replace the dimensions, and the token of frequency rank r is weighted by a / (a + p(r)), with p from
Zipf's law.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from benchmarks.core.errors import UserError
from benchmarks.core.files import cache_home

VERSION = 1
"""Version of the distillation; part of the name of its output folders."""
DIMENSION = 256
SIF = 1e-4
"""Constant a of the SIF weights (Arora et al. 2017)."""
AT_ONCE = 1024
"""Number of tokens encoded at a time."""


def distilled(key: str, device: str, load: Callable[[], Any]) -> Any:
    """Return the static version of an encoder, distilled once and cached on disk.

    Args:
        key: Key of everything that determines the encoder.
        device: Device of the result.
        load: Function that loads the encoder, a `SentenceTransformer`.
    """
    from sentence_transformers import SentenceTransformer

    folder = cache_home() / "static" / f"{key}-{VERSION}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            partial = folder.with_suffix(".part")
            shutil.rmtree(partial, ignore_errors=True)
            distill(load()).save_pretrained(str(partial))
            partial.rename(folder)
    return SentenceTransformer(str(folder), device=device).eval()


def distill(encoder: Any, dimension: int = DIMENSION) -> Any:
    """Distill a `SentenceTransformer` to a static encoder.

    Args:
        encoder: Encoder with a tokenizer of the library `tokenizers`.
        dimension: Length of a vector; not more than the encoder's.

    Raises:
        UserError: The encoder has no such tokenizer.
    """
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer

    tokenizer = encoder.tokenizer
    if not hasattr(tokenizer, "backend_tokenizer"):
        raise UserError(
            "a static encoder needs a tokenizer of the library tokenizers",
            code="encoder-without-fast-tokenizer",
            try_this="backend: torch, or another model",
        )
    special = set(tokenizer.all_special_ids)
    size = tokenizer.backend_tokenizer.get_vocab_size()
    tokens = [number for number in range(size) if number not in special]
    vectors = _token_vectors(encoder, tokens)
    _, directions = np.linalg.eigh(np.cov(vectors, rowvar=False))
    components = (vectors - vectors.mean(axis=0)) @ directions[:, ::-1][:, :dimension]
    ranks = np.arange(1, len(tokens) + 1)
    probabilities = (1 / ranks) / (1 / ranks).sum()
    weights = np.zeros((size, components.shape[1]), np.float32)
    weights[tokens] = components * (SIF / (SIF + probabilities))[:, None]
    plain = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    plain.no_padding()
    plain.no_truncation()
    return SentenceTransformer(modules=[StaticEmbedding(plain, embedding_weights=weights)], device="cpu")


def _token_vectors(encoder: Any, tokens: list[int]) -> NDArray[np.float64]:
    """Encode each token between the tokenizer's special tokens: shape (tokens, dimension)."""
    import torch

    before, after = _marks(encoder.tokenizer)
    rows = []
    for start in range(0, len(tokens), AT_ONCE):
        ids = torch.tensor([[*before, token, *after] for token in tokens[start : start + AT_ONCE]], device=encoder.device)
        with torch.inference_mode():
            made = encoder({"input_ids": ids, "attention_mask": torch.ones_like(ids)})
        rows.append(made["sentence_embedding"].double().cpu().numpy())
    return np.concatenate(rows)


def _marks(tokenizer: Any) -> tuple[list[int], list[int]]:
    """Return the special tokens before and after a text."""
    bare = tokenizer("a", add_special_tokens=False)["input_ids"]
    marked = tokenizer("a")["input_ids"]
    start = next(place for place in range(len(marked)) if marked[place : place + len(bare)] == bare)
    return marked[:start], marked[start + len(bare) :]
