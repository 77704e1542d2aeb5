"""Training rows of the three stages, as plain texts, and their generation from worlds.

Files of rows use the authors' formats, which the loader `clara_stages` reads.

Rows of worlds (questions about each document, and paraphrases) need no model. They have the same form and types as synthesized
rows (`synthesis.py`), with known truth.
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
"""Number of documents per instruction-tuning row."""

Kind = Literal["qa", "paraphrase"]


class Pair(NamedTuple):
    """A question about one document with its answer, in the document's words."""

    question: str
    answer: str


@dataclass(frozen=True, slots=True)
class ScpRow:
    """Row of salient compressor pretraining: a document, and the target to generate from its memory.

    Attributes:
        kind: `qa` (target: all questions with answers) or `paraphrase` (target: the single answer).
        document: The document's text.
        questions: Questions about it; empty for a paraphrase.
        answers: An answer to each question, or the paraphrase.
        id: Origin of the row.
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
        """Return the target of a paraphrase row."""
        return self.answers[0]


@dataclass(frozen=True, slots=True)
class InstructionRow:
    """Row of instruction tuning.

    Attributes:
        question: The question.
        documents: The retrieved documents, best first.
        answer: Target: the teacher's answer, or the gold answer without a teacher.
        gold: A short reference answer.
        id: Id of the question in its dataset.
        evidence: Positions of the documents with the answer; empty if unknown.
    """

    question: str
    documents: tuple[str, ...]
    answer: str
    gold: str
    id: str = ""
    evidence: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class JointRow:
    """Row of joint training and of evaluation.

    Attributes:
        id: Id of the question in its dataset.
        question: The question.
        documents: The candidates, shuffled by seed and id.
        answer: Target answer.
        positives: Positions of the positive documents, used by the supervised retriever and for recall, but not by the joint
            loss. Empty if unknown.
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
    """Build a question's shuffled candidate list: its positives, filled up with other documents.

    Args:
        identifier: Id of the question, which seeds the shuffle.
        positives: Positive documents; at most `size` are used.
        others: Other documents, best first; duplicates are dropped.
        size: Maximum number of candidates (D).
        seed: Random seed.

    Returns:
        The candidates, and the positions of the positives, ascending.
    """
    wanted = dict.fromkeys(positives)
    chosen = list(dict.fromkeys([*positives, *others]))[:size]
    Draws("clara candidates", seed, identifier).shuffle(chosen)
    return tuple(chosen), tuple(position for position, text in enumerate(chosen) if text in wanted)


def scp_row(row: StageRow) -> ScpRow:
    """Convert a row of the loader `clara_stages/pretraining`.

    Raises:
        UserError: The row belongs to another stage.
    """
    if row.kind == "qa":
        questions, answers = zip(*((question, golds[0]) for question, golds in row.pairs), strict=True)
        return ScpRow("qa", row.docs[0], questions, answers, row.id)
    if row.kind == "paraphrase":
        return ScpRow("paraphrase", row.docs[0], (), (row.pairs[0][1][0],), row.id)
    raise _other_stage(row, "pretraining")


def instruction_row(row: StageRow, documents: int = DOCUMENTS) -> InstructionRow:
    """Convert a row of `clara_stages/instruction_tuning`, of an evaluation set, or of `pisco`, with its first `documents`
    documents.

    Raises:
        UserError: The row belongs to pretraining.
    """
    if row.kind != "answer":
        raise _other_stage(row, "instruction tuning")
    question, golds = row.pairs[0]
    return InstructionRow(question, row.docs[:documents], row.target or golds[0], golds[0], row.id)


def joint_row(row: StageRow, size: int = CANDIDATES, *, seed: int = 0) -> JointRow:
    """Convert a row of `clara_stages/e2e_…`; candidates are shuffled, because the authors put positives first.

    Raises:
        UserError: The row belongs to pretraining.
    """
    if row.kind != "answer":
        raise _other_stage(row, "joint training")
    question, golds = row.pairs[0]
    positives = [row.docs[position] for position in row.positives or () if 0 <= position < len(row.docs)]
    documents, positions = pooled(row.id, positives, row.docs, size, seed=seed)
    return JointRow(row.id, question, documents, row.target or golds[0], positions, golds)


def _other_stage(row: StageRow, stage: str) -> UserError:
    return UserError(
        f"this row is not for {stage}: its kind is {row.kind!r}",
        code="row-kind-mismatch",
        where=row.id,
        try_this="clara_stages/pretraining:train for pretraining, …/instruction_tuning or …/e2e_… for the others",
    )


