"""Compute log-likelihoods of targets given prompts, for alignment scores, relevance labels and closed choices.

    scorer = LikelihoodScorer(CausalModel(CausalConfig(model="...")))
    scorer.score([ScoredText("Question: Who wrote it?\nAnswer:", " Ann Lee")])[0].mean

Prompt and target are tokenized separately and joined as ids; the target is tokenized once, as a continuation, so include
its leading space. Results do not depend on batch, order or padding.
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
"""Value for an unlimited token budget."""


FEW_ROWS = 8
"""Number of rows below which a batch is too small to be worth less padding."""
FILL = 0.75
"""Usual `fill` of models that read whole texts."""


def by_length(lengths: Sequence[int], budget: int, rows: int | None = None, fixed: int = 0, *, fill: float = 0.0) -> list[list[int]]:
    """Partition items into batches whose padded size stays within a budget.

    Items are sorted from the longest to the shortest (ties in order), so that padding is small and a shortage of
    memory shows immediately. A batch of r rows whose longest has w tokens costs r · (fixed + w).

    Args:
        lengths: Number of tokens of each item.
        budget: Tokens per batch, including padding; a longer item gets its own batch.
        rows: Maximum rows per batch; None: only the budget limits them.
        fixed: Tokens that every row costs besides its own, such as a shared prefix.
        fill: Minimum share of a row that is not padding, for models whose time grows with the padded tokens; a batch of fewer
            than `FEW_ROWS` rows also takes shorter ones.

    Returns:
        Batches of positions in `lengths`; each position is in exactly one batch.
    """
    order = sorted(range(len(lengths)), key=lambda position: (-lengths[position], position))
    batches: list[list[int]] = []
    room = 0
    for position in order:
        if room == 0 or (len(batches[-1]) >= FEW_ROWS and fixed + lengths[position] < fill * (fixed + lengths[batches[-1][0]])):
            batches.append([])
            # The first of a batch is its longest, so it decides how many fit.
            room = max(1, budget // max(1, fixed + lengths[position]))
            room = room if rows is None else min(room, rows)
        batches[-1].append(position)
        room -= 1
    return batches


ANCHORS = (":", "\n", "a")
"""Texts put before a target during tokenization; the first one that is not merged with the target's tokens is used."""

Span = tuple[int, int]
"""Start and end (exclusive) of a part of a prompt, in characters."""


