"""Rows of pretraining by a language model: simple and complex questions, answers, checks, coverage, paraphrases.

Each type of row of a document is one program, which asks until what it has covers the document:

    questions    ask → answer and check each → ask what is missing → … until nothing is
    paraphrase   ask → check → ask again … until it is accepted

Both end as `covered`, or as `uncovered` after the last round; what is uncovered is not training data. What became of a
document is on disk when its program ends, and every reply is in the cache of replies before it is used: a run that was
killed asks for nothing that was answered.

Source: the paper's section 2.1 and Figures 9 to 16.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Literal, NamedTuple, overload

from pydantic import ConfigDict, Field, TypeAdapter

from benchmarks.core.fingerprint import fingerprint
from benchmarks.core.random import Draws
from benchmarks.corpus import Corpus
from benchmarks.text import normalize
from methods.api import Services
from methods.clara.config import TYPES, Type
from methods.clara.prompts import ABSENT, NONE_YET, REPLIES, Prompts, Supplement, shown_pairs
from methods.clara.rows import Pair, ScpRow
from methods.flow import stream
from methods.models.chat import ChatModel, parse
from methods.models.endpoint import Counter as Counts
from methods.models.llm import LLM, AskingConfig, defaults, open_llm
from methods.training import Progress, Silent
from methods.training.journal import Journal

ROUNDS = 10
"""Rounds of the coverage loop, and further paraphrases, at most."""
MOST_QUESTIONS = 40
"""Questions of one reply that are looked at; the authors' documents have at most 34."""

Status = Literal["open", "covered", "uncovered"]


