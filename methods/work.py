"""Declare the work and requirements of parts; planning sums both and loads nothing.

`@register(…, work=f, needs=g)`: `f(config, lengths)` is the `Work` of all questions that `lengths` counts, `g(config)`
the `Needs`. A part that states no work is unknown, never free; one that states work and no needs has none. Work is in
calls, tokens and bytes; hours follow from parameters and throughput (`ragmeter/plan`). Numbers are at most what it takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, Protocol

from benchmarks.schema import Passage

CHARACTERS = 4
"""Characters of a token, where no tokenizer is at hand."""
DTYPES = {"no": "float32", "bf16": "bfloat16", "fp16": "float16"}
"""Types that the option `precision` of trainings computes in."""
FLOAT, HALF = 4, 2
"""Bytes of a number in float32, and in 16 bits."""
WORDS_PER_TOKEN = 0.75
Where = Literal["here", "served", "away"]
"""A model on this machine, behind an endpoint of one's own, or behind one that takes a key."""


def tokens(text: str) -> int:
    """Return the estimated number of tokens of a text."""
    return -(-len(text) // CHARACTERS)


def filler(number: float) -> Passage:
    """Return a passage of this many tokens, for a text that is not written yet."""
    return Passage("filler", "", "are " * math.ceil(number))


def mean(values: Sequence[float]) -> float:
    """Return 0 for none."""
    return sum(values) / len(values) if values else 0.0


class Size(Protocol):
    """Known size of a model; None: unknown."""

    @property
    def parameters(self) -> float | None: ...
    @property
    def width(self) -> int | None: ...
    def adapters(self, rank: int) -> float | None:
        """Return parameters of one adapter of this rank on all linear layers."""
        ...


class Text(Protocol):
    """A passage."""

    @property
    def full_text(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Sample:
    """A question as a method meets it: its text, passages that it may use (or the first of them), an answer, and how many."""

    question: str
    passages: tuple[Text, ...]
    answer: str
    candidates: int


def _unsized(model: str, revision: str | None = None) -> Size:
    raise LookupError(f"nobody says how large {model} is")


@dataclass(frozen=True)
class Lengths:
    """Known properties of a part's data; lengths are means, in tokens.

    Attributes:
        data: Name and options of the data.
        questions: How many are to be answered.
        samples: A few of them: prompts can be written of these and counted.
        corpus: Passages of the corpus.
        passage: Tokens of one.
        whole: Whether all of the corpus is searched, for want of candidates.
        own: Passages of all distinct sets of candidates together, for what is built for each set; where `whole`, the corpus.
        k: Passages handed to compressor and reader; None: all.
        depth: Passages ranked; None: all.
        compressed: Whether a compressor makes what the reader reads.
        reading: The benchmark's own instructions (`methods.api.Reading`).
        size: From a model and its revision to its size; of a checkpoint that is still to be trained that of its base.
        training: From a checkpoint still to be trained to the options of its training; None for any other.
        judging: From a judge (name, options), a number of judgments and tokens of an answer to the work.
    """

    data: str
    questions: float
    samples: tuple[Sample, ...] = ()
    corpus: float = 0
    passage: float = 0.0
    whole: bool = False
    own: float = 0
    k: int | None = None
    depth: int | None = None
    compressed: bool = False
    reading: Any = None
    size: Callable[..., Size] = _unsized
    training: Callable[[str], Any] = lambda model: None
    judging: Callable[[tuple[str, Mapping[str, Any]], float, float], Work] = lambda *_: unknown("judging")

    @cached_property
    def question(self) -> float:
        """Return the length of a question."""
        return mean([tokens(item.question) for item in self.samples])

    @cached_property
    def answer(self) -> float:
        """Return the length of an answer in the data."""
        return mean([tokens(item.answer) for item in self.samples])

    @cached_property
    def candidates(self) -> float:
        """Return passages that a question may use."""
        return self.corpus if self.whole else mean([item.candidates for item in self.samples])

    @cached_property
    def document(self) -> float:
        """Return the length of all passages that a question may use."""
        return mean([tokens(passage.full_text) for item in self.samples for passage in item.passages]) * self.candidates

    @property
    def handed(self) -> float:
        """Return passages that compressor and reader are handed."""
        return self.candidates if self.k is None else min(self.k, self.candidates)

    def ranked(self, *limits: int | None) -> float:
        """Return passages ranked, under further limits."""
        return min(limit for limit in (self.depth, *limits, self.candidates) if limit is not None)

    def shown_passages(self, sample: Sample) -> tuple[Text, ...]:
        """Return for a sample the passages that compressor and reader get."""
        return sample.passages[: self.k]


@dataclass(frozen=True, slots=True)
class Use:
    """Work of one model, in tokens of all texts.

    Attributes:
        model, revision, dtype: The model; None as dtype: its own.
        calls, prompt, completion: Prompts read and replies written.
        memory: Of the prompt's tokens those that are vectors, not text.
        encoded, trained: Read by forward passes alone; learned from.
        length: Of one text, for attention.
        batch: Texts at once.
        causal: True if a token sees only those before it.
        adapted: True if only adapters learn.
        held: Tokens whose activations are held at once while learning.
        checkpointed: True if activations are recomputed in the backward pass.
        where: See `Where`.
    """

    model: str
    revision: str | None = None
    dtype: str | None = None
    calls: float = 0
    prompt: float = 0
    completion: float = 0
    memory: float = 0
    encoded: float = 0
    trained: float = 0
    length: float = 0
    batch: int = 1
    causal: bool = True
    adapted: bool = False
    held: float = 0
    checkpointed: bool = False
    where: Where = "here"

    def __mul__(self, factor: float) -> Use:
        return replace(self, **{name: getattr(self, name) * factor for name in TOKENS})


DATA = "data"
"""The stage of a training in which data are prepared: scores, replies, frozen documents."""
TOKENS = ("calls", "prompt", "completion", "memory", "encoded", "trained")


@dataclass(frozen=True, slots=True)
class Work:
    """Maximum work; can be added.

    Attributes:
        uses: Of models.
        bytes: On disk, that stay.
        usd: Of endpoints, at the configured prices.
        once: What all who need it share, such as an index: counted for the first of them.
        unknown: What is not in these numbers, and why.
    """

    uses: tuple[Use, ...] = ()
    bytes: float = 0
    usd: float = 0
    once: tuple[Once, ...] = ()
    unknown: tuple[str, ...] = ()

    def __add__(self, other: Work) -> Work:
        open_ones = tuple(dict.fromkeys((*self.unknown, *other.unknown)))
        return Work((*self.uses, *other.uses), self.bytes + other.bytes, self.usd + other.usd, (*self.once, *other.once), open_ones)

    def __mul__(self, factor: float) -> Work:
        """Return the work multiplied by a factor; work that is done once stays once."""
        return replace(self, uses=tuple(use * factor for use in self.uses), bytes=self.bytes * factor, usd=self.usd * factor)

    def count(self, what: str) -> float:
        """Return `calls`, or tokens of one kind (see `Use`), of all models together."""
        return math.fsum(getattr(use, what) for use in self.uses)

    def keyed_by(self, key: str, part: Any) -> Work:
        """Return the work: with one name for everything that is done once and has none yet."""
        unnamed = [item.work for item in self.once if not item.key]
        own = (Once(total(unnamed), key, part),) if unnamed else ()
        return replace(self, once=(*own, *(item for item in self.once if item.key)))


@dataclass(frozen=True, slots=True)
class Once:
    """Work that is done once for all who have the same key.

    Attributes:
        work: What it takes.
        key: Equal where it is the same work; "" stands for the part's own index.
        part: The part whose index it is.
    """

    work: Work
    key: str = ""
    part: Any = None


@dataclass(frozen=True, slots=True)
class StageWork:
    """A stage of a training, or `DATA`.

    Attributes:
        stage: Its name.
        work: At most.
        rows, steps: Training rows, and steps of the optimizer; None: none, or unknown.
        scratch: Bytes on disk while it runs.
    """

    stage: str
    work: Work
    rows: float | None = None
    steps: float | None = None
    scratch: float = 0.0


def total(works: Iterable[Work]) -> Work:
    """Return the work: all of them together."""
    return sum(works, Work())


def unknown(what: str) -> Work:
    """Return work of which nothing is known but that it is there."""
    return Work(unknown=(what,))


def free(config: Any, lengths: Lengths) -> Work:
    """Return the `work` of parts that ask no model and keep nothing."""
    return Work()


def index(work: Work) -> Work:
    """Return the work of building a part's index, which all who search the same share."""
    return Work(once=(Once(work),))


def ask(llm: Any, number: float, prompt: float, longest: float | None = None, memory: float = 0.0) -> Work:
    """Return the work: calls of a language model: an endpoint's options, a local model's, or a script's.

    Args:
        llm: Its options; None: nobody is asked.
        number: Of calls.
        prompt: Tokens of one, soft ones included.
        longest: Tokens of a reply at most; None: as the options say.
        memory: Of the prompt's tokens those that are soft.
    """
    if llm is None or not number:
        return Work()
    name = getattr(llm, "local", None) or getattr(llm, "model", None)
    most = longest_reply(llm) if longest is None else longest
    counts: dict[str, Any] = {
        "calls": number,
        "prompt": number * prompt,
        "completion": number * most,
        "memory": number * memory,
        "length": prompt,
    }
    if getattr(llm, "scripted", None):
        return Work((Use("scripted", **counts, where="away"),))
    if getattr(llm, "local", None) or not hasattr(llm, "usd"):
        local: dict[str, Any] = {"revision": getattr(llm, "revision", None), "dtype": llm.dtype or "auto", "batch": llm.batch_size}
        return Work((Use(str(name), **counts, **local),))
    usd = llm.usd(round(number * prompt), round(number * most))
    where: Where = "served" if llm.key_variable is None and not usd else "away"
    called = Work((Use(str(name), **counts, dtype="auto", batch=llm.concurrency, where=where),), usd=usd)
    priced = where == "served" or usd
    return called if priced else called + unknown(f"dollars of {name}: usd_per_million_prompt_tokens and …_completion_tokens not set")


def longest_reply(llm: Any) -> int:
    """Return tokens of a language model's longest reply."""
    return int(getattr(llm, "longest", None) or getattr(llm, "max_tokens", None) or llm.max_new_tokens)


def encode(config: Any, texts: float, length: float, *, causal: bool = False) -> Work:
    """Forward passes over texts of a length, cut to the longest that the options of the model (`encoder` or they) allow."""
    return _passes(config, "encoded", texts, length, causal)


def learn(
    config: Any,
    texts: float,
    length: float,
    precision: str = "no",
    *,
    causal: bool = False,
    adapted: bool = False,
    held: float = 0,
    checkpointed: bool = False,
) -> Work:
    """Forward and backward passes over texts of a length; in a type, or in what `precision` of trainings means.

    Args:
        config: The model's options.
        texts: How many.
        length: Tokens of one.
        precision: A type, or an option `precision` of trainings.
        causal: True if a token sees only those before it.
        adapted: True if only adapters learn.
        held: Tokens whose activations are held at once.
        checkpointed: True if activations are recomputed in the backward pass.
    """
    work = _passes(config, "trained", texts, length, causal, precision, adapted)
    return replace(work, uses=tuple(replace(use, held=held, checkpointed=checkpointed) for use in work.uses))


def _passes(config: Any, kind: str, texts: float, length: float, causal: bool, dtype: str | None = None, adapted: bool = False) -> Work:
    model = getattr(config, "encoder", config)
    longest = min(length, getattr(model, "max_length", None) or length)
    use = Use(
        model.model,
        getattr(model, "revision", None),
        DTYPES.get(dtype or "", dtype) or getattr(model, "dtype", None) or "auto",
        length=longest,
        batch=getattr(model, "batch_size", 1),
        causal=causal,
        adapted=adapted,
    )
    amount: Any = {kind: texts * longest}
    return Work((replace(use, **amount),)) if texts else Work()


def vectors(config: Any, lengths: Lengths, rows: float, each: int = FLOAT) -> Work:
    """Return the work: disk of this many vectors of a model, `each` bytes a number."""
    model = getattr(config, "encoder", config)
    width = getattr(model, "dimension", None) or lengths.size(model.model, getattr(model, "revision", None)).width
    return unknown(f"disk of the vectors of {model.model}: its width is unknown") if width is None else Work(bytes=rows * each * width)


def saved_weights(size: Size, name: str, towers: int = 1) -> Work:
    """Return the work: disk of a checkpoint whose parameters are all kept in float32."""
    if size.parameters is None:
        return unknown(f"disk of the checkpoint: the size of {name} is unknown")
    return Work(bytes=towers * FLOAT * size.parameters)


def saved_adapters(size: Size, name: str, rank: int, number: int) -> Work:
    """Return the work: disk of low-rank adapters of a base, in float32."""
    each = size.adapters(rank)
    return unknown(f"disk of the adapters: the shape of {name} is unknown") if each is None else Work(bytes=number * FLOAT * each)


def whole_stage(stage: str, work: Work, size: Size, name: str, *, rows: float, taken: float, towers: int = 1) -> StageWork:
    """Return a stage that trains whole models: with disk of its checkpoint and of the point that it continues from.

    Args:
        stage: Its name.
        work: Without its files.
        size, name: The model.
        rows, taken: Training rows, and steps of the optimizer.
        towers: Models that are trained.
    """
    # That point holds parameters and two means of AdamW.
    scratch = towers * 3 * FLOAT * (size.parameters or 0.0)
    return StageWork(stage, work + saved_weights(size, name, towers), rows, taken, scratch)


def steps(rows: float, batch: int, epochs: int = 1) -> int:
    """Return steps of the optimizer: the last one of an epoch may be smaller."""
    return math.ceil(rows / batch) * epochs if rows else 0


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A local model: folder or hub id, revision, type of its weights, and a license that its owner wants accepted.

    An `adapter` (PEFT) is put onto another one and counts as no model of its own; neither does one that is only `converted`.
    """

    model: str
    revision: str | None = None
    dtype: str | None = None
    license: str | None = None
    adapter: bool = False
    converted: bool = False

    @property
    def own(self) -> bool:
        """Return whether it counts as a model of its own."""
        return not (self.adapter or self.converted)


@dataclass(frozen=True, slots=True)
class Needs:
    """Requirements; can be added.

    Attributes:
        checkpoints: Local models; of a training the first is what it begins from.
        endpoints: Options of the models that are asked at a distance.
        gpu_gb, train_gpu_gb: Memory of a GPU, where it is known better than by the models' sizes.
    """

    checkpoints: tuple[Checkpoint, ...] = ()
    endpoints: tuple[Any, ...] = field(default=())
    gpu_gb: float | None = None
    train_gpu_gb: float | None = None

    def __add__(self, other: Needs) -> Needs:
        def both(one: float | None, two: float | None) -> float | None:
            return None if one is None and two is None else (one or 0) + (two or 0)

        checkpoints = tuple(dict.fromkeys((*self.checkpoints, *other.checkpoints)))
        memory = both(self.gpu_gb, other.gpu_gb), both(self.train_gpu_gb, other.train_gpu_gb)
        return Needs(checkpoints, (*self.endpoints, *other.endpoints), *memory)


def needs_of(*configs: Any) -> Needs:
    """Return the models that options name: those of endpoints, encoders, cross-encoders and language models; None is passed over."""
    return sum(map(_needs, (config for config in configs if config is not None)), Needs())


def all_needs(several: Iterable[Needs | None]) -> Needs | None:
    """Return those of several parts; None: one of them does not say."""
    known = list(several)
    return None if None in known else sum((item for item in known if item), Needs())


def _needs(config: Any) -> Needs:
    if getattr(config, "scripted", None):
        return Needs()
    if hasattr(config, "usd") and not getattr(config, "local", None):
        return Needs(endpoints=(config,))
    model = getattr(config, "encoder", config)
    dtype, query = getattr(model, "dtype", None), getattr(model, "query_model", None)
    own = Checkpoint(getattr(model, "local", None) or model.model, getattr(model, "revision", None), dtype)
    adapter = getattr(model, "adapter", None)
    onto = (Checkpoint(adapter, adapter=True),) if adapter else ()
    return Needs((*((Checkpoint(query, model.query_revision, dtype),) if query else ()), own, *onto))
