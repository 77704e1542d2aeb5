"""Training rows of the three stages: what the loss is computed on, as plain texts.

Files of rows have the authors' formats, so that the loader `clara_stages` reads them back.

Rows of worlds are made without a model: questions about each document, and paraphrases of it. They have the form and the
types of what a language model synthesizes (`synthesis.py`), and their truth is known.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, permutations
from pathlib import Path
from typing import Any, Literal, NamedTuple

from benchmarks.core.errors import UserError, unwritable
from benchmarks.core.files import whole
from benchmarks.core.random import Draws
from benchmarks.datasets.clara import StageRow
from benchmarks.registry import DataReference
from benchmarks.schema import Passage
from benchmarks.worlds.dataset import WorldsConfig
from benchmarks.worlds.questions import answer_of, paraphrases
from benchmarks.worlds.text import NO_FACT, Mention, Text, articles, document, mention_by_name, state
from benchmarks.worlds.world import SPLITS, Entity, Fact, Relation, World, generate, require_split
from methods.clara.config import CANDIDATES, ScpDataConfig, Type

DOCUMENTS = 5
"""Documents of a row of instruction tuning."""

Kind = Literal["qa", "paraphrase"]


class Pair(NamedTuple):
    """A question about one document, with its answer as the document has it."""

    question: str
    answer: str


@dataclass(frozen=True, slots=True)
class ScpRow:
    """A row of salient compressor pretraining: a document, and what must be reproduced from its memory alone.

    Attributes:
        kind: `qa`: all questions with their answers are the target; `paraphrase`: the one answer is.
        document: The document's text.
        questions: Questions about it; empty for a paraphrase.
        answers: An answer to each question, or the paraphrase.
        id: Where the row is from.
    """

    kind: Kind
    document: str
    questions: tuple[str, ...]
    answers: tuple[str, ...]
    id: str = ""

    def __post_init__(self) -> None:
        wanted = len(self.questions) if self.kind == "qa" else 1
        if not self.answers or len(self.answers) != wanted:
            raise ValueError(f"a {self.kind} row with {len(self.questions)} questions, {len(self.answers)} answers")

    @property
    def paraphrase(self) -> str:
        """Return the one target of a paraphrase row."""
        return self.answers[0]


@dataclass(frozen=True, slots=True)
class InstructionRow:
    """A row of instruction tuning.

    Attributes:
        question: The question.
        documents: The retrieved documents, best first.
        answer: What is taught: a teacher's text, or the gold answer where there is none.
        gold: A short reference answer.
        id: Of the question, as its dataset has it.
        evidence: Places of the documents that answer it; empty where the row does not say.
    """

    question: str
    documents: tuple[str, ...]
    answer: str
    gold: str
    id: str = ""
    evidence: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class JointRow:
    """A row of joint training, and of evaluation.

    Attributes:
        id: Of the question, as its dataset has it.
        question: The question.
        documents: The candidates, in an order drawn from seed and id.
        answer: What is taught.
        positives: Places of the positive documents; for the supervised retriever and for recall, never seen by the
            joint loss. Empty where the row does not say.
        golds: Every accepted answer.
    """

    id: str
    question: str
    documents: tuple[str, ...]
    answer: str
    positives: tuple[int, ...]
    golds: tuple[str, ...] = ()


def pooled(
    identifier: str, positives: Sequence[str], others: Iterable[str], size: int = CANDIDATES, *, seed: int = 0
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return candidates of a question: its positives, then others until there are enough, in an order that tells nothing.

    Args:
        identifier: Of the question; the order depends on it and on the seed.
        positives: Positive documents; no more than `size` are kept.
        others: Further documents, best first; equal texts count once.
        size: D, how many candidates there are at most.
        seed: Of the order.

    Returns:
        The candidates, and the places of the positives among them, ascending.
    """
    wanted = dict.fromkeys(positives)
    chosen = list(dict.fromkeys([*positives, *others]))[:size]
    Draws("clara candidates", seed, identifier).shuffle(chosen)
    return tuple(chosen), tuple(position for position, text in enumerate(chosen) if text in wanted)


def scp_row(row: StageRow) -> ScpRow:
    """Return a row of the loader `clara_stages/pretraining`.

    Raises:
        UserError: It is of another stage.
    """
    if row.kind == "qa":
        questions, answers = zip(*((question, golds[0]) for question, golds in row.pairs), strict=True)
        return ScpRow("qa", row.docs[0], questions, answers, row.id)
    if row.kind == "paraphrase":
        return ScpRow("paraphrase", row.docs[0], (), (row.pairs[0][1][0],), row.id)
    raise _other_stage(row, "pretraining")


