"""Estimate the work and the requirements of methods without loading anything, for `ragmeter run --dry-run`.

`@register(…, work=f, needs=g)`: `f(config, lengths)` is the `Work` of all questions that `lengths` counts, `g(config)` the
`Needs`. A method without `work` counts as unknown, never as free. A method with `work` but without `needs` requires no models.
Work is in calls, tokens and bytes; `ragmeter/plan` derives hours from parameter counts and throughput. All numbers are upper
estimates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, Protocol

from benchmarks.schema import Passage

CHARACTERS = 4
"""Assumed characters per token if no tokenizer is available."""
DTYPES = {"no": "float32", "bf16": "bfloat16", "fp16": "float16"}
"""Data type for each value of the training option `precision`."""
FLOAT, HALF = 4, 2
"""Bytes per number in float32 and in 16-bit types."""
WORDS_PER_TOKEN = 0.75
Where = Literal["here", "served", "away"]
"""Location of a model: `here` is local, `served` a free self-hosted endpoint, `away` an endpoint with a key or prices."""


def tokens(text: str) -> int:
    """Return the estimated number of tokens of a text."""
    return -(-len(text) // CHARACTERS)


def filler(number: float) -> Passage:
    """Return a placeholder passage of about this many tokens, for prompts whose real text does not exist yet."""
    return Passage("filler", "", "are " * math.ceil(number))


def mean(values: Sequence[float]) -> float:
    """Return the arithmetic mean; 0 for an empty sequence."""
    return sum(values) / len(values) if values else 0.0


class Size(Protocol):
    """Size of a model: parameters and hidden width; None if unknown."""

    @property
    def parameters(self) -> float | None: ...
    @property
    def width(self) -> int | None: ...
    def adapters(self, rank: int) -> float | None:
        """Return the number of parameters of a LoRA adapter of this rank on all linear layers; None if unknown."""
        ...


class Text(Protocol):
    """Anything with a `full_text`, such as a passage."""

    @property
    def full_text(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample question for estimates: its text, (some of) the passages it may use, a gold answer, and the number of candidate
    passages.
    """

    question: str
    passages: tuple[Text, ...]
    answer: str
    candidates: int


def _unsized(model: str, revision: str | None = None) -> Size:
    raise LookupError(f"the size of {model} is unknown")


@dataclass(frozen=True)
class Lengths:
    """Statistics of a task's data for work estimates; lengths are mean numbers of tokens.

    Attributes:
        data: Name and options of the data.
        questions: Number of questions to answer.
        samples: Sample questions, from which prompts can be built and counted.
        corpus: Number of passages in the corpus.
        passage: Tokens per passage.
        whole: Whether questions have no candidates of their own, so that the whole corpus is searched.
        own: Total passages over all distinct candidate sets, for indexes built per set; the corpus size if `whole`.
        k: Number of passages for compressor and reader; None for all.
        depth: Length of the ranking; None for all passages.
        compressed: Whether a compressor precedes the reader.
        reading: The benchmark's own instructions (`methods.api.Reading`).
        size: Function from model and revision to its `Size`; a checkpoint that is not trained yet has its base model's size.
        training: Function from a checkpoint's name to the options of its training if it is not trained yet, else None.
        judging: Function from a judge (name, options), the number of judgments and the tokens per answer to the work.
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
        """Return the mean question length in tokens."""
        return mean([tokens(item.question) for item in self.samples])

    @cached_property
    def answer(self) -> float:
        """Return the mean length of a gold answer in tokens."""
        return mean([tokens(item.answer) for item in self.samples])

    @cached_property
    def candidates(self) -> float:
        """Return the mean number of passages that a question may use."""
        return self.corpus if self.whole else mean([item.candidates for item in self.samples])

    @cached_property
    def document(self) -> float:
        """Return the mean total length of all passages that a question may use, in tokens."""
        return mean([tokens(passage.full_text) for item in self.samples for passage in item.passages]) * self.candidates

    @property
    def handed(self) -> float:
        """Return the mean number of passages that compressor and reader receive."""
        return self.candidates if self.k is None else min(self.k, self.candidates)

    def ranked(self, *limits: int | None) -> float:
        """Return the length of the ranking: the smallest of `depth`, the given limits and the number of candidates."""
        return min(limit for limit in (self.depth, *limits, self.candidates) if limit is not None)

    def shown_passages(self, sample: Sample) -> tuple[Text, ...]:
        """Return the first k passages of a sample question, which compressor and reader receive."""
        return sample.passages[: self.k]


@dataclass(frozen=True, slots=True)
class Use:
    """Estimated work of one model; counts are totals over all texts, in tokens.

    Attributes:
        model, revision, dtype: The model; None as `dtype` means the checkpoint's type.
        calls, prompt, completion: Number of calls, and their prompt and completion tokens.
        memory: Prompt tokens that are soft (vectors instead of text).
        encoded, trained: Tokens of forward passes only, and of training steps.
        length: Tokens per text, for the cost of attention.
        batch: Texts per batch.
        causal: Whether attention is causal.
        adapted: Whether only adapters are trained.
        held: Tokens whose activations are in memory at the same time during training.
        checkpointed: Whether activation checkpointing is used.
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
"""Stage of a training in which its data are prepared, for example teacher scores or encoded documents."""
TOKENS = ("calls", "prompt", "completion", "memory", "encoded", "trained")


