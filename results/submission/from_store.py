"""Find the board that a submission joins, and rebuild its benchmark from the store, so that no data files are needed.

A store holds the questions with their gold, and the passages that are positive or that a run ranked. It holds neither the
questions' candidates nor the rest of the corpus. So a score computed from it is the same, but evidence that it does not
hold cannot be checked, and metrics that read the text of such evidence or a graph are left out.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks import registry as datasets
from benchmarks.core.errors import UserError
from benchmarks.corpus import Corpus
from benchmarks.registry import Benchmark, DataReference, DatasetCard
from benchmarks.schema import Question
from benchmarks.settings import Setting
from results.store import answer_queries, queries, records, score_queries
from results.store.queries import RunRow
from results.store.store import Store
from results.submission.bundle import template_files
from results.submission.card import Card
from results.submission.leakage import WORLDS
from results.submission.validate import Target

_LISTED = 5
_SEED = re.compile(r"-(\d{1,9})-\d+$")
"""Pattern of the world's seed in the id of a question of `worlds`."""


@dataclass(frozen=True, slots=True)
class Known:
    """Stored benchmark (with setting and seed) that a submission can be compared on.

    Attributes:
        fingerprint: Fingerprint of the questions with their gold.
        name: Name of the benchmark, as in its runs.
        reference: Data reference of the benchmark.
        runs: The runs on it.
    """

    fingerprint: str
    name: str
    reference: str
    runs: tuple[RunRow, ...]


def known_board(store: Store, card: Card) -> Known:
    """Find the stored benchmark that a card refers to: same name, setting and seed, and the card's fingerprint or limit.

    Raises:
        UserError: The store has no such benchmark, or several match; the message lists them.
    """
    reference = str(datasets.resolve(card.benchmark)[0])
    every = known_boards(store)
    matching = [board for board, setting, seed in every if (board.reference, setting, seed) == (reference, str(card.setting), card.seed)]
    if not matching:
        listed = [f"{board.reference}, setting {setting}, seed {seed}" for board, setting, seed in every]
        raise UserError(
            f"this store has no board for {reference}, setting {card.setting}, seed {card.seed}",
            code="no-board-for-setting",
            where="card: benchmark",
            try_this=f"one of: {_some(listed)}" if listed else "run an experiment first, for example ragmeter demo",
        )
    if card.dataset_fingerprint is None and card.config:
        raise UserError(
            "a card with options of the benchmark must name the data's fingerprint",
            code="benchmark-options-refused",
            where="card: config",
            try_this=f"dataset_fingerprint: {matching[0].fingerprint}",
        )
    meant = [board for board in matching if card.dataset_fingerprint in (None, board.fingerprint)]
    if card.dataset_fingerprint is None and card.limit is not None:
        meant = [board for board in meant if board.runs[0].questions == card.limit]
    if len(meant) != 1:
        listed = [f"{board.fingerprint} ({board.runs[0].questions:,} questions)" for board in matching]
        field = "dataset_fingerprint" if card.dataset_fingerprint is not None or len(meant) > 1 else "limit"
        what = "several boards" if len(meant) > 1 else "no board"
        raise UserError(
            f"this store has {what} over these questions of {card.benchmark}",
            code="no-board-for-questions",
            where=f"card: {field}",
            try_this=f"dataset_fingerprint: one of {_some(listed)}",
        )
    return meant[0]


def _some(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - _LISTED} more" if len(texts) > _LISTED else ""
    return f"{'; '.join(texts[:_LISTED])}{more}"


def known_boards(store: Store) -> list[tuple[Known, str, int]]:
    """List the stored benchmarks with their settings and seeds, in the order of their first run."""
    references = {mark: str(item["reference"]) for mark, item in queries.datasets(store).items()}
    groups: dict[tuple[str, str, int], dict[str, RunRow]] = {}
    for row in queries.runs(store):
        if row.dataset_fingerprint in references:
            groups.setdefault((row.dataset_fingerprint, row.setting, row.seed), {})[row.run] = row
    return [
        (Known(mark, next(iter(rows.values())).dataset, references[mark], tuple(rows.values())), setting, seed)
        for (mark, setting, seed), rows in groups.items()
    ]


def stored_target(store: Store, board: Known, setting: Setting) -> Target:
    """Rebuild from the store the benchmark that a submission is checked against.

    Args:
        store: The store that holds the benchmark.
        board: The stored benchmark, from `known_board`.
        setting: The card's retrieval setting.
    """
    reference = DataReference.parse(board.reference)
    seeded = reference.name == WORLDS
    questions = [_question(question, setting, seeded) for question in records.gold_questions(store, board.fingerprint).values()]
    extra: dict[str, Any] = {} if board.name == board.reference else {"variant": board.name[len(board.reference) + 1 : -1]}
    card = DatasetCard.model_validate(queries.datasets(store)[board.fingerprint]["card"])
    loaded = Benchmark(reference, 0, card, questions, _corpus(store, board, questions), extra=extra)
    with store.database.reading():
        sampled = score_queries.sampled_by_data(store, {board.fingerprint: [run.run for run in board.runs]})[board.fingerprint]
    return Target(loaded, loaded, stored=board.fingerprint, clusters=sampled)


def template_of(store: Store, board: Known, setting: str, seed: int) -> bytes:
    """Return a zip with the files that a submitter fills in: card, questions without gold, and an empty predictions file."""
    chosen = Setting.parse(setting)
    target = stored_target(store, board, chosen)
    files = template_files(target, chosen, seed=seed, limit=len(target.loaded.questions))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, lines in files.items():
            archive.writestr(name, "".join(lines()))
    return packed.getvalue()


def _question(question: Question, setting: Setting, seeded: bool) -> Question:
    match = _SEED.search(question.id) if seeded else None
    return replace(
        question,
        candidates=() if setting.name == "closed_book" else None,
        metadata={**question.metadata, **({"seed": int(match[1]), "world": match[1]} if match else {})},
    )


def _corpus(store: Store, board: Known, questions: Sequence[Question]) -> Corpus:
    ranked = store.database.rows(
        "SELECT DISTINCT id FROM evidence WHERE list_contains(?, run) ORDER BY 1", [[run.run for run in board.runs]]
    )
    named = dict.fromkeys((*(item for question in questions for item in question.evidence), *(passage for (passage,) in ranked)))
    return Corpus.of(answer_queries.passages(store, list(named)).values())
