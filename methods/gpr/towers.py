"""The two towers in training: questions and triples to vectors with gradients. No weight is shared between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from benchmarks.fingerprint import fingerprint
from methods.gpr.config import GprTrainingConfig
from methods.models.encoder import Vectors, sentence_transformer
from methods.models.weights import device_of

Side = Literal["question", "triple"]
ENCODED = 256
"""Texts encoded at once where no gradient is wanted."""


class Towers:
    """Two encoders.

    Args:
        question, triple: `SentenceTransformer`s, in float32.
        accelerator: Of `accelerate`, for mixed precision; None: the models' own.
    """

    def __init__(self, question: Any, triple: Any, accelerator: Any = None) -> None:
        self.modules: Mapping[str, Any] = {"question": question, "triple": triple}
        self.accelerator = accelerator

    @classmethod
    def load(cls, config: GprTrainingConfig, device: str | None, accelerator: Any = None) -> Towers:
        """The towers as training begins; of one base each gets its own copy.

        Raises:
            UserError: One cannot be loaded.
        """
        chosen = device_of(device)
        encoders = (config.question_encoder, config.triple_encoder)
        question, triple = (sentence_transformer(one, one.model, one.revision, chosen) for one in encoders)
        return cls(question, triple, accelerator)

    def vectors(self, side: Side, texts: Sequence[str], seed: Sequence[str | int]) -> Any:
        """Vectors with gradients: a float32 tensor of shape (texts, dimension).

        Args:
            side: Which tower.
            texts: Each of them once.
            seed: What dropout is drawn from.
        """
        import torch

        model = self.modules[side]
        features = model.preprocess(list(texts))
        features = {name: value.to(model.device) if hasattr(value, "to") else value for name, value in features.items()}
        torch.manual_seed(int(fingerprint(side, *seed), 16) % 2**63)
        if self.accelerator is None:
            return model(features)["sentence_embedding"].float()
        with self.accelerator.autocast():
            return model(features)["sentence_embedding"].float()

    def encoded(self, side: Side, texts: Sequence[str]) -> Vectors:
        """Unit vectors without gradients, of the tower as it is: shape (texts, dimension)."""
        found: NDArray[np.float32] = self.modules[side].encode(
            list(texts), batch_size=ENCODED, normalize_embeddings=True, show_progress_bar=False
        )
        return found

    def save(self, question: Path, triple: Path) -> None:
        """Write each tower as a `SentenceTransformer` folder."""
        for model, folder in zip(self.modules.values(), (question, triple), strict=True):
            model.prompts = {"query": "", "document": ""}
            model.save_pretrained(str(folder), create_model_card=False)
