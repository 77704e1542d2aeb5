"""Training rows of the three stages: what the loss is computed on, as plain texts.

Files of rows have the authors' formats, so that the loader `clara_stages` reads them back.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from benchmarks.core.errors import UserError, unwritable
from benchmarks.core.files import whole
from benchmarks.core.random import Draws
from benchmarks.datasets.clara import StageRow

CANDIDATES = 20
"""D: documents that joint training chooses among."""
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
        """The one target of a paraphrase row."""
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
    """Candidates of a question: its positives, then others until there are enough, in an order that tells nothing.

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
    """A row of the loader `clara_stages/pretraining`.

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
    """A row of `clara_stages/instruction_tuning`, of an evaluation set, or of `pisco`; its first so many documents.

    Raises:
        UserError: It is of pretraining.
    """
    if row.kind != "answer":
        raise _other_stage(row, "instruction tuning")
    question, golds = row.pairs[0]
    return InstructionRow(question, row.docs[:documents], row.target or golds[0], golds[0], row.id)


def joint_row(row: StageRow, size: int = CANDIDATES, *, seed: int = 0) -> JointRow:
    """A row of `clara_stages/e2e_…`, its candidates in an order of ours: the authors put positives first.

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
        code="row-not-kind",
        where=row.id,
        try_this="clara_stages/pretraining:train for pretraining, …/instruction_tuning or …/e2e_… for the others",
    )


def scp_record(row: ScpRow) -> dict[str, Any]:
    """A row of pretraining as a line of the authors' files."""
    return {"data_type": row.kind, "question": list(row.questions), "answers": list(row.answers), "docs": [row.document]}


def instruction_record(row: InstructionRow) -> dict[str, Any]:
    """A row of instruction tuning as a line of the authors' files."""
    return {"question": row.question, "docs": list(row.documents), "gold_answer": row.gold, "answer": row.answer}


def joint_record(row: JointRow) -> dict[str, Any]:
    """A row of joint training or evaluation as a line of the authors' files."""
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
