"""Judgments in the store: the calls of judges, the scores and battles derived from them, human labels.

A judgment is written with the scores that follow from it in one transaction, so that a killed judging resumes, and every
aggregate is based on stored replies.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from benchmarks.columns import strings
from benchmarks.core.errors import UserError, unknown_name
from judges.judge import AS_GIVEN, FIRST, NONE, SECOND, TIE, Judge, JudgeCall, Parsed, Score, counting
from judges.raising import RAISED
from results.store.redaction import redacted, shareable, without_secrets
from results.store.rows import insert, insert_scores, storable, summarize
from results.store.store import Store

ONE, OTHER = "one", "other"
"""Verdicts of a battle, besides `TIE` and `NONE`, in canonical order."""
_CALL = ("part", "repetition", "call", "parse", "unscored", "model", "prompt_tokens", "completion_tokens", "seconds", "cost_usd")
_BATTLE = ("question", "criterion", "part", "repetition", "verdict", "unscored")


@dataclass(frozen=True, slots=True)
class Match:
    """Two runs whose answers are compared on one dataset in one setting; `one` is the run with the smaller fingerprint."""

    dataset_fingerprint: str
    setting: str
    one: str
    other: str


@dataclass(frozen=True, slots=True)
class Battle:
    """Verdict on two answers by one criterion, with `one` and `other` independent of the order in which they were shown.

    Attributes:
        question, one, other, criterion, part, repetition: Question id, run ids, criterion, presentation order and number of the
            repetition.
        verdict: `ONE`, `OTHER`, `TIE` or `NONE`; None if there is none.
        unscored: Why there is no verdict; None if there is one, or if the question is unscorable.
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
        """Return whether the question lacks fields that the judge needs."""
        return self.verdict is None and self.unscored is None


def _key(about: str | Match, judge: str) -> dict[str, str]:
    """Return the key columns of a judge's verdicts on a run, or on two."""
    return {"run": about, "judge": judge} if isinstance(about, str) else {**asdict(about), "judge": judge}


def _where(key: Mapping[str, str]) -> str:
    return " AND ".join(f"{name} = ?" for name in key)


def put_judge(store: Store, judge: Judge) -> None:
    """Store a judge's card, and register its measures as metrics."""
    card = judge.describe()
    with store.database.writing() as connection:
        connection.execute("DELETE FROM judges WHERE judge = ?", [str(judge)])
        connection.execute("INSERT INTO judges VALUES (?, ?)", [str(judge), json.dumps(card, ensure_ascii=False)])
        for item in card["measures"]:
            further = [item[name] for name in ("low", "high", "higher_is_better", "group")]
            values = [item["metric"], f"{item['definition']} {card['definition']}", *further, card["source"], str(judge)]
            connection.execute("DELETE FROM metrics WHERE id = ?", values[:1])
            connection.execute("INSERT INTO metrics VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'fraction')", values)


def put_judgments(
    store: Store,
    run: str,
    judge: Judge,
    questions: Sequence[str],
    calls: Sequence[Sequence[JudgeCall]],
    scores: Sequence[Mapping[str, Score]],
) -> None:
    """Store a point judge's verdicts on answers of a run.

    Existing verdicts are kept; only unreadable ones are replaced.

    Args:
        store: The store to write to.
        run: Id of the run.
        judge: The judge.
        questions: Ids of the judged questions.
        calls, scores: For each question, the judge's calls, and its scores by measure.
    """
    metrics = judge.metrics
    questions, calls, scores = _unread(store, run, judge, questions, calls, scores)
    values = {metric: np.array([_nan(row[name].value) for row in scores], dtype=np.float64) for name, metric in metrics.items()}
    reasons = {metric: [_storable(row[name].unscored) for row in scores] for name, metric in metrics.items()}
    with store.database.writing() as connection:
        _replace_calls(connection, "judge_calls", _key(run, str(judge)), questions, calls)
        for metric in metrics.values():
            connection.execute(f"DELETE FROM scores WHERE run = ? AND metric = ? AND {_FRESH}", [run, metric])
        insert_scores(connection, run, questions, values, reasons)
        summarize(connection, run)