def instruction_row(row: StageRow, documents: int = DOCUMENTS) -> InstructionRow:
    """Return a row of `clara_stages/instruction_tuning`, of an evaluation set, or of `pisco`; its first so many documents.

    Raises:
        UserError: It is of pretraining.
    """
    if row.kind != "answer":
        raise _other_stage(row, "instruction tuning")
    question, golds = row.pairs[0]
    return InstructionRow(question, row.docs[:documents], row.target or golds[0], golds[0], row.id)


def joint_row(row: StageRow, size: int = CANDIDATES, *, seed: int = 0) -> JointRow:
    """Return a row of `clara_stages/e2e_…`, its candidates in an order of ours: the authors put positives first.

    Raises:
        UserError: It is of pretraining.
    """
    if row.kind != "answer":
        raise _other_stage(row, "joint training")
    question, golds = row.pairs[0]
    positives = [row.docs[position] for position in row.positives or () if 0 <= position < len(row.docs)]
    documents, positions = pooled(row.id, positives, row.docs, size, seed=seed)
    return JointRow(row.id, question, documents, row.target or golds[0], positions, golds)


def _other_stage(row: StageRow, stage: str) -> UserError:
    return UserError(
        f"this row is not of {stage}: its kind is {row.kind!r}",
        code="row-kind-mismatch",
        where=row.id,
        try_this="clara_stages/pretraining:train for pretraining, …/instruction_tuning or …/e2e_… for the others",
    )


def scp_record(row: ScpRow) -> dict[str, Any]:
    """Return a row of pretraining as a line of the authors' files."""
    return {"data_type": row.kind, "question": list(row.questions), "answers": list(row.answers), "docs": [row.document]}


def instruction_record(row: InstructionRow) -> dict[str, Any]:
    """Return a row of instruction tuning as a line of the authors' files."""
    return {"question": row.question, "docs": list(row.documents), "gold_answer": row.gold, "answer": row.answer}


def joint_record(row: JointRow) -> dict[str, Any]:
    """Return a row of joint training or evaluation as a line of the authors' files."""
    return {
        "question": row.question,
        "docs": list(row.documents),
        "answer": row.answer,
        "golden_answers": list(row.golds or (row.answer,)),
        "pos_index": list(row.positives),
    }


def write_rows(path: Path, rows: Iterable[ScpRow | InstructionRow | JointRow]) -> None:
    """Write rows of one stage as JSON Lines, one at a time; the file appears whole or not at all.

    Raises:
        UserError: The file cannot be written.
    """

    def write(partial: Path) -> None:
        with partial.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(json.dumps(_record(row), ensure_ascii=False) + "\n" for row in rows)

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        whole(path, write)
    except OSError as error:
        raise unwritable(error, path, what="the rows") from error


def _record(row: ScpRow | InstructionRow | JointRow) -> dict[str, Any]:
    if isinstance(row, ScpRow):
        return scp_record(row)
    return instruction_record(row) if isinstance(row, InstructionRow) else joint_record(row)


PRONOUNS = 0.6
"""Share of later mentions in a paraphrase by a pronoun, where one fits."""
_INVERSE = "Who "


class Statement(NamedTuple):
    """A sentence of a document.

    Attributes:
        text: The sentence.
        subject: The entity that it is about.
        fact: What it states; None for a sentence that only sounds like a statement.
    """

    text: str
    subject: Entity
    fact: Fact | None


def facts_of(responses: Iterable[Statement]) -> list[Fact]:
    """Return the facts that sentences state, in order."""
    return [item.fact for item in responses if item.fact is not None]


def simple_pairs(facts: Sequence[Fact], text: str, draws: Draws) -> list[Pair]:
    """Return a question for each fact; facts of one head and one relation are asked for together.

    Args:
        facts: What the document states.
        text: The document: answers are worded as there.
        draws: Which of the ways to ask is taken.
    """
    groups: dict[tuple[int, str], list[Fact]] = {}
    for fact in facts:
        groups.setdefault((fact.head.index, fact.relation.id), []).append(fact)
    return [Pair(draws.pick(paraphrases(group[0])), _joined([stated(fact, text) for fact in group])) for group in groups.values()]


def complex_pairs(facts: Sequence[Fact], text: str, draws: Draws) -> list[Pair]:
    """Return questions that need two facts of the document each: neighboring ones, and all that chain.

    Args:
        facts: What the document states.
        text: The document: answers are worded as there.
        draws: The source of chance.
    """
    plain = [fact for fact in facts if not fact.relation.many]
    results: list[Pair] = []
    for item, two in permutations(plain, 2):
        if (chained := _chained(item, two, text, draws)) is not None:
            results.append(chained)
    makers: tuple[Callable[[Fact, Fact, str, Draws], Pair | None], ...] = (_described, _compared)
    for item, two in pairwise(plain):
        ways = [(maker, *order) for maker in makers for order in ((item, two), (two, item))]
        made = [pair for maker, first, second in ways if (pair := maker(first, second, text, draws)) is not None]
        results.append(draws.pick([*made, _both(item, two, text, draws)]))
    return list({pair.question: pair for pair in results}.values())


