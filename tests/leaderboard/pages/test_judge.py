"""The judges page: win rates, strengths, biases and agreement equal the results, and names stay text."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from judges.judge import AS_GIVEN, FIRST, NONE, SECOND, SWAPPED, TIE, Judge, JudgeCall, Parsed, Score
from leaderboard.elements.nodes import TAGS, Node
from leaderboard.pages import judge as judge_view
from leaderboard.report import win_rates
from leaderboard.views import battles as battle_view
from results.boards.board import board, groups
from results.boards.markup import to_csv
from results.judging import judgments, labels
from results.judging.battles import BattleBoard, battle_boards
from results.judging.judge_card import JudgeCard, judge_card
from results.judging.judgments import Match
from results.statistics.bradley_terry import bradley_terry
from results.store import answer_queries, queries, score_queries
from results.store.queries import RunRow
from results.store.store import Store

Start = Callable[[Path], Any]
PAIRWISE = Judge.of("pairwise", {"llm": {"model": "m"}, "repetitions": 1})
MATCH = Judge.of("match", {"llm": {"model": "m"}, "repetitions": 2})
OTHER = Judge.of("match", {"llm": {"model": "other"}})
N = 12
FIGHTERS = ("bm25", "hybrid", "dense")


def words(node: Any) -> str:
    return " ".join(node.texts())


def cells(table: Node, name: str) -> list[list[str]]:
    """Return the texts of each cell in the row of a name."""
    body = next(table.find(tag="tbody"))
    row = next(row for row in body.find(tag="tr") if words(next(row.find(tag="th"))).strip().startswith(name))
    return [list(cell.texts()) for cell in row.find(tag="td")]


def store_battle(store: Store, mine: RunRow, theirs: RunRow, winners: Sequence[str | None]) -> None:
    """Store one verdict per question and order: `mine`, `theirs`, a tie, none or a failure."""
    item, other = sorted((mine, theirs), key=lambda run: run.run)
    owner = {"mine": mine.run, "theirs": theirs.run}
    judgments.put_judge(store, PAIRWISE)
    query = [row.question for row in answer_queries.questions(store, mine.dataset_fingerprint)][: len(winners)]
    calls, verdicts = [], []
    for winner in winners:
        reported, made = [], []
        for part in (AS_GIVEN, SWAPPED):
            first = item.run if part == AS_GIVEN else other.run
            response = winner if winner in (TIE, NONE, None) else FIRST if owner[str(winner)] == first else SECOND
            reported.append(dict.fromkeys(PAIRWISE.entry.criteria, response))
            made.append(JudgeCall(part, 0, "k", Parsed(None, "no JSON") if winner is None else Parsed({"by": "hand"})))
        verdicts.append(reported)
        calls.append(made)
    match = Match(item.dataset_fingerprint, item.setting, item.run, other.run)
    judgments.put_battles(store, match, PAIRWISE, query, calls, verdicts)


def judge_all(store: Store, run: RunRow, judge: Judge, values: Sequence[float | None], repetitions: int = 1) -> None:
    calls = [
        [
            JudgeCall(
                "match",
                again,
                "k",
                Parsed({"verdict": "Match" if value else "Mismatch"}) if value is not None else Parsed(None, "no verdict"),
                "m-1",
                100,
                10,
                0.5,
                0.001,
            )
            for again in range(repetitions)
        ]
        for value in values
    ]
    scores = [
        dict.fromkeys(("accuracy", "partial", "mismatch"), Score(value, None if value is not None else "no verdict")) for value in values
    ]
    query = [row.question for row in answer_queries.questions(store, run.dataset_fingerprint)][: len(values)]
    judgments.put_judge(store, judge)
    judgments.put_judgments(store, run.run, judge, query, calls, scores)


@pytest.fixture(scope="module")
def judged(copied: Callable[[], Path], synthetic: ModuleType) -> Path:
    folder = copied()
    store = Store(folder)
    runs = {run.method: run for run in queries.runs(store, synthetic.EXPERIMENT)}
    store_battle(store, runs["bm25"], runs["hybrid"], ["theirs"] * 6 + ["mine"] * 3 + [TIE] * 3)
    store_battle(store, runs["bm25"], runs["dense"], ["mine"] * 4 + [NONE] * 4 + [None] * 2)
    store_battle(store, runs["hybrid"], runs["dense"], ["mine"] * 8 + ["theirs"] * 4)
    store_battle(store, runs[synthetic.HOSTILE_NAME], runs["hybrid"], ["theirs"] * 12)
    judge_all(store, runs["bm25"], MATCH, [1.0, 0.0] * 5 + [None, None], 2)
    judge_all(store, runs["bm25"], OTHER, [1.0] * 8 + [0.0] * 4)
    judge_all(store, runs["gold answer"], MATCH, [0.0] * N, 2)
    path = folder.parent / "labels.csv"
    query = answer_queries.questions(store, runs["bm25"].dataset_fingerprint)
    path.write_text(to_csv(("item", "criterion", "label"), [(f"{runs['bm25'].run}/{row.question}", "accuracy", "1") for row in query[:6]]))
    labels.import_labels(store, path, "Ann <b>")
    return folder


@pytest.fixture(scope="module")
def battles(judged: Path) -> BattleBoard:
    store = Store(judged)
    (board,) = battle_boards(store, queries.runs(store))
    return board


@pytest.mark.slow
def test_battle_matrix_row_and_column_shares_sum_to_100(battles: BattleBoard) -> None:
    table = battle_view.win_rates(battles, "overall")[0]
    order = battle_view.names(battles, "overall")
    mine, theirs = cells(table, "bm25")[order.index("hybrid")], cells(table, "hybrid")[order.index("bm25")]
    # 3 wins and 3 ties of 12: 4.5 of 12; the other way round 7.5 of 12.
    assert mine[0].strip("▲▼") == "37.5"
    assert theirs[0].strip("▲▼") == "62.5"
    low, high = (float(bound) for bound in mine[1].strip("[]").split(","))
    again = [float(bound) for bound in theirs[1].strip("[]").split(",")]
    assert again == pytest.approx([100 - high, 100 - low])


def test_pair_with_both_answers_disqualified_has_no_winner(battles: BattleBoard) -> None:
    table = battle_view.win_rates(battles, "overall")[0]
    order = battle_view.names(battles, "overall")
    # bm25 wins 4 of the 8 with a verdict, dense none of them; two more the judge failed on.
    assert cells(table, "bm25")[order.index("dense")][0].strip("▲▼") == "50.0"
    assert cells(table, "dense")[order.index("bm25")][0].strip("▲▼") == "0.0"
    assert all(cells(table, item)[order.index(other)][1].startswith("[") for item, other in (("bm25", "dense"), ("dense", "bm25")))
    (tip,) = [cell.tip for cell in table.find(tag="td") if "2 the judge failed on" in cell.tip and cell.tip.startswith("4 won")]
    assert "4 with both disqualified" in tip


def test_significant_win_is_marked_with_a_symbol_and_color(battles: BattleBoard, synthetic: ModuleType) -> None:
    table = battle_view.win_rates(battles, "overall")[0]
    order = battle_view.names(battles, "overall")
    assert cells(table, "hybrid")[order.index(synthetic.HOSTILE_NAME)][:2] == ["▲", "100.0"]
    assert cells(table, "<script>")[order.index("hybrid")][:2] == ["▼", "0.0"]


def test_marks_follow_the_corrected_tests_and_not_the_interval(battles: BattleBoard, synthetic: ModuleType) -> None:
    order = battle_view.names(battles, "overall")
    chosen = {(pairing.method, pairing.opponent): pairing for pairing in battles.pairings if pairing.criterion == "overall"}
    assert len(chosen) == 4
    # bm25 wins four questions and loses none: four equal coin flips have a probability of one in eight.
    table = battle_view.win_rates(battles, "overall")[0]
    assert cells(table, "dense")[order.index("bm25")][:2] == ["0.0", "[0.0, 36.9]"]
    for p, mark in ((0.051, []), (0.05, ["▲"])):
        marked = replace(
            battles,
            pairings=tuple(
                replace(pairing, corrected=p) if {pairing.method, pairing.opponent} == {"hybrid", "bm25"} else pairing
                for pairing in battles.pairings
            ),
        )
        table = battle_view.win_rates(marked, "overall")[0]
        assert cells(table, "hybrid")[order.index("bm25")][: len(mark) + 1] == [*mark, "62.5"]
        assert cells(table, "bm25")[order.index("hybrid")][: len(mark) + 1] == [*(["▼"] if mark else []), "37.5"]
        (tip,) = [cell.tip for cell in table.find(tag="td") if cell.tip.startswith("6 won, 3 tied, 3 lost")]
        assert f"p = .{p:.3f} after correction".replace(".0.", ".") in tip
    sure = (
        chosen[synthetic.HOSTILE_NAME, "hybrid"]
        if (synthetic.HOSTILE_NAME, "hybrid") in chosen
        else chosen["hybrid", synthetic.HOSTILE_NAME]
    )
    assert sure.corrected == pytest.approx(4 * 2 / 2**12)


def test_methods_compared_with_only_one_opponent_are_listed_against_it(battles: BattleBoard) -> None:
    star = replace(battles, pairings=tuple(pairing for pairing in battles.pairings if "hybrid" in (pairing.method, pairing.opponent)))
    assert len([pairing for pairing in star.pairings if pairing.criterion == "overall"]) == 3
    table = battle_view.win_rates(star, "overall")[0]
    assert [words(head).split()[0] for head in next(table.find(tag="thead")).find(tag="th")][1:] == ["hybrid"]
    # bm25 wins 3 and ties 3 of 12 with hybrid, as in the whole matrix.
    (share,) = cells(table, "bm25")
    assert share[0].strip("▲▼") == "37.5"
    assert any(cell.tip.startswith("3 won, 3 tied, 6 lost of 12 questions") for cell in table.find(tag="td"))
    rows = list(next(table.find(tag="tbody")).find(tag="tr"))
    assert len(rows) == 3
    assert not any(words(next(row.find(tag="th"))).strip() == "hybrid" for row in rows)
    # Methods that met each other, and a single pair, are rows and columns.
    for whole in (battles, replace(battles, pairings=star.pairings[:1])):
        table = battle_view.win_rates(whole, "overall")[0]
        assert len(next(table.find(tag="thead")).children[0].children) == 1 + len(battle_view.names(whole, "overall"))
        assert len(list(next(table.find(tag="tbody")).find(tag="tr"))) == len(battle_view.names(whole, "overall"))


def test_methods_never_compared_have_no_win_rate(battles: BattleBoard, synthetic: ModuleType) -> None:
    table = battle_view.win_rates(battles, "overall")[0]
    order = battle_view.names(battles, "overall")
    assert cells(table, "dense")[order.index(synthetic.HOSTILE_NAME)] == ["–"]


EMPTY = BattleBoard("judge", False, "data", "distractor", 0, 60, (), {})
"""A board without battles."""


def test_strengths_are_sorted_and_rank_ranges_contain_their_position(battles: BattleBoard) -> None:
    rows = battles.strengths["overall"]
    table = battle_view.strengths(battles, rows)[1]
    listed = [words(node) for node in next(table.find(tag="tbody")).find(cls="method")]
    assert listed == [name for name, _ in rows]
    values = [item.logit.value for _, item in rows]
    assert values == sorted(values, reverse=True)
    for position, (name, item) in enumerate(rows, 1):
        elo, logit, band, *_ = cells(table, name)
        assert elo[0].strip("*") == f"{1500 + 400 / math.log(10) * item.logit.value:,.0f}"
        assert logit[0].replace("−", "-") == f"{item.logit.value:.2f}"
        assert band == [item.positions]
        first, _, last = band[0].partition("–")
        assert int(first) <= position <= int(last or first)


def test_significantly_different_methods_have_single_ranks() -> None:
    outcome = bradley_terry([0] * 60, [1] * 60, list(range(60)), [1.0, 1.0, 1.0, 1.0, 1.0, 0.0] * 10, methods=2)
    table = battle_view.strengths(EMPTY, [("a", outcome.strengths[0]), ("b", outcome.strengths[1])])[1]
    assert cells(table, "a")[2] == ["1"]
    assert cells(table, "b")[2] == ["2"]


def test_few_questions_give_full_rank_ranges() -> None:
    # Four equal coin flips: too few for an interval, and nothing is significant.
    outcome = bradley_terry([0] * 4, [1] * 4, list(range(4)), [1.0] * 4, methods=2)
    assert math.isnan(outcome.strengths[0].logit.low)
    table = battle_view.strengths(EMPTY, [("a", outcome.strengths[0]), ("b", outcome.strengths[1])])[1]
    assert cells(table, "a")[2] == cells(table, "b")[2] == ["1–2"]
    assert {cell.tip for cell in list(table.find(tag="td"))[:2]} == {outcome.strengths[0].logit.insufficient_data}


def test_chart_has_one_dot_per_method(battles: BattleBoard) -> None:
    drawing = battle_view.strengths(battles, battles.strengths["overall"])[0]
    titles = [part[2][0][2][0] for part in drawing[2] if part[2] and part[2][0][0] == "title"]
    assert [title.rpartition(": ")[0] for title in titles] == [name for name, _ in battles.strengths["overall"]]


@pytest.fixture(scope="module")
def judged_card(judged: Path) -> JudgeCard:
    return judge_card(Store(judged), str(MATCH))


def test_failures_and_agreement_equal_the_judge_card(judged_card: JudgeCard) -> None:
    shown = words(judge_view.card(judged_card))
    failed = sum(judged_card.work.unscored.values())
    assert failed > 0
    assert f"{failed:,} ({100 * failed / judged_card.work.calls:.1f} %)" in shown
    table = judge_view.agreement(judged_card)
    item = judged_card.with_judges["accuracy"][str(OTHER)]
    row = next(row for row in table.find(tag="tr") if str(OTHER) in words(row) and "accuracy" in words(row))
    assert f"{100 * item.raw.value:.1f}" in words(row)
    assert f"{item.corrected.value:.2f}".replace("-", "−") in words(row)
    assert "Ann <b>" in words(table)
    corrected = judge_view.corrected(judged_card.corrected, {})
    assert corrected is not None
    assert f"{100 * judged_card.corrected[0].mean.corrected.value:.1f}" in words(corrected)


def test_page_without_labels_explains_how_to_create_them(judged_card: JudgeCard) -> None:
    card = replace(judged_card, with_judges={}, with_people={}, between_people={})
    assert "ragmeter judge labels export" in words(judge_view.agreement(card))


def test_misplaced_control_is_flagged(judged: Path) -> None:
    store = Store(judged)
    measures = {judge["metric"]: judge["name"] for judge in judgments.judges(store)[str(MATCH)]["measures"]}
    group = next(runs for runs in groups(queries.runs(store)) if any(run.method == "gold answer" for run in runs))
    wrong = board(store, group, metrics=list(measures))
    # The synthetic control has another name; flags recognize controls by their ids.
    named = tuple(
        replace(row, run=replace(row.run, method_id="gold_answer")) if row.run.method == "gold answer" else row for row in wrong.rows
    )
    flagged = replace(wrong, rows=named, flags={next(iter(measures)): ["ranks bm25 above the gold answer"]})
    shown = judge_view.controls(flagged, score_queries.definitions(store), measures)
    assert shown is not None
    assert "⚑ accuracy ranks bm25 above the gold answer" in words(shown)
    assert "best method" in words(shown)
    assert "Not flagged" not in words(shown)
    unflagged = judge_view.controls(replace(flagged, flags={}), score_queries.definitions(store), measures)
    assert unflagged is not None
    assert "Not flagged: nothing is above the gold answer." in words(unflagged)
    others = tuple(replace(row, run=replace(row.run, method_id="another")) for row in wrong.rows)
    unknown = judge_view.controls(replace(wrong, rows=others, flags={}), score_queries.definitions(store), measures)
    assert unknown is not None
    assert "Not checked" in words(unknown)
    methods_only = replace(wrong, rows=tuple(row for row in wrong.rows if not row.control))
    assert judge_view.controls(methods_only, {}, measures) is None


@pytest.fixture(scope="module")
def controlled(copied: Callable[[], Path], synthetic: ModuleType) -> Path:
    """Return a store in which a control loses to one method, ties with another, and has one opponent on another board."""
    folder = copied()
    store = Store(folder)
    runs = {run.method: run for run in queries.runs(store, synthetic.EXPERIMENT)}
    store_battle(store, runs["gold answer"], runs["bm25"], ["theirs"] * 12)
    store_battle(store, runs["gold answer"], runs["hybrid"], ["mine", "theirs"] * 6)
    store_battle(store, runs["gold answer"], runs["dense"], ["mine"] * 12)
    store_battle(store, runs["oracle evidence"], runs["dense"], ["mine"] * 12)
    return folder


@pytest.fixture(scope="module")
def with_controls(controlled: Path) -> BattleBoard:
    (board,) = battle_boards(Store(controlled), queries.runs(Store(controlled)))
    return board


@pytest.mark.slow
def test_controls_are_marked_in_every_table_of_battles(with_controls: BattleBoard) -> None:
    rows = with_controls.strengths["overall"]
    star = replace(
        with_controls, pairings=tuple(pairing for pairing in with_controls.pairings if "dense" in (pairing.method, pairing.opponent))
    )
    tables = [
        battle_view.win_rates(with_controls, "overall")[0],
        battle_view.strengths(with_controls, rows)[1],
        battle_view.win_rates(star, "overall")[0],
    ]
    marked = []
    for table in tables:
        body = list(next(table.find(tag="tbody")).find(tag="tr"))
        marked.append({words(next(row.find(cls="method"))) for row in body if list(row.find(cls="badge"))})
        assert {words(badge) for row in body for badge in row.find(cls="badge")} == {"control"}
    assert marked == [{"gold answer", "oracle evidence"}] * 3
    assert not list(battle_view.strengths(EMPTY, rows)[1].find(cls="badge"))


def test_every_control_is_reported_as_correctly_or_wrongly_placed(with_controls: BattleBoard) -> None:
    tree = battle_view.controls(with_controls, "overall")
    assert tree is not None
    belongs, verdict, response = cells(tree, "gold answer")
    assert (belongs, verdict) == (["above"], ["wrongly"])
    assert response == ["significantly below bm25; not distinguishable from hybrid; significantly above dense"]
    assert "overall ranks bm25 significantly above gold answer (the gold answer) evidence against the judge" in words(tree)
    assert "Not checked, because their expected place here is unknown: oracle evidence." in words(tree)
    assert battle_view.controls(with_controls, "no criterion") is None
    assert battle_view.controls(replace(with_controls, controls={}), "overall") is None


@pytest.mark.parametrize(
    ("opponent", "verdict", "reason"),
    [
        ("bm25", "wrongly", "significantly below bm25"),
        ("hybrid", "not distinguishable", "not distinguishable from hybrid"),
        ("dense", "where it belongs", "significantly above dense"),
    ],
)
def test_control_with_one_opponent_is_assessed_against_it(with_controls: BattleBoard, opponent: str, verdict: str, reason: str) -> None:
    alone = replace(
        with_controls,
        pairings=tuple(pairing for pairing in with_controls.pairings if {pairing.method, pairing.opponent} == {"gold answer", opponent}),
    )
    tree = battle_view.controls(alone, "overall")
    assert tree is not None
    assert cells(tree, "gold answer")[1:] == [[verdict], [reason, "compared with this rival only"]]
    assert ("evidence against the judge" in words(tree)) == (verdict == "wrongly")


def test_wrong_answer_control_that_beats_a_method_is_reported(with_controls: BattleBoard) -> None:
    wrong = replace(with_controls, controls={"gold answer": "shuffled_answer"})
    tree = battle_view.controls(wrong, "overall")
    assert tree is not None
    assert cells(tree, "gold answer")[:2] == [["below"], ["wrongly"]]
    assert "overall ranks gold answer (says nothing or the wrong thing) significantly above dense" in words(tree)


def test_misplaced_controls_on_other_boards_are_not_folded(with_controls: BattleBoard) -> None:
    right = replace(
        with_controls,
        pairings=tuple(pairing for pairing in with_controls.pairings if {pairing.method, pairing.opponent} == {"gold answer", "dense"}),
    )
    tree = battle_view.controls_on_other_boards([("there", right)], "overall")
    assert tree is not None
    assert words(next(tree.find(tag="summary"))) == "Controls on 1 other board 0 of 1 placed wrongly"
    assert "evidence against the judge" not in words(tree)
    tree = battle_view.controls_on_other_boards([("there", right), ("yonder", with_controls)], "overall")
    assert tree is not None
    assert words(next(tree.find(tag="summary"))) == "Controls on 2 other boards 1 of 2 placed wrongly"
    (warning,) = tree.find(tag="p")
    assert words(warning).startswith("⚑ overall ranks bm25 significantly above gold answer (the gold answer), on yonder")
    verdict, reason = cells(tree, "there")[2:]
    assert (verdict, reason[0]) == (["where it belongs"], "significantly above dense")
    assert battle_view.controls_on_other_boards([("there", replace(right, controls={}))], "overall") is None


def test_page_of_a_pairwise_judge_checks_the_controls(app: Start, controlled: Path, judged: Path) -> None:
    page = app(controlled).open("judges", judge=str(PAIRWISE))
    assert not page.test.exception
    assert "Does it rank the controls correctly, by overall?" in words(page.part("controls"))
    assert "evidence against the judge" in words(page.part("controls"))
    assert "control" in words(page.part("strengths"))
    none = app(judged).open("judges", judge=str(PAIRWISE))
    assert "No control was judged" in words(none.part("controls"))


def test_page_shows_both_kinds_of_judges(app: Start, judged: Path) -> None:
    page = app(judged).open("judges", judge=str(PAIRWISE))
    assert not page.test.exception
    assert "37.5" in words(page.part("matrix"))
    assert page.has("strengths")
    assert "Holm-corrected" in words(page.part("matrix"))
    assert "Equal ranges do not mean equal methods" in words(page.part("strengths"))
    assert {node.tag for node in page.part("matrix").find()} <= TAGS
    page.choose("Judge", str(MATCH))
    assert not page.test.exception
    assert page.query["judge"] == str(MATCH)
    assert "Ann <b>" in words(page.part("trust"))
    assert [*page.part("controls").find(tag="table")]


def test_page_opens_the_judge_that_compared_answers(app: Start, judged: Path) -> None:
    page = app(judged).open("judges")
    assert not page.test.exception
    assert next(box for box in page.test.selectbox if box.label == "Judge").value == str(PAIRWISE)
    assert page.has("matrix")


def test_store_without_judges_explains_how_to_judge(app: Start, filled: Path) -> None:
    page = app(filled).open("judges", judge="no such judge")
    assert not page.test.exception
    assert "ragmeter judge run" in words(page.part("message"))


@pytest.mark.slow
def test_report_contains_the_battle_matrix(judged: Path, battles: BattleBoard, synthetic: ModuleType) -> None:
    store = Store(judged)
    (node,) = win_rates(store, synthetic.EXPERIMENT)
    assert "Who wins against whom" in words(node)
    assert words(battle_view.win_rates(battles, "overall")[0]) in words(node)
    for part in (*battle_view.win_rates(battles, "overall")[1:], battle_view.strengths(battles, battles.strengths["overall"])[2]):
        assert words(part) in words(node)
