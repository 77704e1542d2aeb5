"""Build training rows from benchmarks: candidates, lists, labels and styles, each computed once and saved in a folder.

    WORK/DATASET/labels.jsonl         answers and verdicts, question by question
    WORK/DATASET/further.jsonl        likewise for negatives from further down
    WORK/DATASET/lists.jsonl          orders of lists
    WORK/DATASET/pairs-….jsonl        passages rewritten in the other style
    WORK/rows.jsonl                   the rows
    WORK/data.json                    what they were made of, and counts

Existing rows are reused without any calls; otherwise, results in the other files are reused.

If the number of rows is limited, questions are processed in random order, a few at a time through all steps, until there are
enough rows.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import file_sha256, fingerprint
from benchmarks.core.random import Draws
from benchmarks.registry import Benchmark
from benchmarks.schema import Question
from methods.api import Services
from methods.models.llm import llm_hash
from methods.sark.config import SarkDataConfig, SarkTrainingConfig
from methods.sark.labels import Candidates, EvidenceLabeling, Labeling, candidates_of
from methods.sark.lists import Lister, ListRequest, orderer_of, sampled, sampled_ranks
from methods.sark.prompts import ANSWER, ORDER
from methods.sark.rows import LENGTH, Mined, SarkRow, read_rows, rows_of, write_rows
from methods.sark.style_pairs import formal_of, identity_of, pairs_of, pairs_of_options
from methods.training import Progress, Silent
from methods.training.material import load_data, require_no_test
from methods.training.stages import file_id, read_json, write_json


class Mining:
    """Computes labels and list orders of questions, all at once or in batches; models are loaded on first use.

    Args:
        config: Options of labels and lists.
        benchmark: Benchmark with formal passages.
        questions: All questions that may be processed.
        services: Services: judge, reply cache, device, index folder.
        folder: Folder for answers and orders.
        progress: Progress display.
        counts: Counter of questions, answers and lists by outcome.
    """

    def __init__(
        self,
        config: SarkDataConfig,
        benchmark: Benchmark,
        questions: Sequence[Question],
        services: Services,
        folder: Path,
        progress: Progress,
        counts: Counter[str],
    ) -> None:
        self._config, self._benchmark, self._questions = config, benchmark, questions
        self._services, self._folder, self._progress, self._counts = services, folder, progress, counts

    def mined(self, questions: Sequence[Question]) -> list[Mined]:
        """Compute labels and list order of each question.

        Args:
            questions: Some of the questions.

        Raises:
            UserError: The data has no candidates, or the options are incompatible.
            Broke: A required model cannot be called.
        """
        if not questions:
            return []
        config = self._config
        candidates = self._candidates(questions)
        lists = {
            question.id: sampled(question, candidates[question.id], config.lists.keep_evidence, config.candidates.depth)
            for question in questions
        }
        self._counts["lists_too_short"] += sum(len(ids) < LENGTH for ids in lists.values())
        orders = self._orders(questions, lists)
        # Too few candidates for a list are still worth a label each.
        tried = {item: lists[item] or ids for item, ids in candidates.items()} if self._of_list else candidates
        labels = {} if config.labels.passages == "none" else self._labeling.labels(questions, tried, self._progress)
        return [
            Mined(question.id, question.text, labels.get(question.id, {}), orders.get(question.id, ()), question.evidence)
            for question in questions
        ]

    @property
    def _of_list(self) -> bool:
        """Return whether only the list's passages are labeled."""
        return self._config.labels.passages == "list"

    @cached_property
    def _candidates(self) -> Candidates:
        keep = self._config.rows is not None
        return candidates_of(self._benchmark, self._questions, self._config.candidates, self._services, keep=keep)

    @cached_property
    def _lister(self) -> Lister:
        return Lister(orderer_of(self._config.lists, self._services), self._folder / "lists.jsonl")

    @cached_property
    def _labeling(self) -> Labeling | EvidenceLabeling:
        if self._config.labels.by == "evidence":
            return EvidenceLabeling(self._config, self._counts)
        return Labeling(self._config, self._benchmark, self._services, self._folder, self._counts)

    def _orders(self, questions: Sequence[Question], lists: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        corpus = self._benchmark.corpus
        requests = [ListRequest(question, tuple(corpus.get(lists[question.id]))) for question in questions if lists[question.id]]
        orders = self._lister.orders(requests, self._progress)
        self._counts.update(self._lister.taken_counts())
        return {item.question.id: order.ids for item, order in zip(requests, orders, strict=True)}


VERSION = 5
"""Version of the rows; increase it if equal data can give other rows."""
MOST, LEAST = 256, 8
"""Maximum and minimum number of questions processed at a time if rows are limited. In smaller batches, failed calls could be
all calls, which stops the work.
"""
ALWAYS = ("questions", "rows", "positives", "negatives", "lists")
"""Counts that are reported even if they are 0."""


@dataclass(frozen=True)
class SarkData:
    """Training rows.

    Attributes:
        rows: The rows, in the order of the questions.
        counts: Number of questions, answers, lists and passages by outcome.
        fingerprint: Hash of the rows.
    """

    rows: list[SarkRow]
    counts: Mapping[str, int]
    fingerprint: str


def data_of(
    config: SarkDataConfig, benchmarks: Sequence[Benchmark], services: Services, work: Path, progress: Progress | None = None
) -> SarkData:
    """Build the training rows of benchmarks.

    Questions whose record has labels and an order (SARK's own files) are used as they are; for others, labels come from
    generated answers.

    Args:
        config: Options of labels, lists and styles.
        benchmarks: Questions with gold and passages.
        services: Services: judge, reply cache, device, index folder.
        work: Working folder; use separate ones for training and validation data.
        progress: Progress display.

    Raises:
        UserError: The data or options produce no rows.
        Broke: A required model cannot be called.
    """
    progress = progress or Silent()
    made_of = _identity(config, benchmarks, services)
    kept = _kept(work, made_of)
    if kept is not None:
        return kept
    counts = Counter(dict.fromkeys(ALWAYS, 0))
    rows: list[SarkRow] = []
    for benchmark in benchmarks:
        rows += _Preparation(config, benchmark, services, work, progress, counts).make_rows()
    if not rows:
        raise _nothing(benchmarks, counts)
    write_rows(work / "rows.jsonl", rows)
    result = SarkData(rows, dict(counts), fingerprint([asdict(row) for row in rows]))
    write_json(
        work / "data.json",
        {"made_of": made_of, "counts": result.counts, "fingerprint": result.fingerprint, "rows": file_sha256(work / "rows.jsonl")},
    )
    return result


def training_benchmarks(
    references: Iterable[str], options: Mapping[str, Mapping[str, Any]], unseen: Sequence[Benchmark] = ()
) -> list[Benchmark]:
    """Load data to train on.

    Args:
        references: Data references.
        options: Dataset options by name.
        unseen: Benchmarks (validation, evaluation) whose questions must not occur in the data.

    Raises:
        UserError: A benchmark must not be trained on, or a question is also in `unseen`. Shared passages are allowed.
    """
    results = load_data(references, options)
    test_questions = {_plain(question): str(other.reference) for other in unseen for question in other.questions}
    for benchmark in results:
        for question in benchmark.questions:
            if _plain(question) in test_questions:
                raise UserError(
                    f"{benchmark.reference} and {test_questions[_plain(question)]} share the question {question.text!r}; "
                    "evaluated questions must not be in the training data",
                    code="trained-on-question",
                    where="data",
                    try_this="other splits",
                )
    return results


RowsFor = Callable[[Sequence[Question], int | None], list[SarkRow]]
"""Function from some questions to their rows, at most the given number."""


class _Preparation:
    """Builder of the rows of one benchmark."""

    def __init__(
        self, config: SarkDataConfig, benchmark: Benchmark, services: Services, work: Path, progress: Progress, counts: Counter[str]
    ) -> None:
        self._config, self._services, self._progress, self._counts = config, services, progress, counts
        self._benchmark, self._own = formal_of(benchmark)
        self._folder = work / file_id(str(benchmark.reference))

    def make_rows(self) -> list[SarkRow]:
        """Build the rows."""
        options, query = self._questions()
        mining = Mining(self._config, self._benchmark, query, self._services, self._folder, self._progress, self._counts)
        known = {item.id for item in options}
        positions = {item.id: position for position, item in enumerate(self._benchmark.questions)}
        questions = sorted((*options, *query), key=lambda item: positions[item.id])
        source = pairs_of_options(self._benchmark, self._config.styles, self._own)

        def rows_for(some: Sequence[Question], most: int | None) -> list[SarkRow]:
            mined = {entry.question_id: entry for entry in mining.mined([item for item in some if item.id not in known])}
            ordered = [self._supplied(item) if item.id in known else mined[item.id] for item in some]
            pairs = pairs_of(
                self._benchmark, ordered, self._config.styles, self._services, self._folder, source, self._progress, self._counts
            )
            return rows_of(ordered, pairs, self._counts, most)

        most = self._config.rows
        if most is None:
            return rows_for(questions, None)
        return sorted(self._first(most, questions, rows_for), key=lambda row: positions[row.question_id])

    def _first(self, most: int, questions: Sequence[Question], rows_for: RowsFor) -> list[SarkRow]:
        """Build the first `most` rows of questions in random order; the result does not depend on the batch size.

        The batch size is estimated from the missing rows and the yield so far.
        """
        order = list(questions)
        Draws("sark order of questions", 0, str(self._benchmark.reference)).shuffle(order)
        rows: list[SarkRow] = []
        done = 0
        while done < len(order) and len(rows) < most:
            missing = most - len(rows)
            wanted = math.ceil(missing * done / len(rows)) if rows else missing
            some = order[done : done + min(MOST, max(LEAST, wanted))]
            rows += rows_for(some, missing)
            done += len(some)
        self._counts["questions_not_needed"] += len(order) - done
        return rows

    def _questions(self) -> tuple[list[Question], list[Question]]:
        """Return questions with given labels or orders, and questions to process."""
        questions = list(self._benchmark.questions)
        options = [question for question in questions if "labels" in question.metadata and "order" in question.metadata]
        ids = {item.id for item in options}
        queries = [question for question in questions if question.id not in ids and question.answerable]
        if self._config.needs_answers:
            queries = [question for question in queries if question.answers]
        self._counts["questions"] += len(questions)
        self._counts["questions_with_labels_of_their_own"] += len(options)
        self._counts["questions_without_answer"] += len(questions) - len(options) - len(queries)
        return options, queries

    def _supplied(self, question: Question) -> Mined:
        order = tuple(question.metadata["order"])
        ranks = sampled_ranks(len(order), len(order))
        self._counts["lists_too_short"] += not ranks
        labels = {str(passage): int(label) for passage, label in question.metadata["labels"].items()}
        return Mined(question.id, question.text, labels, tuple(order[rank] for rank in ranks), question.evidence)


def _kept(work: Path, made_of: str) -> SarkData | None:
    """Load rows of an earlier run; None if they are missing or were made from other input."""
    path, rows = work / "data.json", work / "rows.jsonl"
    if not path.exists() or not rows.exists():
        return None
    there = read_json(path)
    if there.get("made_of") != made_of:
        return None
    if there.get("rows") != file_sha256(rows):
        raise UserError(
            "these rows were changed after they were written",
            code="rows-changed",
            where=str(rows),
            try_this="delete the file: it will be written again",
        )
    return SarkData(read_rows(rows), there["counts"], there["fingerprint"])


def _identity(config: SarkDataConfig, benchmarks: Sequence[Benchmark], services: Services) -> str:
    """Return a hash of everything that determines the rows."""
    fields = set(SarkDataConfig.model_fields)
    labels, lists = config.labels, config.lists
    parts = [
        *([ANSWER.load(labels.prompt).hash] if labels.by == "llm" else []),
        *([labels.component.fingerprint] if labels.by == "reader" else []),
        ORDER.load(lists.prompt).hash if lists.by == "llm" else "",
        config.candidates.component.fingerprint if config.candidates.source == "retriever" else "",
        labels.extra.component.fingerprint if labels.extra is not None else "",
        identity_of(config.styles, services),
        services.judge.fingerprint if labels.judge is not None and services.judge is not None else "",
        *map(llm_hash, config.llms),
    ]
    dumped = config.model_dump(mode="json", include=fields)
    return fingerprint(VERSION, dumped, [benchmark.fingerprint for benchmark in benchmarks], parts)


def _plain(question: Question) -> str:
    return " ".join(question.text.casefold().split())


def _nothing(benchmarks: Sequence[Benchmark], counts: Mapping[str, int]) -> UserError:
    names = ", ".join(str(benchmark.reference) for benchmark in benchmarks) or "no data"
    fate = ", ".join(f"{name}: {number:,}" for name, number in counts.items() if number) or "no question"
    # Rankings without answers, and parallel texts.
    unanswered = 0 < counts.get("questions", 0) == counts.get("questions_without_answer", 0)
    remedy = (
        "to train without answers, labels: {by: evidence, known: 0} and lists: {by: evidence}" if unanswered else "other data or options"
    )
    what = f"{names} gives no training row ({fate})"
    return UserError(what, code="no-training-row", where="data", try_this=remedy)


class Material(NamedTuple):
    """Training rows, and validation rows for selecting the best epoch."""

    training: list[Benchmark]
    validation: list[Benchmark]


def load_material(config: SarkTrainingConfig) -> Material:
    """Load the training and validation benchmarks.

    Raises:
        UserError: A benchmark is a test split or has validation or test worlds, or a question is in both.
    """
    for reference in config.validation:
        require_no_test(reference, "validation")
    validation = load_data(config.validation, config.validation_options, train=False)
    return Material(training_benchmarks(config.data, config.data_options, validation), validation)
