"""Texts to vectors: any `SentenceTransformer`, with its prompts, batched by length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from methods.models.weights import MINILM, device_of, loading, locate

Vectors = NDArray[np.float32]
"""Shape (texts, dimension)."""


class EncoderConfig(BaseModel):
    """Options of an encoder."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str = Field(MINILM, description="a folder or hub id of a SentenceTransformer; minilm: all-MiniLM-L6-v2")
    revision: str | None = Field(None, description="revision of a hub id")
    query_prompt: str | None = Field(None, description="put before each query; null: the model's own, if it has one")
    passage_prompt: str | None = Field(None, description="put before each passage; null: the model's own")
    normalise: bool = Field(True, description="scale vectors to length 1, so that scores are cosines")
    max_length: int | None = Field(None, ge=8, description="longest text in the model's tokens; null: the model's own")
    batch_size: int = Field(32, ge=1, description="passages encoded at once; queries go one by one")


class Encoder:
    """A loaded `SentenceTransformer`.

    Args:
        config: Options.
        device: "cpu", "cuda" …; None chooses.

    Raises:
        UserError: The model cannot be loaded.
    """

    def __init__(self, config: EncoderConfig, device: str | None = None) -> None:
        self.config = config
        with loading("encoder", config.model):
            from sentence_transformers import SentenceTransformer

            self._model: Any = SentenceTransformer(
                locate(config.model), revision=config.revision, device=device_of(device)
            )
        self._model.eval()
        if config.max_length is not None:
            self._model.max_seq_length = config.max_length

    @property
    def device(self) -> str:
        """Where the model computes."""
        return str(self._model.device)

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return int(self._model.get_embedding_dimension())

    def passages(self, texts: Sequence[str]) -> Vectors:
        """Encode passages, in batches of texts of like length.

        A vector depends on the batch that its text came in by float noise: at most 1e-6 per component was seen.
        """
        return self._vectors(
            self._model.encode_document, texts, self.config.passage_prompt, batch_size=self.config.batch_size
        )

    def queries(self, texts: Sequence[str]) -> Vectors:
        """Encode queries one by one, so that a vector depends on its text alone, to the last bit.

        A run that was cut off and resumed must find the same rankings, whichever queries were left. On CPU this
        costs nothing: short texts of different lengths gain little from a batch.
        """
        unique = list(dict.fromkeys(texts))
        rows = {text: row for row, text in enumerate(unique)}
        if not unique:
            return np.empty((0, self.dimension), dtype=np.float32)
        vectors = [
            self._vectors(self._model.encode_query, [text], self.config.query_prompt, batch_size=1) for text in unique
        ]
        return np.concatenate(vectors)[[rows[text] for text in texts]]

    def _vectors(self, encode: Any, texts: Sequence[str], prompt: str | None, batch_size: int) -> Vectors:
        if not len(texts):
            return np.empty((0, self.dimension), dtype=np.float32)
        vectors = encode(
            list(texts),
            prompt=prompt,
            batch_size=batch_size,
            normalize_embeddings=self.config.normalise,
            convert_to_tensor=True,
            show_progress_bar=False,
        )
        return np.ascontiguousarray(vectors.float().cpu().numpy())
