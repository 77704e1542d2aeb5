"""Generate, save and count the questions about a graph's triples."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from benchmarks.core.errors import UserError, require_writable
from benchmarks.core.files import Lines, mend
from benchmarks.core.fingerprint import file_sha256, fingerprint
from benchmarks.graphs import TripleCorpus
from benchmarks.registry import Benchmark
from benchmarks.schema import Triple, triple_id
from benchmarks.sources import data_path
from benchmarks.worlds.world import Relation, relations
from methods.api import Services
from methods.flow import form_of, in_flight, in_order, one
from methods.graphs.triples import PretrainingGraph, relation_text
from methods.models.chat import ChatModel, Reply
from methods.models.llm import LLM, MayAskConfig, defaults, open_llm
from methods.models.rewriter import bare_text, refuses
from methods.prompts import Shipped
from methods.training import Progress, Silent

Side = Literal["head", "tail"]
SIDES: tuple[Side, Side] = ("head", "tail")

MASK = "[MASK]"
"""Placeholder of the hidden entity."""
FEWEST_WORDS = 3

ACCEPTED, RETRIED, DROPPED = "accepted", "retried", "dropped: "
"""Keys of a generator's counts; the last is a prefix followed by the reason."""

_WORDS = re.compile(r"[^\W_]+")
_MASKED = re.compile(r"[\[<(]\s*mask\w*\s*[\])>]", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class MaskedTriple:
    """A triple with one hidden entity, which the question asks for.

    Attributes:
        triple: Head, relation, tail.
        side: The hidden end: head or tail.
    """

    triple: Triple
    side: Side

    @property
    def id(self) -> str:
        """Return the triple's id."""
        return triple_id(self.triple)

    @property
    def relation(self) -> str:
        """Return the relation's name in the graph."""
        return self.triple[1]

    @property
    def hidden(self) -> str:
        """Return the hidden entity, which is the answer."""
        return self.triple[0 if self.side == "head" else 2]

    @property
    def visible(self) -> str:
        """Return the other entity, which the question names."""
        return self.triple[2 if self.side == "head" else 0]

    def __str__(self) -> str:
        head, relation, tail = self.triple
        return f"({MASK}, {relation}, {tail})" if self.side == "head" else f"({head}, {relation}, {MASK})"


class QuestionGenerator(Protocol):
    """Protocol of generators from masked triples to questions (None if none could be generated).

    An implementation has `generate(batch)`, or the asynchronous `generate_one(masked)` if it calls a model.

    Attributes:
        name: Identity stored with each question: the generator and everything that determines its output.
        counts: Outcomes so far: `accepted`, `retried`, and `dropped: ` with a reason.
    """

    @property
    def name(self) -> str: ...

    @property
    def counts(self) -> Counter[str]: ...


def split_words(text: str) -> list[str]:
    """Split a text into lower-case words, without punctuation and underscores."""
    return _WORDS.findall(text.casefold())


def names(text: str, entity: str) -> bool:
    """Return whether a text mentions an entity, compared by words (by characters if the entity has no words)."""
    wanted = split_words(entity)
    if not wanted:
        return entity.strip() in text
    return f" {' '.join(wanted)} " in f" {' '.join(split_words(text))} "


def unaskable(masked: MaskedTriple) -> str | None:
    """Return why no question is possible about a masked triple, for example because both ends have the same name; None if one
    is.
    """
    return "one entity names the other" if names(masked.visible, masked.hidden) else None


def fault(question: str, masked: MaskedTriple) -> str | None:
    """Return why a text is not a valid question for the hidden entity; None if it is."""
    if MASK in question or _MASKED.search(question):
        return "contains the mask"
    if names(question, masked.hidden):
        return "names the answer"
    if len(question.split()) < FEWEST_WORDS:
        return f"fewer than {FEWEST_WORDS} words"
    if "." in masked.relation and masked.relation.casefold() in question.casefold():
        return "contains the relation's identifier"
    return None


def checked(question: str | None, masked: MaskedTriple, counts: Counter[str], why: str = "") -> str | None:
    """Validate a generated question and count the outcome; returns None if it is invalid.

    Args:
        question: The question, or None.
        masked: The masked triple.
        counts: Counts of the generator.
        why: Reason why there is no question.
    """
    reason = why if question is None else unaskable(masked) or fault(question, masked)
    counts[ACCEPTED if reason is None else DROPPED + reason] += 1
    return question if reason is None else None


# {"tid": "t…", "h": head, "r": relation, "t": tail, "side": "head" | "tail", "question": …, "generator": …}
#
# `side` is the hidden end. Questions of several generators may be in one file.


FIELDS = ("tid", "h", "r", "t", "side", "question", "generator")
WHAT = "the file of questions"
"""Description of the file in errors."""
Key = tuple[str, Side]
"""Triple id and hidden end."""


class Written(NamedTuple):
    """A line of the questions file."""

    masked: MaskedTriple
    question: str
    generator: str


def read_questions(path: Path) -> Iterator[Written]:
    """Yield the questions of a file, in order.

    Raises:
        UserError: The file cannot be read, or a line is invalid; the message names the line.
    """
    try:
        with open(path, encoding="utf-8", newline="\n") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield _read_line(line, f"{path}:{number}")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"the file of questions cannot be read: {error}", code="unreadable-questions", where=str(path)) from None


