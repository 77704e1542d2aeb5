"""Rows as the model is taught them: documents that are read once, and what is asked about their memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.draws import Draws
from benchmarks.fingerprint import fingerprint
from methods.clara.prompting import PARAPHRASES, Prompt, answer, paraphrase, qa_pairs, qa_target
from methods.clara.rows import InstructionRow, ScpRow
from methods.clara.training_config import InstructionStage, ScpStage


@dataclass(frozen=True, slots=True)
class Exchange:
    """A prompt over the memory of a lesson's documents, and the reply that is taught."""

    prompt: Prompt
    target: str


@dataclass(frozen=True, slots=True)
class Lesson:
    """What is taught from one reading of some documents.

    Attributes:
        documents: Whose memory stands in every prompt.
        exchanges: One in the paper; several where a reading is to serve them all.
    """

    documents: tuple[str, ...]
    exchanges: tuple[Exchange, ...]


def scp_lesson(row: ScpRow, wording: int) -> Lesson:
    """A row of pretraining; a paraphrase is asked for in one of several wordings, counted on without end."""
    if row.kind == "paraphrase":
        return Lesson((row.document,), (Exchange(paraphrase(wording % PARAPHRASES), row.paraphrase),))
    return Lesson((row.document,), (Exchange(qa_pairs(), qa_target(row.questions, row.answers)),))


def instruction_lesson(row: InstructionRow, documents: int) -> Lesson:
    """A row of instruction tuning, with its first so many documents."""
    kept = row.documents[:documents]
    return Lesson(kept, (Exchange(answer(row.question, len(kept)), row.answer),))


def scp_lessons(rows: Sequence[ScpRow], options: ScpStage, seed: int) -> list[Lesson]:
    """Rows of pretraining as they are taught: one lesson a row, or (`asked`, ours) one a document.

    Args:
        rows: Of one document, those of its types.
        options: Of the stage.
        seed: Of wordings, and of which questions are asked.
    """
    if options.asked is None:
        return [scp_lesson(row, _number(seed, place)) for place, row in enumerate(rows)]
    about: dict[str, list[ScpRow]] = {}
    for row in rows:
        about.setdefault(row.document, []).append(row)
    found = []
    for text, same in about.items():
        pairs = [pair for row in same if row.kind == "qa" for pair in zip(row.questions, row.answers, strict=True)]
        draws = Draws("clara asked", seed, text)
        chosen = draws.sample(pairs, min(options.asked, len(pairs)))
        asked = [Exchange(answer(question, 1), said) for question, said in chosen]
        retold = [exchange for row in same if row.kind == "paraphrase" for exchange in scp_lesson(row, _number(seed, text)).exchanges]
        found.append(Lesson((text,), (*asked, *retold)))
    return found


def instruction_lessons(rows: Sequence[InstructionRow], options: InstructionStage, seed: int) -> list[Lesson]:
    """Rows of instruction tuning as they are taught: one a lesson, or (`together`, ours) with questions of other rows.

    A row's documents are then asked about by rows whose evidence is among them, drawn from the seed; a row may be asked
    in several lessons, and rows without known evidence only in their own.

    Args:
        rows: In any order.
        options: Of the stage.
        seed: Of which questions join.
    """
    if options.together == 1:
        return [instruction_lesson(row, options.documents) for row in rows]
    needs = [_evidence(row, options.documents) for row in rows]
    about: dict[str, list[int]] = {}
    for place, texts in enumerate(needs):
        if texts:
            about.setdefault(texts[0], []).append(place)
    found = []
    for place, row in enumerate(rows):
        kept = row.documents[: options.documents]
        others = {
            rows[one].question: one
            for text in kept
            for one in about.get(text, ())
            if set(needs[one]).issubset(kept) and rows[one].question != row.question
        }
        joining = list(others.values())
        drawn = Draws("clara together", seed, place).sample(joining, min(options.together - 1, len(joining)))
        exchanges = (Exchange(answer(rows[one].question, len(kept)), rows[one].answer) for one in (place, *drawn))
        found.append(Lesson(kept, tuple(exchanges)))
    return found


def _evidence(row: InstructionRow, documents: int) -> tuple[str, ...]:
    """What a row's answer stands in; empty where it is not known, or not among the documents that are read."""
    if any(place >= documents for place in row.evidence):
        return ()
    return tuple(row.documents[place] for place in row.evidence)


def _number(*parts: int | str) -> int:
    return int(fingerprint(*parts), 16)
