"""Generate pretraining rows with a language model: questions and answers, checks, coverage, and paraphrases.

For each document and row type, a program prompts the model until the result covers the document:

    questions    ask → answer and check each → ask what is missing → … until nothing is
    paraphrase   ask → check → ask again … until it is accepted

Both end as `covered`, or as `uncovered` after the last round; uncovered documents are not used for training. Results are saved
when a program ends, and replies are cached before use, so an interrupted run never repeats a request.

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
from methods.models.chat import ChatModel
from methods.models.counting import Counter as Counts
from methods.models.counting import price
from methods.models.llm import LLM, AskingConfig, defaults, open_llm
from methods.models.structured import parse
from methods.training import Progress, Silent
from methods.training.journal import Journal

ROUNDS = 10
"""Maximum rounds of the coverage loop, and of further paraphrases."""
MOST_QUESTIONS = 40
"""Maximum number of questions used from one reply; the authors' documents have at most 34."""

Status = Literal["open", "covered", "uncovered"]


@dataclass(frozen=True, slots=True)
class Made:
    """Result of the synthesis for one document and row type.

    Attributes:
        kind: Row type.
        round: Last round: 0 for the first questions or paraphrase, then 1, 2 …
        status: How it ended; `open` if a call failed permanently or none was made.
        pairs: Accepted pairs; a paraphrase is one pair without a question.
        counts: Number of replies and questions by outcome.
        by: Models that replied, as named by their endpoint.
    """

    kind: Type
    round: int = 0
    status: Status = "open"
    pairs: tuple[Pair, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    by: tuple[str, ...] = ()


_read_made = TypeAdapter(Made).validate_python


def row_of(made: Made, document: str, identifier: str) -> ScpRow | None:
    """Convert a covered result to a training row; None if it is uncovered, or if no question was possible."""
    if made.status != "covered" or not made.pairs:
        return None
    questions, answers = zip(*made.pairs, strict=True)
    if made.kind == "paraphrase":
        return ScpRow("paraphrase", document, (), answers, identifier)
    return ScpRow("qa", document, questions, answers, identifier)


Asking = Callable[..., Awaitable[Any]]
"""Function that sends a prompt: takes its name, the round, and further placeholder values; returns the parsed reply, or None on
failure.
"""


async def ask_questions(
    kind: Type, ask: Asking, counts: Counter[str], rounds: int = ROUNDS, most: int = MOST_QUESTIONS
) -> tuple[Status, int, list[Pair]]:
    """Generate questions and answers until they cover a document.

    Args:
        kind: `simple` or `complex`.
        ask: Function that sends prompts about the document.
        counts: Counter of questions by outcome.
        rounds: Maximum rounds, after which the document counts as uncovered.
        most: Maximum number of questions used from one reply.

    Returns:
        Status, last round, and accepted pairs.
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
    """Generate paraphrases of a document until one preserves its content; arguments and result as in `ask_questions`."""
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
    """Await all programs; if one raises, the others finish first, so that their replies are kept."""
    results = await asyncio.gather(*programs, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


def _new(questions: Sequence[str], pairs: Sequence[Pair]) -> tuple[list[str], int]:
    """Return questions that are non-blank and not accepted before, and the number of dropped ones.

    A rejected question may occur again, because only its answer may have been wrong.
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
"""Version of the synthesis; increase it if the same replies can produce other rows."""
TRIES = 3


class SynthesisConfig(AskingConfig):
    """Options of the synthesis: language model and limits."""

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
    """A document for which rows are generated."""

    id: str
    text: str


class Passages(Sequence[Document]):
    """Lazy sequence of a corpus's passages as documents.

    Args:
        corpus: The corpus.
        rows: Row numbers of the passages.
    """

    def __init__(self, corpus: Corpus, rows: Sequence[int]) -> None:
        self._corpus, self._rows = corpus, rows

    @classmethod
    def sampled(cls, corpus: Corpus, count: int | None, seed: int) -> Passages:
        """Draw `count` random passages (None: all) in corpus order; a larger sample with the same seed contains the smaller."""
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
    """Raised if a call failed permanently."""


class Synthesis:
    """Generates training rows for documents, with saved state.

    Args:
        config: The model and its limits.
        states: Saved results by document.
        services: Services: reply cache (without it, unfinished documents are requested again), and for a local model device and
            seed.
        model: Model that replaces the configured one.

    Attributes:
        put_aside: Number of documents left open because a call failed permanently; the next run retries them.

    Raises:
        UserError: The API key is not set, or a prompt is invalid.
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
        self._made_of = [VERSION, options, self.model.config.identity(address=False), self.prompts.hash]

    def made(self, document: Document, kind: Type) -> Made:
        """Return the saved result of a document and row type."""
        kept = self.states.get(_name(document, kind), self._identity(document))
        return Made(kind) if kept is None else _read_made(kept)

    def make_rows(self, documents: Iterable[Document], types: Sequence[Type] = TYPES) -> Iterator[ScpRow]:
        """Yield the rows of covered documents, in the order of documents and types."""
        for document in documents:
            for kind in types:
                row = row_of(self.made(document, kind), document.text, _name(document, kind))
                if row is not None:
                    yield row

    def _identity(self, document: Document) -> str:
        return fingerprint(*self._made_of, document.text)

    def run(self, documents: Sequence[Document], types: Sequence[Type] = TYPES, progress: Progress | None = None) -> None:
        """Process all documents until each is finished.

        Raises:
            Broke: No further call could succeed; finished work is saved.
            KeyboardInterrupt: Interrupted; finished work is saved.
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
            """Send a prompt; if the reply cannot be parsed, send it again with another seed. Each round has its own seeds."""
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
    """Return a failure's kind, without numbers specific to one call."""
    return reason.partition(":")[0]


PAIRS: Mapping[Type, float] = {"simple": 7.80, "complex": 4.62, "paraphrase": 1.0}
"""Pairs per document in the paper's Table 9."""
OUTPUT_WORDS: Mapping[Type, float] = {"simple": 158, "complex": 254, "paraphrase": 109}
"""Output words per document in the paper's Table 9."""
TOKENS_A_WORD = 4 / 3
ANSWER_TOKENS = 12
"""Assumed tokens of a short JSON reply (answer or judgment), for estimates."""
SAMPLE = 200
"""Number of documents whose prompts are counted for estimates."""


@dataclass
class TypeStatistics:
    """Statistics of one row type, as in the paper's Table 9.

    Attributes:
        documents: Number of documents with a row.
        pairs: Number of pairs in the rows; 1 per paraphrase.
        input_words: Words of those documents.
        output_words: Words of questions and answers, or of paraphrases.
        covered_without_pairs: Number of documents about which no question was possible.
        uncovered: Number of documents dropped after the last round.
        unfinished: Number of documents not finished.
        rounds: Number of documents by last round.
        counts: Number of calls and questions by outcome, including dropped documents.
        by: Models that replied; [] if none was asked.
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
        """Add a row to the statistics."""
        self.documents += 1
        self.pairs += len(row.answers)
        self.input_words += len(row.document.split())
        self.output_words += sum(len(text.split()) for text in (*row.questions, *row.answers))

    def to_json(self) -> dict[str, Any]:
        """Return totals and the means of Table 9 (None without documents)."""

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
    """Compute the statistics of rows whose ids end in their type."""
    result: Statistics = {}
    for row in rows:
        kind: Type = next(item for item in TYPES if row.id.endswith(f"/{item}"))
        result.setdefault(kind, TypeStatistics()).add(row)
    return {kind: result[kind] for kind in TYPES if kind in result}


def of_synthesis(synthesis: Synthesis, documents: Iterable[Document], types: Sequence[Type] = TYPES) -> Statistics:
    """Compute the statistics of a synthesis, including dropped documents."""
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
    """Estimated remaining cost of a synthesis.

    Attributes:
        documents: Total number of documents.
        loops, done: Number of (document, type) combinations, and of finished ones.
        fewest_calls: Lower bound of calls: no questions possible, and every first paraphrase accepted.
        calls: Expected calls: as many pairs per document as in the paper's Table 9, which cover it.
        most_calls: Upper bound of calls: maximal replies, all rounds, and every call retried.
        prompt_tokens, completion_tokens: Estimated tokens of `calls`.
        usd: Estimated cost of `calls` at the configured prices.
        counted_by: Method of counting tokens.
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
            f"tokens ({self.counted_by}), {price(self.usd, self.prompt_tokens + self.completion_tokens)}"
        )


def outlook(synthesis: Synthesis, documents: Sequence[Document], types: Sequence[Type] = TYPES) -> Outlook:
    """Estimate the remaining calls without making any; a document in progress counts in full."""
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
    """Return the maximum number of calls for one document."""
    each = 2 if kind == "paraphrase" else 1 + 2 * config.most_questions
    return (config.rounds + 1) * each * config.tries


def _prompt_tokens(kind: Type, text: str, prompts: Prompts, counter: Counts) -> float:
    """Estimate the prompt tokens for a document with the paper's number of pairs."""

    def tokens(name: str, **values: str) -> int:
        return counter.count(prompts.messages(name, document=text, **values))

    if kind == "paraphrase":
        return tokens("paraphrase") + tokens("check_paraphrase", paraphrase=text)
    pair = {"question": NONE_YET, "answer": NONE_YET}
    each = tokens("answer", question=NONE_YET, absent=ABSENT) + tokens("check_answer", **pair)
    shown = OUTPUT_WORDS[kind] * TOKENS_A_WORD
    return tokens(kind) + PAIRS[kind] * each + tokens(f"more_{kind}", pairs=NONE_YET) + shown
