"""The judges page: whether a judge can be trusted, and what it says."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

from leaderboard import read, state
from leaderboard.drawing import permalink, show, show_all, tell
from leaderboard.elements import formats
from leaderboard.elements.formats import PERCENT, Scale, higher_is_better, scale_of
from leaderboard.elements.nodes import Node, badge, el, facts, flat, message, named, note, prose, section, show_value
from leaderboard.elements.tables import Cell, Column, Definitions, NumberColumn, WideColumn, table, value_cell
from leaderboard.read import Source
from leaderboard.views import battles
from leaderboard.widgets import as_page, bar
from results.boards.board import Board, Row
from results.boards.controls import checked
from results.judging.battles import STRENGTHS_FROM, BattleBoard
from results.judging.judge_card import Corrected, JudgeCard
from results.statistics.core import Estimate
from results.statistics.judges import Agreement
from results.store.store import shortened

_CONTROLS = "Does it rank the controls correctly?"
_KAPPA = Scale(1.0, 2, "", "")
# Criterion, bias, its share, the share without it, number of verdicts, hover text.
_Bias = tuple[str, str, Estimate, str | None, int, str]


@as_page("judges", "Judges")
def render(at: Source) -> None:
    """Draw the page `judge`: a judge's measured properties, win rates and control checks."""
    known = read.judges(at)
    if not known:
        tell(
            "No judge has judged yet",
            "A judge reads stored answers. Rules cost nothing; models answer through any OpenAI-compatible endpoint.",
            ("ragmeter list judges", "ragmeter judge run rule_pairwise --experiment NAME --all-pairs"),
        )
        return
    most = read.most_used_judge(at)
    judge = state.select("Judge", "judge", list(known), most, resets=("board", "criterion"), within=bar("judge", 1)[0])
    result = read.judge_card(at, judge)
    if result.card["kind"] == "pair":
        _battles(at, judge)
    else:
        measures = {item["metric"]: item["name"] for item in known[judge]["measures"]}
        checks = [(board, controls(board, read.definitions(at), measures)) for board in read.judged_boards(at, judge)]
        parts = [part for board, check in checks if check is not None for part in (note(_on(board)), check)]
        show(section(_CONTROLS, *parts or [_no_controls()]), "controls")
    biased = biases(result)
    runs = [run for group in read.run_groups(at, None) for run in group]
    people = corrected(result.corrected, {run.run: f"{run.method} on {run.dataset}" for run in runs})
    trust = (
        card(result),
        biased and section("Consistency and biases", biased),
        section("Agreement", agreement(result)),
        people and section("Compared with people", people),
    )
    show(el("div", *trust, cls="stack"), "trust")
    permalink()


def _on(board: Board | BattleBoard) -> str:
    return f"{board.dataset} · {board.setting} · {board.questions:,} questions"


def _no_controls() -> Node:
    text = (
        "No control was judged. Add the controls to an experiment (`ragmeter list methods --kind control`), and judge it again: "
        "an empty, a shuffled and the gold answer show how far you can trust the judge."
    )
    return el("p", *prose(text), cls="note")


def _battles(at: Source, judge: str) -> None:
    boards = read.battles(at, judge, state.read("length") == "1")
    if not boards:
        text = "The judge is known, but no pair of answers was judged."
        tell("This judge has compared nothing yet", text, ("ragmeter judge run JUDGE --experiment NAME --all-pairs",))
        return
    keys = {f"{board.dataset}~{board.setting}~{board.seed}~{number}": board for number, board in enumerate(boards)}
    labels = {key: f"{board.dataset} · {board.setting} · seed {board.seed}" for key, board in keys.items()}
    left, right = bar("board", [2, 1])
    chosen = keys[state.select("Benchmark · setting · seed", "board", labels, resets=("criterion",), within=left)]
    known = battles.criteria(chosen)
    criterion = state.select("Criterion", "criterion", known, within=right) if known else None
    if criterion is None:
        tell("Nothing can be judged here", "The questions of this benchmark lack the fields that the judge needs.")
        return
    placed = _placed(chosen, [board for board in boards if board is not chosen], criterion)
    won = section(f"Who beats whom, by {criterion}", *battles.win_rates(chosen, criterion))
    show_all("battles", {"controls": placed, "matrix": won})
    _strengths(chosen, criterion)


