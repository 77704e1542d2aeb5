"""Reading by a local causal language model."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from benchmarks.schema import Passage, Query
from methods.api import FAILED, Answer, Context, Services, Usage
from methods.models.causal import CausalConfig, CausalModel, Generation
from methods.models.weights import locate, weights_hash
from methods.readers.prompting import bare_answer, load_prompt, numbered, prompt_hash
from methods.registry import MethodConfig, register

TOO_LONG = "the question alone is longer than the model's context"


class CausalReaderConfig(CausalConfig, MethodConfig):
    """Options of the local reader: the model's and the prompts."""

    prompt: str | None = Field(None, description="a template file of one's own; null: the one that ships")
    closed_book_prompt: str | None = Field(None, description="the same, for questions that come without a passage")

    def preflight(self) -> None:
        """Check the model's folder and the templates."""
        locate(self.model)
        load_prompt(self.prompt, "passages")
        load_prompt(self.closed_book_prompt, "closed_book")


def _weights(config: CausalReaderConfig) -> str:
    prompts = prompt_hash((config.prompt, "passages"), (config.closed_book_prompt, "closed_book"))
    return f"{weights_hash(config.model, config.revision)}-{prompts}"


@register(
    "causal",
    kind="reader",
    summary="a local language model, asked for a short answer from numbered passages",
    config=CausalReaderConfig,
    extra="models",
    checkpoint_hash=_weights,
)
class CausalReader:
    """Reader that runs a model on this machine.

    Args:
        config: Options.
        services: Lends the device.
    """

    def __init__(self, config: CausalReaderConfig, services: Services) -> None:
        self._prompt = load_prompt(config.prompt, "passages")
        self._closed_book = load_prompt(config.closed_book_prompt, "closed_book")
        self._model = CausalModel(config, services.device)
        # A few batches at a time, so that prompts of like length meet and a kill still loses little.
        self.batch_size = 2 * config.batch_size

    def read(self, queries: Sequence[Query], contexts: Sequence[Context]) -> list[Answer]:
        """One answer per query; a question that does not fit has its reason under `notes["failed"]`."""
        prompts = [self._fit(query.text, context.passages) for query, context in zip(queries, contexts, strict=True)]
        asked = [prompt for prompt in prompts if prompt is not None]
        written = iter(self._model.generate(asked))
        return [
            Answer("", notes={FAILED: TOO_LONG}) if prompt is None else _answer(next(written)) for prompt in prompts
        ]

    def _fit(self, question: str, passages: Sequence[Passage]) -> str | None:
        """The prompt with as many passages, best first, as fit; of a first one that does not, its beginning.

        The question is always whole; None where not even that fits.
        """
        low, high = 0, len(passages)  # that many fit; one more than high does not
        if high and self._length(question, passages) > 0:
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if self._length(question, passages[:middle]) <= 0 else (low, middle)
        else:
            low = high
        kept: list[Passage] = list(passages[:low])
        if not kept and passages:
            kept = self._cut(question, passages[0])
        return self._rendered(question, kept) if self._length(question, kept) <= 0 else None

    def _cut(self, question: str, passage: Passage) -> list[Passage]:
        """As many words of a passage as fit, none of them where not one fits."""
        words = passage.text.split()
        low, high = 0, len(words)
        while high - low > 1:
            middle = (low + high) // 2
            short = Passage(passage.id, passage.title, " ".join(words[:middle]))
            low, high = (middle, high) if self._length(question, [short]) <= 0 else (low, middle)
        return [Passage(passage.id, passage.title, " ".join(words[:low]))] if low else []

    def _rendered(self, question: str, passages: Sequence[Passage]) -> str:
        prompt = self._prompt if passages else self._closed_book
        return self._model.render(*prompt.filled(question, numbered(passages)))

    def _length(self, question: str, passages: Sequence[Passage]) -> int:
        """Tokens by which the prompt is too long; 0 or less where it fits."""
        return len(self._model.encode(self._rendered(question, passages))) - self._model.room


def _answer(generation: Generation) -> Answer:
    usage = Usage(prompt_tokens=generation.prompt_tokens, completion_tokens=generation.completion_tokens, model_calls=1)
    return Answer(bare_answer(generation.text), usage)
