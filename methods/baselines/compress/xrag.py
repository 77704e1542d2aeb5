"""xRAG: represent a passage by its retrieval embedding, projected to a single soft token.

Retriever and base are frozen; only the projector is trained, first on paraphrasing passages, then on matching the base's
answers from text. The retriever truncates long passages.

Source: Cheng et al. 2024, xRAG: Extreme Context Compression for Retrieval-augmented Generation (arXiv:2405.13792).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pydantic import Field

from methods.baselines.compress.soft import SoftConfig, System
from methods.baselines.compress.training import register_system
from methods.models.encoder_presets import PRESETS

if TYPE_CHECKING:
    from torch import Tensor, nn

    from methods.baselines.compress.model import SoftModel
    from methods.models.towers import Vectors
    from methods.training.pieces import Piece

WORDINGS = (
    "Background: {place}\n\nSay the same in other words.",
    "{place}\n\nIn other words, this background says:",
    "What does this background tell? Write it out: {place}",
    "These two texts mean the same:\n1. {place}\n2.",
)
"""Wordings of the paraphrase instruction (ours)."""


class XragConfig(SoftConfig):
    """Options of xRAG."""

    retriever: str = Field("sfr-embedding-mistral", min_length=1, description="encoder: preset (minilm …), folder or hub id; published SFR")
    max_length: int = Field(180, ge=8, description="maximum tokens of a passage that the retriever reads; published 180")


@register_system(
    "xrag",
    compressor="each passage as its retriever's vector, projected to one token; for memory_reader",
    training="xRAG: a projector trained to reconstruct passages from one vector, then to answer as the base does from text",
    defaults={
        "restored": 1.0,
        "divergence": 2.0,
        "weight_decay": 0.0,
        "pretrained": {"learning_rate": 6e-3, "warm_up": 0.03, "batch_size": 384},
        "tuned": {"learning_rate": 2e-5, "warm_up": 0.03},
    },
    small={"retriever": "minilm"},
    worlds={"pretrained": {"learning_rate": 6e-3, "steps": 120}, "tuned": {"learning_rate": 2e-3, "steps": 60}},
)
class Xrag(System):
    """The system xRAG (see `System`)."""

    paper = "Cheng et al. 2024, xRAG: Extreme Context Compression for Retrieval-augmented Generation with One Token (arXiv:2405.13792)"
    config_class = XragConfig
    stages = ("pretrained", "tuned")
    learned = ("projector",)

    def __init__(self, config: XragConfig) -> None:
        super().__init__(config)
        self._encoder: Any = None
        self._known: dict[str, Vectors] = {}

    def parts(self, model: SoftModel) -> dict[str, nn.Module]:
        from methods.models.encoder import Encoder
        from methods.models.encoder_config import EncoderConfig
        from methods.training.pieces import Projector

        options = PRESETS.get(self.config.retriever, {"model": self.config.retriever})
        # Published with the vectors' own lengths.
        chosen = EncoderConfig.model_validate({**options, "normalize": False, "max_length": self.config.max_length})
        self._encoder = Encoder(chosen, str(model.device))
        if self.config.published:
            self._encoder.keep_lengths()
        return {"projector": Projector(self._encoder.dimension, model.width)}

    def count(self, model: SoftModel, text: str) -> int:
        return int(self._reads(text))

    def _reads(self, text: str) -> bool:
        return bool(text.strip()) or self.config.published

    def encode(self, model: SoftModel, texts: Sequence[str], queries: Sequence[str]) -> list[Tensor]:
        import torch

        full = [text for text in texts if self._reads(text)]
        if missing := [text for text in full if text not in self._known]:
            # Alone, so that a vector depends on its text to the last bit.
            self._known |= {text: self._encoder.passages([text])[0] for text in missing}
        raw = {text: torch.from_numpy(self._known[text]).to(model.device) for text in full}
        if not torch.is_grad_enabled():
            # In training a passage comes again and again; in use keeping it would fill the memory.
            self._known.clear()
        return [model.parts["projector"](raw[text][None]) if text in raw else model.nothing for text in texts]

    def restoring(self, model: SoftModel, memory: Tensor, draw: int) -> list[Piece]:
        from methods.baselines.compress.model import PLACE

        return model.message(WORDINGS[draw % len(WORDINGS)].format(place=PLACE), [[memory]])
