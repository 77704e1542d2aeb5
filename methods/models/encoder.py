"""Encode texts as vectors: any `SentenceTransformer`, one for both sides or one each, and the towers of DPR.

Settings of published encoders (prompts, pooling, lengths) are in `encoder_presets.py`.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import fingerprint
from methods.models.checks import check_output, check_similarity, hint, missing_options
from methods.models.embeddings import EmbeddingCache
from methods.models.encoder_config import EncoderConfig
from methods.models.pretrained import device_of
from methods.models.remote_code import check_models
from methods.models.towers import SentenceTower, Tower, Vectors, tower_of
from methods.models.weights import weights_hash

QUERIES = 32
"""Maximum number of queries per batch."""


class Encoder:
    """A loaded encoder.

    Args:
        config: Options.
        device: "cpu", "cuda" …; None chooses.
        cache: Folder that caches vectors of passages; None for no cache.

    Raises:
        UserError: A model cannot be loaded, contains untrusted code, or does not fit the options.
    """

    def __init__(self, config: EncoderConfig, device: str | None = None, cache: Path | None = None) -> None:
        self.config = config
        check_models(config)
        check_similarity(config)
        chosen = device_of(device)
        shared: dict[str, Any] = {}
        self._passages = tower_of(config, "passage", chosen, shared)
        self._queries = tower_of(config, "query", chosen, shared)
        if self._passages.dimension != self._queries.dimension:
            raise UserError(
                f"the vectors of queries have {self._queries.dimension} components, those of passages {self._passages.dimension}",
                code="vector-dimension-mismatch",
                where=f"query_model {config.query_model!r}, model {config.model!r}",
                try_this="name the two models of one encoder",
            )
        if config.dimension is not None and config.dimension > self._passages.dimension:
            raise UserError(
                f"dimension={config.dimension} is more than the model's {self._passages.dimension}",
                code="dimension-too-large",
                where=f"model {config.model!r}",
            )
        self._cache = EmbeddingCache(cache, self.passage_fingerprint, self.dimension) if cache is not None else None
        self._missing = missing_options(config)
        if self._missing is not None:
            warnings.warn(hint(config.model, *self._missing), stacklevel=2)

    @property
    def notes(self) -> dict[str, Any]:
        """Return the encoder's notes for a run: `preset`, if the options lack settings of its family or of its files."""
        if self._missing is None:
            return {}
        return {"preset": {"name": self._missing[0], "options": self._missing[1], "model": self.config.model}}

    def truncation(self, texts: Sequence[str]) -> dict[str, Any]:
        """Count the cut text of passages, like `checks.truncation`."""
        return self._passages.truncation(texts)

    def keep_lengths(self) -> None:
        """Skip the model's normalization of passage vectors to length 1."""
        if isinstance(self._passages, SentenceTower):
            self._passages.keep_lengths()

    @property
    def device(self) -> str:
        """Return the device of the model."""
        return self._passages.device

    @property
    def dimension(self) -> int:
        """Return the length of a vector."""
        return self.config.dimension or self._passages.dimension

    @property
    def reads_titles(self) -> bool:
        """Return whether a passage's title is a separate input."""
        return self.config.architecture == "dpr"

    @cached_property
    def passage_fingerprint(self) -> str:
        """Return a hash of weights and options except those of queries; it is equal for encoders with equal passage vectors."""
        ignored = {"batch_size", "query_model", "query_revision", "query_prompt", "query_task", "trust_remote_code"}
        # Vectors cached before backends existed stay valid.
        ignored |= {"backend"} if self.config.backend == "torch" else set()
        options = self.config.model_dump(mode="json", include=set(EncoderConfig.model_fields) - ignored)
        if prompt := self.config.late_prompt():
            options["passage_prompt"] = prompt
        return fingerprint(weights_hash(self.config.model, self.config.revision), options)

    def passages(self, texts: Sequence[str], titles: Sequence[str] | None = None, *, cached: bool = True) -> Vectors:
        """Encode passages, in batches of texts of similar length.

        A vector depends on its batch only by float noise: at most 1e-6 per component was seen
        in float32.

        Args:
            texts: The passages; with titles in them, unless `titles` has them.
            titles: Titles, "" for none; a separate input if the model has one, else the first line.
            cached: Whether to use the cache, if there is one.
        """
        if titles is not None and not self.reads_titles:
            texts = [f"{title}\n{text}" if title else text for title, text in zip(titles, texts, strict=True)]
            titles = None

        def encode(positions: Sequence[int]) -> Vectors:
            chosen = None if titles is None else [titles[position] for position in positions]
            return self._vectors(self._passages, [texts[position] for position in positions], chosen, self.config.batch_size)

        keys = texts if titles is None else [f"{title}\0{text}" for title, text in zip(titles, texts, strict=True)]
        if self._cache is not None and cached:
            return self._cache.vectors(keys, encode)
        # Equal texts get the same vector, so that float noise does not rank one above the other.
        first: dict[str, int] = {}
        for position, key in enumerate(keys):
            first.setdefault(key, position)
        vectors = encode(list(first.values()))
        rows = {key: row for row, key in enumerate(first)}
        return vectors if len(first) == len(keys) else vectors[[rows[key] for key in keys]]

    def queries(self, texts: Sequence[str], instruction: str | None = None) -> Vectors:
        """Encode queries; a vector depends on its batch only by float noise, like that of a passage.

        An `instruction` replaces `{instruction}` in the prompt of queries; a prompt without it ignores the instruction.
        """
        unique = list(dict.fromkeys(texts))
        rows = {text: row for row, text in enumerate(unique)}
        tower = self._queries
        if instruction is not None and isinstance(tower, SentenceTower) and "{instruction}" in (self.config.query_prompt or ""):
            tower = tower.prompted(self.config.model_copy(update={"instruction": instruction}).prompt("query"))
        vectors = self._vectors(tower, unique, None, min(QUERIES, self.config.batch_size))
        return vectors[[rows[text] for text in texts]]

    def _vectors(self, tower: Tower, texts: Sequence[str], titles: Sequence[str] | None, batch_size: int) -> Vectors:
        if not len(texts):
            return np.empty((0, self.dimension), dtype=np.float32)
        vectors = tower.encode(texts, titles, batch_size)[:, : self.dimension]
        check_output(vectors, self.config.model, "encoder", self.config.dtype)
        if self.config.normalize:
            # In float32 for weights of any dtype: in bfloat16, a length is off by up to 0.4 %.
            vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.float32(1e-12))
        return np.ascontiguousarray(vectors, dtype=np.float32)
