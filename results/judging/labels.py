"""Labels by people: items to label as CSV, and labels back, without the names of methods.

An item is an answer (point criteria), two answers in a drawn order (pair criteria), or the answers of two runs to one
question, each labeled by itself: only questions whose two answers are both labeled say how a judge errs on a difference.
Its id spells out runs by their fingerprints, which tell a labeler nothing, so that labels can be imported on any machine
that holds the runs; and the hash of what the labeler reads, which is what the label is about
(`results.judging.judgments`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.columns import strings
from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import content_hash
from benchmarks.io.tables import open_table
from judges.judge import NONE, TIE
from results.boards.markup import to_csv
from results.judging.judgments import ONE, OTHER
from results.statistics.judges import Agreement, Difference, krippendorff_alpha
from results.store import answer_queries, queries, records
from results.store.annotations import REMOVED, annotator_name, digest, label_words, with_present, worth
from results.store.queries import RunRow
from results.store.rows import insert, storable
from results.store.schema import now
from results.store.store import Store

BOTH_COLUMNS = ("item", "criterion", "question", "gold", "answer_1", "answer_2", "passages_1", "passages_2", "label_1", "label_2", "note")
"""Columns of a table with the answers of two runs in one row, each with its label."""
COLUMNS = ("item", "criterion", "question", "gold", "answer_1", "answer_2", "passages", "label", "note")
FIRST, SECOND = "1", "2"
"""Labels of a pair item: the better answer, as displayed; besides `TIE` and `NONE`."""
PAIR_LABELS = (FIRST, SECOND, TIE, NONE)
CODES = {ONE: 0.0, OTHER: 1.0, TIE: 2.0, NONE: 3.0}
"""Numbers for labels of pairs."""


@dataclass(frozen=True, slots=True)
class Label:
    """Human label of an answer, or of a pair of answers.

    Attributes:
        question, one, other: Question id and run ids of the labeled answers; `other` is None for a single answer.
        criterion: What was labeled: a measure of a judge (`accuracy`) or a criterion (`overall`).
        annotator: Name of the person.
        label: The label; for pairs `ONE`, `OTHER`, `TIE` or `NONE`, independent of the order shown.
    """

    question: str
    one: str
    other: str | None
    criterion: str
    annotator: str
    label: str

    @property
    def value(self) -> float:
        """Return the label as a number: a code for pairs, a value from 0 to 1 for single answers; NaN if not accepted."""
        if self.other is not None:
            return CODES[self.label]
        value = worth(self.label, self.criterion)
        return math.nan if value is None else value


@dataclass(frozen=True, slots=True)
class Imported:
    """Result of `import_labels`: numbers of new and changed labels, rows without a label, and unchanged labels.

    `resting` counts labels of answers that the runs no longer contain, `kept` rows without a label whose earlier label stays, and
    `removed` earlier labels that a dash removed.
    """

    labels: int
    blank: int
    replaced: int
    resting: int = 0
    kept: int = 0
    removed: int = 0


def export_items(store: Store, runs: Sequence[RunRow], criterion: str, number: int, *, pairs: bool, seed: int = 0) -> str:
    """Draw answers (or pairs) at random from runs, and return them as CSV with an empty label column for a person to fill in.

    Args:
        store: The store that holds the runs.
        runs: The runs to sample answers from.
        criterion: Name of the criterion, written into every row.
        number: Number of items.
        pairs: Whether an item is a pair of answers instead of one answer.
        seed: Random seed of the sample and of the order in which a pair is shown.

    Raises:
        UserError: There is nothing to label.
    """
    rows = list(_pair_items(store, runs) if pairs else _single_items(store, runs))
    if not rows:
        raise _nothing(store, pairs=pairs)
    drawn = sorted(rows, key=lambda row: content_hash([str(seed), criterion, row["item"]]))[:number]
    shown = [_swapped(row) if pairs and content_hash([str(seed), row["item"]])[0] in "01234567" else row for row in drawn]
    rows = [{**row, "item": row["item"].replace("/", f"~{row['read']}/", 1), "criterion": criterion} for row in shown]
    return to_csv(COLUMNS, [[row.get(name, "") for name in COLUMNS] for row in rows])


def export_both(store: Store, runs: Sequence[RunRow], criterion: str, number: int, *, seed: int = 0) -> str:
    """Draw questions at random, and return them as CSV with the answers of two runs per row, each with its own empty label column.

    Args:
        store: The store that holds the runs.
        runs: The runs; every two runs on the same benchmark and setting form a pair.
        criterion, number, seed: As in `export_items`; the criterion must be one for single answers.

    Raises:
        UserError: There is nothing to label.
    """
    rows = list(_pair_items(store, runs))
    if not rows:
        raise _nothing(store, pairs=True)
    drawn = sorted(rows, key=lambda row: content_hash([str(seed), criterion, row["item"]]))[:number]
    named = {run.run: run for run in runs}
    wanted = {run for row in drawn for run in row["item"].partition("/")[0].split("+")}
    single = {row["item"]: row for run in sorted(wanted) for row in _single_items(store, [named[run]])}
    results = []
    for row in drawn:
        pair, _, question = row["item"].partition("/")
        sides = pair.split("+")
        if content_hash([str(seed), row["item"]])[0] in "01234567":
            sides.reverse()
        one, two = (single[f"{run}/{question}"] for run in sides)
        item = "+".join(f"{run}~{side['read']}" for run, side in zip(sides, (one, two), strict=True))
        shown = {"answer_1": one["answer_1"], "answer_2": two["answer_1"], "passages_1": one["passages"], "passages_2": two["passages"]}
        results.append({**shown, "item": f"{item}/{question}", "criterion": criterion, "question": row["question"], "gold": row["gold"]})
    return to_csv(BOTH_COLUMNS, [[row.get(name, "") for name in BOTH_COLUMNS] for row in results])


def _nothing(store: Store, *, pairs: bool) -> UserError:
    return UserError(
        "these runs have no " + ("two answers to one question" if pairs else "answers"),
        code="runs-without-value",
        where=str(store.folder),
        try_this="name runs of one benchmark that have answered",
    )


def _single_items(store: Store, runs: Sequence[RunRow]) -> Iterable[dict[str, str]]:
    for run in {run.run: run for run in runs}.values():
        for item in records.items(store, run):
            yield {
                "item": f"{run.run}/{item.question.id}",
                "read": digest(item.question.text, item.prediction.answer),
                "question": item.question.text,
                "gold": " | ".join(item.question.golds),
                "answer_1": item.prediction.answer,
                "passages": "\n\n".join(passage.full_text for passage in item.passages),
            }


def _pair_items(store: Store, runs: Sequence[RunRow]) -> Iterable[dict[str, str]]:
    distinct = sorted({run.run: run for run in runs}.values(), key=lambda run: run.run)
    answered = {run.run: dict(_by_question(store, run)) for run in distinct}
    for number, item in enumerate(distinct):
        for other in distinct[number + 1 :]:
            if (item.dataset_fingerprint, item.setting) != (other.dataset_fingerprint, other.setting):
                continue
            for question, (text, gold, answer) in answered[item.run].items():
                if question in answered[other.run]:
                    second = answered[other.run][question][2]
                    yield {
                        "item": f"{item.run}+{other.run}/{question}",
                        "read": digest(text, answer, second),
                        "question": text,
                        "gold": gold,
                        "answer_1": answer,
                        "answer_2": second,
                    }


def _by_question(store: Store, run: RunRow) -> Iterable[tuple[str, tuple[str, str, str]]]:
    for question, prediction in zip(*records.answered(store, run), strict=True):
        yield question.id, (question.text, " | ".join(question.golds), prediction.answer)


def _swapped(row: Mapping[str, str]) -> dict[str, str]:
    runs, _, question = row["item"].partition("/")
    item, _, other = runs.partition("+")
    return {**row, "item": f"{other}+{item}/{question}", "answer_1": row["answer_2"], "answer_2": row["answer_1"]}


def import_labels(store: Store, path: Path, annotator: str) -> Imported:
    """Import human labels from a CSV that `export_items` wrote and a person filled in.

    Either all rows are imported or none. Labels of the same person on the same items are replaced.

    Raises:
        UserError: The file is not such a CSV, or a row has an unknown item, criterion or label.
    """
    people = store.database.rows("SELECT DISTINCT annotator FROM annotations ORDER BY annotator", lenient=True)
    annotator = annotator_name(annotator, (name for (name,) in people))
    # A submission may have been withdrawn while people labeled its answers.
    known = {run.run: run for run in queries.runs(store, hidden=True)}
    requests = {
        data: {row.question for row in answer_queries.questions(store, data)}
        for data in {run.dataset_fingerprint for run in known.values()}
    }
    results: dict[_Key, tuple[RunRow, str | None, str]] = {}
    blank: list[_Key] = []
    for position, row in label_rows(path):
        item, criterion = row["item"].strip(), row["criterion"].strip()
        match = re.fullmatch(r"([0-9a-f.]+)(?:\+([0-9a-f.]+))?(?:~([0-9a-f]+))?/(.+)", item, re.DOTALL)
        if not row["label"].strip():
            if match:
                first, second, read, question = match.groups()
                blank.append(_key_of(first, second, read, question, criterion))
            else:
                blank.append(("", "", None, "", None))
            continue
        if not match or match[1] not in known or (match[2] and match[2] not in known):
            raise UserError(
                f"item {item[:80]!r} is not in this store",
                code="unknown-item",
                where=position,
                try_this="import the labels where the runs are: --store FOLDER",
            )
        first, second, read, question = match.groups()
        if question not in requests[known[first].dataset_fingerprint]:
            raise UserError(f"the runs have no question {question[:80]!r}", code="run-without-question", where=position)
        if not criterion:
            raise UserError(
                "this row does not name its labeler",
                code="row-without-labeler",
                where=position,
                try_this="fill the column `criterion`, as `ragmeter judge labels export` did",
            )
        text = row["label"].strip().lower()
        label = None if text in REMOVED else _label(text, criterion, first, second, position)
        key = _key_of(first, second, read, question, criterion)
        if key in results:
            raise UserError("this item is labeled twice", code="duplicate-label", where=position, try_this="keep one of the two rows")
        results[key] = known[first], label, row["note"]
    dropped = [key for key, (_, label, _) in results.items() if label is None]
    added = {key: (run, label, note) for key, (run, label, note) in results.items() if label is not None}
    replaced, resting, removed = _write(store, annotator, added, dropped)
    before = {(*key, labeled) for *key, labeled in store.database.rows(_LABELED, [annotator], lenient=True)}
    unread = {key[:-1] for key in before}
    kept = sum(key in before or (key[-1] is None and key[:-1] in unread) for key in blank)
    return Imported(len(added), len(blank), replaced, resting, kept, removed)


_Key = tuple[str, str, str | None, str, str | None]
"""Question, runs, criterion, and the hash of the labeled text, if any."""


_LABELED = "SELECT question, one, other, criterion, labeled FROM annotations WHERE annotator = ?"


def _key_of(first: str, second: str | None, read: str | None, question: str, criterion: str) -> _Key:
    entry, other = (first, second) if second is None or first < second else (second, first)
    return question, entry, other, criterion, read


def label_rows(path: Path) -> Iterable[tuple[str, dict[str, str]]]:
    """Yield the rows of a filled-in table, each with its file and line for error messages, as spreadsheets save it: with any
    delimiter, as UTF-16, without the empty cells at the end of a row.

    Raises:
        UserError: The file or a row cannot be read, or the file lacks a column.
    """
    table = open_table(path)
    both = {"label_1", "label_2"} & set(table.names)
    needed = ("item", "criterion", "label_1", "label_2") if both else ("item", "criterion", "label")
    missing = [repr(name) for name in needed if name not in table.names]
    if missing:
        raise UserError(
            f"the column {missing[0]} is missing" if len(missing) == 1 else f"the columns {', '.join(missing)} are missing",
            code="missing-columns",
            where=str(path),
            try_this="fill a file that `ragmeter judge labels export` wrote, and keep its columns",
        )
    for item in table.items(padded=True):
        position = f"{path}, line {item.line}"
        if item.problem is not None:
            remedy = "save the file as CSV again, without changing its columns"
            raise UserError(item.problem, code="bad-row", where=position, try_this=remedy)
        if both:
            yield from ((position, single) for single in _split(item.value, position))
        else:
            yield position, {name: item.value.get(name) or "" for name in COLUMNS}


def _split(row: Mapping[str, str], position: str) -> Iterable[dict[str, str]]:
    """Yield the two answers of a row of `export_both`, each as a row of `export_items`."""
    item = row.get("item") or ""
    sides, _, question = item.partition("/")
    runs = sides.strip().split("+")
    if len(runs) != 2 or runs[0] == runs[1]:
        raise UserError(
            f"there is no item of two answers {item[:80]!r} in this store",
            code="unknown-item",
            where=position,
            try_this="keep the column `item` as `ragmeter judge labels export --pairs-of-runs` wrote it",
        )
    for run, label in zip(runs, ("label_1", "label_2"), strict=True):
        names = {name: row.get(name) or "" for name in COLUMNS}
        yield names | {"item": f"{run}/{question}", "label": row.get(label) or ""}


def _label(text: str, criterion: str, first: str, second: str | None, position: str) -> str:
    if second is None:
        if worth(text, criterion) is None:
            raise UserError(
                f"{text!r} is not a label of {criterion!r}",
                code="bad-label",
                where=position,
                try_this=f"{', '.join(label_words(criterion))}, or a number from 0 to 1",
            )
        return text
    text = re.sub(r"^([12])[.,]0+$", r"\1", text)  # a column of numbers with gaps, as data frames save it
    if text not in PAIR_LABELS:
        raise UserError(f"{text!r} is not a label of two answers", code="bad-pair-label", where=position, try_this=", ".join(PAIR_LABELS))
    if text in (TIE, NONE):
        return text
    return ONE if (text == FIRST) == (first < second) else OTHER


def _write(store: Store, annotator: str, results: Mapping[_Key, tuple[RunRow, str, str]], dropped: Sequence[_Key]) -> tuple[int, int, int]:
    """Write labels, and remove others; return how many replaced earlier ones, match no present answer, and were removed."""
    replaced = removed = 0
    rows = [(*key, *value) for key, value in results.items()]
    columns: dict[str, list[Any]] = {
        "dataset_fingerprint": [run.dataset_fingerprint for *_, run, _, _ in rows],
        "setting": [run.setting for *_, run, _, _ in rows],
        "question": [row[0] for row in rows],
        "one": [row[1] for row in rows],
        "other": [row[2] for row in rows],
    }
    with store.database.writing() as connection:
        for question, item, other, criterion, read in dropped:
            gone = connection.execute(
                """DELETE FROM annotations WHERE question = ? AND one = ? AND other IS NOT DISTINCT FROM ? AND criterion = ?
                   AND annotator = ? AND (labeled = ? OR ? IS NULL)""",
                [question, item, other, criterion, annotator, read, read],
            ).fetchone()
            removed += int(gone[0]) if gone else 0
        kinds = {name: strings(values) for name, values in columns.items()}
        connection.register("items", pa.table({**kinds, "place": range(len(rows))}))
        present = [row[0] for row in connection.execute(f"SELECT present FROM ({with_present('items')}) ORDER BY place").fetchall()]
        # An item of an earlier export does not say what was read: it was what the run says.
        labeled = [row[4] or now_reported for row, now_reported in zip(rows, present, strict=True)]
        for (question, item, other, criterion, *_), read in zip(rows, labeled, strict=True):
            gone = connection.execute(
                """DELETE FROM annotations WHERE question = ? AND one = ? AND other IS NOT DISTINCT FROM ?
                   AND criterion = ? AND annotator = ? AND labeled IS NOT DISTINCT FROM ?""",
                [question, item, other, criterion, annotator, read],
            ).fetchone()
            replaced += int(gone[0]) if gone else 0
        columns |= {
            "criterion": [row[3] for row in rows],
            "annotator": [annotator] * len(rows),
            "label": [row[6] for row in rows],
            "note": [storable(row[7]) for row in rows],
            "labeled": labeled,
        }
        added_at = np.array([now()] * len(rows), dtype="datetime64[us]")
        insert(connection, "annotations", {**columns, "added_at": added_at})
    return replaced, sum(read != other for read, other in zip(labeled, present, strict=True)), removed


def labels(store: Store, criterion: str | None = None) -> list[Label]:
    """Read the labels of answers that the runs still contain, sorted by criterion, question and annotator.

    Words that their criterion does not accept, which earlier versions stored, are left out.
    """
    rows = store.database.rows(
        f"""SELECT question, one, other, criterion, annotator, label FROM ({with_present()})
               WHERE labeled = present AND (? IS NULL OR criterion = ?)
               ORDER BY criterion, dataset_fingerprint, question, one, other, annotator""",
        [criterion, criterion],
        lenient=True,
    )
    return [label for row in rows if not math.isnan((label := Label(*row)).value)]


def standing(store: Store, runs: Sequence[str] | None = None) -> tuple[int, int]:
    """Count the labels in use, and the labels whose answers the runs no longer contain.

    Args:
        store: The store to read.
        runs: Count only labels of these runs; None counts all.
    """
    if not store.database.exists:
        return 0, 0
    wanted = None if runs is None else list(runs)
    with store.database.reading() as connection:
        row = connection.execute(
            f"""SELECT count(*) FILTER (labeled = present),
                    count(*) FILTER (labeled IS DISTINCT FROM present OR present IS NULL)
                FROM ({with_present()}) WHERE ? IS NULL OR list_contains(?, one) OR list_contains(?, other)""",
            [wanted] * 3,
        ).fetchone()
    return (int(row[0] or 0), int(row[1] or 0)) if row else (0, 0)


def between_annotators(results: Sequence[Label], cluster_of: Mapping[str, str] = MappingProxyType({})) -> dict[str, Agreement]:
    """Compute Krippendorff's alpha between annotators, for each criterion with at least two of them: by the squares of differences for
    single answers, whose labels are numbers, and nominal for pairs.

    Args:
        results: The labels.
        cluster_of: Cluster of each question; a question that is not listed is its own cluster.
    """
    result = {}
    for criterion in dict.fromkeys(label.criterion for label in results):
        mine = [label for label in results if label.criterion == criterion]
        people = list(dict.fromkeys(label.annotator for label in mine))
        items = {key: number for number, key in enumerate(dict.fromkeys((m.question, m.one, m.other) for m in mine))}
        if len(people) < 2:
            continue
        table = np.full((len(people), len(items)), np.nan)
        for label in mine:
            table[people.index(label.annotator), items[label.question, label.one, label.other]] = label.value
        clusters = [cluster_of.get(question, question) for question, _, _ in items]
        difference: Difference = "nominal" if any(other is not None for _, _, other in items) else "interval"
        result[criterion] = krippendorff_alpha(table, difference=difference, clusters=clusters)
    return result
