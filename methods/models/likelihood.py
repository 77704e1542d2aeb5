"""Log-likelihoods of targets given prompts: what alignment scores, relevance labels and closed choices are made of.

    scorer = LikelihoodScorer(CausalModel(CausalConfig(model="...")))
    scorer.score([ScoredText("Question: Who wrote it?\\nAnswer:", " Ann Lee")])[0].mean

Prompt and target are tokenised apart and joined as ids; the target is tokenised once, as a continuation, so write the
space that stands before it. Results do not depend on batch, order or padding.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from string import Template
from typing import Protocol

from methods.models.encoding import Span, TextEncoder
from methods.models.scoring import Item, ScoringConfig

SLICE = 1 << 22
"""Characters of prompts that are held as token ids at a time; prefixes are shared within a slice."""


@dataclass(frozen=True, slots=True)
class ScoredText:
    """A prompt and what is scored behind it.

    Attributes:
        prompt: Text before the target; special tokens are added once, unless it begins with them.
        target: Text whose log-likelihood is wanted, with its leading space.
        chunk: Characters of the prompt that may be cut from their end where the whole does not fit.
    """

    prompt: str
    target: str
    chunk: Span | None = None


@dataclass(frozen=True, slots=True)
class Likelihood:
    """How likely a target is.

    Attributes:
        mean: Mean log-probability per token, in nats.
        tokens: The target's token ids.
        logprobs: Log-probability of each of them.
    """

    mean: float
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]

    @property
    def total(self) -> float:
        """Log-probability of the whole target, in nats."""
        return math.fsum(self.logprobs)


@dataclass(frozen=True, slots=True)
class Asked:
    """A question of a grid: what is put into the template beside the chunk, and the target."""

    fields: Mapping[str, str]
    target: str


@dataclass(frozen=True, slots=True)
class ScoringTemplate:
    """A prompt with the placeholder `$chunk` once and any others (`$question` …); a dollar sign is written `$$`.

    Put `$chunk` before what differs between questions, and a chunk is computed once for all of them.

    Attributes:
        text: The prompt, or the user's message where it is sent as a chat.
        system: The system message, for a chat.
        chat: Whether the model's chat template is put around it.
    """

    text: str
    system: str = ""
    chat: bool = False

    def __post_init__(self) -> None:
        for part in (self.text, self.system):
            if not Template(part).is_valid():
                raise ValueError(f"a lone dollar sign in the template {part[:60]!r}: write $$")
        if len(self._chunks()) != 1:
            raise ValueError(f"the template must hold $chunk once, and holds it {len(self._chunks())} times")

    def _chunks(self) -> list[Span]:
        found = Template.pattern.finditer(self.text)
        return [m.span() for m in found if "chunk" in (m.group("named"), m.group("braced"))]

    def filled(self, chunk: str, fields: Mapping[str, str], model: ScoringModel) -> tuple[str, Span]:
        """The prompt, and where the chunk is in it.

        Raises:
            ValueError: A placeholder has no value, or the chat template does not keep the message as it is.
        """
        (start, end) = self._chunks()[0]
        try:
            head, tail = (Template(part).substitute(fields) for part in (self.text[:start], self.text[end:]))
            system = Template(self.system).substitute(fields)
        except KeyError as error:
            raise ValueError(f"the template's placeholder ${error.args[0]} has no value") from None
        user = head + chunk + tail
        if not self.chat:
            before = f"{system}\n\n" if system else ""
            return before + user, _span(head, chunk, len(before))
        prompt = model.render(system, user)
        # Templates strip white space around a message.
        kept = user.strip()
        place = prompt.rfind(kept)
        if place < 0:
            raise ValueError("the chat template changes the message, so the chunk cannot be found in it")
        return prompt, _span(head, chunk, place - (len(user) - len(user.lstrip())))


def _span(head: str, chunk: str, shift: int) -> Span:
    return len(head) + shift, len(head) + len(chunk) + shift


class ScoringModel(Protocol):
    """What a scorer needs of a model: `CausalModel` and `Seq2SeqModel` have it."""

    text_encoder: TextEncoder

    def render(self, system: str, user: str) -> str:
        """The text of a prompt."""
        ...

    def prompt_room(self, target: int) -> int | None:
        """Longest prompt in tokens before a target of this length; None: any."""
        ...

    def logprobs(self, items: Sequence[Item], config: ScoringConfig) -> list[list[float]]:
        """Log-probability of each token of each target."""
        ...


class LikelihoodScorer:
    """Scores targets given prompts under a local model.

    Args:
        model: A `CausalModel` or a `Seq2SeqModel`.
        config: How it is computed; no option changes a score by more than rounding.
    """

    def __init__(self, model: ScoringModel, config: ScoringConfig | None = None) -> None:
        self.model = model
        self.config = config or ScoringConfig()

    def encode(self, pairs: Sequence[ScoredText]) -> list[Item]:
        """Token ids of prompts (cut where they must be) and targets.

        Raises:
            ValueError: A target is empty, or a prompt does not fit and nothing in it may be cut.
        """
        return self._encode(list(enumerate(pairs)))

    def _encode(self, numbered: Sequence[tuple[int, ScoredText]]) -> list[Item]:
        pairs = [pair for _, pair in numbered]
        encoder = self.model.text_encoder
        targets = {text: encoder.target(text) for text in dict.fromkeys(pair.target for pair in pairs)}
        texts = list(dict.fromkeys(pair.prompt for pair in pairs))
        prompts = dict(zip(texts, encoder.prompts(texts), strict=True))
        items: list[Item] = []
        for number, pair in numbered:
            ids, target = prompts[pair.prompt], targets[pair.target]
            room = self.model.prompt_room(len(target))
            if room is not None and len(ids) > room:
                if pair.chunk is None:
                    raise ValueError(f"pair {number}: the prompt has {len(ids)} tokens where {room} fit, and names no chunk to cut")
                try:
                    ids = encoder.cut(pair.prompt, pair.chunk, room)
                except ValueError as error:
                    raise ValueError(f"pair {number}: {error}") from None
            items.append((ids, target))
        return items

    def score(self, pairs: Iterable[ScoredText]) -> list[Likelihood]:
        """Log-likelihoods, one per pair, in order.

        Args:
            pairs: Prompts and targets, as many as there are: they are taken slice by slice. Equal beginnings of
                prompts are computed once, wherever they stand in a slice.

        Raises:
            ValueError: As `encode`.
        """
        scores: list[Likelihood] = []
        for part in _slices(pairs):
            items = self._encode(part)
            for (_, target), values in zip(items, self.model.logprobs(items, self.config), strict=True):
                scores.append(Likelihood(math.fsum(values) / len(values), tuple(target), tuple(values)))
        return scores

    def grid(self, chunks: Sequence[str], questions: Sequence[Asked], template: ScoringTemplate) -> list[list[Likelihood]]:
        """Every question with every chunk.

        Args:
            chunks: Passages; a passage that leaves no room for the rest is cut at its end.
            questions: What is asked of each, and the target.
            template: The prompt.

        Returns:
            One row per chunk, one column per question.

        Raises:
            ValueError: As `encode`, or a placeholder of the template has no value.
        """
        scores = self.score(self._crossed(chunks, questions, template))
        width = len(questions)
        return [scores[row * width : (row + 1) * width] for row in range(len(chunks))]

    def _crossed(self, chunks: Sequence[str], questions: Sequence[Asked], template: ScoringTemplate) -> Iterator[ScoredText]:
        for chunk in chunks:
            for question in questions:
                prompt, span = template.filled(chunk, question.fields, self.model)
                yield ScoredText(prompt, question.target, span)


def _slices(pairs: Iterable[ScoredText]) -> Iterator[list[tuple[int, ScoredText]]]:
    """Consecutive pairs with their numbers, at most about `SLICE` characters together."""
    part: list[tuple[int, ScoredText]] = []
    size = 0
    for number, pair in enumerate(pairs):
        part.append((number, pair))
        size += len(pair.prompt) + len(pair.target)
        if size >= SLICE:
            yield part
            part, size = [], 0
    if part:
        yield part
