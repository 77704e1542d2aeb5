"""Define the roles of a method and the objects that they exchange.

A role has one of two forms. *Batch*, as in the protocols below, is for local computation: many queries in,
one result per query out, in order. *Single* is for roles that wait for a service or ask several times: an `async` function
of one query, named `…_one`:

    async retrieve_one(query, k) -> Ranking                     async rerank_one(query, ranking, corpus) -> Ranking
    async compress_one(query, ranking, corpus, budget) -> Context          async read_one(query, context) -> Answer
    async answer_one(query) -> Prediction

`methods/flow.py` connects them. A `Method` streams `Prediction`s as they finish. A method receives `Query` objects;
it never sees gold data.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from benchmarks.core.errors import UserError, message_of
from benchmarks.corpus import Corpus
from benchmarks.schema import Passage, Query, Question
from benchmarks.text_index import outside
from methods.record import RECORD, Search, Shown, Statement, read_record

FAILED = "failed"
"""Key in `Prediction.notes` of a failed question; the value is the reason."""
CAUSE = "cause"
"""Key in `Prediction.notes` next to `failed`: `CODE` if ragmeter or a plug-in raised an exception; absent if the model gave no
answer.
"""
CODE, MODEL = "code", "model"
SCRIPTED = "scripted"
"""Key in `Prediction.notes`: the name of the script that replaced the language model, if any (`methods/models/llm.py`)."""
ENDPOINTS = "endpoints"
"""Key in `notes`: how the endpoints identified themselves, one object per requested model: `asked`,
`model`, and `system_fingerprint` and `version` if they report them."""
SPENDING = "spending"
"""Key in `notes`: `cached_tokens`, prompt tokens that endpoints read from their own caches, and `unpriced`, calls of
unknown cost. Each is present if above 0."""
SUPPORT = "support"
"""Key in `Prediction.notes`: evidence that the method cites for the answer: ids of passages, and sentences as [passage id,
0-based index].
"""
ANSWERABLE = "answerable"
"""Key in `Prediction.notes`: whether the method considers the evidence sufficient to answer, true or false."""
TRIPLES = "triples"
"""Key in `Prediction.notes`: predicted reasoning triples, a list of [head, relation, tail]."""
OUTSIDE = "outside"
"""Key in the notes of a ranking and its prediction: retrieved texts that match no passage of the corpus, by their id in the
ranking (`benchmarks.text_index.outside`)."""
PARTIAL = "partial_matches"
"""Key in the same notes: number of ranked passages that were found by a part of their text, or in a longer text."""
RETRIEVAL_ONLY = "retrieval_only"
"""Id of the reader that gives no answers."""
NO_RETRIEVAL = "no_retrieval"
"""Id of the retriever that returns no passages."""
APP = "http"
"""Id of the method for applications behind HTTP."""
_RANKED = frozenset(("ranking", "texts", "pages"))
"""Inputs of metrics that come from a retriever."""
_STATED = frozenset(("answer", "support", "triples", "answerable", "statements", "confidence"))
"""Inputs of metrics that come from a reader or a whole method."""
TRUNCATED = "truncated"
RERANKER_TRUNCATED = "reranker_truncated"
"""Key in `Prediction.notes` if a reranker's prompt was cut: `{"unit": "tokens", "kept": n, "of": m}`; other units are words,
lines and passages.
"""
ENDPOINT_READ = "endpoint_read"
"""Key in `Indexed.notes` if an endpoint reports far fewer tokens than it was sent: `{"reported": n, "estimated": m}`."""
UNREAD_PASSAGES = "unread_passages"
"""Key in `Indexed.notes` if a model's records of some passages are missing: `{"failed": n, "unusable": m, "of": passages}`."""
WAIT = "wait"
"""Key of `Usage.seconds` for the time in which a question only waited (`flow.Trace.waited_s`); `Usage.own_s` excludes it."""
UNKNOWN_REVISION = "unknown"
"""Provenance value for an endpoint that reports no model version."""
TURNS_UNREAD = "turns_unread"
"""Key of a run's provenance, set if the questions have earlier conversation turns and no part reads them (`reads_turns` of a
factory).
"""
MARKER = "complete.json"
"""Name of the file that is written last into an index folder; a folder without it is unfinished."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Cost of one answer.

    Attributes:
        prompt_tokens, completion_tokens, memory_tokens: Counts of the model that was called; memory tokens
            are soft tokens used instead of text.
        model_calls: Number of calls of generating models.
        seconds: The question's own seconds by stage (`retrieve`, `rerank`, `compress`, `read` …): a batch's time is shared
            equally. Waiting for a slot, in a rate limiter or for a batch to begin, is counted separately under `wait`.
        peak_memory_bytes: Highest accelerator memory in use, 0 if not measured.
        cost_usd: Price of the calls, 0 for local models.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    memory_tokens: int = 0
    model_calls: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)
    peak_memory_bytes: int = 0
    cost_usd: float = 0.0

    @property
    def own_s(self) -> float:
        """Return the question's own processing time in seconds: all stages except waiting."""
        return float(sum(spent for stage, spent in self.seconds.items() if stage != WAIT))

    def __add__(self, other: Usage) -> Usage:
        seconds = dict(self.seconds)
        for stage, spent in other.seconds.items():
            seconds[stage] = seconds.get(stage, 0.0) + spent
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.memory_tokens + other.memory_tokens,
            self.model_calls + other.model_calls,
            seconds,
            max(self.peak_memory_bytes, other.peak_memory_bytes),
            self.cost_usd + other.cost_usd,
        )

    def to_json(self) -> dict[str, Any]:
        """Return all fields as a JSON object."""
        return {name: getattr(self, name) for name in self.__slots__} | {"seconds": dict(self.seconds)}