class TextEncoder:
    """Tokenizes prompts and targets separately; they are joined as ids, never as text.

    Args:
        tokenizer: A `transformers` tokenizer.
        continues: Whether a target continues its prompt (causal models) or starts a separate text (a decoder's), in which
            case the prompt also gets the special tokens that the tokenizer puts at the end of a text.
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
        """Return ids of prompts; initial special tokens are added unless a prompt begins with them."""
        return [self._framed(ids) for ids in self._ids(texts)]

    def _framed(self, ids: list[int]) -> list[int]:
        prepared = ids[: len(self.before)] == self.before
        ended = bool(self.after) and ids[-len(self.after) :] == self.after
        return ([] if prepared else self.before) + ids + ([] if ended else self.after)

    def target(self, text: str) -> list[int]:
        """Return ids of a target with its leading white space, tokenized as after other text.

        Raises:
            ValueError: The target is empty, or this tokenizer always merges it with the text before it.
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
        """Return the text of a target's ids, including its leading white space."""
        if not self.continues:
            return str(self.tokenizer.decode(list(target)))
        before = self._ids([ANCHORS[0]])[0]
        start = len(self.tokenizer.decode(before))
        return str(self.tokenizer.decode([*before, *target], clean_up_tokenization_spaces=False))[start:]

    def cut(self, text: str, span: Span, room: int) -> list[int]:
        """Return ids of a prompt, after cutting the end of one span until the prompt fits.

        Args:
            text: The prompt.
            span: The characters that may be cut.
            room: Maximum tokens, including special ones.

        Raises:
            ValueError: The text around the span is too long, or the tokenizer cannot tell which tokens are in the span.
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
            raise ValueError(f"a prompt takes {around} tokens without what may be cut, but only {room} fit")
        first, last = inside[-surplus], inside[-1]
        # Tokens that are parts of one character are cut together.
        while first > inside[0] and offsets[first][0] < offsets[first - 1][1]:
            first -= 1
        return self._framed(ids[:first] + ids[last + 1 :])


Item = tuple[Sequence[int], Sequence[int]]
"""Token ids of the prompt and target of one score."""

CPU_TOKENS, GPU_TOKENS = 4096, 32768
CPU_LOGITS, GPU_LOGITS = 1 << 26, 1 << 28
"""Maximum batch in tokens, and maximum table of logits in numbers (4 bytes each)."""


class ScoringConfig(FrozenModel):
    """Options of log-likelihood scoring, which change scores only by rounding."""

    token_budget: int | None = Field(
        default=None, ge=1, description="tokens per batch, including padding and cache; null: 4,096 on CPU, 32,768 elsewhere"
    )
    share_prefixes: bool = Field(default=True, description="compute the common prefix of prompts once")
    smallest_prefix: int = Field(default=8, ge=1, description="shortest prefix worth sharing, in tokens")
    padding: Literal["left", "right"] = Field(default="right", description="side of the padding if no prefix is shared")

    def tokens(self, device: str) -> int:
        """Return the number of tokens per batch on a device."""
        if self.token_budget is not None:
            return self.token_budget
        return CPU_TOKENS if device == "cpu" else GPU_TOKENS


def rows_for(targets: Sequence[int], vocabulary: int, device: str) -> int:
    """Return the maximum number of rows whose logits fit, by the longest target."""
    numbers = CPU_LOGITS if device == "cpu" else GPU_LOGITS
    return max(1, numbers // (vocabulary * max(targets)))


@contextmanager
def logits_only_at(model: Any, rows: Tensor, columns: Tensor) -> Iterator[None]:
    """Context manager in which a model computes logits only at the given positions of a batch.

    The output layer receives the hidden states at (rows[n], columns[n]) as one sequence, so logits have the shape
    [1, n, vocabulary]. Later changes of logits by a model (scaling, soft caps) are elementwise and still apply.

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
    """Yield batches of token ids with similar lengths, padded at their end; see `by_length`.

    Returns:
        For each batch, its positions in `rows`, ids and mask, int64 [B, n].
    """
    import torch

    for batch in by_length([len(row) for row in rows], budget, most):
        ids, mask = padded([rows[position] for position in batch], fill)
        yield batch, torch.tensor(ids, device=device), torch.tensor(mask, device=device)


SLICE = 1 << 22
"""Characters of prompts that are tokenized at once; prefixes are shared within such a slice."""


