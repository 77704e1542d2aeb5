"""COCOM: memory tokens after a passage, one adapter for encoding and answering, pretrained by autoencoding and continuation.

The light variant uses a separate BERT encoder: the states of `rate` consecutive tokens become one vector.

Source: Rau et al. 2025, Context Embeddings for Efficient Answer Generation in RAG (arXiv:2407.09252).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pydantic import Field

from methods.baselines.compress.pisco import RESTORE, SMALL, Pisco, PiscoConfig
from methods.baselines.compress.soft import cut
from methods.baselines.compress.training import register_system
from methods.models.likelihood import batches
from methods.prompts import plain_ids

if TYPE_CHECKING:
    from torch import Tensor, nn

    from methods.baselines.compress.model import SoftModel
    from methods.training.pieces import Piece


class CocomConfig(PiscoConfig):
    """Options of COCOM."""

    encoder: str | None = Field(None, description="encoder of the light variant: a BERT, such as bert-base-uncased; null: the base encodes")


@register_system(
    "cocom",
    compressor="each passage as the states of memory tokens, encoded by the adapter that also answers, or by a BERT; for memory_reader",
    training="COCOM: an adapter and memory tokens, trained to reconstruct and continue passages, then to answer",
    small=SMALL,
    presets={
        "light": {"model": {"encoder": "google-bert/bert-base-uncased"}},
        "worlds-light": {"model": {"encoder": "minilm", "memory_init": "mean"}},
    },
)
class Cocom(Pisco):
    """The system COCOM (see `System`)."""

    paper = "Rau et al. 2025, Context Embeddings for Efficient Answer Generation in RAG (arXiv:2407.09252)"
    config_class = CocomConfig
    stages = ("pretrained", "tuned")
    adapters = ("both",)
    reads = encodes = "both"
    learned = ("memory", "linear")

    @property
    def encoder(self) -> tuple[str, str] | None:
        return ("AutoModel", self.config.encoder) if self.config.encoder else None

    def parts(self, model: SoftModel) -> dict[str, nn.Module]:
        if not self.config.encoder:
            return super().parts(model)
        from torch import nn

        linear = nn.Linear(model.encoder.config.hidden_size * self.config.rate, model.width)
        return {"linear": linear, "marks": model.new_rows(3, draw=1)}

    def segments(self, model: SoftModel, text: str) -> list[list[int]]:
        if not self.config.encoder:
            return super().segments(model, text)
        # In the encoder's own tokens, its special ones around each part.
        words = model.encoder_tokenizer
        parts = cut(plain_ids(words, text) if text.strip() else [], self.config.max_length - 2) or ([[]] if self.config.published else [])
        return [[words.cls_token_id, *part, words.sep_token_id] for part in (parts[:1] if self.config.published else parts)]

    def count(self, model: SoftModel, text: str) -> int:
        if not self.config.encoder:
            return super().count(model, text)
        return sum(-(-len(ids) // self.config.rate) for ids in self.segments(model, text))

    def encode(self, model: SoftModel, texts: Sequence[str], queries: Sequence[str]) -> list[Tensor]:
        if not self.config.encoder:
            return super().encode(model, texts, queries)
        from torch.nn import functional

        parts = [self.segments(model, text) for text in texts]
        rows = [ids for own in parts for ids in own]
        if self.config.published:
            return self._padded(model, rows, parts)
        done: dict[int, Tensor] = {}
        for batch, ids, mask in batches(rows, model.budget, model.device):
            states = model.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
            for state, at in zip(states, batch, strict=True):
                own = state[: len(rows[at])].float()
                groups = functional.pad(own, (0, 0, 0, -len(own) % self.config.rate)).reshape(-1, self.config.rate * own.shape[1])
                done[at] = model.parts["linear"](groups)
        return model.joined(parts, (done[at] for at in range(len(rows))))

    def _padded(self, model: SoftModel, rows: Sequence[list[int]], parts: Sequence[Sequence[Any]]) -> list[Tensor]:
        """Encode rows whose last group is filled with states of [PAD] tokens, which other tokens do not attend to."""
        import torch

        vectors = []
        for ids in rows:
            filled = [*ids, *[model.encoder_tokenizer.pad_token_id] * (-len(ids) % self.config.rate)]
            mask = torch.tensor([[1] * len(ids) + [0] * (len(filled) - len(ids))], device=model.device)
            states = model.encoder(input_ids=torch.tensor([filled], device=model.device), attention_mask=mask).last_hidden_state[0].float()
            vectors.append(model.parts["linear"](states.reshape(-1, self.config.rate * states.shape[1])))
        return model.joined(parts, vectors)

    def block(self, model: SoftModel, memory: Tensor) -> list[Piece]:
        return [memory] if self.config.encoder and not self.config.published else super().block(model, memory)

    def restoring(self, model: SoftModel, memory: Tensor, draw: int) -> list[Piece]:
        return [model.bos, model.mark(RESTORE), *self.block(model, memory)]