@dataclass(frozen=True, slots=True)
class Work:
    """Upper estimate of work. Add two with `+`; multiply by a number with `*`.

    Attributes:
        uses: Work per model.
        bytes: Disk space that remains in use afterwards.
        usd: Cost of endpoint calls at configured prices, in dollars.
        once: Shared work such as an index, which is counted only once per experiment.
        unknown: Descriptions of work that could not be estimated.
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
        """Multiply the work by a factor; shared work stays unchanged."""
        return replace(self, uses=tuple(use * factor for use in self.uses), bytes=self.bytes * factor, usd=self.usd * factor)

    def count(self, what: str) -> float:
        """Return the total of one count of `Use`, such as `calls` or `prompt`, over all models."""
        return math.fsum(getattr(use, what) for use in self.uses)

    def keyed_by(self, key: str, part: Any) -> Work:
        """Return a copy whose shared work without a key is merged under this key and part."""
        unnamed = [item.work for item in self.once if not item.key]
        own = (Once(total(unnamed), key, part),) if unnamed else ()
        return replace(self, once=(*own, *(item for item in self.once if item.key)))


@dataclass(frozen=True, slots=True)
class Once:
    """Work that is done once and shared by all parts with the same key.

    Attributes:
        work: The work.
        key: Identifies the work; "" for the index of the part itself, until `Work.keyed_by`.
        part: The part whose index it is.
    """

    work: Work
    key: str = ""
    part: Any = None


@dataclass(frozen=True, slots=True)
class StageWork:
    """Estimated work of one training stage, or of preparing the data (`DATA`).

    Attributes:
        stage: Its name.
        work: Upper estimate.
        rows, steps: Training examples and optimizer steps; None if unknown or not applicable.
        scratch: Temporary disk space in bytes.
    """

    stage: str
    work: Work
    rows: float | None = None
    steps: float | None = None
    scratch: float = 0.0


def total(works: Iterable[Work]) -> Work:
    """Return the sum of several work estimates."""
    return sum(works, Work())


def unknown(what: str) -> Work:
    """Return a work estimate that is unknown; `what` describes the missing part."""
    return Work(unknown=(what,))


def free(config: Any, lengths: Lengths) -> Work:
    """Return no work; use it as `work=` for methods that call no model and store nothing."""
    return Work()


def index(work: Work) -> Work:
    """Mark work as that of building an index, which is shared by all methods that search it."""
    return Work(once=(Once(work),))


def ask(llm: Any, number: float, prompt: float, longest: float | None = None, memory: float = 0.0) -> Work:
    """Estimate the work of language-model calls.

    Args:
        llm: Options of an endpoint, a local model or a script; None gives no work.
        number: Number of calls.
        prompt: Tokens per prompt, including soft tokens.
        longest: Maximum tokens per reply; None for the limit in `llm`.
        memory: Soft tokens per prompt.
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
    """Return the maximum reply length that a language model's options allow, in tokens."""
    return int(getattr(llm, "longest", None) or getattr(llm, "max_tokens", None) or llm.max_new_tokens)


