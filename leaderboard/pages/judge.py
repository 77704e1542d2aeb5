"""The judges page: whether a judge can be trusted, and what it says."""

from __future__ import annotations

from collections.abc import Sequence

from leaderboard import read, state
from leaderboard.elements.nodes import el, message
from leaderboard.read import Source
from leaderboard.views import battles
from leaderboard.views import judge as judge_view
from leaderboard.widgets import as_page, bar, draw, permalink, show, tell, together
from results.boards.board import Board
from results.judging.battles import BattleBoard
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
        judge = state.select("Judge", "judge", list(known), next(iter(known)), resets=("board", "criterion"))
    result = read.judge_card(at, judge)
    if result.card["kind"] == "pair":
        _battles(at, judge)
    else:
        with together("controls"):
            _controls(at, judge)
    with together("trust"):
        _trust(at, result)
    permalink()


def _trust(at: Source, result: JudgeCard) -> None:
    show(judge_view.card(result), "card")
    biases = judge_view.biases(result)
    if biases is not None:
        show(el("h2", "Consistency and biases", cls="section"), "biases-title")
        show(biases, "biases")
    show(el("h2", "Agreement", cls="section"), "agreement-title")
    show(judge_view.agreement(result), "agreement")
    runs = [run for group in read.run_groups(at, None) for run in group]
    corrected = judge_view.corrected(result.corrected, {run.run: f"{run.method} on {run.dataset}" for run in runs})
    if corrected is not None:
        show(el("h2", "Compared with people", cls="section"), "corrected-title")
        show(corrected, "corrected")


def _controls(at: Source, judge: str) -> None:
    measures = {item["metric"]: item["name"] for item in read.judges(at)[judge]["measures"]}
    definitions = read.definitions(at)
    show(el("h2", _CONTROLS, cls="section"), "controls-title")
    boards = read.judged_boards(at, judge)
    drawn = [(board, table) for board in boards if (table := judge_view.controls(board, definitions, measures)) is not None]
    for number, (board, table) in enumerate(drawn):
        show(el("p", _on(board), cls="note"), f"on-{number}")
        show(table, f"controls-{number}")
    if not drawn:
        _no_controls()


def _on(board: Board | BattleBoard) -> str:
    return f"{board.dataset} · {board.setting} · {board.questions:,} questions"


def _no_controls() -> None:
    show(
        message(
            "No control was judged",
            "Add the controls to an experiment, and judge it again: an empty, a "
            "shuffled and the gold answer show how far you can trust the judge.",
            ("ragmeter list methods --kind control", "ragmeter run EXPERIMENT.yaml"),
        ),
        "controls-none",
    )


def _battles(at: Source, judge: str) -> None:
    corrected_for_length = state.read("length") == "1"
    boards = read.battles(at, judge, corrected_for_length)
    if not boards:
        show(
            message(
                "This judge has compared nothing yet",
                "The judge is known, but no pair of answers was judged.",
                ("ragmeter judge run JUDGE --experiment NAME --all-pairs",),
            ),
            "message",
        )
        return
    keys = {f"{board.dataset}~{board.setting}~{board.seed}~{number}": board for number, board in enumerate(boards)}
    left, right = bar("board", [2, 1])
    with left:
        chosen = keys[
            state.select(
                "Benchmark · setting · seed",
                "board",
                list(keys),
                next(iter(keys)),
                resets=("criterion",),
                show=lambda key: f"{keys[key].dataset} · {keys[key].setting} · seed {keys[key].seed}",
            )
        ]
    with right:
        known = battles.criteria(chosen)
        criterion = state.select("Criterion", "criterion", known, known[0]) if known else None
    if criterion is None:
        show(message("Nothing can be judged here", "The questions of this benchmark lack the fields that the judge needs."), "none")
        return
    with together("battles"):
        _placed(chosen, [board for board in boards if board is not chosen], criterion)
        show(el("h2", f"Who beats whom, by {criterion}", cls="section"), "matrix-title")
        show(battles.rates(chosen, criterion), "matrix")
        show(battles.basis_note(chosen, criterion), "basis")
        show(el("p", f"{chosen.questions:,} questions. {battles.MATRIX_NOTE}", cls="note"), "matrix-note")
    _strengths(chosen, criterion)


def _placed(chosen: BattleBoard, others: Sequence[BattleBoard], criterion: str) -> None:
    """Draw the controls of the displayed board, and below them those of the judge's other boards."""
    show(el("h2", f"{_CONTROLS[:-1]}, by {criterion}?", cls="section"), "controls-title")
    here = battles.controls(chosen, criterion)
    there = battles.controls_on_other_boards([(f"{_on(board)} · seed {board.seed}", board) for board in others], criterion)
    if here is None and there is None:
        _no_controls()
        return
    show(el("p", _on(chosen) + ("" if here is not None else ": no control was judged"), cls="note"), "on-here")
    if here is not None:
        show(here, "controls-here")
    if there is not None:
        show(there, "controls-other-boards")
    show(el("p", battles.CONTROLS_NOTE, cls="note"), "controls-note")


def _strengths(board: BattleBoard, criterion: str) -> None:
    rows = board.strengths.get(criterion)
    show(el("h2", "Strengths (Bradley–Terry)", cls="section"), "strengths-title")
    if rows is None:
        show(el("p", "Strengths add to win rates only with three or more methods; fewer were compared here.", cls="note"), "strengths-none")
        return
    state.switch("Adjusted for length", "length", help="Strengths adjusted for the length of answers")
    draw(battles.strength_chart(rows), "strength-chart", "ragmeter-strengths")
    show(battles.strengths(rows, board.controls), "strengths")
    show(el("p", battles.STRENGTHS_NOTE, cls="note"), "strengths-note")


if __name__ == "__main__":
    # Streamlit runs this file; what it holds is imported once.
    from leaderboard.pages import judge as page

    page.render()