def stated(fact: Fact, text: str) -> str:
    """Return a fact's answer in the words of a document: the first accepted form that is there, as questions have it."""
    answer, accepted = answer_of(fact)
    return next((form for form in (answer, *accepted) if form in text), answer)


def _chained(first: Fact, second: Fact, text: str, draws: Draws) -> Pair | None:
    """Return a pair whose question describes the second fact's head by the first fact; None if the facts do not chain."""
    if first.tail is None or first.tail is not second.head or not first.relation.phrases:
        return None
    if second.tail is first.head:
        return None
    phrase = draws.pick(first.relation.phrases).format(h=first.head.text)
    return Pair(draws.pick(second.relation.asks).format(h=phrase), stated(second, text))


def _described(first: Fact, second: Fact, text: str, draws: Draws) -> Pair | None:
    """Return a pair about the second fact, whose question describes the subject by the first fact."""
    ways = [way for way in first.relation.inverse if way.startswith(_INVERSE)]
    if first.head is not second.head or first.tail is None or not ways:
        return None
    phrase = "the person who " + draws.pick(ways).removeprefix(_INVERSE).format(t=first.tail.text).rstrip("?")
    return Pair(draws.pick(second.relation.asks).format(h=phrase), stated(second, text))


def _compared(item: Fact, two: Fact, text: str, draws: Draws) -> Pair | None:
    """Return which of two entities has the smaller or larger value."""
    if item.relation is not two.relation or item.head is two.head or not item.relation.compare:
        return None
    if item.number == two.number:
        return None
    side, which, _ = draws.pick(item.relation.compare)
    chosen = (min if side == "smaller" else max)(item, two, key=_number)
    return Pair(which.format(a=item.head.text, b=two.head.text), chosen.head.name)


def _both(item: Fact, two: Fact, text: str, draws: Draws) -> Pair:
    """Return two facts in one sentence; the answers in that order."""
    first, second = (draws.pick(paraphrases(fact)) for fact in (item, two))
    if not second.startswith(two.head.text):
        second = second[0].lower() + second[1:]
    return Pair(f"{first.rstrip('?')}, and {second}", f"{stated(item, text)} and {stated(two, text)}")


def _number(fact: Fact) -> int:
    return fact.number


def _joined(answers: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(answers))


def rephrased(sentences: Sequence[Statement], draws: Draws) -> list[str]:
    """Return the sentences of a document paraphrased: other words and another order, every fact and name kept.

    Sentences about one entity stay together. Those that state nothing stay as they are, where they are.

    Args:
        sentences: The document's.
        draws: The source of chance.
    """
    rewritten: list[str] = []
    for group in _runs(sentences):
        rewritten += _rephrased(group, draws)
    return rewritten


def _runs(sentences: Sequence[Statement]) -> list[list[Statement]]:
    """Return neighboring sentences about one entity."""
    runs: list[list[Statement]] = []
    for sentence in sentences:
        if runs and runs[-1][-1].subject is sentence.subject:
            runs[-1].append(sentence)
        else:
            runs.append([sentence])
    return runs


def _rephrased(group: Sequence[Statement], draws: Draws) -> list[str]:
    entity = group[0].subject
    introduced = bool(entity.epithet) and entity.epithet in group[0].text
    positions = [position for position, item in enumerate(group) if item.fact is not None and not (introduced and position == 0)]
    moved = [group[position] for position in positions]
    draws.shuffle(moved)
    order = dict(zip(positions, moved, strict=True))
    plain, pronoun = mention_by_name(entity.text), Mention(*entity.pronouns)
    rewritten = []
    for position, item in enumerate(group):
        item = order.get(position, item)
        if item.fact is None:
            rewritten.append(item.text)
        elif introduced and position == 0:
            rewritten.append(_introducing(item, item.fact, draws))
        else:
            later = position > 0 and draws.chance(PRONOUNS)
            rewritten.append(_reworded(item, item.fact, pronoun if later else plain, later, draws) or _name_entity(item, plain))
    return rewritten


def _introducing(item: Statement, fact: Fact, draws: Draws) -> str:
    """Return the first sentence about an entity with a second name, which has to be given there."""
    entity = item.subject
    mention = Mention(f"{entity.text}, called {entity.epithet},", entity.text, entity.text + "'s")
    fit = [way for way in _others(item, fact) if way.startswith("{h} ")]
    return state(draws.pick(fit), mention, _tail(item, fact)) if fit else item.text


