"""Judgements in the store: what each call of a judge said, the scores and battles made of it, people's labels.

A judgement is written with the scores that follow from it in one transaction, so that a killed judging goes on where
it was, and no aggregate ever counts a reply that is not there to be read again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from judges.judging import AS_GIVEN, FIRST, NONE, SECOND, TIE, Judge, JudgeCall, Parsed, Score
from results.redaction import shareable
from results.rows import insert, insert_scores, storable, summarise
from results.store import Store

ONE, OTHER = "one", "other"
"""Verdicts of a battle, beside `TIE` and `NONE`, once the order of presentation is undone."""
_CALL = ("part", "repetition", "call", "parse", "unscored", "model", "prompt_tokens", "completion_tokens", "seconds", "cost_usd")
_BATTLE = ("question", "criterion", "part", "repetition", "verdict", "unscored")


@dataclass(frozen=True, slots=True)
class Match:
    """Two runs whose answers are compared, on one dataset in one setting; `one` is the lesser fingerprint."""

    dataset_fingerprint: str
    setting: str
    one: str
    other: str


@dataclass(frozen=True, slots=True)
class Battle:
    """A verdict on two answers by one criterion, the order of presentation undone.

    Attributes:
        question, one, other, criterion, part, repetition: What was compared, and how it was shown.
        verdict: `ONE`, `OTHER`, `TIE` or `NONE`; None where there is none.
        unscored: Why there is none; None too where the question is unscorable, which a single row says.
    """

    question: str
    one: str
    other: str
    criterion: str
    part: str
    repetition: int
    verdict: str | None
    unscored: str | None

    @property
    def unscorable(self) -> bool:
        """Whether there was nothing to judge by."""
        return self.verdict is None and self.unscored is None


def put_judge(store: Store, judge: Judge) -> None:
    """Keep a judge's card, and the definitions of what it measures as metrics."""
    card = judge.describe()
    with store.database.writing() as connection:
        connection.execute("DELETE FROM judges WHERE judge = ?", [str(judge)])
        connection.execute("INSERT INTO judges VALUES (?, ?)", [str(judge), json.dumps(card, ensure_ascii=False)])
        for one in card["measures"]:
            definition = f"{one['definition']} {card['definition']}"
            connection.execute("DELETE FROM metrics WHERE id = ?", [one["metric"]])
            connection.execute(
                "INSERT INTO metrics VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'fraction')",
                [one["metric"], definition, one["low"], one["high"], one["higher_is_better"], one["group"], card["source"], str(judge)],
            )


def put_judgements(
    store: Store,
    run: str,
    judge: Judge,
    questions: Sequence[str],
    calls: Sequence[Sequence[JudgeCall]],
    scores: Sequence[Mapping[str, Score]],
) -> None:
    """Write what a point judge said of some of a run's answers, in place of what it said of them before.

    Args:
        store: Where.
        run: The run.
        judge: The judge.
        questions: Question ids.
        calls, scores: Per question the calls, and the scores by measure.
    """
    metrics = judge.metrics
    values = {metric: np.array([_nan(row[name].value) for row in scores], dtype=np.float64) for name, metric in metrics.items()}
    reasons = {metric: [_storable(row[name].unscored) for row in scores] for name, metric in metrics.items()}
    with store.database.writing() as connection:
        connection.register("fresh", pa.table({"question": pa.array(list(questions), pa.string())}))
        among = "question IN (SELECT question FROM fresh)"
        connection.execute(f"DELETE FROM judge_calls WHERE run = ? AND judge = ? AND {among}", [run, str(judge)])
        for metric in metrics.values():
            connection.execute(f"DELETE FROM scores WHERE run = ? AND metric = ? AND {among}", [run, metric])
        rows = [(question, call) for question, made in zip(questions, calls, strict=True) for call in made]
        same = {"run": run, "judge": str(judge)}
        _insert_calls(connection, "judge_calls", same, {"question": [q for q, _ in rows]}, [c for _, c in rows])
        insert_scores(connection, run, questions, values, reasons)
        summarise(connection, run)


