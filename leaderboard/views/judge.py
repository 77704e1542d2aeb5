"""A judge as page elements: its card, its biases, whom it agrees with, and how it places the controls."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from leaderboard.elements import formats
from leaderboard.elements.formats import PERCENT, Scale, scale_of
from leaderboard.elements.nodes import Cell, Head, Line, Node, badge, el, facts, flat, message, plain_table, prose, show_value
from results.boards.board import Board, Row, checked
from results.judging.judge_card import Corrected, JudgeCard
from results.judging.judgments import Conversation, Verdict
from results.statistics.core import Estimate
from results.statistics.judges import Agreement
from results.store.queries import AnswerRow, RunRow
from results.store.store import shortened

KAPPA = Scale(1.0, 2, "", "")


def interval(estimate: Estimate, scale: Scale = PERCENT, *, tip: str = "") -> Cell:
    """Make a cell with a value and its 95 % interval beneath."""
    if math.isnan(estimate.value):
        return Cell(formats.NOTHING, tip=tip)
    tip_text = "; ".join(part for part in (tip, estimate.insufficient_data) if part)
    return Cell(scale.value(estimate.value), scale.interval(estimate.low, estimate.high), tip_text)


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
        unusable = sum(work.unscored.values())
        reasons = el("ul", *(el("li", f"{number:,} × {reason}") for reason, number in work.unscored.items()))
        rows += [
            ("Unusable replies", el("div", f"{unusable:,} ({100 * work.failure_rate:.1f} %)", reasons if work.unscored else None)),
            (
                "Per call",
                f"{formats.duration(work.seconds)}, {work.prompt_tokens:,.0f} prompt + {work.completion_tokens:,.0f} completion tokens",
            ),
            ("Price of all calls", f"US$ {formats.dollars(work.cost_usd)}" if work.cost_usd else "no price configured"),
        ]
    return el("section", el("h2", str(about["id"])), el("p", *prose(str(about["definition"]))), facts(rows), cls="stack")


def biases(result: JudgeCard) -> Node | None:
    """Build the table of the judge's consistency and biases (repetition, position, length); None if no question was judged twice."""
    lines = list(_biases(result))
    if not lines:
        return None
    heads = [
        Head("By"),
        Head("Bias", wide=True),
        Head("Share", "× 100 [95 %]", "Intervals resample questions, not single verdicts", number=True),
        Head("Without it", "× 100", "Value for a judge without this bias", number=True),
        Head("Verdicts", "counted", number=True),
    ]
    return plain_table("Consistency and biases of the judge", heads, lines, "biases-scroll")


def _biases(result: JudgeCard) -> Iterator[Line]:
    for by, item in result.repetitions.items():
        if item.pairs:
            yield Line(by, ["changes its verdict when asked again", interval(item.differing), "0", f"{item.pairs:,}"])
    for by, flips in result.flips.items():
        if flips.n:
            yield Line(by, ["changes the winner when the order is swapped", interval(flips), "0", f"{flips.n:,}"])
    for by, first in result.first_shown.items():
        if first.n:
            yield Line(by, ["the answer shown first wins", interval(first), "50", f"{first.n:,}"])
    for by, longer in result.longer.items():
        if longer.decided:
            slope = longer.per_doubling.value
            tip = (
                ""
                if math.isnan(slope)
                else (
                    f"An answer twice as long gains {formats.PLAIN.difference(slope)} log-odds, adjusted for the strengths of the "
                    f"methods; the share is not adjusted, and a longer answer may be the better one"
                )
            )
            yield Line(by, ["the longer answer wins", interval(longer.longer_wins, tip=tip), formats.NOTHING, f"{longer.decided:,}"])


def agreement(result: JudgeCard) -> Node:
    """Build the table of the judge's agreement with other judges and with people."""
    lines = [
        *(_agreement(by, name, "judge", item) for by, all_ in result.with_judges.items() for name, item in all_.items()),
        *(_agreement(by, name, "person", item) for by, all_ in result.with_people.items() for name, item in all_.items()),
        *(_agreement(by, "people among themselves", "", item) for by, item in result.between_people.items()),
    ]
    if not lines:
        return message(
            "No other judge has judged the same answers",
            "Agreement needs labels by people, or a second judge on the same runs. Sample items at random, have people label them, "
            "and import the labels.",
            ("ragmeter judge labels export -o items.csv --criterion NAME", "ragmeter judge labels import items.csv --annotator NAME"),
        )
    heads = [
        Head("By"),
        Head("Agreement with"),
        Head("Equal", "× 100 [95 %]", "Share of items on which both agree", number=True),
        Head(
            "Kappa",
            "[95 %]",
            "Agreement beyond chance: 1 is perfect, 0 chance. Cohen's κ with a judge or a person, Krippendorff's α among people",
            number=True,
        ),
        Head("Items", "judged by both", number=True),
    ]
    return plain_table("Agreement", heads, lines, "agreement-scroll")