def _read_line(line: str, where: str) -> Written:
    try:
        row: Any = json.loads(line)
    except json.JSONDecodeError as error:
        raise UserError(f"this line is not JSON: {error.msg}", code="not-json", where=where, try_this="remove the line") from None
    if not isinstance(row, dict):
        raise UserError("this line is not a JSON object", code="not-json", where=where, try_this=f"an object with {', '.join(FIELDS)}")
    for name in FIELDS:
        if not isinstance(row.get(name), str):
            what = "is missing" if name not in row else f"must be a text, and is {json.dumps(row[name])[:40]}"
            raise UserError(f"the field {name} {what}", code="bad-question-field", where=where, try_this=f"all of {', '.join(FIELDS)}")
    if row["side"] not in SIDES:
        raise UserError(f"side must be head or tail, and is {row['side']!r}", code="bad-side", where=where, try_this="the hidden end")
    if not row["question"].strip():
        raise UserError("the question is empty", code="question-empty", where=where, try_this="remove the line")
    triple = (row["h"], row["r"], row["t"])
    if row["tid"] != triple_id(triple):
        raise UserError(
            f"tid {row['tid']} is not the id of h, r and t, which is {triple_id(triple)}",
            code="triple-id-mismatch",
            where=where,
            try_this="correct the field, or remove the line",
        )
    return Written(MaskedTriple(triple, row["side"]), row["question"], row["generator"])


def kept_questions(path: Path, generator: str) -> dict[Key, str]:
    """Return the questions of one generator in a file; empty if the file does not exist.

    An incomplete last line is removed from the file.
    """
    if not path.exists():
        return {}
    mend(path)
    return {
        (question.masked.id, question.masked.side): question.question
        for question in read_questions(path)
        if question.generator == generator
    }


def line_of(written: Written) -> str:
    """Format a question as a line of the file."""
    masked, question, generator = written
    values = (masked.id, *masked.triple, masked.side, question, generator)
    return json.dumps(dict(zip(FIELDS, values, strict=True)), ensure_ascii=False) + "\n"


class WrittenQuestions:
    """Generator that returns previously written questions; other triples get none.

    Args:
        name: Identity stored with each question.
        questions: Questions by triple and hidden end.
        where: Their source, for messages.

    Attributes:
        triples: Ids of the triples with a question.

    Raises:
        UserError: There are no questions.
    """

    def __init__(self, name: str, questions: Mapping[Key, str], where: str) -> None:
        if not questions:
            raise UserError(f"{name} has no questions", code="no-question-in-file", where=where, try_this="use another file or generator")
        self._questions = questions
        self.triples = frozenset(triple for triple, _ in questions)
        self.counts: Counter[str] = Counter()
        self.name = name

    @classmethod
    def cached(cls, path: Path) -> Self:
        """Load the questions file of a training, regardless of the generator; the last question per triple and side is used.

        Raises:
            UserError: The file cannot be read, or has no questions.
        """
        questions = {(question.masked.id, question.masked.side): question.question for question in read_questions(path)}
        return cls(f"cache({file_sha256(path)[:8]})", questions, str(path))

    @classmethod
    def recorded(cls, path: Path) -> Self:
        """Load questions of a language model from a tab-separated table with the columns `RECORDED`.

        Raises:
            UserError: The file cannot be read, lacks a column, or has a line without a question; the message names the line.
        """
        return cls(f"recorded({file_sha256(path)[:8]})", dict(_read_recorded(path)), str(path))

    def __contains__(self, masked: MaskedTriple) -> bool:
        return (masked.id, masked.side) in self._questions

    def generate(self, batch: Sequence[MaskedTriple]) -> list[str | None]:
        """Return the question of each masked triple; None if there is no valid one."""
        return [checked(self._questions.get((item.id, item.side)), item, self.counts, "not in the file") for item in batch]


