"""The judges page: whether a judge can be trusted, and what it says."""

from __future__ import annotations

from collections.abc import Sequence

from leaderboard import read, state
from leaderboard.drawing import draw, permalink, show, tell, together
from leaderboard.elements.nodes import Node, el, note, prose, section
from leaderboard.pages import draw_page
from leaderboard.read import Source
from leaderboard.views import battles
from leaderboard.views import judge as judge_view
from leaderboard.widgets import as_page, bar
from results.boards.board import Board
from results.judging.battles import STRENGTHS_FROM, BattleBoard
from results.judging.judge_card import JudgeCard

_CONTROLS = "Does it rank the controls correctly?"


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
    with bar("judge", 1)[0]:
        judge = state.select("Judge", "judge", list(known), read.most_used_judge(at), resets=("board", "criterion"))
    result = read.judge_card(at, judge)
    if result.card["kind"] == "pair":
        _battles(at, judge)
    else:
        show(_controls(at, judge), "controls")
    show(_trust(at, result), "trust")
    permalink()


def _trust(at: Source, result: JudgeCard) -> Node:
    biases = judge_view.biases(result)
    runs = [run for group in read.run_groups(at, None) for run in group]
    corrected = judge_view.corrected(result.corrected, {run.run: f"{run.method} on {run.dataset}" for run in runs})
    return el(
        "div",
        judge_view.card(result),
        biases and section("Consistency and biases", biases),
        section("Agreement", judge_view.agreement(result)),
        corrected and section("Compared with people", corrected),
        cls="stack",
    )


def _controls(at: Source, judge: str) -> Node:
    measures = {item["metric"]: item["name"] for item in read.judges(at)[judge]["measures"]}
    parts: list[Node] = []
    for board in read.judged_boards(at, judge):
        if (table := judge_view.controls(board, read.definitions(at), measures)) is not None:
            parts += [note(_on(board)), table]
    return section(_CONTROLS, *parts or [_no_controls()])


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
    with left:
        key = state.select("Benchmark · setting · seed", "board", labels, resets=("criterion",))
    chosen = keys[key]
    with right:
        known = battles.criteria(chosen)
        criterion = state.select("Criterion", "criterion", known) if known else None
    if criterion is None:
        tell("Nothing can be judged here", "The questions of this benchmark lack the fields that the judge needs.")
        return
    won = section(
        f"Who beats whom, by {criterion}",
        battles.rates(chosen, criterion),
        battles.basis_note(chosen, criterion),
        note(f"{chosen.questions:,} questions. {battles.MATRIX_NOTE}"),
    )
    with together("battles"):
        show(_placed(chosen, [board for board in boards if board is not chosen], criterion), "controls")
        show(won, "matrix")
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
    draw(battles.strength_chart(rows), "strength-chart", "ragmeter-strengths")
    show(battles.strengths(board, rows), "strengths")
    show(note(battles.STRENGTHS_NOTE), "strengths-note")


if __name__ == "__main__":
    draw_page("judge")
