"""Reading by the pocket model that the package carries, in the format it was trained on."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from benchmarks.fingerprint import fingerprint
from benchmarks.schema import Passage
from methods.api import Services
from methods.models.causal import CausalConfig, CausalModel
from methods.models.pocket.prompt import answer_prompt
from methods.models.weights import POCKET, locate, weights_hash
from methods.readers.causal import CausalReader
from methods.registry import MethodConfig, register

TRAINED_LENGTH = 424
"""Tokens of the longest prompts that the model was trained on; it reads longer ones badly."""


class PocketReaderConfig(CausalConfig, MethodConfig):
    """Options of the pocket reader."""

    model: str = Field(POCKET, description="`pocket`, the model that ships, or the folder of another training run")
    max_new_tokens: int = Field(24, ge=1, description="longest answer")
    max_prompt_tokens: int | None = Field(
        TRAINED_LENGTH, ge=16, description="longest prompt; passages that do not fit are left out, the last first"
    )
    batch_size: int = Field(32, ge=1, description="prompts generated at once")

    def preflight(self) -> None:
        """Check that the model is there."""
        locate(self.model)


def _weights(config: PocketReaderConfig) -> str:
    # The format is part of what the reader computes.
    example = Passage("", "title", "text")
    return f"{weights_hash(config.model, config.revision)}-{fingerprint(answer_prompt('question', [example]))}"


@register(
    "pocket",
    kind="reader",
    summary="the small language model that ships: reads worlds offline, on any machine",
    config=PocketReaderConfig,
    extra="models",
    checkpoint_hash=_weights,
)
class PocketReader(CausalReader):
    """Reader that runs the pocket model on this machine.

    Args:
        config: Options.
        services: Lends the device.
    """

    def __init__(self, config: PocketReaderConfig, services: Services) -> None:
        self._model = CausalModel(config, services.device)
        self.batch_size = 2 * config.batch_size

    def _rendered(self, question: str, passages: Sequence[Passage]) -> str:
        return self._model.render("", answer_prompt(question, passages))