@dataclass(frozen=True, slots=True)
class Indexed:
    """Cost of preparing the corpus for the questions; separate from the cost of answers.

    Attributes:
        artifact: Shared name of the index that was built or reopened; "" if nothing is kept.
        reused: Whether it existed before: then the seconds are those of opening it, and an earlier run paid for the calls.
        usage: Seconds under `index`, and the model calls for building it.
        notes: Notes of the parts: `truncated` and `reranker_truncated` (how much of the passages the encoder and
            a reranker do not read) and `preset` (options that an encoder was trained with but that are not set).
    """

    artifact: str = ""
    reused: bool = False
    usage: Usage = field(default_factory=Usage)
    notes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Evidence:
    """One item of ranked evidence: the opaque id of a passage or a triple."""

    id: str
    score: float


def not_stated(method: str, reader: str | None, compressed: bool, contexts: Any = None) -> frozenset[str]:
    """Return the inputs of metrics (words of `judges.metric.NEEDS`) that a method does not provide by design: answers, or rankings.

    Args:
        method: Its id.
        reader: Id of its reader; None for a whole method.
        compressed: Whether it has a compressor, which may claim support itself.
        contexts: Its option of this name, as JSON; an app may only name its contexts.
    """
    unranked = _RANKED if method == NO_RETRIEVAL else frozenset()
    if method == APP and isinstance(contexts, Mapping) and not contexts.get("text"):
        return frozenset(("texts", "contexts"))
    if reader != RETRIEVAL_ONLY:
        return unranked
    return unranked | (_STATED - {"support"} if compressed else _STATED)


def support_claims(value: Any) -> list[tuple[str, int | None]] | None:
    """Parse `notes[SUPPORT]` into pairs (passage id, sentence index or None); None if the value is malformed."""
    if not isinstance(value, list | tuple):
        return None
    claims: list[tuple[str, int | None]] = []
    for item in value:
        if isinstance(item, str):
            claims.append((item, None))
        elif isinstance(item, list | tuple) and len(item) == 2 and isinstance(item[0], str) and type(item[1]) is int:
            claims.append((item[0], item[1]))
        else:
            return None
    return claims


def outside_of(notes: Mapping[str, Any]) -> list[Passage]:
    """Return the texts under `OUTSIDE` as passages; entries whose id is not that of their text are omitted."""
    texts = notes.get(OUTSIDE)
    entries = texts.items() if isinstance(texts, Mapping) else ()
    passages = [(name, outside(text)) for name, text in entries if isinstance(text, str)]
    return [passage for name, passage in passages if passage.id == name]


CUT = ("length", "max_tokens", "max_output_tokens", "model_length", "model_context_window_exceeded", "max_length", "token_limit")
"""Finish reasons, in lower case, of replies that the token limit ended."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a generating model, as stored with its prediction.

    Attributes:
        role: Role that made the call (`reader`, `hyde` …).
        step: Name of the prompt, if the role has several.
        prompt: The prompt as text, each message after its role; cut to `KEPT_CHARACTERS`.
        reply: The reply, or why there is none; cut to the same length.
        prompt_tokens, completion_tokens: Counts of the model.
        seconds: Time from the first try to the reply, without waiting for a slot.
        cached: Whether the reply came from the response cache, or from an identical call in flight.
        failed: Whether there was no reply.
        thought: The reasoning before the reply, cut to the same length.
        raw: The whole reply, cut to the same length; "" if it equals `reply`.
        finish_reason: `stop`, `length` …; "" if unknown.
        refusal: The model's words if it refused.
        model: The model that served the reply, as the endpoint names it.
        created: Time at which a cached reply was received, in seconds since 1970; None for a new reply.
    """

    role: str
    step: str
    prompt: str
    reply: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    cached: bool = False
    failed: bool = False
    thought: str = ""
    raw: str = ""
    finish_reason: str = ""
    refusal: str = ""
    model: str = ""
    created: float | None = None

    @property
    def name(self) -> str:
        """Return "role step", or the role if there is no step, for display."""
        return f"{self.role}/{self.step}" if self.step else self.role


