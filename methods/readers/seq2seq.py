"""Reading by a local encoder–decoder model (Flan-T5 …).

T5's vocabulary has no line break: asked for a list of lines it writes one line, which evaluators that count lines see
as a single answer.
"""

from __future__ import annotations

from pydantic import Field

from methods.api import Services
from methods.models.seq2seq import Seq2SeqConfig, Seq2SeqModel
from methods.models.weights import locate, weights_hash
from methods.readers.causal import CausalReader
from methods.readers.instructions import Instructions, ReadingOptions
from methods.registry import MethodConfig, register


class Seq2SeqReaderConfig(Seq2SeqConfig, ReadingOptions, MethodConfig):
    """Options of the encoder–decoder reader: the model's and the instructions."""

    max_prompt_tokens: int | None = Field(
        None, ge=16, description="longest prompt; null: what the checkpoint was made for (T5: 512; RoG: 507)"
    )
    max_new_tokens: int = Field(
        32, ge=1, description="longest answer (GPR experiments: 128; RoG gave none, so that its library stopped at 20)"
    )

    def preflight(self) -> None:
        """Check the model's folder and the templates."""
        locate(self.model)
        self.templates()


def _weights(config: Seq2SeqReaderConfig) -> str:
    return f"{weights_hash(config.model, config.revision)}-{config.templates()}"


@register(
    "seq2seq",
    kind="reader",
    summary="a local encoder-decoder model (Flan-T5), asked for a short answer from numbered passages",
    config=Seq2SeqReaderConfig,
    presets={"rog": {"reading": "triples", "max_prompt_tokens": 507, "max_new_tokens": 128}},
    extra="models",
    checkpoint_hash=_weights,
)
class Seq2SeqReader(CausalReader):
    """Reader that runs an encoder–decoder model on this machine, greedily.

    Args:
        config: Options.
        services: Lends the device and the benchmark's instructions.
    """

    def __init__(self, config: Seq2SeqReaderConfig, services: Services) -> None:
        self._instructions = Instructions(config, services.reading)
        self._bare = self._instructions.answer
        longest = self._instructions.longest(config.max_new_tokens)
        self._model = Seq2SeqModel(config.model_copy(update={"max_new_tokens": longest}), services.device)
        self.batch_size = 2 * config.batch_size