def put_battles(
    store: Store,
    match: Match,
    judge: Judge,
    questions: Sequence[str],
    calls: Sequence[Sequence[JudgeCall]],
    verdicts: Sequence[Sequence[Mapping[str, str | None]]],
) -> None:
    """Write what a pair judge said of some questions' two answers, in place of what it said of them before.

    Args:
        store: Where.
        match: Whose answers.
        judge: The judge.
        questions: Question ids.
        calls: Per question; none where it is unscorable.
        verdicts: Per question and call, by criterion, about the order shown (`PairJudge.verdicts`).
    """
    same = {
        "dataset_fingerprint": match.dataset_fingerprint,
        "setting": match.setting,
        "judge": str(judge),
        "one": match.one,
        "other": match.other,
    }
    rows = [
        (question, call, said)
        for question, made, all_said in zip(questions, calls, verdicts, strict=True)
        for call, said in zip(made, all_said, strict=True)
    ]
    battles = [
        (
            question,
            criterion,
            call.part,
            call.repetition,
            undone(call.part, verdict),
            None if verdict is not None else _storable(_why(call.parsed, criterion)),
        )
        for question, call, said in rows
        for criterion, verdict in said.items()
    ]
    battles += [
        (question, criterion, AS_GIVEN, 0, None, None)
        for question, made in zip(questions, calls, strict=True)
        if not made
        for criterion in judge.entry.criteria
    ]
    with store.database.writing() as connection:
        connection.register("fresh", pa.table({"question": pa.array(list(questions), pa.string())}))
        for table in ("battle_calls", "battles"):
            connection.execute(
                f"""DELETE FROM {table} WHERE dataset_fingerprint = ? AND setting = ? AND judge = ? AND one = ?
                    AND other = ? AND question IN (SELECT question FROM fresh)""",
                list(same.values()),
            )
        asked = [call for _, call, _ in rows]
        _insert_calls(connection, "battle_calls", same, {"question": [q for q, _, _ in rows]}, asked)
        insert(
            connection,
            "battles",
            {
                **{name: [value] * len(battles) for name, value in same.items()},
                **{name: [row[place] for row in battles] for place, name in enumerate(_BATTLE)},
            },
        )


def _why(parsed: Parsed, criterion: str) -> str:
    """Why a call gave no verdict by a criterion; a reply may have given one by others."""
    partly = (parsed.value or {}).get("unscored") or {}
    return parsed.unscored or str(partly.get(criterion) or "no verdict by this criterion")


def undone(part: str, verdict: str | None) -> str | None:
    """A verdict about the order shown (`FIRST`, `SECOND` …) as one about the two runs (`ONE`, `OTHER` …).

    Raises:
        ValueError: There is no such verdict.
    """
    if verdict in (None, TIE, NONE):
        return verdict
    if verdict not in (FIRST, SECOND):
        raise ValueError(f"{verdict!r} is no verdict")
    return ONE if (verdict == FIRST) == (part == AS_GIVEN) else OTHER


def judged(store: Store, run: str, judge: Judge, *, retry_unscored: bool = False) -> set[str]:
    """Questions of a run that a point judge has judged; with `retry_unscored`, without those it could not."""
    if not store.database.exists:
        return set()
    metrics = list(judge.metrics.values())
    having = "HAVING count(unscored) = 0" if retry_unscored else ""
    with store.database.reading() as connection:
        rows = connection.execute(
            f"""SELECT question FROM scores WHERE run = ? AND list_contains(?, metric)
                GROUP BY question {having}""",
            [run, metrics],
        ).fetchall()
    return {row[0] for row in rows}


def fought(store: Store, match: Match, judge: Judge, *, retry_unscored: bool = False) -> set[str]:
    """Questions on which a pair judge has compared two runs; with `retry_unscored`, without those it could not."""
    if not store.database.exists:
        return set()
    having = "HAVING count(unscored) = 0" if retry_unscored else ""
    with store.database.reading() as connection:
        rows = connection.execute(
            f"""SELECT question FROM battles WHERE dataset_fingerprint = ? AND setting = ? AND judge = ? AND one = ?
                AND other = ? GROUP BY question {having}""",
            [match.dataset_fingerprint, match.setting, str(judge), match.one, match.other],
        ).fetchall()
    return {row[0] for row in rows}


def calls(store: Store, run: str, judge: str) -> dict[str, list[JudgeCall]]:
    """What a point judge's calls about a run said, by question, in the order in which they were made."""
    with store.database.reading() as connection:
        rows = connection.execute(
            f"SELECT question, {', '.join(_CALL)} FROM judge_calls WHERE run = ? AND judge = ? ORDER BY rowid", [run, judge]
        ).fetchall()
    return _by_question(rows)


