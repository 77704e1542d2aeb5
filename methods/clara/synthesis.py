"""Rows of pretraining by a chat model: simple and complex questions, answers, checks, coverage, paraphrases.

Every document has one loop for each type of row (`Loop`); loops run side by side and share the endpoint.
After each step a loop's state is on disk, and every reply is in the cache of replies before it is used: a run that was
killed goes on where it was, and what was answered is not asked again.

Source: the paper's section 2.1.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple, Protocol, Self, TypeVar, overload

from pydantic import BaseModel, Field

from benchmarks.core.errors import UserError, unwritable
from benchmarks.core.fingerprint import fingerprint
from benchmarks.core.random import Draws
from benchmarks.corpus import Corpus
from benchmarks.text import normalize
from methods.clara.config import TYPES, Type
from methods.clara.rows import Pair, ScpRow
from methods.clara.synthesis_prompts import (
    ABSENT,
    NONE_YET,
    REPLIES,
    Answer,
    Judgment,
    Preserved,
    Prompts,
    Questions,
    Rephrasing,
    Supplement,
    shown_pairs,
)
from methods.models.chat import ChatModel, Structured
from methods.models.endpoint import ChatConfig, Messages, TokenCounter
from methods.training import Progress, Silent
from methods.training.stages import file_id

# -- The loop over one document, as a state that moves from reply to reply; it asks nobody itself --
# Questions:   ask → answer (one call a question) → check (one call a pair) → ask what is missing → … until nothing is.
# Paraphrase:  ask → check → ask again … until it is accepted.
#
# Both end as `covered`, or as `uncovered` after the last round; what is uncovered is no training data.
#
# Source: the paper's section 2.1 and Figures 9 to 16.


ROUNDS = 10
"""Rounds of the coverage loop, and further paraphrases, at most."""
MOST_QUESTIONS = 40
"""Questions of one reply that are looked at; the authors' documents have at most 34."""

Step = Literal["ask", "answer", "check"]
Status = Literal["open", "covered", "uncovered"]


@dataclass(frozen=True, slots=True)
class Ask:
    """A call to make: the prompt's name and the conversation."""

    prompt: str
    messages: Messages