def _agreement(by: str, name: str, kind: str, item: Agreement) -> Line:
    who = el("span", el("span", name, cls="method"), badge(kind) if kind else None)
    return Line(by, [who, interval(item.raw), interval(item.corrected, KAPPA), f"{item.raw.n:,}"])


def corrected(rows: Sequence[Corrected], names: Mapping[str, str]) -> Node | None:
    """Build the table of means corrected with human labels; None without labels.

    Args:
        rows: Corrected means, from the judge's card.
        names: Names of runs by id.
    """
    if not rows:
        return None
    heads = [
        Head("Run"),
        Head("Measure"),
        Head("As judged", "× 100", "Mean of the judge's values over all items", number=True),
        Head(
            "Corrected by people",
            "× 100 [95 %]",
            "Prediction-powered mean: valid only if the labeled items are a random sample, as `ragmeter judge labels export` makes it",
            number=True,
        ),
        Head("People alone", "× 100 [95 %]", number=True),
        Head("Labels", number=True),
        Head("Worth", "labels", "Number of labels that would give an equally narrow interval without the judge", number=True),
    ]
    lines = [
        Line(
            names.get(row.run, shortened(row.run)),
            [
                row.measure,
                PERCENT.value(row.mean.judged),
                interval(row.mean.corrected),
                interval(row.mean.labeled),
                f"{row.mean.corrected.n:,}",
                formats.NOTHING if math.isinf(row.mean.worth) else f"{row.mean.worth:,.0f}",
            ],
        )
        for row in rows
    ]
    return plain_table("Means corrected with human labels", heads, lines, "corrected-scroll")


def controls(board: Board, definitions: Mapping[str, Mapping[str, Any]], measures: Mapping[str, str]) -> Node | None:
    """Build the table that checks a point judge with a board's controls and best method; None if no control was judged.

    Args:
        board: A board with the judge's measures as columns.
        definitions: Metric definitions by id.
        measures: Title of each column, by metric id.
    """
    judged = [row for row in board.rows if row.control and row.cells]
    if not judged:
        return None
    best = _best(board, definitions)
    heads = [Head("Control")] + [
        Head(
            measures.get(metric, metric) + (" ⚑" if metric in board.flags else ""),
            f"{scale_of(metric, definitions).unit} [95 %]",
            "; ".join(board.flags.get(metric, ())),
            number=True,
        )
        for metric in board.metrics
    ]
    lines = [Line(_name_row(row, "control"), _cells(row, board, definitions), "control") for row in judged]
    if best is not None:
        lines.append(Line(_name_row(best, "best method"), _cells(best, board, definitions)))
    return el(
        "div",
        plain_table(f"Controls on {board.dataset}", heads, lines, f"controls-{board.dataset_fingerprint}"),
        *(el("p", f"⚑ {measures.get(metric, metric)} {'; '.join(wrong)}.", cls="note") for metric, wrong in board.flags.items()),
        None if board.flags else el("p", checked({row.run.method_id for row in judged}), cls="note"),
        cls="stack",
    )


def _best(board: Board, definitions: Mapping[str, Mapping[str, Any]]) -> Row | None:
    first = board.metrics[0]
    sign = 1 if definitions.get(first, {}).get("higher_is_better", True) else -1
    scored = [row for row in board.rows if not row.control and first in row.cells and not math.isnan(row.cells[first].estimate.value)]
    return max(scored, key=lambda row: sign * row.cells[first].estimate.value, default=None)


def _name_row(row: Row, mark: str) -> Node:
    return el("span", el("span", row.run.method, cls="method"), badge(mark, "control" if row.control else "reference"))


def _cells(row: Row, board: Board, definitions: Mapping[str, Mapping[str, Any]]) -> list[Cell | Node | str]:
    return [
        interval(row.cells[metric].estimate, scale_of(metric, definitions)) if metric in row.cells else formats.NOTHING
        for metric in board.metrics
    ]


CALL = "call"
"""Key of a stored conversation in a prediction's notes and in the URL."""
_KEY = re.compile(r"[0-9a-f]{32}")
LONGEST = 20_000
"""Maximum characters of a displayed message."""
_HEADS = (
    Head("Judged"),
    Head("Shown", tip="The judge's prompt and, for two answers, their order in it"),
    Head("Verdict", tip="Parsed from the reply; for two answers, per criterion and in their original order", wide=True),
    Head("Model", tip="The judging model, as its endpoint names it"),
    Head("Tokens", "prompt + completion", number=True),
    Head("Time", number=True),
    Head("Conversation", tip="Prompt and reply, if the store keeps them"),
)


def answered_here(answers: Sequence[AnswerRow], runs: Sequence[RunRow]) -> dict[str, str]:
    """Return the key of the reader's stored model call, by run, for runs made here.

    Submissions are left out, because their untrusted notes could name any stored call.
    """
    made = {run.run for run in runs if run.origin == "run"}
    keys = {answer.run: answer.notes.get(CALL) for answer in answers if answer.run in made}
    return {run: key for run, key in keys.items() if isinstance(key, str) and _KEY.fullmatch(key)}