def scp_record(row: ScpRow) -> dict[str, Any]:
    """Convert a pretraining row to the JSON object of the authors' files."""
    return {"data_type": row.kind, "question": list(row.questions), "answers": list(row.answers), "docs": [row.document]}


def instruction_record(row: InstructionRow) -> dict[str, Any]:
    """Convert an instruction-tuning row to the JSON object of the authors' files."""
    return {"question": row.question, "docs": list(row.documents), "gold_answer": row.gold, "answer": row.answer}


def joint_record(row: JointRow) -> dict[str, Any]:
    """Convert a joint-training row to the JSON object of the authors' files."""
    return {
        "question": row.question,
        "docs": list(row.documents),
        "answer": row.answer,
        "golden_answers": list(row.golds or (row.answer,)),
        "pos_index": list(row.positives),
    }


def write_rows(path: Path, rows: Iterable[ScpRow | InstructionRow | JointRow]) -> None:
    """Write rows of one stage as JSON Lines, atomically.

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
"""Probability that a paraphrase refers to a repeated subject by a pronoun, if possible."""
_INVERSE = "Who "


class Statement(NamedTuple):
    """A sentence of a generated document.

    Attributes:
        text: The sentence.
        subject: Its subject.
        fact: The stated fact; None for decoy sentences.
    """

    text: str
    subject: Entity
    fact: Fact | None


def facts_of(responses: Iterable[Statement]) -> list[Fact]:
    """Return the facts that sentences state, in order."""
    return [item.fact for item in responses if item.fact is not None]


def simple_pairs(facts: Sequence[Fact], text: str, draws: Draws) -> list[Pair]:
    """Generate one question per fact; facts with the same head and relation share a question.

    Args:
        facts: Facts of the document.
        text: The document's text, whose wording answers use.
        draws: Random numbers for the choice of wording.
    """
    groups: dict[tuple[int, str], list[Fact]] = {}
    for fact in facts:
        groups.setdefault((fact.head.index, fact.relation.id), []).append(fact)
    return [Pair(draws.pick(paraphrases(group[0])), _joined([answer_text(fact, text) for fact in group])) for group in groups.values()]


def complex_pairs(facts: Sequence[Fact], text: str, draws: Draws) -> list[Pair]:
    """Generate questions that need two facts of the document: two neighboring facts, or a chain of two.

    Args:
        facts: Facts of the document.
        text: The document's text, whose wording answers use.
        draws: Random numbers.
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


def answer_text(fact: Fact, text: str) -> str:
    """Return a fact's answer in the document's wording: the first accepted form that occurs in the text."""
    answer, accepted = answer_of(fact)
    return next((form for form in (answer, *accepted) if form in text), answer)


def _chained(first: Fact, second: Fact, text: str, draws: Draws) -> Pair | None:
    """Build a pair whose question describes the second fact's head by the first fact; None if the facts do not chain."""
    if first.tail is None or first.tail is not second.head or not first.relation.phrases:
        return None
    if second.tail is first.head:
        return None
    phrase = draws.pick(first.relation.phrases).format(h=first.head.text)
    return Pair(draws.pick(second.relation.asks).format(h=phrase), answer_text(second, text))


def _described(first: Fact, second: Fact, text: str, draws: Draws) -> Pair | None:
    """Build a pair about the second fact, whose question describes the subject by the first."""
    ways = [way for way in first.relation.inverse if way.startswith(_INVERSE)]
    if first.head is not second.head or first.tail is None or not ways:
        return None
    phrase = "the person who " + draws.pick(ways).removeprefix(_INVERSE).format(t=first.tail.text).rstrip("?")
    return Pair(draws.pick(second.relation.asks).format(h=phrase), answer_text(second, text))


def _compared(item: Fact, two: Fact, text: str, draws: Draws) -> Pair | None:
    """Build a pair that asks which of two entities has the smaller or larger value."""
    if item.relation is not two.relation or item.head is two.head or not item.relation.compare:
        return None
    if item.number == two.number:
        return None
    side, which, _ = draws.pick(item.relation.compare)
    chosen = (min if side == "smaller" else max)(item, two, key=_number)
    return Pair(which.format(a=item.head.text, b=two.head.text), chosen.head.name)


