"""PCC: a smaller language model encodes segments of 256 tokens, and an MLP maps its states to inputs of a frozen language
model.

    vectors = second(GELU(first(RMSNorm(states at the memory tokens))))

Segments are encoded without padding; the authors' code pads inside the encoder, so that its results depend on the batch. The
published Lite encoder (a whole model) is supported, the Large one (an adapter) is not.

Source: Dai et al. 2025, Pretraining Context Compressor for Large Language Models with Embedding-Based Memory (ACL 2025).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pydantic import Field

from methods.baselines.compress.soft import SegmentSystem, SoftConfig, cut
from methods.baselines.compress.training import PRESETS, PRETRAINED, register_system

if TYPE_CHECKING:
    from torch import Tensor, nn

    from methods.baselines.compress.model import SoftModel
    from methods.training.pieces import Piece

OPEN, CLOSE, RESTORE = range(3)
"""Rows of the mark tokens `<mem>`, `</mem>` and `<ae>`."""


class PccConfig(SoftConfig):
    """Options of PCC."""

    base: str = Field("meta-llama/Meta-Llama-3-8B-Instruct", description=SoftConfig.model_fields["base"].description)
    encoder: str = Field("openai-community/gpt2-large", description="causal language model that encodes: a folder, hub id or `pocket`")
    max_length: int = Field(256, ge=1, description=SoftConfig.model_fields["max_length"].description)
    rate: int = Field(16, ge=1, description="tokens of a full segment per vector; published 4 and 16")

    @property
    def memory_tokens(self) -> int:
        """Return the number of memory vectors per segment."""
        return max(1, self.max_length // self.rate)


@register_system(
    "pcc",
    compressor="each segment as a small model's states, converted for a frozen language model; for memory_reader",
    training="PCC: an encoder and a converter, trained so that a frozen model reconstructs or continues passages, then answers",
    versions=(1, 2),
    defaults={"pretrained": {"warm_up": 300, "batch_size": 256}, "tuned": {"learning_rate": 5e-5}, "max_grad_norm": 0.5},
    small={"encoder": PRESETS["worlds"]["base"], "rate": 4},
    worlds={"pretrained": {"steps": 360}, "tuned": {"steps": 120}},
)
class Pcc(SegmentSystem):
    """The system PCC (see `System`)."""

    paper = "Dai et al. 2025, Pretraining Context Compressor for Large Language Models with Embedding-Based Memory (ACL 2025)"
    config_class = PccConfig
    stages = ("pretrained", "tuned")
    learned = ("memory", "converter")

    @property
    def encoder(self) -> tuple[str, str] | None:
        return "AutoModelForCausalLM", self.config.encoder

    def parts(self, model: SoftModel) -> dict[str, nn.Module]:
        from methods.training.pieces import Projector

        embeddings: Any = model.encoder.get_input_embeddings()
        return {
            "memory": model.new_rows(self.config.memory_tokens, embeddings),
            "marks": model.new_rows(3, draw=1),
            "converter": Projector(embeddings.weight.shape[1], model.width, norm=True),
        }

    def segments(self, model: SoftModel, text: str) -> list[list[int]]:
        return cut(model.ids(text, model.encoder_tokenizer), self.config.max_length)

    def row(self, model: SoftModel, ids: Sequence[int], query: str) -> list[Piece]:
        return [ids, model.part("memory")]

    def vectors(self, model: SoftModel, rows: Sequence[Sequence[Piece]]) -> Tensor:
        memory: Tensor = model.parts["converter"](model.states(rows, self.config.memory_tokens, model=model.encoder))
        return memory

    def block(self, model: SoftModel, memory: Tensor) -> list[Piece]:
        return [piece for part in memory.split(self.config.memory_tokens) for piece in (model.mark(OPEN), part, model.mark(CLOSE))]

    def restoring(self, model: SoftModel, memory: Tensor, draw: int) -> list[Piece]:
        return [model.bos, *self.block(model, memory), model.mark(RESTORE)]

    def trained(self, stage: str) -> set[str]:
        # The decoder's marks were learned before everything else, and then fixed: here they are in the first stage.
        return super().trained(stage) | ({"parts.marks"} if stage == PRETRAINED else set())
