"""PCC: a smaller language model encodes segments of 256 tokens, a converter brings its states to a frozen language model.

    vectors = second(GELU(first(RMSNorm(states at the memory tokens))))

Segments are read without padding between them: the authors' release pads inside the encoder, and what it gives depends
on the batch. Of the two published encoders the Lite one (a whole model) is read, the Large one (an adapter) is not.

Source: Dai et al. 2025, Pretraining Context Compressor for Large Language Models with Embedding-Based Memory (ACL 2025).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from methods.baselines.compress.memory import SoftCompressor, compressor_of
from methods.baselines.compress.soft import ENCODER, SegmentSystem, SoftConfig, System
from methods.baselines.compress.training import SoftStepOptions, SoftTraining, SoftTrainingConfig, shared_settings
from methods.registry import register
from methods.training import register_training

if TYPE_CHECKING:
    from torch import Tensor, nn

    from methods.baselines.compress.model import SoftModel
    from methods.training.pieces import Piece

OPEN, CLOSE, RESTORE = range(3)
"""Rows of the marks `<mem>`, `</mem>` and `<ae>`."""


class PccConfig(SoftConfig):
    """Options of PCC."""

    base: str = Field("meta-llama/Meta-Llama-3-8B-Instruct", description=SoftConfig.model_fields["base"].description)
    encoder: str = Field("openai-community/gpt2-large", description="causal language model that encodes: a folder, hub id or `pocket`")
    max_length: int = Field(256, ge=1, description=SoftConfig.model_fields["max_length"].description)
    rate: int = Field(16, ge=1, description="tokens of a full segment per vector; published 4 and 16")

    @property
    def memory_tokens(self) -> int:
        """Vectors of a segment."""
        return max(1, self.max_length // self.rate)


class Pcc(SegmentSystem):
    """The system."""

    name = "pcc"
    paper = "Dai et al. 2025, Pretraining Context Compressor for Large Language Models with Embedding-Based Memory (ACL 2025)"
    config_class = PccConfig
    stages = ("pretrained", "tuned")

    @property
    def whole(self) -> tuple[str, ...]:
        return (ENCODER,)

    @property
    def encoder(self) -> tuple[str, str] | None:
        return "AutoModelForCausalLM", self.config.encoder

    def parts(self, model: SoftModel) -> dict[str, nn.Module]:
        from methods.training.pieces import Projector

        embeddings: Any = model.encoder.get_input_embeddings()
        return {
            "memory": model.rows(self.config.memory_tokens, embeddings),
            "marks": model.rows(3, draw=1),
            "converter": Projector(embeddings.weight.shape[1], model.width, norm=True),
        }

    def segments(self, model: SoftModel, text: str) -> list[list[int]]:
        return model.segments(text, model.encoder_tokenizer)

    def row(self, model: SoftModel, ids: Sequence[int], query: str) -> list[Piece]:
        return [ids, model.part("memory")]

    def vectors(self, model: SoftModel, rows: Sequence[Sequence[Piece]]) -> Tensor:
        memory: Tensor = model.parts["converter"](model.states(rows, self.config.memory_tokens, model=model.encoder))
        return memory

    def block(self, model: SoftModel, memory: Tensor) -> list[Piece]:
        marks = model.part("marks")
        opened, closed = marks[OPEN : OPEN + 1], marks[CLOSE : CLOSE + 1]
        return [piece for part in memory.split(self.config.memory_tokens) for piece in (opened, part, closed)]

    def restoring(self, model: SoftModel, memory: Tensor, draw: int) -> list[Piece]:
        return [model.bos, *self.block(model, memory), model.part("marks")[RESTORE : RESTORE + 1]]

    def trained(self, stage: str) -> set[str]:
        # The decoder's marks were learned before everything else, and then fixed: here they are in the first stage.
        marks = {"parts.marks"} if stage == "pretrained" else set()
        return {ENCODER, "parts.memory", "parts.converter", *marks}


@register(
    "pcc",
    summary="each segment as a small model's states, converted for a frozen language model; read by memory_reader",
    **compressor_of(Pcc),
)
class PccCompressor(SoftCompressor):
    """The compressor."""

    memory = "pcc"


class PccTrainingConfig(SoftTrainingConfig):
    """Options of the training."""

    system_class: ClassVar[type[System]] = Pcc
    model: PccConfig = PccConfig.model_validate({})
    pretrained: SoftStepOptions = SoftStepOptions.model_validate({"warm_up": 300, "batch_size": 256})
    tuned: SoftStepOptions = SoftStepOptions.model_validate({"learning_rate": 5e-5})
    max_grad_norm: float = Field(0.5, gt=0, description=SoftTrainingConfig.model_fields["max_grad_norm"].description)


@register_training(
    "pcc",
    version=2,
    summary="PCC: an encoder and a converter that have a frozen model write passages out or continue them, then answer",
    **shared_settings(PccTrainingConfig, {"encoder": "pocket", "rate": 4}, {"pretrained": {"steps": 360}, "tuned": {"steps": 120}}),
)
class PccTraining(SoftTraining):
    """The training."""
