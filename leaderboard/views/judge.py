"""A judge as page elements: its card, its biases, whom it agrees with, and how it places the controls."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from leaderboard.elements import formats
from leaderboard.elements.formats import PERCENT, Scale, higher_is_better, scale_of
from leaderboard.elements.nodes import Node, aside, badge, button, el, facts, flat, fold, message, named, note, prose, show_value
from leaderboard.elements.tables import Cell, Column, Definitions, NumberColumn, WideColumn, table, value_cell
from results.boards.board import Board, Row
from results.boards.controls import checked
from results.judging.judge_card import Corrected, JudgeCard
from results.judging.judgments import Conversation, Verdict
from results.statistics.core import Estimate
from results.statistics.judges import Agreement
from results.store.answer_queries import AnswerRow
from results.store.queries import OURS, RunRow
from results.store.store import shortened

KAPPA = Scale(1.0, 2, "", "")


def card(result: JudgeCard) -> Node:
    """Build the judge's card: model and prompts, number of calls, failures and cost."""
    about, work = result.card, result.work
    rows: list[tuple[str, Node | str]] = [
        ("Kind", "compares two answers" if about["kind"] == "pair" else "judges one answer"),
        ("Model", "rules, no model" if about["rule"] else str(about["model"])),
        ("Answered as", ", ".join(f"{name} ({count:,} calls)" for name, count in work.models.items() if name)),
        ("Options", ", ".join(f"{name} = {show_value(value)}" for name, value in flat({**about["config"], **about["also"]}))),
        ("Criteria", ", ".join(about["criteria"]) or ", ".join(item["name"] for item in about["measures"])),
        ("Source", str(about.get("source", ""))),
        ("Calls", f"{work.calls:,}" if work.calls else "none: no model was called"),
    ]
    if work.calls:
        unusable = f"{sum(work.unscored.values()):,} ({100 * work.failure_rate:.1f} %)"
        reasons = el("ul", *(el("li", f"{number:,} × {reason}") for reason, number in work.unscored.items()))
        tokens = f"{work.prompt_tokens:,.0f} prompt + {work.completion_tokens:,.0f} completion tokens"
        rows += [
            ("Unusable replies", el("div", unusable, reasons if work.unscored else None)),
            ("Per call", f"{formats.duration(work.seconds)}, {tokens}"),
            ("Price of all calls", f"US$ {formats.dollars(work.cost_usd)}" if work.cost_usd else "no price configured"),
        ]
    return el("section", el("h2", str(about["id"])), el("p", *prose(str(about["definition"]))), facts(rows), cls="stack")


_Bias = tuple[str, str, Estimate, str | None, int, str]
"""Criterion, bias, its share, the share without it, number of verdicts, hover text."""


def biases(result: JudgeCard) -> Node | None:
    """Build the table of the judge's consistency and biases (repetition, position, length); None if no question was judged twice."""
    tip = "Intervals resample questions, not single verdicts"
    columns: list[Column[_Bias]] = [
        Column("By", lambda row: row[0]),
        WideColumn("Bias", lambda row: row[1]),
        NumberColumn("Share", lambda row: value_cell(row[2], PERCENT, tip=row[5]), "× 100 [95 %]", tip),
        NumberColumn("Without it", lambda row: row[3], "× 100", "Value for a judge without this bias"),
        NumberColumn("Verdicts", lambda row: row[4], "counted"),
    ]
    rows = [row for row in _biases(result) if row[4]]
    return table("Consistency and biases of the judge", "biases-scroll", rows, columns) if rows else None


def _biases(result: JudgeCard) -> Iterator[_Bias]:
    for by, item in result.repetitions.items():
        yield by, "changes its verdict when asked again", item.differing, "0", item.pairs, ""
    for by, flips in result.flips.items():
        yield by, "changes the winner when the order is swapped", flips, "0", flips.n, ""
    for by, first in result.first_shown.items():
        yield by, "the answer shown first wins", first, "50", first.n, ""
    for by, longer in result.longer.items():
        slope = longer.per_doubling.value
        tip = (
            f"An answer twice as long gains {formats.PLAIN.difference(slope)} log-odds, adjusted for the strengths of the "
            "methods; the share is not adjusted, and a longer answer may be the better one"
        )
        yield by, "the longer answer wins", longer.longer_wins, None, longer.decided, "" if math.isnan(slope) else tip