def calls(answers: Sequence[AnswerRow], here: Mapping[str, str], results: Sequence[Verdict]) -> dict[str, str]:
    """Map the keys of all stored model calls behind answers and verdicts to the name of the method or judge that made them.

    Args:
        answers: Answers to one question.
        here: Result of `answered_here`.
        results: Judges' calls about these answers.
    """
    keys = {here[answer.run]: f"Reader of {answer.method}" for answer in answers if answer.run in here}
    return keys | {item.call: f"Judge {item.judge}" for item in results if item.call is not None}


def verdicts(results: Sequence[Verdict], names: Mapping[str, str], opened: str, question: str) -> list[Node]:
    """Build one fold per judge with a line for each of its calls about a question.

    Args:
        results: Judges' calls about one question.
        names: Method names by run.
        opened: Key of the model call that is currently shown.
        question: Id of the question, for element keys.
    """
    judges = list(dict.fromkeys(item.judge for item in results))
    return [_judge(judge, [item for item in results if item.judge == judge], names, opened, question) for judge in judges]


def _judge(judge: str, made: Sequence[Verdict], names: Mapping[str, str], opened: str, question: str) -> Node:
    unread = sum(item.unscored is not None for item in made)
    tally = f"{len(made):,} call{'s' * (len(made) != 1)}" + (f", {unread:,} without a verdict" if unread else "")
    lines = [
        Line(
            _judged(item, names),
            [
                item.part + (f", repetition {item.repetition}" if item.repetition else ""),
                _message(item, names),
                item.model or formats.NOTHING,
                Cell(
                    formats.count(item.prompt_tokens + item.completion_tokens),
                    tip=f"prompt {item.prompt_tokens:,}, completion {item.completion_tokens:,}; US$ {formats.dollars(item.cost_usd)}",
                ),
                formats.duration(item.seconds) if item.seconds else formats.NOTHING,
                _reads(item.call, opened, f"verdict-{judge}-{number}-{question}"),
            ],
        )
        for number, item in enumerate(made)
    ]
    return el(
        "details",
        el("summary", el("span", judge, cls="method"), el("span", tally, cls="aside")),
        plain_table(f"Verdicts of {judge}", _HEADS, lines, f"verdicts-{judge}-{question}"),
        cls="evidence",
        key=f"judge-{judge}-{question}",
        open=any(item.call == opened for item in made if item.call is not None),
    )


def _judged(item: Verdict, names: Mapping[str, str]) -> Node:
    against = None if item.other is None else el("span", f"against {names.get(item.other, item.other)}", cls="aside")
    return el("span", el("span", names.get(item.run, item.run), cls="method"), against)


def _message(item: Verdict, names: Mapping[str, str]) -> Node:
    if item.unscored is not None:
        return el("span", badge("no verdict", "failed"), el("span", item.unscored, cls="aside"))
    if item.other is None:
        words = [f"{name}: {_value(value)}" for name, value in item.response.items()]
    else:
        won = {"one": names.get(item.run, item.run), "other": names.get(item.other, item.other), "none": "neither", None: "no verdict"}
        words = [f"{criterion}: {won.get(verdict, verdict)}" for criterion, verdict in item.response.items()]
    return el("span", "; ".join(words) or formats.NOTHING)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_value(inner)}" for name, inner in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(map(_value, value)) or "none"
    if value is None or isinstance(value, bool):
        return "none" if value is None else "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _reads(call: str | None, opened: str, key: str) -> Node:
    """Return the button that opens or closes a conversation."""
    if call is None:
        return el("span", "no model was asked", cls="aside")
    shown = call == opened
    return el(
        "button", "close" if shown else "read", cls="turn", pressed=str(shown).lower(), key=key, action={CALL: None if shown else call}
    )


def readers(answers: Sequence[AnswerRow], here: Mapping[str, str], opened: str, question: str) -> Node | None:
    """Build one button per run whose reader called a model, to show that call."""
    queries = [answer for answer in answers if answer.run in here]
    if not queries:
        return None
    return el(
        "p",
        el("span", "Prompts and replies of readers:", cls="aside"),
        *(el("span", answer.method, _reads(here[answer.run], opened, f"reader-{answer.run}-{question}"), cls="fact") for answer in queries),
        cls="facts",
    )


def conversation(result: Conversation | None, whose: str) -> Node:
    """Build the view of a stored model call, or a note that it is no longer stored."""
    if result is None:
        text = "This store does not keep the conversation: it was pruned, was not sent along with the results, or cannot be read."
        return el("section", el("h3", whose, cls="section"), el("p", text, cls="note"))
    messages = [(role or "message", text) for role, text in result.messages] + [("reply", result.reply)]
    return el(
        "section",
        el("h3", whose, cls="section"),
        el("dl", *(part for role, text in messages for part in (el("dt", role), el("dd", _cut(text)))), cls="conversation"),
        label=f"Conversation: {whose}",
        role="region",
    )


def _cut(text: str) -> str:
    left = len(text) - LONGEST
    return text if left <= 0 else f"{text[:LONGEST]}… [{left:,} more characters: `ragmeter store replies export` has them]"