RECORDED = ("hidden", "head", "relation", "tail", "question")
"""Required columns of a file of recorded questions; `hidden` is head or tail."""


def _read_recorded(path: Path) -> Iterator[tuple[Key, str]]:
    try:
        lines = path.read_text("utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"the file of questions cannot be read: {error}", code="unreadable-questions", where=str(path)) from None
    heads = lines[0].rstrip("\r").split("\t")
    if lacking := [name for name in RECORDED if name not in heads]:
        raise UserError(
            f"the first line has no column {', '.join(lacking)}",
            code="missing-question-column",
            where=f"{path}:1",
            try_this=f"a table separated by tabs with the columns {', '.join(RECORDED)}",
        )
    first: dict[Key, int] = {}
    for number, line in enumerate(lines[1:], 2):
        if not line.strip():
            continue
        where, cells = f"{path}:{number}", line.rstrip("\r").split("\t")
        if len(cells) != len(heads):
            raise UserError(
                f"this line has {len(cells)} columns, the first line {len(heads)}",
                code="bad-question-columns",
                where=where,
                try_this="write a tab or line break inside a cell as a space",
            )
        row = dict(zip(heads, cells, strict=True))
        if empty := next((name for name in RECORDED if not row[name].strip()), None):
            raise UserError(f"{empty} is empty", code="question-empty", where=where, try_this="remove the line")
        if (side := next((side for side in SIDES if side == row["hidden"]), None)) is None:
            raise UserError(
                f"hidden must be head or tail, and is {row['hidden']!r}",
                code="bad-side",
                where=where,
                try_this="name the end that is asked for",
            )
        key: Key = (triple_id((row["head"], row["relation"], row["tail"])), side)
        if key in first:
            raise UserError(
                f"line {first[key]} asks about the same triple and hidden end",
                code="duplicate-question",
                where=where,
                try_this="remove one of the lines",
            )
        first[key] = number
        yield key, row["question"].strip()


MOST_EVIDENCE = 4
"""Maximum evidence triples per question for the generator `evidence`, since a list of all stations of a city has hundreds."""


def evidence_questions(benchmarks: Iterable[Benchmark]) -> WrittenQuestions:
    """Use the questions of benchmarks as questions about their evidence triples: a control that has seen the evaluation
    questions.

    A triple shared by several questions gets the first one. The hidden end is the tail, or the head if the question names the
    tail.

    Raises:
        UserError: No question has an evidence triple.
    """
    questions: dict[Key, str] = {}
    taken: set[str] = set()
    sources = list(benchmarks)
    for benchmark in sources:
        corpus = benchmark.corpus
        assert isinstance(corpus, TripleCorpus)
        for question in benchmark.questions:
            own = [name for name in question.evidence if name not in taken][:MOST_EVIDENCE]
            for triple in corpus.triples.take(corpus.rows_of(own)) if own else ():
                side = next((side for side in reversed(SIDES) if not names(question.text, MaskedTriple(triple, side).hidden)), None)
                if side is not None:
                    questions[triple_id(triple), side] = question.text
            taken.update(own)
    where = ", ".join(str(benchmark.reference) for benchmark in sources)
    return WrittenQuestions(f"evidence({fingerprint(sorted(questions.items()))[:8]})", questions, where)


TRIES = 3
"""Maximum attempts per triple, each with another seed."""
PROMPT = Shipped("methods.gpr", "questions")
"""Prompt with the triple and the hidden side; as in the paper, the hidden entity itself is not shown."""
_LEAD = re.compile(r"^(?:[-*•>#\s]+|\(?\d{1,3}[.):]\s+|(?:\*\*)?question(?:\s*\d+)?\s*:(?:\*\*)?\s*)+", re.IGNORECASE)
_QUOTES = "\"'“”‘’«»`*_"


class LLMQuestions:
    """Generator that asks a language model for one question per triple, and retries invalid ones up to two times.

    Args:
        model: The model; with a cache of replies, a second run makes no call.
        prompt: A user's template file.

    Raises:
        UserError: The template is invalid.
    """

    def __init__(self, model: ChatModel, prompt: str | None = None) -> None:
        self._model = model
        self._prompt = PROMPT.load(prompt)
        self.counts: Counter[str] = Counter()
        self.in_flight = model.in_flight
        also = fingerprint(model.config.model_dump(mode="json"), self._prompt.hash, TRIES)
        self.name = f"llm-{model.config.model}({also[:8]})"

    async def generate_one(self, masked: MaskedTriple) -> str | None:
        """Generate a question; None if all attempts are invalid.

        Raises:
            Broke: No further call could succeed: wrong key, unknown model, or unreachable endpoint.
        """
        reason = unaskable(masked)
        if reason is None:
            messages = self._prompt.messages(triple=str(masked), side=masked.side)
            for number in range(TRIES):
                self.counts[RETRIED] += number > 0
                question, reason = read(await self._model.ask(messages, repetition=number, step="question"), masked)
                if reason is None:
                    self.counts[ACCEPTED] += 1
                    return question
        self.counts[f"{DROPPED}{reason}"] += 1
        return None


def read(reply: Reply, masked: MaskedTriple) -> tuple[str | None, str | None]:
    """Extract the question from a reply; returns (question, None) or (None, reason)."""
    if reply.failed is not None:
        return None, "no reply"
    if refuses(reply.text):
        return None, "refusal"
    question = parse(reply.text)
    if not question:
        return None, "empty reply"
    reason = fault(question, masked)
    return (question, None) if reason is None else (None, reason)


def parse(reply: str) -> str:
    """Return the first line of a reply as a question, without quotation marks, bullets, numbers and a leading "Question:"."""
    for line in bare_text(reply).splitlines():
        text = _bare(line)
        if words_in(text):
            return text if text.endswith("?") else f"{text.rstrip('.!:; ')}?"
    return ""


def words_in(text: str) -> bool:
    """Return whether a line contains any letter or digit."""
    return any(character.isalnum() for character in text)


def _bare(line: str) -> str:
    text, before = line.strip(), None
    while text != before:
        before = text
        text = _LEAD.sub("", text).strip()
        if len(text) > 1 and text[0] in _QUOTES and text[-1] in _QUOTES:
            text = text[1:-1].strip()
    return " ".join(text.split())


# They are not natural language ("What is the languages spoken of Jamaica?"), and results that rest on them are not the
# paper's; the generator's name is in every row.


PATTERNS: Mapping[Side, tuple[str, ...]] = {
    "tail": ("What is the {relation} of {visible}?", "Which {relation} does {visible} have?"),
    "head": ("What has {visible} as its {relation}?", "Of what is {visible} the {relation}?"),
}
"""Sentence patterns by hidden end."""


class TemplateQuestions:
    """Generator that fills sentence patterns, chosen by the triple's id."""

    name = "template-v1"

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def generate(self, batch: Sequence[MaskedTriple]) -> list[str | None]:
        """Return a question per masked triple; None if the relation has no words or names an entity of the triple."""
        return [checked(filled(item), item, self.counts, "the relation has no words") for item in batch]


def filled(masked: MaskedTriple) -> str | None:
    """Fill a pattern for a masked triple; None if the relation has no words."""
    relation = " ".join(split_words(relation_text(masked.relation)))
    if not relation:
        return None
    return chosen(PATTERNS[masked.side], masked).format(relation=relation, visible=masked.visible)


def chosen(patterns: Sequence[str], masked: MaskedTriple) -> str:
    """Choose one of several patterns, deterministically by the triple."""
    return patterns[int(masked.id[1:], 16) % len(patterns)]


# Each masked triple is a statement of its relation with the hidden end asked for: "Korv was first described by Ada Rin"
# becomes "By which person was Korv first described?" or "What was first described by Ada Rin?". These statements are what
# the documents of worlds are written from; the questions of the benchmark have templates of their own, with other words
# on purpose ("Who identified Korv?"), so that with `statements`, the default, no template of a test question is seen in
# training. What is shared with test questions are names of kinds ("town", "person") and the syntax of English.
#
# Two further phrasings exist for comparison. `descriptions` ("Who is the naturalist who discovered Korv?") have the words
# that questions of two steps are made of, within another sentence. `questions` are the very templates of the benchmark's
# questions, about other entities: with them a result no longer says how well wordings are bridged.
#
# Relations that are withheld from training worlds have no question here, whatever the phrasing.


Phrasing = Literal["statements", "descriptions", "questions"]

_PASSIVE = re.compile(r"\{x\} (is|was) (\S+(?: \S+){0,2}) (in|by|to|from|under|of|for|on|with)")
_VOWELS = frozenset("aeiou")
_MODIFIED = ("its {t}", "founder {t}", "author {t}", "mayor {t}", "seasoned {t}", "town of {o}")
"""Templates with a modifier before a name, where a question word cannot replace the name."""


class WorldsQuestions:
    """Generator for generated worlds, which uses the wording of their relations.

    Args:
        phrasings: Kinds of templates to use.
    """

    def __init__(self, phrasings: Sequence[Phrasing] = ("statements",)) -> None:
        self._phrasings = tuple(phrasings)
        self.counts: Counter[str] = Counter()
        self.name = f"worlds-v1({'+'.join(self._phrasings)})"

    def generate(self, batch: Sequence[MaskedTriple]) -> list[str | None]:
        """Return a question per masked triple; None if its relation is not one of training worlds."""
        return [self._one(item) for item in batch]

    def _one(self, masked: MaskedTriple) -> str | None:
        relation = _known().get(masked.relation)
        if relation is None:
            return checked(None, masked, self.counts, "not a relation of worlds")
        if relation.held_out:
            return checked(None, masked, self.counts, "a relation withheld from training")
        patterns = wordings(relation, masked.side, self._phrasings)
        if not patterns:
            return checked(None, masked, self.counts, "no wording of the relation fits")
        pattern = chosen(patterns, masked)
        if masked.visible[:1] in _VOWELS:
            pattern = pattern.replace(" a {x}", " an {x}")
        text = pattern.replace("{x}", masked.visible)
        return checked(text[0].upper() + text[1:], masked, self.counts)


@cache
def wordings(relation: Relation, side: Side, phrasings: tuple[Phrasing, ...]) -> tuple[str, ...]:
    """Return all question wordings of a relation for one hidden end, with `{x}` for the other entity."""
    makers = {"statements": _from_statements, "descriptions": _from_descriptions, "questions": _from_questions}
    return tuple(dict.fromkeys(text for name in phrasings for text in makers[name](relation, side)))


def _from_statements(relation: Relation, side: Side) -> list[str]:
    return [_question(text, relation, side) for text in relation.says if _fits(text, side)]


def _fits(statement: str, side: Side) -> bool:
    slot = "{t}" if side == "tail" else "{o}"
    return not any(item in statement for item in _MODIFIED if item.endswith(slot))


def _question(statement: str, relation: Relation, side: Side) -> str:
    """Turn a statement into a question for one end; the question word is moved to the front in passive sentences."""
    if side == "tail":
        word, text = _question_word(relation), statement.replace(" a {t}", " {t}")
        slots = {"t": word, "h": "{x}", "o": "{x}", "p": "{x}'s"}
    else:
        word, text = f"which {relation.head}", statement
        slots = {"t": "{x}", "h": word, "o": word, "p": f"{word}'" if word.endswith("s") else f"{word}'s"}
    text = text.format(**slots).removesuffix(".")
    passive = _PASSIVE.fullmatch(text.removesuffix(f" {word}"))
    if passive is None or not text.endswith(f" {word}"):
        return f"{text}?"
    be, rest, preposition = passive.groups()
    return f"{preposition} {word} {be} {{x}} {rest}?"


def _question_word(relation: Relation) -> str:
    """Return the question word for the tail of a relation."""
    return f"how many {relation.unit}" if relation.tail == "number" else f"which {relation.tail}"


def _from_descriptions(relation: Relation, side: Side) -> list[str]:
    if side == "head":
        return [f"{{x}} is {text.format(h=f'which {relation.head}')}?" for text in relation.phrases]
    word = "who" if relation.tail == "person" else "what"
    texts = [f"{word} is {text.format(h='{x}')}?" for text in relation.phrases]
    # "What is the capital of …?" is a question of the benchmark as it stands.
    queries = {text.casefold() for text in _from_questions(relation, side)}
    return [text for text in texts if text.casefold() not in queries]


def _from_questions(relation: Relation, side: Side) -> list[str]:
    texts = relation.asks if side == "tail" else relation.inverse
    return [text.replace("{h}", "{x}").replace("{t}", "{x}") for text in texts]


@cache
def _known() -> dict[str, Relation]:
    return {relation.id: relation for relation in relations()}


FROM_FILE = ("cache", "recorded")
"""Generators that read the file of the option `path`."""

BATCH = 2048
"""Masked triples per batch for generators without a model."""


class QuestionsConfig(MayAskConfig):
    """Options of the question generator."""

    choice: ClassVar[str] = "generator"

    generator: Literal["llm", "cache", "recorded", "evidence", "template", "worlds"] = Field(
        default="worlds",
        description="llm: a language model (paper); cache: read `path`; recorded: read a table of questions from `path`; "
        "evidence: the data's own questions about their evidence, a control; template: words of the relation, for "
        "dry runs; worlds: the wordings of worlds' relations",
    )
    llm: Annotated[LLM, defaults(max_tokens=96, temperature=0.7)] | None = Field(
        default=None,
        description="model of generator llm; paper: Llama-3.1-8B-Instruct. With a temperature above 0, a second attempt differs",
    )
    prompt: str | None = Field(default=None, description="your own template file; null: the shipped one")
    path: str | None = Field(
        default=None, description="file of generator cache, as written by training (questions.jsonl), or of generator recorded (TSV)"
    )
    phrasings: tuple[Phrasing, ...] = Field(
        default=("statements",),
        min_length=1,
        description="wordings of generator worlds: statements share no template with test questions, descriptions share phrases "
        "with them, questions are the same",
    )
    sides: tuple[Side, ...] = Field(
        default=SIDES, min_length=1, description="ends of a triple that are hidden, with one question each; paper: both"
    )
    triples: int | None = Field(default=None, ge=1, description="maximum triples to ask questions about, sampled with the seed; null: all")

    @model_validator(mode="after")
    def _has_its_source(self) -> Self:
        if self.generator in FROM_FILE and self.path is None:
            raise ValueError(f"generator {self.generator} needs path: a file of questions")
        if len(set(self.sides)) < len(self.sides):
            raise ValueError("sides has a duplicate")
        return self


@dataclass(frozen=True)
class QuestionSet:
    """The questions about a graph, in the order of its triples.

    Attributes:
        triples: Row of each question's triple (the anchors for `sampling.TripleIndex.draw`).
        sides: Hidden end of each question: 0 head, 1 tail.
        texts: The questions.
        generator: Identity of the generator.
        counts: `triples` asked about, `unnamed` ones skipped, `kept` questions reused from the file, and the generator's
            counts. For written questions also `unmatched`: triples that are not in the graph.
    """

    triples: NDArray[np.int64]
    sides: NDArray[np.int8]
    texts: list[str]
    generator: str
    counts: Mapping[str, int]

    def __len__(self) -> int:
        return len(self.texts)


def generator_of(config: QuestionsConfig, services: Services, own: Callable[[], Iterable[Benchmark]] = tuple) -> QuestionGenerator:
    """Build the question generator that the options select.

    Args:
        config: The options.
        services: Services for a language model.
        own: Function that loads the benchmarks for the generator `evidence`.

    Raises:
        UserError: Its file, prompt or key is invalid.
    """
    if (llm := config.active_llm) is not None:
        model = open_llm(llm, services, role="masked triples")
        return LLMQuestions(model, config.prompt)
    if config.generator == "evidence":
        return evidence_questions(own())
    if config.path is not None and config.generator in FROM_FILE:
        path = data_path(config.path)
        return WrittenQuestions.cached(path) if config.generator == "cache" else WrittenQuestions.recorded(path)
    if config.generator == "template":
        return TemplateQuestions()
    return WorldsQuestions(config.phrasings)


def questions_of(
    graph: PretrainingGraph,
    config: QuestionsConfig,
    generator: QuestionGenerator,
    path: Path | None = None,
    *,
    seed: int = 0,
    progress: Progress | None = None,
    asks: bool = True,
) -> QuestionSet:
    """Return the questions about a graph: every triple with named entities, with each end hidden once.

    Args:
        graph: The graph.
        config: Which ends to hide, and the maximum number of triples.
        generator: Generator for missing questions (`generator_of`).
        path: File of questions, appended to immediately; those of the same generator are reused. None saves nothing.
        seed: Random seed for the choice of triples, if there are too many.
        progress: Progress display.
        asks: Whether to generate questions that are not in the file.

    Raises:
        UserError: There are no questions (the message gives the counts), or the file cannot be written (checked first).
    """
    progress = progress or Silent()
    if path is not None:
        require_writable(path, what=WHAT)
    rows = _asked(graph, config, generator, seed)
    kept = kept_questions(path, generator.name) if path is not None else {}
    before = Counter(generator.counts)
    triples: list[int] = []
    sides: list[int] = []
    texts: list[str] = []
    taken = 0
    progress.begin("questions", len(rows) * len(config.sides))
    made = _made(generator, (item for _, item in _items(graph, rows, config, generator) if (item.id, item.side) not in kept))
    with Lines(path, WHAT) if path is not None else nullcontext() as file:
        for row, item in _items(graph, rows, config, generator):
            question = kept.get((item.id, item.side))
            taken += question is not None
            if question is None and asks and (question := next(made)) is not None and file is not None:
                file.add(line_of(Written(item, question, generator.name)))
            if question is not None:
                triples.append(row)
                sides.append(SIDES.index(item.side))
                texts.append(question)
            progress.advance()
    counted = dict(sorted((Counter(generator.counts) - before).items()))
    counts = {"triples": len(rows), "unnamed": int((~graph.nameable).sum()), "kept": taken, **counted}
    if isinstance(generator, WrittenQuestions) and (unmatched := len(generator.triples - set(graph.triples.ids(np.arange(len(graph)))))):
        counts["unmatched"] = unmatched
    if not texts:
        raise _nothing(graph, generator.name, counts)
    return QuestionSet(np.array(triples, np.int64), np.array(sides, np.int8), texts, generator.name, counts)


def _made(generator: Any, missing: Iterator[MaskedTriple]) -> Iterator[str | None]:
    """Yield a generator's questions in order."""
    if form_of(generator, "generate") == "single":
        return in_order(one(generator, "generate"), missing, in_flight([(generator, "generate")]))
    batches = iter(lambda: list(islice(missing, BATCH)), [])
    return (question for batch in batches for question in generator.generate(batch))


def _asked(graph: PretrainingGraph, config: QuestionsConfig, generator: QuestionGenerator, seed: int) -> NDArray[np.int64]:
    """Return the rows of triples that get questions; for written questions, those in the file."""
    rows = np.flatnonzero(graph.nameable)
    if isinstance(generator, WrittenQuestions):
        ids = graph.triples.ids(np.arange(len(graph)))
        rows = np.array([row for row, name in enumerate(ids) if name in generator.triples], np.int64)
    if config.triples is None or len(rows) <= config.triples:
        return rows
    return np.sort(np.random.default_rng(seed).choice(rows, config.triples, replace=False))


def _items(
    graph: PretrainingGraph, rows: NDArray[np.int64], config: QuestionsConfig, generator: QuestionGenerator
) -> Iterator[tuple[int, MaskedTriple]]:
    """Yield the masked triples that get questions; for written questions, those in the file."""
    items = _masked(graph, rows, config.sides)
    return ((row, item) for row, item in items if item in generator) if isinstance(generator, WrittenQuestions) else items


def _masked(graph: PretrainingGraph, rows: NDArray[np.int64], sides: tuple[Side, ...]) -> Iterator[tuple[int, MaskedTriple]]:
    """Yield masked triples with the rows of their triples."""
    for start in range(0, len(rows), BATCH):
        part = rows[start : start + BATCH]
        for row, triple in zip(part.tolist(), graph.triples.take(part), strict=True):
            yield from ((row, MaskedTriple(triple, side)) for side in sides)


def _nothing(graph: PretrainingGraph, generator: str, counts: Mapping[str, int]) -> UserError:
    fate = ", ".join(f"{name} {number:,}" for name, number in counts.items() if number) or "nothing"
    return UserError(
        f"{generator} wrote no question about the {len(graph):,} triples ({fate})",
        code="no-question-written",
        where="questions",
        try_this="use another generator or graph",
    )
