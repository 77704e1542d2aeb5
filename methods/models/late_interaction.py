"""Late interaction: a vector per token, and a score that matches each token of the query with its best in the passage.

    score(q, p) = Σ over the query's tokens of max over the passage's tokens of their inner product

Through `sentence_transformers.MultiVectorEncoder`, which reads the checkpoints of ColBERT and PyLate.

Source: Santhanam et al. 2022, ColBERTv2 (arXiv:2112.01488).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from benchmarks.errors import UserError
from methods.models.remote_code import check_remote_code, remote_code_refused
from methods.models.weights import device_of, loading, locate

TokenVectors = NDArray[np.float32]
"""Shape (tokens, dimension), each row of length 1."""


class LateInteractionConfig(BaseModel):
    """Options of a late-interaction encoder."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str = Field("colbert-ir/colbertv2.0", description="a folder or hub id of a ColBERT-style model")
    revision: str | None = Field(None, description="revision of a hub id")
    dtype: Literal["float32", "bfloat16", "float16"] = Field("float32", description="type of the weights")
    batch_size: int = Field(32, ge=1, description="passages encoded at once; queries go one by one")
    trust_remote_code: bool = Field(False, description="run the code that the model brings with it")

    def check(self) -> None:
        """Check, without loading anything, that the model is there and may be loaded.

        Raises:
            UserError: The folder is missing, or the model brings code that is not trusted.
        """
        locate(self.model)
        check_remote_code(self.model, self.trust_remote_code)


class LateInteraction:
    """A loaded late-interaction encoder; markers, query expansion and masks are the model's own.

    Args:
        config: Options.
        device: "cpu", "cuda" …; None chooses.

    Raises:
        UserError: The model cannot be loaded, brings code that is not trusted, or has no projection of its own.
    """

    def __init__(self, config: LateInteractionConfig, device: str | None = None) -> None:
        self.config = config
        check_remote_code(config.model, config.trust_remote_code)
        with remote_code_refused(config.model), loading("late-interaction encoder", config.model):
            import torch

            try:
                from sentence_transformers import MultiVectorEncoder
            except ImportError as error:
                raise UserError(
                    "late interaction needs a sentence-transformers that has MultiVectorEncoder",
                    try_this="pip install -U sentence-transformers",
                ) from error
            self._check_projection()
            self._model: Any = MultiVectorEncoder(
                locate(config.model),
                revision=config.revision,
                device=device_of(device),
                trust_remote_code=config.trust_remote_code,
                model_kwargs={"dtype": getattr(torch, config.dtype)},
            )
        self._model.to(getattr(torch, config.dtype)).eval()

    def _check_projection(self) -> None:
        """The library gives a model without a projection a random one; its scores would be noise."""
        from transformers.utils import cached_file

        found = {
            name: cached_file(locate(self.config.model), name, revision=self.config.revision, _raise_exceptions_for_missing_entries=False)
            for name in ("modules.json", "config.json")
        }
        if found["modules.json"] is not None:
            return
        path = found["config.json"]
        kinds = json.loads(Path(path).read_text(encoding="utf-8")).get("architectures") or [] if path else []
        if path and not any(kind == "HF_ColBERT" or kind.endswith("ForRetrieval") for kind in kinds):
            raise UserError(
                f"{self.config.model!r} is not a late-interaction model: it has no projection of token vectors",
                try_this="name a ColBERT or PyLate checkpoint",
            )

    def passages(self, texts: Sequence[str]) -> list[TokenVectors]:
        """Encode passages: one matrix each."""
        return self._vectors(self._model.encode_document, texts, self.config.batch_size)

    def queries(self, texts: Sequence[str]) -> list[TokenVectors]:
        """Encode queries, one by one, so that a matrix depends on its text alone."""
        return [matrix for text in texts for matrix in self._vectors(self._model.encode_query, [text], 1)]

    def _vectors(self, encode: Any, texts: Sequence[str], batch_size: int) -> list[TokenVectors]:
        if not len(texts):
            return []
        matrices = encode(list(texts), batch_size=batch_size, show_progress_bar=False)
        return [matrix.float().cpu().numpy() for matrix in matrices]


def max_sim(query: TokenVectors, passages: Sequence[TokenVectors]) -> NDArray[np.float64]:
    """The score of each passage: shape (passages,). A passage without tokens scores −∞."""
    scores = np.full(len(passages), -np.inf)
    filled = [place for place, passage in enumerate(passages) if len(passage)]
    if filled and len(query):
        tokens = np.concatenate([passages[place] for place in filled])
        starts = np.cumsum([0, *(len(passages[place]) for place in filled)])[:-1]
        scores[filled] = np.maximum.reduceat(query @ tokens.T, starts, axis=1).sum(axis=0, dtype=np.float64)
    return scores