def agreement(result: JudgeCard) -> Node:
    """Build the table of the judge's agreement with other judges and with people."""
    rows = [(by, name, "judge", item) for by, others in result.with_judges.items() for name, item in others.items()]
    rows += [(by, name, "person", item) for by, others in result.with_people.items() for name, item in others.items()]
    rows += [(by, "people among themselves", "", item) for by, item in result.between_people.items()]
    if not rows:
        return message(
            "No other judge has judged the same answers",
            "Agreement needs labels by people, or a second judge on the same runs. Sample items at random, have people label them, "
            "and import the labels.",
            ("ragmeter judge labels export -o items.csv --criterion NAME", "ragmeter judge labels import items.csv --annotator NAME"),
        )
    kappa = "Agreement beyond chance: 1 is perfect, 0 chance. Cohen's κ with a judge or a person, Krippendorff's α among people"
    columns: list[Column[tuple[str, str, str, Agreement]]] = [
        Column("By", lambda row: row[0]),
        Column("Agreement with", lambda row: named(row[1], badge(row[2]) if row[2] else None)),
        NumberColumn("Equal", lambda row: value_cell(row[3].raw, PERCENT), "× 100 [95 %]", "Share of items on which both agree"),
        NumberColumn("Kappa", lambda row: value_cell(row[3].corrected, KAPPA), "[95 %]", kappa),
        NumberColumn("Items", lambda row: row[3].raw.n, "judged by both"),
    ]
    return table("Agreement", "agreement-scroll", rows, columns)


def corrected(rows: Sequence[Corrected], names: Mapping[str, str]) -> Node | None:
    """Build the table of means corrected with human labels; None without labels."""
    valid = "Prediction-powered mean: valid only if the labeled items are a random sample, as `ragmeter judge labels export` makes it"
    worth = "Number of labels that would give an equally narrow interval without the judge"
    columns: list[Column[Corrected]] = [
        Column("Run", lambda row: names.get(row.run, shortened(row.run))),
        Column("Measure", lambda row: row.measure),
        NumberColumn("As judged", lambda row: PERCENT.value(row.mean.judged), "× 100", "Mean of the judge's values over all items"),
        NumberColumn("Corrected by people", lambda row: value_cell(row.mean.corrected, PERCENT), "× 100 [95 %]", valid),
        NumberColumn("People alone", lambda row: value_cell(row.mean.labeled, PERCENT), "× 100 [95 %]"),
        NumberColumn("Labels", lambda row: row.mean.corrected.n),
        NumberColumn("Worth", lambda row: None if math.isinf(row.mean.worth) else round(row.mean.worth), "labels", worth),
    ]
    return table("Means corrected with human labels", "corrected-scroll", rows, columns) if rows else None


def controls(board: Board, definitions: Definitions, measures: Mapping[str, str]) -> Node | None:
    """Build the table that checks a point judge with a board's controls and best method; None if no control was judged.

    Args:
        board: A board with the judge's measures as columns.
        measures: Title of each column, by metric id.
    """
    judged = [row for row in board.rows if row.control and row.cells]
    if not judged:
        return None

    def value(metric: str, row: Row) -> Cell:
        return value_cell(row.cells[metric].estimate if metric in row.cells else None, scale_of(metric, definitions))

    def name(row: Row) -> Node:
        return named(row.run.method, badge("control", "control") if row.control else badge("best method", "reference"))

    flags = board.flags
    columns: list[Column[Row]] = [Column("Control", name)]
    for metric in board.metrics:
        title = measures.get(metric, metric) + (" ⚑" if metric in flags else "")
        unit = f"{scale_of(metric, definitions).unit} [95 %]"
        columns.append(NumberColumn(title, partial(value, metric), unit, "; ".join(flags.get(metric, ()))))
    rows = [*judged, *_best(board, definitions)]
    return el(
        "div",
        table(
            f"Controls on {board.dataset}",
            f"controls-{board.dataset_fingerprint}",
            rows,
            columns,
            lambda row: "control" if row.control else "",
        ),
        *(note(f"⚑ {measures.get(metric, metric)} {'; '.join(wrong)}.") for metric, wrong in flags.items()),
        None if flags else note(checked({row.run.method_id for row in judged})),
        cls="stack",
    )


def _best(board: Board, definitions: Definitions) -> list[Row]:
    """Return the best method by the first metric; empty if none has a value."""
    first = board.metrics[0]
    scored = [row for row in board.rows if not row.control and first in row.cells and not math.isnan(row.cells[first].estimate.value)]
    choose = max if higher_is_better(first, definitions) else min
    return [choose(scored, key=lambda row: row.cells[first].estimate.value)] if scored else []


CALL = "call"
"""Key of a stored conversation in a prediction's notes and in the URL."""
_KEY = re.compile(r"[0-9a-f]{32}")
LONGEST = 20_000
"""Maximum characters of a displayed message."""


def answered_here(answers: Sequence[AnswerRow], runs: Sequence[RunRow]) -> dict[str, str]:
    """Return the key of the reader's stored model call, by run, for runs made here.

    Submissions are left out, because their untrusted notes could name any stored call.
    """
    made = {run.run for run in runs if run.origin == OURS}
    keys = {answer.run: answer.notes.get(CALL) for answer in answers if answer.run in made}
    return {run: key for run, key in keys.items() if isinstance(key, str) and _KEY.fullmatch(key)}