@dataclass(frozen=True, slots=True)
class Made:
    """Outcome of a document.

    Attributes:
        kind: What is made.
        round: In which it ended: 0 for the first questions or paraphrase, then 1, 2 …
        status: How it ended; open where a call failed for good, or none was made.
        pairs: What was accepted; of a paraphrase one pair without a question.
        counts: What became of replies and questions.
        by: The models that replied, by the names that their endpoint gives them.
    """

    kind: Type
    round: int = 0
    status: Status = "open"
    pairs: tuple[Pair, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    by: tuple[str, ...] = ()


_read_made = TypeAdapter(Made).validate_python


def row_of(made: Made, document: str, identifier: str) -> ScpRow | None:
    """Return the training row of a document that is covered; None where it is not, or where nothing could be asked."""
    if made.status != "covered" or not made.pairs:
        return None
    questions, answers = zip(*made.pairs, strict=True)
    if made.kind == "paraphrase":
        return ScpRow("paraphrase", document, (), answers, identifier)
    return ScpRow("qa", document, questions, answers, identifier)


Asking = Callable[..., Awaitable[Any]]
"""From a prompt's name, the round, and what the prompt is filled with besides the document, to the reply; None: no reply
could be read."""


async def ask_questions(
    kind: Type, ask: Asking, counts: Counter[str], rounds: int = ROUNDS, most: int = MOST_QUESTIONS
) -> tuple[Status, int, list[Pair]]:
    """Return questions and answers that cover a document.

    Args:
        kind: simple or complex.
        ask: Asks.
        counts: Counts what became of questions.
        rounds: Rounds after which a document that is not covered is given up.
        most: Questions of a reply that are looked at.

    Returns:
        How it ended, in which round, and the accepted pairs.
    """
    pairs: list[Pair] = []

    async def answered(question: str, turn: int) -> Pair | None:
        reply = await ask("answer", turn, question=question, absent=ABSENT)
        if reply is None or normalize(reply.answer) == normalize(ABSENT):
            counts["unanswered" if reply is None else "not_contained"] += 1
            return None
        check = await ask("check_answer", turn, question=question, answer=reply.answer)
        if check is None or check.judgment != "Correct":
            counts["unchecked" if check is None else "unsupported"] += 1
            return None
        return Pair(question, reply.answer)

    for turn in range(rounds + 1):
        reply = await (ask(f"more_{kind}", turn, pairs=shown_pairs(pairs)) if turn else ask(kind, turn))
        if isinstance(reply, Supplement) and reply.count == 0:
            return "covered", turn, pairs
        listed = [] if reply is None else reply.questions
        new, repeated = _new(listed[:most], pairs)
        counts.update({"questions": len(new), "repeated": repeated, "beyond_the_most": len(listed[most:])})
        pairs += [pair for pair in await _all(*(answered(question, turn) for question in new)) if pair is not None]
    return "uncovered", rounds, pairs


async def ask_paraphrase(ask: Asking, counts: Counter[str], rounds: int = ROUNDS) -> tuple[Status, int, list[Pair]]:
    """Return a paraphrase that says what its document says; arguments and result as for `ask_questions`."""
    for turn in range(rounds + 1):
        reply = await ask("paraphrase", turn)
        if reply is None:
            continue
        check = await ask("check_paraphrase", turn, paraphrase=reply.paraphrase)
        if check is not None and check.judgment == "Yes":
            return "covered", turn, [Pair("", reply.paraphrase)]
        counts["unchecked" if check is None else "unsupported"] += 1
    return "uncovered", rounds, []


async def _all(*programs: Awaitable[Any]) -> list[Any]:
    """Return the results of programs; where one raises, after the others have ended, so that what they are replied is kept."""
    results = await asyncio.gather(*programs, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


def _new(questions: Sequence[str], pairs: Sequence[Pair]) -> tuple[list[str], int]:
    """Return questions that say something and were not accepted before, each once; and how many were repeated or blank.

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


VERSION = 1
"""Version of the synthesis; increase it if equal replies may give other rows."""
TRIES = 3


class SynthesisConfig(AskingConfig):
    """The model that writes, answers and checks, and how often it is asked."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    llm: Annotated[LLM, defaults(max_tokens=2048, temperature=0.7)] = Field(
        description="the model; with a temperature above 0, another round or attempt gives another reply"
    )
    rounds: int = Field(ROUNDS, ge=0, description="maximum rounds of the coverage loop, and of further paraphrases; paper: 10")
    tries: int = Field(TRIES, ge=1, description="maximum attempts of a call if its reply is not the requested JSON")
    most_questions: int = Field(MOST_QUESTIONS, ge=1, description="maximum questions used per reply")
    prompts: str | None = Field(None, description="folder of your own templates; null: the shipped ones")
    documents_at_once: int = Field(32, ge=1, description="documents processed at once", exclude=True)


class Document(NamedTuple):
    """Document for which rows are written."""

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
        """Return this many passages of a corpus (None: all) in its order; larger draws hold the smaller."""
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


class _Lost(Exception):
    """A call failed for good: a limit, or an endpoint that refuses it."""


class Synthesis:
    """Makes the rows of documents.

    Args:
        config: The model and its limits.
        states: What became of documents.
        services: Of them the cache of replies, without which unfinished items are requested again; and for a local model
            device and seed.
        model: In place of the model that the options name.

    Attributes:
        put_aside: Documents left open because a call failed for good; the next run continues with them.

    Raises:
        UserError: The key is not set, or a prompt is not right.
    """

    def __init__(
        self, config: SynthesisConfig, states: Journal, services: Services | None = None, *, model: ChatModel | None = None
    ) -> None:
        self.config = config
        self.states = states
        self.prompts = Prompts(config.prompts)
        services = services or Services()
        self.model = model or open_llm(config.llm, services, role="synthesis")
        self.put_aside: Counter[str] = Counter()
        options = config.model_dump(mode="json", exclude={"llm"})
        self._made_of = [VERSION, options, self.model.config.model_dump(mode="json", exclude={"base_url"}), self.prompts.hash]

    def made(self, document: Document, kind: Type) -> Made:
        """Return the outcome of a document."""
        kept = self.states.get(_name(document, kind), self._identity(document))
        return Made(kind) if kept is None else _read_made(kept)

    def make_rows(self, documents: Iterable[Document], types: Sequence[Type] = TYPES) -> Iterator[ScpRow]:
        """Yield the rows of what is covered, in the order of documents and types."""
        for document in documents:
            for kind in types:
                row = row_of(self.made(document, kind), document.text, _name(document, kind))
                if row is not None:
                    yield row

    def _identity(self, document: Document) -> str:
        return fingerprint(*self._made_of, document.text)

    def run(self, documents: Sequence[Document], types: Sequence[Type] = TYPES, progress: Progress | None = None) -> None:
        """Bring every document to its end.

        Raises:
            Broke: No further call could succeed; what was done is kept.
            KeyboardInterrupt: Likewise.
        """
        progress = progress or Silent()
        progress.begin("synthesizing", len(documents) * len(types))
        pairs = 0
        jobs = ((document, kind) for document in documents for kind in types)
        for made in stream(lambda job: self._work(*job), jobs, self.config.documents_at_once):
            pairs += len(made.pairs)
            progress.advance()
            progress.log({"pairs": pairs, "put aside": self.put_aside.total()})

    async def _work(self, document: Document, kind: Type) -> Made:
        made = self.made(document, kind)
        if made.status != "open":
            return made
        counts: Counter[str] = Counter()
        by: set[str] = set()

        async def ask(prompt: str, turn: int, **values: str) -> Any:
            """Return a reply that cannot be read is asked for again as another draw; each round has draws of its own."""
            messages, shape = self.prompts.messages(prompt, document=document.text, **values), REPLIES[prompt]
            for draw in range(turn * self.config.tries, (turn + 1) * self.config.tries):
                reply = await self.model.ask(messages, shape=shape, repetition=draw, step=prompt)
                if reply.failed is not None and not reply.model:
                    raise _Lost(reply.failed)
                by.add(reply.model)
                counts["calls"] += 1
                if (value := parse(reply.text, shape).value) is not None:
                    return value
                counts["unreadable"] += 1
            counts["without_reply"] += 1
            return None

        try:
            if kind == "paraphrase":
                status, turn, pairs = await ask_paraphrase(ask, counts, self.config.rounds)
            else:
                status, turn, pairs = await ask_questions(kind, ask, counts, self.config.rounds, self.config.most_questions)
        except _Lost as lost:
            self.put_aside[_shorten_reason(str(lost))] += 1
            return made
        made = Made(kind, turn, status, tuple(pairs), dict(sorted((+counts).items())), tuple(sorted(by)))
        self.states.add(_name(document, kind), self._identity(document), asdict(made))
        return made


def _name(document: Document, kind: Type) -> str:
    return f"{document.id}/{kind}"


def _shorten_reason(reason: str) -> str:
    """Return the kind of a failure, without the figures of one call."""
    return reason.partition(":")[0]


PAIRS: Mapping[Type, float] = {"simple": 7.80, "complex": 4.62, "paraphrase": 1.0}
"""Pairs of a document in the paper's Table 9."""
OUTPUT_WORDS: Mapping[Type, float] = {"simple": 158, "complex": 254, "paraphrase": 109}
"""Output words of a document in the paper's Table 9."""
TOKENS_A_WORD = 4 / 3
ANSWER_TOKENS = 12
"""Tokens of a reply that is a short answer or a judgment, as JSON."""
SAMPLE = 200
"""Documents whose prompts are counted; the others are taken to be alike."""


@dataclass
class TypeStatistics:
    """Outcome of one type of rows; a line of Table 9.

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
        """Return totals, and the means of Table 9 (None where there is no document)."""

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
    """Return statistics of rows whose ids end in their type."""
    result: Statistics = {}
    for row in rows:
        kind: Type = next(item for item in TYPES if row.id.endswith(f"/{item}"))
        result.setdefault(kind, TypeStatistics()).add(row)
    return {kind: result[kind] for kind in TYPES if kind in result}


def of_synthesis(synthesis: Synthesis, documents: Iterable[Document], types: Sequence[Type] = TYPES) -> Statistics:
    """Return statistics of what a synthesis made, and of what it dropped."""
    result: Statistics = {kind: TypeStatistics() for kind in types}
    for document in documents:
        for row in synthesis.make_rows([document], types):
            result[next(item for item in types if row.id.endswith(f"/{item}"))].add(row)
        for kind, item in result.items():
            made = synthesis.made(document, kind)
            item.counts.update(made.counts)
            item.by = sorted({*item.by, *made.by})
            item.uncovered += made.status == "uncovered"
            item.unfinished += made.status == "open"
            item.covered_without_pairs += made.status == "covered" and not made.pairs
            if made.status != "open":
                item.rounds[made.round] += 1
    return result


@dataclass(frozen=True, slots=True)
class Outlook:
    """Remaining cost of a synthesis.

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
    """Return the calls that remain, without making one; a document that was begun counts in full."""
    counter = synthesis.model.counter
    waiting = {kind: [document for document in documents if synthesis.made(document, kind).status == "open"] for kind in types}
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
        synthesis.config.llm.usd(round(prompt), round(completion)),
        counter.name,
    )


def most_calls(kind: Type, config: SynthesisConfig) -> int:
    """Return the calls that one document can take at most."""
    each = 2 if kind == "paraphrase" else 1 + 2 * config.most_questions
    return (config.rounds + 1) * each * config.tries


def _prompt_tokens(kind: Type, text: str, prompts: Prompts, counter: Counts) -> float:
    """Prompt tokens of a document that is covered by the paper's number of pairs."""

    def tokens(name: str, **values: str) -> int:
        return counter.count(prompts.messages(name, document=text, **values))

    if kind == "paraphrase":
        return tokens("paraphrase") + tokens("check_paraphrase", paraphrase=text)
    pair = {"question": NONE_YET, "answer": NONE_YET}
    each = tokens("answer", question=NONE_YET, absent=ABSENT) + tokens("check_answer", **pair)
    shown = OUTPUT_WORDS[kind] * TOKENS_A_WORD
    return tokens(kind) + PAIRS[kind] * each + tokens(f"more_{kind}", pairs=NONE_YET) + shown