def put_battles(
    store: Store,
    match: Match,
    judge: Judge,
    questions: Sequence[str],
    calls: Sequence[Sequence[JudgeCall]],
    verdicts: Sequence[Sequence[Mapping[str, str | None]]],
) -> None:
    """Store a pair judge's verdicts on the answers of two runs.

    Existing verdicts are kept; only unreadable ones are replaced.

    If a call was retried, the first readable reply decides; all calls are stored.

    Args:
        store: The store to write to.
        match: The two runs.
        judge: The judge.
        questions: Ids of the judged questions.
        calls: For each question, the judge's calls; empty if it is unscorable.
        verdicts: For each question and call, the verdicts by criterion, in terms of the order shown (`PairJudge.verdicts`).
    """
    questions, calls, verdicts = _unread(store, match, judge, questions, calls, verdicts)
    key = _key(match, str(judge))
    battles: list[tuple[object, ...]] = []
    for question, made, responses in zip(questions, calls, verdicts, strict=True):
        count = {id(call) for call in counting(made)}
        for call, parsed in zip(made, responses, strict=True):
            for criterion, verdict in parsed.items() if id(call) in count else ():
                reason = None if verdict is not None else _storable(_why(call.parsed, criterion))
                battles.append((question, criterion, call.part, call.repetition, undone(call.part, verdict), reason))
        battles += [(question, criterion, AS_GIVEN, 0, None, None) for criterion in judge.entry.criteria if not made]
    with store.database.writing() as connection:
        _replace_calls(connection, "battle_calls", key, questions, calls)
        connection.execute(f"DELETE FROM battles WHERE {_where(key)} AND {_FRESH}", [*key.values()])
        columns: dict[str, list[object]] = {name: [value] * len(battles) for name, value in key.items()}
        insert(connection, "battles", columns | {name: [row[position] for row in battles] for position, name in enumerate(_BATTLE)})


def _unread(store: Store, about: str | Match, judge: Judge, questions: Sequence[str], *columns: Sequence[Any]) -> list[list[Any]]:
    """Return the rows of questions without a verdict so far."""
    kept = judged(store, about, judge, retry_unscored=True)
    wanted = [position for position, question in enumerate(questions) if question not in kept]
    return [[column[position] for position in wanted] for column in (questions, *columns)]


def _why(parsed: Parsed, criterion: str) -> str:
    """Return why a call gave no verdict by a criterion; its reply may have given one by others."""
    partly = (parsed.value or {}).get("unscored") or {}
    return parsed.unscored or str(partly.get(criterion) or "no verdict by this criterion")


def undone(part: str, verdict: str | None) -> str | None:
    """Translate a verdict in terms of the order shown (`FIRST`, `SECOND` …) into one about the two runs (`ONE`, `OTHER` …).

    Raises:
        ValueError: The verdict is unknown.
    """
    if verdict in (None, TIE, NONE):
        return verdict
    if verdict not in (FIRST, SECOND):
        raise ValueError(f"{verdict!r} is not a verdict")
    return ONE if (verdict == FIRST) == (part == AS_GIVEN) else OTHER


def judged(store: Store, about: str | Match, judge: Judge, *, retry_unscored: bool = False) -> set[str]:
    """Return the ids of the questions that a judge has judged, for one run or a pair of runs.

    Questions on which the judge's code failed are left out; with `retry_unscored`, so are questions without a usable verdict.
    """
    if isinstance(about, str):
        source, values = "scores WHERE run = ? AND list_contains(?, metric)", [about, list(judge.metrics.values())]
    else:
        key = _key(about, str(judge))
        source, values = f"battles WHERE {_where(key)}", [*key.values()]
    missing = "count(unscored)" if retry_unscored else f"count(*) FILTER (starts_with(unscored, '{RAISED}'))"
    rows = store.database.rows(f"SELECT question FROM {source} GROUP BY question HAVING {missing} = 0", values, lenient=True)
    return {row[0] for row in rows}


def calls(store: Store, about: str | Match, judge: str) -> dict[str, list[JudgeCall]]:
    """Read a judge's stored calls about one run or a pair of runs, by question, in the order in which they were made."""
    key, table = _key(about, judge), "judge_calls" if isinstance(about, str) else "battle_calls"
    query = f"SELECT question, {', '.join(_CALL)} FROM {table} WHERE {_where(key)} ORDER BY rowid"
    results: dict[str, list[JudgeCall]] = {}
    for question, part, repetition, call, parse, unscored, *used in store.database.rows(query, [*key.values()]):
        parsed = Parsed(json.loads(parse) if parse is not None else None, unscored)
        results.setdefault(question, []).append(JudgeCall(part, repetition, call, parsed, *used))
    return results


def scores(store: Store, run: str, judge: str) -> dict[str, dict[str, Score]]:
    """Read a run's scores on a point judge's measures, by question and measure."""
    names = {item["metric"]: item["name"] for item in judges(store)[judge]["measures"]}
    rows = store.database.rows(
        "SELECT question, metric, value, unscored FROM scores WHERE run = ? AND list_contains(?, metric)", [run, list(names)]
    )
    results: dict[str, dict[str, Score]] = {}
    for question, metric, value, unscored in rows:
        results.setdefault(question, {})[names[metric]] = Score(value, unscored)
    return results