def _placed(chosen: BattleBoard, others: Sequence[BattleBoard], criterion: str) -> Node:
    """Draw the controls of the displayed board, and below them those of the judge's other boards."""
    here = battles.controls(chosen, criterion)
    there = battles.controls_on_other_boards([(f"{_on(board)} · seed {board.seed}", board) for board in others], criterion)
    title = f"{_CONTROLS[:-1]}, by {criterion}?"
    if here is None and there is None:
        return section(title, _no_controls())
    on = note(_on(chosen) + ("" if here is not None else ": no control was judged"))
    return section(title, on, here, there, note(battles.CONTROLS_NOTE))


def _strengths(board: BattleBoard, criterion: str) -> None:
    rows, title = board.strengths.get(criterion), "Strengths (Bradley–Terry)"
    if rows is None:
        few = "Strengths add to win rates only with three or more methods; fewer were compared here."
        lacking = "Strengths need a win rate of every pair that was judged. Pairs without one show –; point at it for the reason."
        show(section(title, note(few if len(battles.names(board, criterion)) < STRENGTHS_FROM else lacking)), "strengths-none")
        return
    show(section(title), "strengths-title")
    state.switch("Adjusted for length", "length", help="Strengths adjusted for the length of answers")
    show(el("div", *battles.strengths(board, rows), cls="stack"), "strengths")


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
    again, swapped = "changes its verdict when asked again", "changes the winner when the order is swapped"
    rows: list[_Bias] = [(by, again, item.differing, "0", item.pairs, "") for by, item in result.repetitions.items()]
    rows += [(by, swapped, flips, "0", flips.n, "") for by, flips in result.flips.items()]
    rows += [(by, "the answer shown first wins", first, "50", first.n, "") for by, first in result.first_shown.items()]
    for by, longer in result.longer.items():
        slope = longer.per_doubling.value
        tip = (
            f"An answer twice as long gains {formats.PLAIN.difference(slope)} log-odds, adjusted for the strengths of the "
            "methods; the share is not adjusted, and a longer answer may be the better one"
        )
        rows.append((by, "the longer answer wins", longer.longer_wins, None, longer.decided, "" if math.isnan(slope) else tip))
    rows = [row for row in rows if row[4]]
    return table("Consistency and biases of the judge", "biases-scroll", rows, columns) if rows else None


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
    kappa = "Agreement beyond chance: 1 is perfect, 0 chance. Cohen's κ with a judge or a person, Krippendorff's α among people, "
    kappa += "weighted by the squares of differences if labels are numbers"
    columns: list[Column[tuple[str, str, str, Agreement]]] = [
        Column("By", lambda row: row[0]),
        Column("Agreement with", lambda row: named(row[1], badge(row[2]) if row[2] else None)),
        NumberColumn("Equal", lambda row: value_cell(row[3].raw, PERCENT), "× 100 [95 %]", "Share of items on which both agree"),
        NumberColumn("Kappa", lambda row: value_cell(row[3].corrected, _KAPPA), "[95 %]", kappa),
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

    The board has the judge's measures as columns, and `measures` the title of each, by metric id.
    """
    judged = [row for row in board.rows if row.control and row.cells]
    if not judged:
        return None

    def value(metric: str, row: Row) -> Cell:
        return value_cell(row.cells[metric].estimate if metric in row.cells else None, scale_of(metric, definitions))

    def method(row: Row) -> Node:
        return named(row.run.method, badge("control", "control") if row.control else badge("best method", "reference"))

    flags = board.flags
    columns: list[Column[Row]] = [Column("Control", method)]
    for metric in board.metrics:
        title = measures.get(metric, metric) + (" ⚑" if metric in flags else "")
        unit = f"{scale_of(metric, definitions).unit} [95 %]"
        columns.append(NumberColumn(title, partial(value, metric), unit, "; ".join(flags.get(metric, ()))))
    first = board.metrics[0]
    scored = [row for row in board.rows if not row.control and first in row.cells and not math.isnan(row.cells[first].estimate.value)]
    best = (max if higher_is_better(first, definitions) else min)(scored, key=lambda row: row.cells[first].estimate.value, default=None)
    rows = judged if best is None else [*judged, best]
    name, key = f"Controls on {board.dataset}", f"controls-{board.dataset_fingerprint}"
    return el(
        "div",
        table(name, key, rows, columns, lambda row: "control" if row.control else ""),
        *(note(f"⚑ {measures.get(metric, metric)} {'; '.join(wrong)}.") for metric, wrong in flags.items()),
        None if flags else note(checked({row.run.method_id for row in judged})),
        cls="stack",
    )