def calls(answers: Sequence[AnswerRow], here: Mapping[str, str], results: Sequence[Verdict]) -> dict[str, str]:
    """Map the keys of all stored model calls behind answers and verdicts to the name of the method or judge that made them.

    Args:
        here: Result of `answered_here`.
    """
    keys = {here[answer.run]: f"Reader of {answer.method}" for answer in answers if answer.run in here}
    return keys | {item.call: f"Judge {item.judge}" for item in results if item.call is not None}


def verdicts(results: Sequence[Verdict], names: Mapping[str, str], opened: str, question: str) -> list[Node]:
    """Build one fold per judge with a line for each of its calls about a question."""
    by_judge: dict[str, list[Verdict]] = {}
    for item in results:
        by_judge.setdefault(item.judge, []).append(item)
    return [_judge(judge, made, names, opened, question) for judge, made in by_judge.items()]


def _judge(judge: str, made: Sequence[Verdict], names: Mapping[str, str], opened: str, question: str) -> Node:
    unread = sum(item.unscored is not None for item in made)
    tally = f"{len(made):,} call{'s' * (len(made) != 1)}" + (f", {unread:,} without a verdict" if unread else "")

    def judged(item: Verdict) -> Node:
        return named(names.get(item.run, item.run), None if item.other is None else aside(f"against {names.get(item.other, item.other)}"))

    def shown(item: Verdict) -> str:
        return item.part + (f", repetition {item.repetition}" if item.repetition else "")

    def tokens(item: Verdict) -> Cell:
        parts = f"prompt {item.prompt_tokens:,}, completion {item.completion_tokens:,}; US$ {formats.dollars(item.cost_usd)}"
        return Cell(formats.count(item.prompt_tokens + item.completion_tokens), tip=parts)

    parsed = "Parsed from the reply; for two answers, per criterion and in their original order"
    columns: list[Column[Verdict]] = [
        Column("Judged", judged),
        Column("Shown", shown, tip="The judge's prompt and, for two answers, their order in it"),
        WideColumn("Verdict", lambda item: _verdict(item, names), tip=parsed),
        Column("Model", lambda item: item.model or None, tip="The judging model, as its endpoint names it"),
        NumberColumn("Tokens", tokens, "prompt + completion"),
        NumberColumn("Time", lambda item: formats.duration(item.seconds) if item.seconds else None),
        Column(
            "Conversation",
            lambda item: reader(CALL, item.call, opened, f"verdict-{judge}-{item.call}-{question}"),
            tip="Prompt and reply, if the store keeps them",
        ),
    ]
    verdicts = table(f"Verdicts of {judge}", f"verdicts-{judge}-{question}", made, columns)
    return fold(judge, tally, verdicts, key=f"judge-{judge}-{question}", opened=bool(opened) and opened in {item.call for item in made})


def _verdict(item: Verdict, names: Mapping[str, str]) -> Node | str | None:
    if item.unscored is not None:
        return el("span", badge("no verdict", "failed"), aside(item.unscored))
    if item.other is None:
        words = [f"{name}: {_value(value)}" for name, value in item.response.items()]
    else:
        won = {"one": names.get(item.run, item.run), "other": names.get(item.other, item.other), "none": "neither", None: "no verdict"}
        words = [f"{criterion}: {won.get(verdict, verdict)}" for criterion, verdict in item.response.items()]
    return "; ".join(words) or None


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_value(inner)}" for name, inner in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(map(_value, value)) or "none"
    if value is None or isinstance(value, bool):
        return "none" if value is None else "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def reader(parameter: str, call: str | None, opened: str, key: str, text: str = "read") -> Node:
    """Make the button that opens or closes a conversation.

    Args:
        parameter: Name of the URL parameter that holds the open conversation.
        call: Key of the conversation; None if there is none.
        text: Its text while the conversation is closed.
    """
    if call is None:
        return aside("no model was asked")
    shown = call == opened
    return button("close" if shown else text, key, {parameter: None if shown else call}, pressed=shown)


def conversation(result: Conversation | None, whose: str) -> Node:
    """Build the view of a stored model call, or a note that it is no longer stored."""
    title = el("h3", whose, cls="section")
    if result is None:
        text = "This store does not keep the conversation: it was pruned, was not sent along with the results, or cannot be read."
        return el("section", title, note(text))
    messages = [(role or "message", text) for role, text in result.messages] + [("reply", result.reply)]
    return el("section", title, dialog(messages), label=f"Conversation: {whose}", role="region")


def dialog(messages: Sequence[tuple[str, str]]) -> Node:
    """Build a list of messages with their roles; very long ones are cut."""
    return el("dl", *(part for role, text in messages for part in (el("dt", role), el("dd", _cut(text)))), cls="conversation")


def _cut(text: str) -> str:
    left = len(text) - LONGEST
    return text if left <= 0 else f"{text[:LONGEST]}… [{left:,} more characters: `ragmeter store replies export` has them]"