def battles(store: Store, dataset_fingerprint: str, setting: str, judge: str, match: Match | None = None) -> list[Battle]:
    """Read all verdicts of a pair judge on a dataset in a setting (or only on two runs), sorted by question."""
    rows = store.database.rows(
        """SELECT b.question, one, other, criterion, part, repetition, verdict, unscored FROM battles b
               LEFT JOIN questions q ON q.question = b.question AND q.dataset_fingerprint = b.dataset_fingerprint
               WHERE b.dataset_fingerprint = ? AND setting = ? AND judge = ? AND (? IS NULL OR one = ? AND other = ?)
               ORDER BY q.position, one, other, criterion, part, repetition""",
        [dataset_fingerprint, setting, judge, match and match.one, match and match.one, match and match.other],
    )
    return [Battle(*row) for row in rows]


def unread_battles(store: Store, match: Match, judge: Judge) -> tuple[int, int]:
    """Count the questions without a verdict of a pair judge by its main criterion, and the scorable questions."""
    key = _key(match, str(judge)) | {"criterion": judge.entry.criteria[0]}
    ((unread, scorable),) = store.database.rows(
        f"""SELECT count(*) FILTER (read = 0), count(*) FROM (
               SELECT question, count(verdict) AS read FROM battles WHERE {_where(key)}
               GROUP BY question HAVING count(verdict) + count(unscored) > 0)""",
        [*key.values()],
    )
    return unread, scorable


def matches(store: Store, judge: str | None = None) -> list[tuple[str, Match]]:
    """List the (judge id, pair of runs) combinations with stored verdicts."""
    rows = store.database.rows(
        """SELECT DISTINCT judge, dataset_fingerprint, setting, one, other FROM battles
               WHERE ? IS NULL OR judge = ? ORDER BY ALL""",
        [judge, judge],
    )
    return [(row[0], Match(*row[1:])) for row in rows]


def judges(store: Store) -> dict[str, dict[str, Any]]:
    """Read the cards of all judges in the store, by id."""
    rows = store.database.rows("SELECT judge, card FROM judges ORDER BY judge", lenient=True)
    return {judge: shareable(card) for judge, card in rows}


def find_judge(store: Store, name: str) -> dict[str, Any]:
    """Find the card of a stored judge by its id or an unambiguous beginning of it.

    Raises:
        UserError: No judge matches, or several do.
    """
    known = judges(store)
    cards = [known[name]] if name in known else [card for judge, card in known.items() if judge.startswith(name) or card["judge"] == name]
    if not cards:
        raise unknown_name("judge in this store", name, known, where=str(store.folder))
    if len(cards) > 1:
        raise UserError(
            f"{name!r} means {len(cards)} judges",
            code="ambiguous-judge",
            try_this=f"name one: {', '.join(card['id'] for card in cards[:5])}",
        )
    return cards[0]


def judged_runs(store: Store, judge: str) -> list[str]:
    """List the ids of runs that a point judge has judged."""
    metrics = [item["metric"] for item in judges(store)[judge]["measures"]]
    return [
        run for (run,) in store.database.rows("SELECT DISTINCT run FROM summaries WHERE list_contains(?, metric) ORDER BY run", [metrics])
    ]


_FRESH = "question IN (SELECT question FROM fresh)"


def _replace_calls(
    connection: duckdb.DuckDBPyConnection,
    table: str,
    key: Mapping[str, str],
    questions: Sequence[str],
    calls: Sequence[Sequence[JudgeCall]],
) -> None:
    """Replace all calls about these questions, and list the questions in a table `fresh`."""
    connection.register("fresh", pa.table({"question": strings(list(questions))}))
    connection.execute(f"DELETE FROM {table} WHERE {_where(key)} AND {_FRESH}", [*key.values()])
    rows = [(question, call) for question, made in zip(questions, calls, strict=True) for call in made]
    made = [call for _, call in rows]
    values = [call.parsed.value for call in made]
    columns: dict[str, Sequence[object]] = {name: [value] * len(made) for name, value in key.items()}
    columns |= {
        "question": [question for question, _ in rows],
        "part": [call.part for call in made],
        "repetition": [call.repetition for call in made],
        "call": [call.key for call in made],
        "parse": [None if value is None else storable(json.dumps(dict(value), ensure_ascii=False)) for value in values],
        "unscored": [_storable(call.parsed.unscored) for call in made],
        **{name: [getattr(call, name) for call in made] for name in _CALL[5:]},
    }
    insert(connection, table, columns)


def _nan(value: float | None) -> float:
    return np.nan if value is None else value