def _both(item: Fact, two: Fact, text: str, draws: Draws) -> Pair:
    """Build a pair that asks for two facts in one sentence, with both answers in order."""
    first, second = (draws.pick(paraphrases(fact)) for fact in (item, two))
    if not second.startswith(two.head.text):
        second = second[0].lower() + second[1:]
    return Pair(f"{first.rstrip('?')}, and {second}", f"{answer_text(item, text)} and {answer_text(two, text)}")


def _number(fact: Fact) -> int:
    return fact.number


def _joined(answers: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(answers))


def rephrased(sentences: Sequence[Statement], draws: Draws) -> list[str]:
    """Paraphrase a generated document: other words and order, with all facts and names preserved.

    Sentences about the same entity stay together. Sentences without a fact stay unchanged, in place.

    Args:
        sentences: Sentences of the document.
        draws: Random numbers.
    """
    rewritten: list[str] = []
    for group in _runs(sentences):
        rewritten += _rephrased(group, draws)
    return rewritten


def _runs(sentences: Sequence[Statement]) -> list[list[Statement]]:
    """Group neighboring sentences about the same entity."""
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
    """Write the first sentence about an entity so that it introduces the entity's epithet."""
    entity = item.subject
    mention = Mention(f"{entity.text}, called {entity.epithet},", entity.text, entity.text + "'s")
    fit = [way for way in _others(item, fact) if way.startswith("{h} ")]
    return state(draws.pick(fit), mention, _tail(item, fact)) if fit else item.text


def _reworded(item: Statement, fact: Fact, mention: Mention, by_pronoun: bool, draws: Draws) -> str | None:
    ways = [way for way in _others(item, fact) if not by_pronoun or way in fact.relation.says_pronoun]
    return state(draws.pick(ways), mention, _tail(item, fact)) if ways else None


def _name_entity(item: Statement, mention: Mention) -> str:
    """Write a sentence with the full name, if no other template fits."""
    assert item.fact is not None
    ways = _others(item, item.fact) or list(item.fact.relation.says)
    return state(ways[0], mention, _tail(item, item.fact))


def _others(item: Statement, fact: Fact) -> list[str]:
    """Return the templates for a fact that its sentence did not use."""
    return [way for way in fact.relation.says if not _pattern(way, _tail(item, fact), fact.relation).fullmatch(item.text)]


def _pattern(way: str, tail: str, relation: Relation) -> re.Pattern[str]:
    """Return a pattern that matches a template's sentences for any subject."""
    parts = re.split(r"(\{[hopt]\})", way)
    made = "".join(re.escape(tail) if part == "{t}" else ".+?" if part[:1] == "{" else re.escape(part) for part in parts)
    return re.compile(made.replace(r"\ a\ " + re.escape(tail), r"\ an?\ " + re.escape(tail)), re.IGNORECASE)


def _tail(item: Statement, fact: Fact) -> str:
    """Return a fact's tail as worded in its sentence."""
    if fact.tail is None:
        return fact.text
    forms = sorted({fact.tail.text, *fact.tail.aliases}, key=len, reverse=True)
    low = item.text.casefold()
    return next((form for form in forms if form.casefold() in low), fact.tail.text)


_WORLDS = {"long": 2}
"""Number of worlds per subset if the options do not set it; 1 for others."""


@dataclass(frozen=True, slots=True)
class WorldDocument:
    """A generated document, with the fact that each sentence states."""

    passage: Passage
    sentences: tuple[Statement, ...]


def documents(reference: DataReference, config: WorldsConfig) -> Iterator[WorldDocument]:
    """Yield the documents of worlds: chunks of long ones for `worlds/long`, articles for the other subsets.

    Args:
        reference: Reference with subset and a single split.
        config: Options of worlds: seeds, size, text style.

    Raises:
        UserError: A seed belongs to another split.
    """
    split = reference.split or "train"
    first = SPLITS[split].start if config.seed is None else config.seed
    count = config.worlds or _WORLDS.get(reference.subset or "", 1)
    for seed in range(first, first + count):
        world = generate(require_split(seed, split), config.world_config)
        for text in _texts(world, reference.subset == "long", config):
            yield WorldDocument(text.passage, _message(text, world))


def rows_about(item: WorldDocument, types: tuple[Type, ...], seed: int = 0) -> list[ScpRow]:
    """Generate a document's rows, one per type for which it has content.

    Args:
        item: The document.
        types: Requested row types.
        seed: Random seed for the wordings.
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
    """Generate the rows of worlds.

    Args:
        reference: Reference with subset and a single split.
        config: Options of worlds.
        data: Row types and number of documents.

    Raises:
        UserError: A seed belongs to another split.
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