def battle_calls(store: Store, match: Match, judge: str) -> dict[str, list[JudgeCall]]:
    """What a pair judge's calls about two runs said, by question."""
    with store.database.reading() as connection:
        rows = connection.execute(
            f"""SELECT question, {", ".join(_CALL)} FROM battle_calls WHERE dataset_fingerprint = ? AND setting = ?
                AND judge = ? AND one = ? AND other = ? ORDER BY rowid""",
            [match.dataset_fingerprint, match.setting, judge, match.one, match.other],
        ).fetchall()
    return _by_question(rows)


def scores(store: Store, run: str, judge: str) -> dict[str, dict[str, Score]]:
    """What a point judge's measures are worth for a run, by question and measure."""
    names = {one["metric"]: one["name"] for one in judges(store)[judge]["measures"]}
    with store.database.reading() as connection:
        rows = connection.execute(
            "SELECT question, metric, value, unscored FROM scores WHERE run = ? AND list_contains(?, metric)", [run, list(names)]
        ).fetchall()
    found: dict[str, dict[str, Score]] = {}
    for question, metric, value, unscored in rows:
        found.setdefault(question, {})[names[metric]] = Score(value, unscored)
    return found


def battles(store: Store, dataset_fingerprint: str, setting: str, judge: str, match: Match | None = None) -> list[Battle]:
    """Every verdict of a pair judge on a dataset in a setting (or on two runs alone), question by question."""
    with store.database.reading() as connection:
        rows = connection.execute(
            """SELECT b.question, one, other, criterion, part, repetition, verdict, unscored FROM battles b
               LEFT JOIN questions q ON q.question = b.question AND q.dataset_fingerprint = b.dataset_fingerprint
               WHERE b.dataset_fingerprint = ? AND setting = ? AND judge = ? AND (? IS NULL OR one = ? AND other = ?)
               ORDER BY q.position, one, other, criterion, part, repetition""",
            [dataset_fingerprint, setting, judge, match and match.one, match and match.one, match and match.other],
        ).fetchall()
    return [Battle(*row) for row in rows]


def matches(store: Store, judge: str | None = None) -> list[tuple[str, Match]]:
    """Which pairs of runs were compared, by which judge."""
    with store.database.reading() as connection:
        rows = connection.execute(
            """SELECT DISTINCT judge, dataset_fingerprint, setting, one, other FROM battles
               WHERE ? IS NULL OR judge = ? ORDER BY ALL""",
            [judge, judge],
        ).fetchall()
    return [(row[0], Match(*row[1:])) for row in rows]


def judges(store: Store) -> dict[str, dict[str, Any]]:
    """Cards of the judges that the store knows, by id."""
    if not store.database.exists:
        return {}
    with store.database.reading() as connection:
        rows = connection.execute("SELECT judge, card FROM judges ORDER BY judge").fetchall()
    return {judge: shareable(card) for judge, card in rows}


def judged_runs(store: Store, judge: str) -> list[str]:
    """Runs that a point judge has judged."""
    metrics = [one["metric"] for one in judges(store)[judge]["measures"]]
    with store.database.reading() as connection:
        rows = connection.execute("SELECT DISTINCT run FROM summaries WHERE list_contains(?, metric) ORDER BY run", [metrics])
        return [row[0] for row in rows.fetchall()]


def _insert_calls(
    connection: duckdb.DuckDBPyConnection, table: str, same: Mapping[str, str], own: Mapping[str, Sequence[str]], made: Sequence[JudgeCall]
) -> None:
    columns: dict[str, Sequence[object]] = {name: [value] * len(made) for name, value in same.items()}
    columns |= own
    columns |= {
        "part": [call.part for call in made],
        "repetition": [call.repetition for call in made],
        "call": [call.key for call in made],
        "parse": [
            None if call.parsed.value is None else storable(json.dumps(dict(call.parsed.value), ensure_ascii=False)) for call in made
        ],
        "unscored": [_storable(call.parsed.unscored) for call in made],
        **{name: [getattr(call, name) for call in made] for name in _CALL[5:]},
    }
    insert(connection, table, columns)


def _by_question(rows: Sequence[tuple]) -> dict[str, list[JudgeCall]]:
    found: dict[str, list[JudgeCall]] = {}
    for question, part, repetition, key, parse, unscored, *used in rows:
        parsed = Parsed(json.loads(parse) if parse is not None else None, unscored)
        found.setdefault(question, []).append(JudgeCall(part, repetition, key, parsed, *used))
    return found


def _nan(value: float | None) -> float:
    return np.nan if value is None else value


def _storable(text: str | None) -> str | None:
    return None if text is None else storable(text)