KEPT_CHARACTERS = 20_000
"""Number of characters stored of a prompt and of a reply."""
KEPT_CALLS = 200
"""Maximum calls kept per question; later ones are dropped."""


def kept(text: str) -> str:
    """Return a prompt or reply cut to `KEPT_CHARACTERS`, for storage with a prediction."""
    if len(text) <= KEPT_CHARACTERS:
        return text
    # Allows for the note: a text that was cut before stays unchanged.
    beginning = text[: KEPT_CHARACTERS - 50]
    return f"{beginning}\n[… {len(text) - len(beginning):,} more characters]"


REASON_CHARACTERS = 300
"""Maximum number of characters kept of a failure's reason."""


def reason(text: str, end: str = "") -> str:
    """Shorten a failure reason to one line of at most `REASON_CHARACTERS`.

    Args:
        text: The reason; its end is cut off if it is too long.
        end: Text to keep at the end, at most half as long.
    """
    end = end[: REASON_CHARACTERS // 2]
    room = REASON_CHARACTERS - len(end)
    flat = " ".join(text[: 4 * REASON_CHARACTERS].split())
    return (flat if len(flat) <= room else f"{flat[: room - 1]}…") + end


def raised(error: BaseException) -> str:
    """Describe an exception as a failure reason, with its location, such as `KeyError: 'x' (read, my_reader.py line 12)`."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "site-packages" not in frame.filename] or frames
    place = f" ({own[-1].name}, {Path(own[-1].filename).name} line {own[-1].lineno})" if own else ""
    return reason(f"{type(error).__name__}: {message_of(error)}", place)


@dataclass(frozen=True, slots=True)
class Prediction:
    """A method's answer to one question; as JSON, one row of a submission.

    Attributes:
        question_id: The id of the query answered.
        answer: The answer, "" if there is none.
        evidence: Ranked evidence; scores never change its order.
        usage: Cost of the answer.
        notes: Further output under the documented keys `support`, `triples`, `answerable`, `failed`, or your own keys. Tables report
            `{"my_method": {"fallbacks": {reason: number of failed steps}}}`.
        calls: Calls of generating models, in the order in which they ended; not part of a submission.
        raw: Full output of the reader's model, with its thought and before extraction of the answer; set if it differs from `answer`.
        contexts: The texts that the system showed its model, in order; None if not reported. Without `evidence`,
            ragmeter ranks the corpus passages that it finds in them.
        statements: Parts of the answer with their citations.
        searches: The searches that the system made.
        confidence: The system's own confidence in the answer, None if not reported.
    """

    question_id: str
    answer: str
    evidence: tuple[Evidence, ...] = ()
    usage: Usage = field(default_factory=Usage)
    notes: Mapping[str, Any] = field(default_factory=dict)
    calls: tuple[Call, ...] = field(default=(), compare=False)
    raw: str = field(default="", compare=False)
    contexts: tuple[Shown, ...] | None = None
    statements: tuple[Statement, ...] = ()
    searches: tuple[Search, ...] = ()
    confidence: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the prediction as a JSON object, a row of a submission file."""
        return {
            "question_id": self.question_id,
            "answer": self.answer,
            "evidence": [{"id": item.id, "score": item.score} for item in self.evidence],
            "usage": self.usage.to_json(),
            "notes": dict(self.notes),
            **self.record(),
        }

    def record(self) -> dict[str, Any]:
        """Return the optional fields in `RECORD` (contexts, statements, searches, confidence) that are set, as JSON values."""
        fields: dict[str, Any] = {} if self.contexts is None else {"contexts": [item.to_json() for item in self.contexts]}
        fields |= {name: [item.to_json() for item in items] for name in ("statements", "searches") if (items := getattr(self, name))}
        return fields if self.confidence is None else {**fields, "confidence": self.confidence}

    @classmethod
    def from_json(cls, row: Mapping[str, Any], *, where: str | None = None) -> Prediction:
        """Read a submission row.

        Raises:
            UserError: A field is missing, unknown or of the wrong type.
        """
        try:
            unknown = set(row) - {"question_id", "answer", "evidence", "usage", "notes", *RECORD}
            if unknown:
                raise ValueError(f"unknown field {sorted(unknown)[0]!r}")
            if not isinstance(row["question_id"], str) or not isinstance(row["answer"], str):
                raise ValueError("question_id and answer must be strings")
            evidence = tuple(Evidence(str(e["id"]), float(e.get("score", 0.0))) for e in row.get("evidence", ()))
            usage, notes = Usage(**row.get("usage", {})), dict(row.get("notes", {}))
            return cls(row["question_id"], row["answer"], evidence, usage, notes, **read_record(row))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            problem = f"field {error} is missing" if isinstance(error, KeyError) else str(error)
            raise UserError(f"this is not a prediction: {problem}", code="not-prediction", where=where) from error


@dataclass(frozen=True, slots=True)
class Ranking:
    """Passages (or triples) for one query, best first, each id once.

    Attributes:
        query_id: The query.
        ids: Best first.
        scores: One per id; comparable only within this ranking.
        usage: Cost of retrieving, if a model was called.
        notes: Notes for the prediction, under the retriever's own keys.
        selected: Ids that compressor and reader may receive; None: all.
    """

    query_id: str
    ids: tuple[str, ...]
    scores: tuple[float, ...]
    usage: Usage = field(default_factory=Usage)
    notes: Mapping[str, Any] = field(default_factory=dict)
    selected: frozenset[str] | None = None

    def top(self, k: int) -> Ranking:
        """Return the ranking cut to its first k ids."""
        return replace(self, ids=self.ids[:k], scores=self.scores[:k])

    def handed_on(self, k: int | None) -> Ranking:
        """Return the first k ids that compressor and reader may receive (`selected`); None as k means all."""
        if self.selected is None:
            return self if k is None else self.top(k)
        kept = [(id, score) for id, score in zip(self.ids, self.scores, strict=True) if id in self.selected][:k]
        return replace(self, ids=tuple(id for id, _ in kept), scores=tuple(score for _, score in kept))


@dataclass(frozen=True, slots=True)
class Context:
    """Evidence that a reader receives for one query.

    Attributes:
        query_id: The query.
        passages: Text evidence in reading order (compressors return rewritten passages).
        memory: Soft evidence in a form that the compressor and its reader agree on, usually a tensor.
        usage: Cost of compressing.
        notes: Notes for the prediction.
    """

    query_id: str
    passages: tuple[Passage, ...] = ()
    memory: Any = None
    usage: Usage = field(default_factory=Usage)
    notes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """A reader's answer to one query. `notes` and `raw` are as in `Prediction`; `calls` are calls made for the whole batch."""

    text: str
    usage: Usage = field(default_factory=Usage)
    notes: Mapping[str, Any] = field(default_factory=dict)
    calls: tuple[Call, ...] = field(default=(), compare=False)
    raw: str = field(default="", compare=False)


class Index(Protocol):
    """A searchable corpus, built by a `Retriever`.

    If building it called models, an attribute `usage` has the cost; seconds are measured by the caller. An attribute
    `notes` is stored with the run (`Indexed.notes`). An index that builds
    something for each question's own candidates may have a function `build_for(queries)`, which a run calls once with all of
    its questions before it asks the first, so that the cost counts for the index and not for a question. An index that may rank
    texts outside its corpus (`OUTSIDE`) has an attribute `keeps_outside`, which a caller that can use them sets to true. One that
    searches with other indexes gets their cost, notes and `build_for` from `methods.composed.Composed`.
    """

    def retrieve(self, queries: Sequence[Query], k: int) -> list[Ranking]:
        """Return at most k passages per query: from its candidates if it has some, else from the whole corpus.

        A ranking depends only on its query, never on the other queries of the batch.
        """
        ...


@runtime_checkable
class ContextWriter(Protocol):
    """An index that writes the reader's context itself, for example joined passages or its own layout."""

    def contexts(self, queries: Sequence[Query], rankings: Sequence[Ranking]) -> list[Context]:
        """Return the context that the reader receives for each ranking; used if no compressor is set."""
        ...


@runtime_checkable
class Retriever(Protocol):
    """Role that turns a corpus into an index."""

    def index(self, corpus: Corpus, folder: Path | None = None) -> Index:
        """Build the index, or reopen the one that an earlier call completed in `folder`."""
        ...


@runtime_checkable
class Reranker(Protocol):
    """Role that reorders retrieved candidates."""

    def rerank(self, queries: Sequence[Query], rankings: Sequence[Ranking], corpus: Corpus) -> list[Ranking]:
        """Return one ranking per query, over the same ids; `selected` leaves out ids that the reader must not receive."""
        ...


@runtime_checkable
class Compressor(Protocol):
    """Role that shortens ranked evidence to a token budget."""

    def compress(self, queries: Sequence[Query], rankings: Sequence[Ranking], corpus: Corpus, budget: int | None) -> list[Context]:
        """Return one context per query; `budget` in tokens of the reader, None for the compressor's own."""
        ...


@runtime_checkable
class Reader(Protocol):
    """Role that answers queries from contexts."""

    def read(self, queries: Sequence[Query], contexts: Sequence[Context]) -> list[Answer]:
        """Return one answer per query."""
        ...


@runtime_checkable
class Method(Protocol):
    """A complete RAG system, which answers the queries of a benchmark."""

    def index(self, corpus: Corpus) -> Indexed | None:
        """Prepare for questions about this corpus; called once before `answer`.

        Returns:
            The cost; None lets the caller measure the seconds, and means that no model was called.
        """
        ...

    def answer(self, queries: Iterable[Query]) -> Iterator[Prediction]:
        """Yield one prediction per query, in any order, as they finish."""
        ...


@runtime_checkable
class Control(Protocol):
    """A method that sees all questions with their gold answers and evidence first, such as an oracle or a shuffled ranking."""

    def prepare(self, questions: Sequence[Question]) -> None:
        """Receive all questions of the task once, including those answered in an earlier execution."""
        ...


class Judge(Protocol):
    """Interface of a judge of answers for training pipelines; `ragmeter/` injects an implementation from `judges/`."""

    @property
    def fingerprint(self) -> str:
        """Return a hash of everything that determines its replies: rules or model, options, prompt."""
        ...

    async def verdicts_one(self, question: Question, answer: str) -> str | None:
        """Return the judge's verdict on an answer, or None if its reply could not be parsed."""
        ...


@dataclass(frozen=True, slots=True)
class Reading:
    """A benchmark's official instructions for readers: prompt, answer length and truncation.

    Attributes:
        prompt: A template for readers, with `$passages` and `$question`.
        max_new_tokens: Longest answer.
        truncation: Part that is removed from a prompt that is too long: its `middle`, or its last `passages`.
        chat: Whether the prompt uses the model's chat format; false for examples to continue from.
    """

    prompt: str
    max_new_tokens: int
    truncation: Literal["middle", "passages"] = "passages"
    chat: bool = True

    def describe(self) -> dict[str, Any]:
        """Return the fields that enter a run's fingerprint. `chat: true` is omitted, so that runs from before that field keep
        theirs.
        """
        return {name: value for name, value in asdict(self).items() if (name, value) != ("chat", True)}


@dataclass(frozen=True)
class Services:
    """Services that the harness provides to the methods that it builds.

    Attributes:
        seed: The task's seed; everything random derives from it.
        artifacts: Folder for indexes and other reusable work, None to keep everything in memory.
        cache: File of cached model replies, None to call the model every time.
        replies: Cached replies to use: "" for all, or a token for those stored under it (`ragmeter run --fresh`).
        device: "cpu", "cuda", … or None to choose.
        judge: Judge that `ragmeter/` injects for pipelines that need one.
        reading: The benchmark's instructions for readers, if it has any; for readers that follow them.
        repeat: Number of earlier repeats of the same questions; models are called again for each repeat.
        reask_unread: Whether judges ask again if a cached reply could not be parsed.
        embeddings: Folder of the cache of embeddings, a database that needs a local disk; None: `embeddings` in `artifacts`.
    """

    seed: int = 0
    artifacts: Path | None = None
    device: str | None = None
    judge: Judge | None = None
    cache: Path | None = None
    reading: Reading | None = None
    replies: str = ""
    repeat: int = 0
    reask_unread: bool = False
    embeddings: Path | None = None

    def folder(self, *parts: str) -> Path | None:
        """Return the path of a subfolder of `artifacts`, or None if nothing is kept on disk."""
        if parts == ("embeddings",) and self.embeddings is not None:
            return self.embeddings
        return self.artifacts.joinpath(*parts) if self.artifacts else None

    def seeded(self, seed: int) -> Services:
        """Return a copy with another seed."""
        return replace(self, seed=seed)