@dataclass(frozen=True, slots=True)
class ScoredText:
    """A prompt and the target that is scored after it.

    Attributes:
        prompt: Text before the target; special tokens are added unless it begins with them.
        target: Text to score, with its leading space.
        chunk: Span of the prompt that may be cut at its end if the prompt does not fit.
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
        logprobs: Log-probability of each token.
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
        """Return the log-probability of the whole target, in nats."""
        return math.fsum(self.logprobs)


@dataclass(frozen=True, slots=True)
class ScoringRequest:
    """A question to score with every chunk: placeholder values besides the chunk, and the target."""

    fields: Mapping[str, str]
    target: str


@dataclass(frozen=True, slots=True)
class ScoringTemplate:
    """A prompt with the placeholder `$chunk` once and any others (`$question` …); a dollar sign is written `$$`.

    If `$chunk` precedes the parts that differ between questions, a chunk is computed once for all questions.

    Attributes:
        text: The prompt, or the user's message of a chat.
        system: The system message of a chat.
        chat: Whether the model's chat template is used.
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
        """Return the prompt, and the span of the chunk in it.

        Raises:
            ValueError: A placeholder has no value, or the chat template changes the message.
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
    """Interface of a model for scoring; `CausalModel` and `Seq2SeqModel` implement it."""

    text_encoder: TextEncoder

    def render(self, system: str, user: str) -> str:
        """Return the text of a prompt."""
        ...

    def prompt_room(self, target: int) -> int | None:
        """Return the longest prompt in tokens before a target of this length; None: no limit."""
        ...

    def logprobs(self, items: Sequence[Item], config: ScoringConfig) -> list[list[float]]:
        """Return the log-probability of each token of each target."""
        ...


class LikelihoodScorer:
    """Scores targets given prompts under a local model.

    Args:
        model: A `CausalModel` or a `Seq2SeqModel`.
        config: Options, which change scores only by rounding.
    """

    def __init__(self, model: ScoringModel, config: ScoringConfig | None = None) -> None:
        self.model = model
        self.config = config or ScoringConfig()

    def encode(self, pairs: Sequence[ScoredText]) -> list[Item]:
        """Return token ids of prompts, cut if necessary, and of targets.

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
                    raise ValueError(f"pair {number}: the prompt has {len(ids)} tokens, but only {room} fit, and names no chunk to cut")
                try:
                    ids = encoder.cut(pair.prompt, pair.chunk, room)
                except ValueError as error:
                    raise ValueError(f"pair {number}: {error}") from None
            items.append((ids, target))
        return items

    def score(self, pairs: Iterable[ScoredText]) -> list[Likelihood]:
        """Return log-likelihoods, one per pair, in order.

        Args:
            pairs: Any number of prompts and targets, which are processed slice by slice. Common prefixes of prompts
                are computed once per slice.

        Raises:
            ValueError: As in `encode`.
        """
        scores: list[Likelihood] = []
        for part in _slices(pairs):
            items = self._encode(part)
            values = self.model.logprobs(items, self.config)
            scores.extend(Likelihood.of(target, own) for (_, target), own in zip(items, values, strict=True))
        return scores

    def grid(self, chunks: Sequence[str], questions: Sequence[ScoringRequest], template: ScoringTemplate) -> list[list[Likelihood]]:
        """Score every question with every chunk.

        Args:
            chunks: Passages; a passage that is too long for the prompt is cut at its end.
            questions: Questions for each chunk, with their targets.
            template: The prompt.

        Returns:
            One row per chunk, one column per question.

        Raises:
            ValueError: As in `encode`, or a placeholder of the template has no value.
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
    """Yield consecutive pairs with their numbers, with at most about `SLICE` characters together."""
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
        raw: The model's log-likelihood of each label.
        probabilities: Probabilities normalized over the labels, with sum 1.
    """

    labels: tuple[str, ...]
    raw: tuple[Likelihood, ...]
    probabilities: tuple[float, ...]

    @property
    def best(self) -> str:
        """Return the most likely label; ties go to the first."""
        return self.labels[max(range(len(self.labels)), key=self.probabilities.__getitem__)]


def label_scores(labels: Sequence[str], raw: Sequence[Likelihood], by: Literal["total", "mean"] = "total") -> LabelScores:
    """Return the log-likelihoods of labels after one prompt, with their softmax.

    Args:
        labels: The labels.
        raw: Log-likelihood of each.
        by: Quantity that is normalized over the labels: "total", a label's probability, which favors short labels, or
            "mean", its probability per token.
    """
    return LabelScores(tuple(labels), tuple(raw), softmax([getattr(likelihood, by) for likelihood in raw]))


def softmax(values: Sequence[float]) -> tuple[float, ...]:
    """Return the softmax of numbers, without overflow."""
    top = max(values)
    shares = [math.exp(value - top) for value in values]
    whole = math.fsum(shares)
    return tuple(share / whole for share in shares)