def _storable(text: str | None) -> str | None:
    return None if text is None else storable(text)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Stored call of a judge about an answer, or about two answers, for display.

    Attributes:
        judge: Id of the judge.
        run: The judged run; for a pair, the one with the smaller fingerprint.
        other: The other run of a pair; None for a point judge.
        part: Name of the prompt or, for a pair, the order in which the answers were shown.
        repetition: Number of the repetition, from 0.
        call: Key of the stored conversation (`conversations`); None if no model was called.
        response: The parsed reply; for a pair, the winner by criterion: `one`, `other`, `tie`, `none`, or None without a
            verdict.
        unscored: Why there is no usable verdict.
        model: Model name that the endpoint reported; `rule` for rules.
        prompt_tokens, completion_tokens, seconds, cost_usd: Cost of the call.
    """

    judge: str
    run: str
    other: str | None
    part: str
    repetition: int
    call: str | None
    response: Mapping[str, Any] = field(default_factory=dict)
    unscored: str | None = None
    model: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    cost_usd: float = 0.0


@dataclass(frozen=True, slots=True)
class Conversation:
    """Stored model call: messages as (role, text) pairs, and the reply."""

    messages: tuple[tuple[str, str], ...]
    reply: str


def verdicts(store: Store, question: str, dataset_fingerprint: str, setting: str, run_ids: Sequence[str]) -> list[Verdict]:
    """Read all judge calls about a question, sorted by judge, run and time.

    Args:
        store: The store to read.
        question: Id of the question.
        dataset_fingerprint, setting: Dataset and retrieval setting of pairwise verdicts.
        run_ids: Ids of the runs to include; a pairwise verdict needs both of its runs here.
    """
    wanted = list(run_ids)
    with store.database.reading() as connection:
        alone = connection.execute(
            """SELECT judge, run, part, repetition, call, parse, unscored, model, prompt_tokens, completion_tokens,
               seconds, cost_usd FROM judge_calls WHERE question = ? AND list_contains(?, run) ORDER BY judge, rowid""",
            [question, wanted],
        ).fetchall()
        where = """question = ? AND dataset_fingerprint = ? AND setting = ? AND list_contains(?, one)
                   AND list_contains(?, other)"""
        queries = [question, dataset_fingerprint, setting, wanted, wanted]
        paired = connection.execute(
            f"""SELECT judge, one, other, part, repetition, call, unscored, model, prompt_tokens, completion_tokens,
                seconds, cost_usd FROM battle_calls WHERE {where} ORDER BY judge, rowid""",
            queries,
        ).fetchall()
        won = connection.execute(
            f"""SELECT judge, one, other, part, repetition, criterion, verdict FROM battles
                WHERE {where} AND (verdict IS NOT NULL OR unscored IS NOT NULL) ORDER BY rowid""",
            queries,
        ).fetchall()
    by_criterion: dict[tuple, dict[str, Any]] = {}
    for *which, criterion, verdict in won:
        by_criterion.setdefault(tuple(which), {})[criterion] = verdict
    # Rows as of `Verdict`.
    results: list[tuple[Any, ...]] = [
        (*row[:2], None, *row[2:5], redacted(json.loads(row[5])) if row[5] else {}, *row[6:]) for row in alone
    ]
    results += [(*row[:6], by_criterion.get(row[:5], {}), *row[6:]) for row in paired]
    return [replace(item, unscored=item.unscored and without_secrets(item.unscored)) for item in (Verdict(*row) for row in results)]


def conversations(store: Store, keys: Iterable[str]) -> dict[str, Conversation]:
    """Read stored model calls by key, with secrets removed; keys without a stored call are omitted.

    The reply cache is opened read-only, because another process may be writing to it.
    """
    wanted = sorted(set(keys))
    if not wanted or not store.cache.is_file():
        return {}
    # Without a log next to it the file is complete, and can be read without write access.
    still = not store.cache.with_name(f"{store.cache.name}-wal").exists()
    marks = ",".join("?" * len(wanted))
    try:
        address = f"{store.cache.absolute().as_uri()}?{'immutable=1' if still else 'mode=ro'}"
        with closing(sqlite3.connect(address, uri=True)) as connection:
            rows = connection.execute(f"SELECT key, request, reply FROM replies WHERE key IN ({marks})", wanted).fetchall()
    except sqlite3.Error:
        # A file that is not a cache of replies, or is being moved: nothing is kept that could be shown.
        return {}
    return {key: result for key, request, reply in rows if (result := _conversation(request, reply)) is not None}


def _conversation(request: str, reply: str) -> Conversation | None:
    """Return a stored call; None if its row is damaged."""
    try:
        messages = tuple(
            (str(load.get("role", "")), without_secrets(str(load.get("content", "")))) for load in json.loads(request)["messages"]
        )
        return Conversation(messages, without_secrets(str(json.loads(reply).get("text", ""))))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
