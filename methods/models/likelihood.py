"""Log-likelihoods of targets given prompts: what alignment scores, relevance labels and closed choices are made of.

    scorer = LikelihoodScorer(CausalModel(CausalConfig(model="...")))
    scorer.score([ScoredText("Question: Who wrote it?\nAnswer:", " Ann Lee")])[0].mean

Prompt and target are tokenized apart and joined as ids; the target is tokenized once, as a continuation, so write the
space that is before it. Results do not depend on batch, order or padding.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from string import Template
from typing import TYPE_CHECKING, Any, Literal, Protocol

from pydantic import Field

from benchmarks.core.models import FrozenModel
from methods.prompts import beginning, encoded

if TYPE_CHECKING:
    from torch import Tensor


UNBOUNDED = 1 << 62
"""A budget that never binds, where rows alone are counted."""


def by_length(lengths: Sequence[int], budget: int, rows: int | None = None, fixed: int = 0) -> list[list[int]]:
    """Partition items into batches whose padded size stays within a budget.

    Items are taken from the longest to the shortest (ties in order), so that padding is small and a shortage of
    memory shows at once. A batch of r rows whose longest is w tokens costs r · (fixed + w).

    Args:
        lengths: Tokens of each item.
        budget: Tokens per batch, padding included; an item longer than that gets a batch of its own.
        rows: Most rows per batch; None: as many as the budget holds.
        fixed: Tokens that every row costs besides its own, such as a shared prefix.

    Returns:
        Batches of positions in `lengths`; each position is in exactly one batch.
    """
    order = sorted(range(len(lengths)), key=lambda position: (-lengths[position], position))
    batches: list[list[int]] = []
    room = 0
    for position in order:
        if room == 0:
            batches.append([])
            # The first of a batch is its longest, so it decides how many fit.
            room = max(1, budget // max(1, fixed + lengths[position]))
            room = room if rows is None else min(room, rows)
        batches[-1].append(position)
        room -= 1
    return batches


ANCHORS = (":", "\n", "a")
"""Texts that precede a target during tokenization; the first one that keeps its own tokens is used."""

Span = tuple[int, int]
"""Characters of a prompt, from the first to the one after the last."""


class TextEncoder:
    """Token ids of prompts and targets, made apart and joined as ids, never as text.

    Args:
        tokenizer: A `transformers` tokenizer.
        continues: Whether a target continues its prompt (causal models) or starts a text of its own (a decoder's),
            in which case the prompt also gets the special tokens that the tokenizer puts behind a text.
    """

    def __init__(self, tokenizer: Any, continues: bool = True) -> None:
        self.tokenizer = tokenizer
        self.continues = continues
        self.before = beginning(tokenizer)
        end = len(self.before) + len(self._ids(["a"])[0])
        self.after: list[int] = [] if continues else list(tokenizer("a")["input_ids"])[end:]

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        return encoded(self.tokenizer, texts)

    def prompts(self, texts: Sequence[str]) -> list[list[int]]:
        """Return ids of prompts; the special tokens before a text are added unless it begins with them already."""
        return [self._framed(ids) for ids in self._ids(texts)]

    def _framed(self, ids: list[int]) -> list[int]:
        prepared = ids[: len(self.before)] == self.before
        ended = bool(self.after) and ids[-len(self.after) :] == self.after
        return ([] if prepared else self.before) + ids + ([] if ended else self.after)

    def target(self, text: str) -> list[int]:
        """Return ids of a target: with its leading white space, as it is tokenized behind other text.

        Raises:
            ValueError: The target is empty, or this tokenizer never keeps it apart from what is before it.
        """
        if not text:
            raise ValueError("a target is empty: it has nothing to score")
        if not self.continues:
            return self._ids([text])[0]
        for anchor in ANCHORS:
            before, both = self._ids([anchor, anchor + text])
            if both[: len(before)] == before and len(both) > len(before):
                return both[len(before) :]
        raise ValueError(f"the target {text[:40]!r} cannot be tokenized separately from the text before it")

    def decode(self, target: Sequence[int]) -> str:
        """Return the text of a target's ids, its leading white space included."""
        if not self.continues:
            return str(self.tokenizer.decode(list(target)))
        before = self._ids([ANCHORS[0]])[0]
        start = len(self.tokenizer.decode(before))
        return str(self.tokenizer.decode([*before, *target], clean_up_tokenization_spaces=False))[start:]

    def cut(self, text: str, span: Span, room: int) -> list[int]:
        """Return ids of a prompt, tokens dropped from the end of one span until it fits; what is around stays whole.

        Args:
            text: The prompt.
            span: The characters that may go.
            room: Tokens that fit, special ones included.

        Raises:
            ValueError: What is around the span is too long alone, or the tokenizer cannot tell which tokens are in it.
        """
        if not self.tokenizer.is_fast:
            raise ValueError("a prompt is too long and this tokenizer gives no offsets to shorten it by")
        encoded = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        ids, offsets = list(encoded["input_ids"]), list(encoded["offset_mapping"])
        inside = [n for n, (start, end) in enumerate(offsets) if span[0] <= start < end <= span[1]]
        surplus = len(self._framed(ids)) - room
        if surplus <= 0:
            return self._framed(ids)
        if surplus > len(inside):
            around = len(self._framed(ids)) - len(inside)
            raise ValueError(f"a prompt takes {around} tokens without what may be cut, where {room} fit")
        first, last = inside[-surplus], inside[-1]
        # Tokens that are parts of one character go together.
        while first > inside[0] and offsets[first][0] < offsets[first - 1][1]:
            first -= 1
        return self._framed(ids[:first] + ids[last + 1 :])


Item = tuple[Sequence[int], Sequence[int]]
"""Prompt and target of one score, as token ids."""

CPU_TOKENS, GPU_TOKENS = 4096, 32768
CPU_LOGITS, GPU_LOGITS = 1 << 26, 1 << 28
"""Largest batches in tokens, and largest tables of logits in numbers (4 bytes each)."""


class ScoringConfig(FrozenModel):
    """Options of log-likelihood scoring; none of them changes a score by more than rounding."""

    token_budget: int | None = Field(
        default=None, ge=1, description="tokens per batch, including padding and cache; null: 4,096 on CPU, 32,768 elsewhere"
    )
    share_prefixes: bool = Field(default=True, description="compute the common prefix of prompts once")
    smallest_prefix: int = Field(default=8, ge=1, description="shortest prefix worth sharing, in tokens")
    padding: Literal["left", "right"] = Field(default="right", description="side of the padding if no prefix is shared")

    def tokens(self, device: str) -> int:
        """Return tokens per batch on a device."""
        if self.token_budget is not None:
            return self.token_budget
        return CPU_TOKENS if device == "cpu" else GPU_TOKENS


def rows_for(targets: Sequence[int], vocabulary: int, device: str) -> int:
    """Return most rows whose logits fit, at the longest of the targets' lengths."""
    numbers = CPU_LOGITS if device == "cpu" else GPU_LOGITS
    return max(1, numbers // (vocabulary * max(targets)))


@contextmanager
def logits_only_at(model: Any, rows: Tensor, columns: Tensor) -> Iterator[None]:
    """Within this block a model computes logits at the given places of a batch alone.

    The output layer receives the hidden states at (rows[n], columns[n]) as one sequence, so logits have the shape
    [1, n, vocabulary]. What a model does to logits afterwards (scaling, soft caps) works number by number and stays.

    Args:
        model: A `transformers` model with output embeddings.
        rows: Integer tensor [n].
        columns: Integer tensor [n].
    """
    handle = model.get_output_embeddings().register_forward_pre_hook(lambda _, inputs: (inputs[0][rows, columns].unsqueeze(0), *inputs[1:]))
    try:
        yield
    finally:
        handle.remove()


def log_probabilities(logits: Tensor, targets: Tensor) -> Tensor:
    """Return log-softmax in float32 at the targets: logits [1, n, vocabulary] and ids [n] to [n]."""
    numbers = logits[0].float()
    return numbers.gather(1, targets.unsqueeze(1)).squeeze(1) - numbers.logsumexp(dim=1)


def padded(rows: Sequence[Sequence[int]], fill: int, side: str = "right") -> tuple[list[list[int]], list[list[int]]]:
    """Return rows of equal length and their masks (1: a token, 0: padding)."""
    width = max(len(row) for row in rows)
    ids, masks = [], []
    for row in rows:
        gap = width - len(row)
        left, right = (gap, 0) if side == "left" else (0, gap)
        ids.append([fill] * left + list(row) + [fill] * right)
        masks.append([0] * left + [1] * len(row) + [0] * right)
    return ids, masks


def batches(
    rows: Sequence[Sequence[int]], budget: int, device: Any, fill: int = 0, most: int | None = None
) -> Iterator[tuple[list[int], Tensor, Tensor]]:
    """Yield rows of token ids, those of like length together, padded at their end: see `by_length`.

    Returns:
        Of each batch its positions in `rows`, ids and mask, int64 [B, n].
    """
    import torch

    for batch in by_length([len(row) for row in rows], budget, most):
        ids, mask = padded([rows[position] for position in batch], fill)
        yield batch, torch.tensor(ids, device=device), torch.tensor(mask, device=device)


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
    """Log-likelihood of a target.

    Attributes:
        mean: Mean log-probability per token, in nats.
        tokens: The target's token ids.
        logprobs: Log-probability of each of them.
    """

    mean: float
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]

    @classmethod
    def of(cls, tokens: Sequence[int], logprobs: Sequence[float]) -> Likelihood:
        """Create the value from the target's token ids and their log-probabilities."""
        return cls(math.fsum(logprobs) / len(logprobs), tuple(tokens), tuple(logprobs))

    @property
    def total(self) -> float:
        """Return log-probability of the whole target, in nats."""
        return math.fsum(self.logprobs)


@dataclass(frozen=True, slots=True)
class ScoringRequest:
    """A question of a grid: what is put into the template next to the chunk, and the target."""

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
                raise ValueError(f"an unescaped dollar sign in the template {part[:60]!r}: write $$")
        if len(self._chunks()) != 1:
            raise ValueError(f"the template must hold $chunk once, and holds it {len(self._chunks())} times")

    def _chunks(self) -> list[Span]:
        results = Template.pattern.finditer(self.text)
        return [m.span() for m in results if "chunk" in (m.group("named"), m.group("braced"))]

    def filled(self, chunk: str, fields: Mapping[str, str], model: ScoringModel) -> tuple[str, Span]:
        """Return the prompt, and where the chunk is in it.

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
        position = prompt.rfind(kept)
        if position < 0:
            raise ValueError("the chat template changes the message, so the chunk cannot be found in it")
        return prompt, _span(head, chunk, position - (len(user) - len(user.lstrip())))


def _span(head: str, chunk: str, shift: int) -> Span:
    return len(head) + shift, len(head) + len(chunk) + shift


class ScoringModel(Protocol):
    """Interface that a scorer needs: `CausalModel` and `Seq2SeqModel` implement it."""

    text_encoder: TextEncoder

    def render(self, system: str, user: str) -> str:
        """Return the text of a prompt."""
        ...

    def prompt_room(self, target: int) -> int | None:
        """Return longest prompt in tokens before a target of this length; None: any."""
        ...

    def logprobs(self, items: Sequence[Item], config: ScoringConfig) -> list[list[float]]:
        """Return log-probability of each token of each target."""
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
        """Return token ids of prompts (cut where they must be) and targets.

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
        """Return log-likelihoods, one per pair, in order.

        Args:
            pairs: Prompts and targets, as many as there are: they are taken slice by slice. Equal beginnings of
                prompts are computed once, wherever they are in a slice.

        Raises:
            ValueError: As `encode`.
        """
        scores: list[Likelihood] = []
        for part in _slices(pairs):
            items = self._encode(part)
            values = self.model.logprobs(items, self.config)
            scores.extend(Likelihood.of(target, own) for (_, target), own in zip(items, values, strict=True))
        return scores

    def grid(self, chunks: Sequence[str], questions: Sequence[ScoringRequest], template: ScoringTemplate) -> list[list[Likelihood]]:
        """Return every question with every chunk.

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

    def _crossed(self, chunks: Sequence[str], questions: Sequence[ScoringRequest], template: ScoringTemplate) -> Iterator[ScoredText]:
        for chunk in chunks:
            for question in questions:
                prompt, span = template.filled(chunk, question.fields, self.model)
                yield ScoredText(prompt, question.target, span)


def _slices(pairs: Iterable[ScoredText]) -> Iterator[list[tuple[int, ScoredText]]]:
    """Yield consecutive pairs with their numbers, at most about `SLICE` characters together."""
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


@dataclass(frozen=True, slots=True)
class LabelScores:
    """Log-probabilities of the labels that may follow one prompt.

    Attributes:
        raw: Log-likelihoods as the model gives them, per label.
        probabilities: The same, normalized over the labels: they sum to 1.
    """

    labels: tuple[str, ...]
    raw: tuple[Likelihood, ...]
    probabilities: tuple[float, ...]

    @property
    def best(self) -> str:
        """Return the likeliest label; of equal ones the first."""
        return self.labels[max(range(len(self.labels)), key=self.probabilities.__getitem__)]


def label_likelihoods(
    scorer: LikelihoodScorer,
    prompts: Sequence[str],
    labels: Sequence[str],
    by: Literal["total", "mean"] = "total",
    chunks: Sequence[Span | None] | None = None,
) -> list[LabelScores]:
    """Score the same labels behind each prompt; a prompt is computed once for all of them.

    Args:
        scorer: The model.
        prompts: Texts that a label follows.
        labels: With their leading space, all different.
        by: What is normalized over the labels: "total", a label's probability (short labels are favored as the model
            favors them), or "mean", its probability per token.
        chunks: Characters of each prompt that may be cut.

    Raises:
        ValueError: No labels, or the same twice.
    """
    if not labels or len(set(labels)) != len(labels):
        raise ValueError(f"labels must be given and differ: {list(labels)!r}")
    spans = [None] * len(prompts) if chunks is None else list(chunks)
    pairs = [ScoredText(prompt, label, span) for prompt, span in zip(prompts, spans, strict=True) for label in labels]
    scores = scorer.score(pairs)
    return [label_scores(labels, scores[start : start + len(labels)], by) for start in range(0, len(scores), len(labels))]


def label_scores(labels: Sequence[str], raw: Sequence[Likelihood], by: Literal["total", "mean"] = "total") -> LabelScores:
    """Return the labels' likelihoods after one prompt with their softmax; `by` as in `label_likelihoods`."""
    return LabelScores(tuple(labels), tuple(raw), softmax([getattr(likelihood, by) for likelihood in raw]))


def softmax(values: Sequence[float]) -> tuple[float, ...]:
    """Return numbers as shares of their exponentials' sum, safe from overflow."""
    top = max(values)
    shares = [math.exp(value - top) for value in values]
    whole = math.fsum(shares)
    return tuple(share / whole for share in shares)