def _reworded(item: Statement, fact: Fact, mention: Mention, by_pronoun: bool, draws: Draws) -> str | None:
    ways = [way for way in _others(item, fact) if not by_pronoun or way in fact.relation.says_pronoun]
    return state(draws.pick(ways), mention, _tail(item, fact)) if ways else None


def _name_entity(item: Statement, mention: Mention) -> str:
    """Return a sentence that no other template can take, by the full name."""
    assert item.fact is not None
    ways = _others(item, item.fact) or list(item.fact.relation.says)
    return state(ways[0], mention, _tail(item, item.fact))


def _others(item: Statement, fact: Fact) -> list[str]:
    """Return the ways to state a fact that its sentence did not take."""
    return [way for way in fact.relation.says if not _pattern(way, _tail(item, fact), fact.relation).fullmatch(item.text)]


def _pattern(way: str, tail: str, relation: Relation) -> re.Pattern[str]:
    """Return a pattern that matches a template's sentences for any subject."""
    parts = re.split(r"(\{[hopt]\})", way)
    made = "".join(re.escape(tail) if part == "{t}" else ".+?" if part[:1] == "{" else re.escape(part) for part in parts)
    return re.compile(made.replace(r"\ a\ " + re.escape(tail), r"\ an?\ " + re.escape(tail)), re.IGNORECASE)


def _tail(item: Statement, fact: Fact) -> str:
    """Return a fact's tail as its sentence has it."""
    if fact.tail is None:
        return fact.text
    forms = sorted({fact.tail.text, *fact.tail.aliases}, key=len, reverse=True)
    low = item.text.casefold()
    return next((form for form in forms if form.casefold() in low), fact.tail.text)


_WORLDS = {"long": 2}
"""Worlds of a subset where the options do not say; one for the others."""


@dataclass(frozen=True, slots=True)
class WorldDocument:
    """A document of a world, with what each sentence says."""

    passage: Passage
    sentences: tuple[Statement, ...]


def documents(reference: DataReference, config: WorldsConfig) -> Iterator[WorldDocument]:
    """Yield the documents of worlds: chunks of long ones for `worlds/long`, articles for the other subsets.

    Args:
        reference: Subset and one split, set.
        config: Options of worlds: seeds, size, how plainly they speak.

    Raises:
        UserError: A seed is of another split.
    """
    split = reference.split or "train"
    first = SPLITS[split].start if config.seed is None else config.seed
    count = config.worlds or _WORLDS.get(reference.subset or "", 1)
    for seed in range(first, first + count):
        world = generate(require_split(seed, split), config.world_config)
        for text in _texts(world, reference.subset == "long", config):
            yield WorldDocument(text.passage, _message(text, world))


def rows_about(item: WorldDocument, types: tuple[Type, ...], seed: int = 0) -> list[ScpRow]:
    """Return the rows about a document: one for each type that it gives anything for.

    Args:
        item: The document.
        types: The types wanted.
        seed: Of the wordings of its questions and its paraphrase.
    """
    text, identifier = item.passage.full_text, item.passage.id
    rows = []
    for kind in types:
        draws = Draws("clara pretraining", kind, seed, identifier)
        facts = facts_of(item.sentences)
        if kind == "paraphrase":
            paraphrase = " ".join(rephrased(item.sentences, draws))
            rows.append(ScpRow("paraphrase", text, (), (paraphrase,), f"{identifier}/{kind}"))
            continue
        pairs = (simple_pairs if kind == "simple" else complex_pairs)(facts, text, draws)
        if pairs:
            questions, answers = zip(*pairs, strict=True)
            rows.append(ScpRow("qa", text, questions, answers, f"{identifier}/{kind}"))
    return rows


def world_rows(reference: DataReference, config: WorldsConfig, data: ScpDataConfig) -> list[ScpRow]:
    """Return the rows of worlds.

    Args:
        reference: Subset and one split, set.
        config: Options of worlds.
        data: Which rows, of how many documents.

    Raises:
        UserError: A seed is of another split.
    """
    if not data.types:
        return []
    every = list(documents(reference, config))
    if data.documents is not None and data.documents < len(every):
        chosen = set(Draws("clara documents", data.seed).sample(range(len(every)), data.documents))
        every = [item for position, item in enumerate(every) if position in chosen]
    return [row for item in every for row in rows_about(item, data.types, data.seed)]


def _texts(world: World, long: bool, config: WorldsConfig) -> Iterator[Text]:
    if not long:
        yield from articles(world, config.rendering).texts
        return
    for community in range(world.communities):
        yield from document(world, community, config.rendering).texts


def _message(text: Text, world: World) -> tuple[Statement, ...]:
    lines = zip(text.passage.sentences, text.subjects, text.facts, strict=True)
    return tuple(
        Statement(sentence, world.entities[subject], None if fact == NO_FACT else world.facts[fact]) for sentence, subject, fact in lines
    )
