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

from methods.baselines.compress.memory import SOFT, SoftCompressor
from methods.baselines.compress.soft import ENCODER, SoftConfig, System
from methods.baselines.compress.training import SoftTraining, SoftTrainingConfig, SoftStepOptions, shared_settings
from methods.registry import register
from methods.training import register_training

if TYPE_CHECKING:
    from torch import Tensor, nn

    from methods.baselines.compress.model import SoftModel
    from methods.training.pieces import Piece

PAPER = "Dai et al. 2025, Pretraining Context Compressor for Large Language Models with Embedding-Based Memory (ACL 2025)"
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


class Pcc(System):
    """The system."""

    name = "pcc"
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

    def _segments(self, model: SoftModel, text: str) -> list[list[int]]:
        words, most = model.encoder_tokenizer, self.config.max_length
        ids = list(words(model.written(text), add_special_tokens=False, split_special_tokens=True)["input_ids"]) if text.strip() else []
        return [ids[start : start + most] for start in range(0, len(ids), most)]

    def count(self, model: SoftModel, text: str) -> int:
        return len(self._segments(model, text)) * int(self.config.memory_tokens)

    def encode(self, model: SoftModel, texts: Sequence[str], queries: Sequence[str]) -> list[Tensor]:
        parts = [self._segments(model, text) for text in texts]
        rows: list[list[Piece]] = [[ids, model.part("memory")] for own in parts for ids in own]
        if not rows:
            return [model.nothing for _ in texts]
        states = model.parts["converter"](model.states(rows, self.config.memory_tokens, model=model.encoder))
        vectors = iter(states)
        return [_joined([next(vectors) for _ in own]) if own else model.nothing for own in parts]

    def block(self, model: SoftModel, memory: Tensor) -> list[Piece]:
        marks = model.part("marks")
        opened, closed = marks[OPEN : OPEN + 1], marks[CLOSE : CLOSE + 1]
        return [piece for part in memory.split(self.config.memory_tokens) for piece in (opened, part, closed)]

    def restoring(self, model: SoftModel, memory: Tensor, draw: int) -> list[Piece]:
        return [model.bos, *self.block(model, memory), model.part("marks")[RESTORE : RESTORE + 1]]

    def trained(self, stage: str) -> set[str]:
        return {ENCODER, "parts.memory", "parts.converter"}


def _joined(parts: Sequence[Tensor]) -> Tensor:
    import torch

    return torch.cat(list(parts))


@register(
    "pcc",
    summary="each segment as a small model's states, converted for a frozen language model; read by memory_reader",
    paper=PAPER,
    **SOFT,
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
    summary="PCC: an encoder and a converter that have a frozen model write passages out or continue them, then answer",
    stages=Pcc.stages,
    config=PccTrainingConfig,
    paper=PAPER,
    **shared_settings({"encoder": "pocket", "rate": 4}),
)
class PccTraining(SoftTraining):
    """The training."""