@dataclass(frozen=True, slots=True)
class Loop:
    """Where a document is.

    Attributes:
        kind: What is made.
        round: 0 for the first questions or paraphrase, then 1, 2 …
        step: What comes next.
        status: Whether it has ended, and how.
        pairs: What was accepted; of a paraphrase one pair without a question.
        pending: What is on its way in this round; answers are "" until they are there.
        counts: What became of replies and questions.
        by: The models that replied, by the names that their endpoint gives them.
    """

    kind: Type
    round: int = 0
    step: Step = "ask"
    status: Status = "open"
    pairs: tuple[Pair, ...] = ()
    pending: tuple[Pair, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    by: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {
            "kind": self.kind,
            "round": self.round,
            "step": self.step,
            "status": self.status,
            "pairs": [list(pair) for pair in self.pairs],
            "pending": [list(pair) for pair in self.pending],
            "counts": dict(self.counts),
            "by": list(self.by),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Loop:
        """Read what `to_json` made."""
        pairs = {name: tuple(Pair(*pair) for pair in value[name]) for name in ("pairs", "pending")}
        return cls(**{**value, **pairs, "by": tuple(value["by"])})

    def counted(self, **more: int) -> Loop:
        """The same with higher counts."""
        total = Counter(self.counts)
        total.update({name: number for name, number in more.items() if number})
        return replace(self, counts=dict(total))


def row_of(loop: Loop, document: str, identifier: str) -> ScpRow | None:
    """The training row of a document that is covered; None where it is not, or where nothing could be asked."""
    if loop.status != "covered" or not loop.pairs:
        return None
    questions, answers = zip(*loop.pairs, strict=True)
    if loop.kind == "paraphrase":
        return ScpRow("paraphrase", document, (), answers, identifier)
    return ScpRow("qa", document, questions, answers, identifier)


# -- what to ask --


def asks(loop: Loop, document: str, prompts: Prompts) -> list[Ask]:
    """The calls of the next step; none where the loop has ended."""
    return list(_asks(loop, document, prompts)) if loop.status == "open" else []


def _asks(loop: Loop, document: str, prompts: Prompts) -> Iterator[Ask]:
    def ask(name: str, **values: str) -> Ask:
        return Ask(name, prompts.messages(name, document=document, **values))

    if loop.step == "ask":
        if loop.kind == "paraphrase" or loop.round == 0:
            yield ask(loop.kind)
        else:
            yield ask(f"more_{loop.kind}", pairs=shown_pairs(loop.pairs))
    for question, answer in loop.pending:
        if loop.step == "answer":
            yield ask("answer", question=question, absent=ABSENT)
        elif loop.kind == "paraphrase":
            yield ask("check_paraphrase", paraphrase=answer)
        else:
            yield ask("check_answer", question=question, answer=answer)


# -- what the replies lead to --


def advanced(loop: Loop, replies: Sequence[BaseModel | None], rounds: int = ROUNDS, most: int = MOST_QUESTIONS) -> Loop:
    """Where the loop is after the replies to `asks`.

    Args:
        loop: Before.
        replies: One for each call, in order; None where no reply could be read.
        rounds: Rounds after which a document that is not covered is given up.
        most: Questions of a reply that are looked at.
    """
    loop = loop.counted(without_reply=sum(reply is None for reply in replies))
    if loop.step == "answer":
        return _answered(loop, replies, rounds)
    if loop.step == "check":
        return _checked(loop, replies, rounds)
    (reply,) = replies
    if isinstance(reply, Rephrasing):
        return replace(loop, step="check", pending=(Pair("", reply.paraphrase),))
    if isinstance(reply, Supplement) and reply.count == 0:
        return replace(loop, status="covered")
    result = reply.questions if isinstance(reply, Questions | Supplement) else []
    new, repeated = _new(result[:most], loop.pairs)
    loop = loop.counted(questions=len(new), repeated=repeated, beyond_the_most=len(result[most:]))
    if not new:
        return _next_round(loop, rounds)
    return replace(loop, step="answer", pending=tuple(Pair(question, "") for question in new))


def _answered(loop: Loop, replies: Sequence[BaseModel | None], rounds: int) -> Loop:
    results = [(pair.question, reply.answer) for pair, reply in _with(loop, replies) if isinstance(reply, Answer)]
    kept = tuple(Pair(*pair) for pair in results if normalize(pair[1]) != normalize(ABSENT))
    loop = loop.counted(unanswered=len(replies) - len(results), not_contained=len(results) - len(kept))
    return replace(loop, step="check", pending=kept) if kept else _next_round(loop, rounds)


def _checked(loop: Loop, replies: Sequence[BaseModel | None], rounds: int) -> Loop:
    good = tuple(
        pair for pair, reply in _with(loop, replies) if isinstance(reply, Judgment | Preserved) and reply.judgment in ("Correct", "Yes")
    )
    unchecked = sum(reply is None for reply in replies)
    loop = loop.counted(unchecked=unchecked, unsupported=len(replies) - len(good) - unchecked)
    if loop.kind == "paraphrase" and good:
        return replace(loop, status="covered", pairs=good, pending=())
    return _next_round(replace(loop, pairs=(*loop.pairs, *good)), rounds)


def _with(loop: Loop, replies: Sequence[BaseModel | None]) -> Iterator[tuple[Pair, BaseModel | None]]:
    return zip(loop.pending, replies, strict=True)


def _next_round(loop: Loop, rounds: int) -> Loop:
    over = loop.round >= rounds
    if over:
        return replace(loop, status="uncovered", pending=())
    return replace(loop, round=loop.round + 1, step="ask", pending=())


def _new(questions: Sequence[str], pairs: Sequence[Pair]) -> tuple[list[str], int]:
    """Questions that say something and were not accepted before, each once; and how many were repeated or blank.

    One that was refused may be asked again: its answer may have been at fault.
    """
    seen = {normalize(pair.question) for pair in pairs} | {""}
    new = []
    for question in questions:
        plain = normalize(question)
        if plain not in seen:
            seen.add(plain)
            new.append(" ".join(question.split()))
    return new, len(questions) - len(new)


# -- A file of states that grows by whole lines; the last line of an id counts. Only places are held in memory --
# A line is `{"id", "made_of", "value"}` and on its way to the disk when `add` returns: it outlives the process.


class StateFile:
    """States by id; may be used from several threads. A context manager.

    Args:
        path: The file; made when something is first added. A last line that was cut off is removed.

    Raises:
        UserError: The file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._positions: dict[str, int] = {}
        self._lock = threading.Lock()
        self._file: IO[bytes] | None = None
        if path.exists():
            self._scan()

    def __len__(self) -> int:
        return len(self._positions)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get(self, identifier: str, made_of: str) -> Any | None:
        """The state of an id; None where there is none, or it was made of something else."""
        with self._lock:
            position = self._positions.get(file_id(identifier))
            if position is None:
                return None
            file = self._opened()
            file.seek(position)
            row = self._row(file.readline(), position)
        return row["value"] if row["id"] == identifier and row["made_of"] == made_of else None

    def add(self, identifier: str, made_of: str, value: Any) -> None:
        """Add the state of an id (JSON).

        Raises:
            UserError: The file cannot be written.
            Broke: The disk is full.
        """
        row = {"id": identifier, "made_of": made_of, "value": value}
        line = (json.dumps(row, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")
        try:
            with self._lock:
                file = self._opened()
                position = file.seek(0, 2)
                file.write(line)
                file.flush()
                self._positions[file_id(identifier)] = position
        except OSError as error:
            raise unwritable(error, self.path, what="the file of states") from error

    def close(self) -> None:
        """Close the file; it opens again when next used."""
        with self._lock:
            if self._file is not None:
                self._file.close()
            self._file = None

    def _opened(self) -> IO[bytes]:
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("r+b" if self.path.exists() else "w+b")
        return self._file

    def _scan(self) -> None:
        position = 0
        try:
            with self.path.open("r+b") as file:
                for line in file:
                    if not line.endswith(b"\n"):
                        file.truncate(position)
                        break
                    self._positions[file_id(self._row(line, position)["id"])] = position
                    position += len(line)
        except OSError as error:
            raise UserError(f"the states cannot be read: {error.strerror}", where=str(self.path)) from None

    def _row(self, line: bytes, position: int) -> dict[str, Any]:
        try:
            row = json.loads(line)
            return {name: row[name] for name in ("id", "made_of", "value")}
        except (ValueError, TypeError, KeyError) as error:
            raise UserError(
                f"this state cannot be read: {error}",
                where=f"{self.path}, byte {position}",
                try_this="remove the line: what it held is made again",
            ) from None


VERSION = 1
"""Of how rows come about; bump it when equal replies may give other rows."""
TRIES = 3
M = TypeVar("M", bound=BaseModel)


class SynthesisConfig(ChatConfig):
    """The model that writes, answers and checks, and how often it is asked."""

    max_tokens: int = Field(2048, ge=1, description="longest reply")
    temperature: float = Field(0.7, ge=0, description="above 0, so that another round or try gives another reply")
    rounds: int = Field(ROUNDS, ge=0, description="rounds of the coverage loop, and further paraphrases, at most; paper: 10")
    tries: int = Field(TRIES, ge=1, description="how often a call is made at most whose reply is not the JSON asked for")
    most_questions: int = Field(MOST_QUESTIONS, ge=1, description="questions of one reply that are looked at")
    prompts: str | None = Field(None, description="a folder of templates of one's own; null: those that ship")
    documents_at_once: int = Field(32, ge=1, description="loops that run side by side", exclude=True)


class Document(NamedTuple):
    """What rows are made of."""

    id: str
    text: str


class Passages(Sequence[Document]):
    """Passages of a corpus as documents, read when they are needed.

    Args:
        corpus: The corpus.
        rows: Which of its passages.
    """

    def __init__(self, corpus: Corpus, rows: Sequence[int]) -> None:
        self._corpus, self._rows = corpus, rows

    @classmethod
    def drawn(cls, corpus: Corpus, count: int | None, seed: int) -> Passages:
        """So many passages of a corpus, None all, in its order; larger draws hold the smaller."""
        rows: Sequence[int] = range(len(corpus))
        return cls(corpus, rows if count is None or count >= len(rows) else sorted(Draws("clara documents", seed).sample(rows, count)))

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, position: int) -> Document: ...
    @overload
    def __getitem__(self, position: slice) -> Sequence[Document]: ...
    def __getitem__(self, position: int | slice) -> Document | Sequence[Document]:
        if isinstance(position, slice):
            return Passages(self._corpus, self._rows[position])
        passage = self._corpus[self._rows[position]]
        return Document(passage.id, passage.full_text)


class _Replies(NamedTuple):
    """What was replied to calls: None where nothing could be read; how often that was; and by whom."""

    values: list[BaseModel | None]
    unreadable: int
    by: set[str]


class Model(Protocol):
    """What of a chat model is needed here."""

    def complete_structured(self, conversations: Sequence[Messages], model: type[M], *, repetition: int = 0) -> list[Structured[M]]:
        """A reply to each conversation, read as JSON of a shape."""
        ...


class Synthesis:
    """Makes the rows of documents.

    Args:
        config: The model and its limits.
        states: Where loops are kept.
        model: In place of the model that the options name.
        cache: File of cached replies; without one, what no state holds is asked anew.

    Attributes:
        put_aside: Loops that stopped because a call failed for good; the next run goes on with them.

    Raises:
        UserError: The key is not set, or a prompt is not right.
    """

    def __init__(self, config: SynthesisConfig, states: StateFile, *, model: Model | None = None, cache: Path | None = None) -> None:
        self.config = config
        self.states = states
        self.prompts = Prompts(config.prompts)
        self.model: Model = model or ChatModel(config, role="synthesis", cache=cache)
        self.put_aside: Counter[str] = Counter()
        self._stop = threading.Event()
        self._made_of = [VERSION, config.model_dump(mode="json", exclude={"base_url"}), self.prompts.hash]

    # -- states --

    def loop(self, document: Document, kind: Type) -> Loop:
        """Where a document is."""
        kept = self.states.get(_name(document, kind), self._identity(document))
        return Loop(kind) if kept is None else Loop.from_json(kept)

    def rows(self, documents: Iterable[Document], types: Sequence[Type] = TYPES) -> Iterator[ScpRow]:
        """The rows of what is covered, in the order of documents and types."""
        for document in documents:
            for kind in types:
                row = row_of(self.loop(document, kind), document.text, _name(document, kind))
                if row is not None:
                    yield row

    def _identity(self, document: Document) -> str:
        return fingerprint(*self._made_of, document.text)

    # -- work --

    def run(self, documents: Sequence[Document], types: Sequence[Type] = TYPES, progress: Progress | None = None) -> None:
        """Bring every loop to its end.

        Raises:
            Broke: No further call could succeed; what was done is kept.
            KeyboardInterrupt: Likewise.
        """
        progress = progress or Silent()
        progress.begin("synthesizing", len(documents) * len(types))
        self._stop.clear()
        jobs = ((document, kind) for document in documents for kind in types)
        with ThreadPoolExecutor(self.config.documents_at_once) as pool:
            try:
                self._flow(pool, jobs, progress)
            except BaseException:
                self._stop.set()
                pool.shutdown(cancel_futures=True)
                raise

    def _flow(self, pool: ThreadPoolExecutor, jobs: Iterator[tuple[Document, Type]], progress: Progress) -> None:
        """Keep so many loops running until there are no more; millions of them never wait in memory."""
        running: set[Future[Loop]] = set()
        pairs = 0
        while True:
            free = self.config.documents_at_once - len(running)
            running |= {pool.submit(self._work, *job) for job in islice(jobs, free)}
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for item in done:
                pairs += len(item.result().pairs)
            progress.advance(len(done))
            progress.log({"pairs": pairs, "put aside": self.put_aside.total()})

    def _work(self, document: Document, kind: Type) -> Loop:
        identifier, made_of = _name(document, kind), self._identity(document)
        loop = self.loop(document, kind)
        while loop.status == "open" and not self._stop.is_set():
            calls = asks(loop, document.text, self.prompts)
            replies = self._replies(calls, loop)
            if replies is None:
                break
            unreadable = replies.unreadable
            loop = advanced(loop, replies.values, self.config.rounds, self.config.most_questions).counted(
                calls=len(calls) + unreadable - replies.values.count(None), unreadable=unreadable
            )
            loop = replace(loop, by=tuple(sorted({*loop.by, *replies.by})))
            self.states.add(identifier, made_of, loop.to_json())
        return loop

    def _replies(self, calls: Sequence[Ask], loop: Loop) -> _Replies | None:
        """What was replied to calls of one prompt; None: one was lost for good.

        A reply that cannot be read is asked for again as another draw; each round has draws of its own.
        """
        shape = REPLIES[calls[0].prompt]
        results: list[BaseModel | None] = [None] * len(calls)
        waiting, unreadable, by = list(range(len(calls))), 0, set[str]()
        for number in range(self.config.tries):
            replies = self.model.complete_structured(
                [calls[position].messages for position in waiting], shape, repetition=loop.round * self.config.tries + number
            )
            lost = [reply.reply.failed for reply in replies if reply.reply.failed is not None and not reply.reply.model]
            if lost:
                self.put_aside[_short(lost[0])] += 1
                return None
            for position, reply in zip(waiting, replies, strict=True):
                results[position] = reply.value
            by |= {reply.reply.model for reply in replies} - {""}
            waiting = [position for position in waiting if results[position] is None]
            unreadable += len(waiting)
            if not waiting:
                break
        return _Replies(results, unreadable, by)


def _name(document: Document, kind: Type) -> str:
    return f"{document.id}/{kind}"


def _short(reason: str) -> str:
    """What kind of failure it is, without the figures of one call."""
    return reason.partition(":")[0]


# -- What a synthesis came to, as the paper's Table 9, and what one would take, before any call is made --


PAIRS: Mapping[Type, float] = {"simple": 7.80, "complex": 4.62, "paraphrase": 1.0}
"""Pairs of a document in the paper's Table 9."""
OUTPUT_WORDS: Mapping[Type, float] = {"simple": 158, "complex": 254, "paraphrase": 109}
"""Output words of a document in the paper's Table 9."""
TOKENS_A_WORD = 4 / 3
ANSWER_TOKENS = 12
"""Of a reply that is a short answer or a judgment, as JSON."""
SAMPLE = 200
"""Documents whose prompts are counted; the others are taken to be alike."""


@dataclass
class TypeStatistics:
    """What became of one type of rows; a line of Table 9.

    Attributes:
        documents: Documents with a row.
        pairs: Of those rows; 1 for a paraphrase.
        input_words: Of those documents.
        output_words: Of questions and answers, or of paraphrases.
        covered_without_pairs: Documents of which nothing could be asked.
        uncovered: Documents dropped after the last round.
        unfinished: Documents that are not at an end.
        rounds: Documents by the round in which they ended.
        counts: What became of calls and questions, dropped documents included.
        by: The models that replied; [] where none was asked.
    """

    documents: int = 0
    pairs: int = 0
    input_words: int = 0
    output_words: int = 0
    covered_without_pairs: int = 0
    uncovered: int = 0
    unfinished: int = 0
    rounds: Counter[int] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    by: list[str] = field(default_factory=list)

    def add(self, row: ScpRow) -> None:
        """Count a row."""
        self.documents += 1
        self.pairs += len(row.answers)
        self.input_words += len(row.document.split())
        self.output_words += sum(len(text.split()) for text in (*row.questions, *row.answers))

    def to_json(self) -> dict[str, Any]:
        """Totals, and the means of Table 9 (None where there is no document)."""

        def mean(total: int) -> float | None:
            return total / self.documents if self.documents else None

        return {
            **asdict(self),
            "rounds": {str(key): self.rounds[key] for key in sorted(self.rounds)},
            "counts": dict(sorted(self.counts.items())),
            "pairs_per_document": mean(self.pairs),
            "input_words_per_document": mean(self.input_words),
            "output_words_per_document": mean(self.output_words),
        }


Statistics = dict[Type, TypeStatistics]


def of_rows(rows: Iterable[ScpRow]) -> Statistics:
    """Statistics of rows whose ids end in their type."""
    result: Statistics = {}
    for row in rows:
        kind: Type = next(item for item in TYPES if row.id.endswith(f"/{item}"))
        result.setdefault(kind, TypeStatistics()).add(row)
    return {kind: result[kind] for kind in TYPES if kind in result}


def of_synthesis(synthesis: Synthesis, documents: Iterable[Document], types: Sequence[Type] = TYPES) -> Statistics:
    """Statistics of what a synthesis made, and of what it dropped."""
    result: Statistics = {kind: TypeStatistics() for kind in types}
    for document in documents:
        for row in synthesis.rows([document], types):
            result[next(item for item in types if row.id.endswith(f"/{item}"))].add(row)
        for kind, item in result.items():
            loop = synthesis.loop(document, kind)
            item.counts.update(loop.counts)
            item.by = sorted({*item.by, *loop.by})
            item.uncovered += loop.status == "uncovered"
            item.unfinished += loop.status == "open"
            item.covered_without_pairs += loop.status == "covered" and not loop.pairs
            if loop.status != "open":
                item.rounds[loop.round] += 1
    return result


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a synthesis would still take.

    Attributes:
        documents: In all.
        loops, done: Documents times types, and how many of those are at an end.
        fewest_calls: Where nothing can be asked of any document, and every paraphrase is accepted at once.
        calls: Where a document gives as many pairs as in the paper's Table 9 and is covered by them.
        most_calls: Where every reply is full, every round needed and every call made again.
        prompt_tokens, completion_tokens: Of `calls`, about.
        usd: Of those, by the configured prices.
        counted_by: How tokens were counted.
    """

    documents: int
    loops: int
    done: int
    fewest_calls: int
    calls: int
    most_calls: int
    prompt_tokens: int
    completion_tokens: int
    usd: float
    counted_by: str

    def __str__(self) -> str:
        return (
            f"{self.loops - self.done:,} of {self.loops:,} loops to go: about {self.calls:,} calls (at least "
            f"{self.fewest_calls:,}), {self.prompt_tokens:,} prompt tokens and {self.completion_tokens:,} completion "
            f"tokens ({self.counted_by}), ${self.usd:,.4f}"
        )


def outlook(synthesis: Synthesis, documents: Sequence[Document], types: Sequence[Type] = TYPES) -> Outlook:
    """What is still to be asked; a loop that has started counts as if it had not. Makes no call."""
    counter = TokenCounter(synthesis.config.tokenizer)
    waiting = {kind: [document for document in documents if synthesis.loop(document, kind).status == "open"] for kind in types}
    calls = prompt = completion = 0.0
    fewest = most = 0
    for kind, some in waiting.items():
        fewest += 2 * len(some)
        most += len(some) * most_calls(kind, synthesis.config)
        calls += len(some) * (2 if kind == "paraphrase" else 2 + 2 * PAIRS[kind])
        sample = some[:SAMPLE]
        if sample:
            sampled = sum(_prompt_tokens(kind, item.text, synthesis.prompts, counter) for item in sample)
            prompt += sampled * len(some) / len(sample)
        checks = 1 if kind == "paraphrase" else 1 + 2 * PAIRS[kind]
        completion += len(some) * (OUTPUT_WORDS[kind] * TOKENS_A_WORD + checks * ANSWER_TOKENS)
    return Outlook(
        len(documents),
        len(documents) * len(types),
        sum(len(documents) - len(some) for some in waiting.values()),
        fewest,
        round(calls),
        most,
        round(prompt),
        round(completion),
        synthesis.config.usd(round(prompt), round(completion)),
        counter.name,
    )


def most_calls(kind: Type, config: SynthesisConfig) -> int:
    """The calls that one document can take at most."""
    each = 2 if kind == "paraphrase" else 1 + 2 * config.most_questions
    return (config.rounds + 1) * each * config.tries


def _prompt_tokens(kind: Type, text: str, prompts: Prompts, counter: TokenCounter) -> float:
    """Prompt tokens of a document that is covered by the paper's number of pairs."""

    def tokens(name: str, **values: str) -> int:
        return counter.count(prompts.messages(name, document=text, **values))

    if kind == "paraphrase":
        return tokens("paraphrase") + tokens("check_paraphrase", paraphrase=text)
    pair = {"question": NONE_YET, "answer": NONE_YET}
    each = tokens("answer", question=NONE_YET, absent=ABSENT) + tokens("check_answer", **pair)
    shown = OUTPUT_WORDS[kind] * TOKENS_A_WORD
    return tokens(kind) + PAIRS[kind] * each + tokens(f"more_{kind}", pairs=NONE_YET) + shown