def encode(config: Any, texts: float, length: float, *, causal: bool = False) -> Work:
    """Estimate the forward passes over a number of texts. Texts are cut to the `max_length` of the options, or of their
    `encoder`.
    """
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
    """Estimate the forward and backward passes of training on a number of texts.

    Args:
        config: The model's options.
        texts: Number of texts.
        length: Tokens per text.
        precision: A data type, or a value of the training option `precision`.
        causal: Whether attention is causal.
        adapted: Whether only adapters are trained.
        held: Tokens whose activations are in memory at the same time.
        checkpointed: Whether activation checkpointing is used.
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
    """Estimate the disk space of `rows` vectors of a model, with `each` bytes per number; unknown if the model's width is."""
    model = getattr(config, "encoder", config)
    width = getattr(model, "dimension", None) or lengths.size(model.model, getattr(model, "revision", None)).width
    return unknown(f"disk of the vectors of {model.model}: its width is unknown") if width is None else Work(bytes=rows * each * width)


def saved_weights(size: Size, name: str, towers: int = 1) -> Work:
    """Estimate the disk space of a checkpoint with `towers` copies of the parameters in float32; unknown if the size is."""
    if size.parameters is None:
        return unknown(f"disk of the checkpoint: the size of {name} is unknown")
    return Work(bytes=towers * FLOAT * size.parameters)


def saved_adapters(size: Size, name: str, rank: int, number: int) -> Work:
    """Return the disk that the low-rank adapters of a base model take, in float32."""
    each = size.adapters(rank)
    return unknown(f"disk of the adapters: the shape of {name} is unknown") if each is None else Work(bytes=number * FLOAT * each)


def whole_stage(stage: str, work: Work, size: Size, name: str, *, rows: float, taken: float, towers: int = 1) -> StageWork:
    """Return the work of a stage that trains whole models, with the disk for its checkpoint and for the snapshot to resume from.

    Args:
        stage: Its name.
        work: Without its files.
        size, name: The model.
        rows, taken: Training rows, and steps of the optimizer.
        towers: Models that are trained.
    """
    # The snapshot holds the parameters and both AdamW moments.
    scratch = towers * 3 * FLOAT * (size.parameters or 0.0)
    return StageWork(stage, work + saved_weights(size, name, towers), rows, taken, scratch)


def steps(rows: float, batch: int, epochs: int = 1) -> int:
    """Return the number of optimizer steps; the last batch of an epoch may be smaller."""
    return math.ceil(rows / batch) * epochs if rows else 0


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A required local model: folder or hub id, revision, data type, and a license that must be accepted on the hub.

    An `adapter` (PEFT) extends another checkpoint, and a `converted` one only changes the format; neither counts as a separate
    model.
    """

    model: str
    revision: str | None = None
    dtype: str | None = None
    license: str | None = None
    adapter: bool = False
    converted: bool = False

    @property
    def own(self) -> bool:
        """Return whether it counts as a separate model: neither an adapter nor converted."""
        return not (self.adapter or self.converted)


@dataclass(frozen=True, slots=True)
class Needs:
    """Required models and GPU memory. Add two with `+`.

    Attributes:
        checkpoints: Local models; the first one of a training is its base model.
        endpoints: Options of the models behind endpoints.
        gpu_gb, train_gpu_gb: GPU memory for inference and training, if the models' sizes would misestimate it.
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
    """Return the models that options require (endpoints, encoders, cross-encoders, language models); None is skipped."""
    return sum(map(_needs, (config for config in configs if config is not None)), Needs())


def all_needs(several: Iterable[Needs | None]) -> Needs | None:
    """Return the sum of several requirements, or None if any of them is unknown."""
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
