"""The question page: find a question, and see what every run made of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import streamlit as st
from numpy.typing import NDArray

from leaderboard import read, state
from leaderboard.drawing import permalink, show, tell
from leaderboard.elements.formats import MAIN, board_key
from leaderboard.elements.nodes import aside, el
from leaderboard.elements.passage import key
from leaderboard.read import Source, store_of
from leaderboard.views import question
from leaderboard.widgets import Chosen, as_page, bar, choose, several
from results.boards.names import run_labels
from results.judging import judgments
from results.store import records
from results.store.answer_queries import QuestionRow
from results.store.queries import RunRow

# Methods that can be chosen.
MOST = 6
# Questions listed at a time.
PAGE = 50
# Methods whose score is shown next to a question in the list; the question's table has all.
MOST_SQUARES = 24
# Runs whose evidence is open at first.
_OPENED = 2
ANY = "any"
# Fewest and most words of a question of each length.
LENGTHS = {"short": (0, 10), "medium": (11, 20), "long": (21, 10**9)}
LENGTH_NAMES = {ANY: "any length", "short": "up to 10 words", "medium": "11 to 20 words", "long": "over 20 words"}


@as_page("questions", "Questions")
def render(at: Source) -> None:
    """Draw the page `question`: one question with the runs' answers and evidence."""
    chosen = choose(at)
    if chosen is None:
        return
    rows = read.questions(chosen.at, chosen.runs[0].dataset_fingerprint)
    runs = _runs(chosen)
    result, metric = _filter(chosen, rows, runs)
    if not result:
        tell("No question matches", "Shorten the search, or turn off a filter.")
        state.settle("question", "")
        return
    matching = [rows[number].question for number in result]
    query = state.read("question", matching[0])
    position = matching.index(query) if query in matching else 0
    if query != matching[position]:
        state.miss("question", query, matching[position])
    state.settle("question", matching[position])
    # On a phone the second column, with the main content, comes first.
    with st.container(key="split-questions"):
        left, right = st.columns([1, 2.6], gap="medium")
    with left:
        _list(chosen, rows, result, position, metric, runs)
    with right:
        _detail(chosen, rows[result[position]], runs, metric)
        permalink()


def _runs(chosen: Chosen) -> list[RunRow]:
    """Draw the choice of methods; the default is all of the board."""
    able = {run.run: run for run in chosen.runs}
    label, within = run_labels(chosen.runs).__getitem__, bar("runs", 1)[0]
    names = several("Methods", "runs", list(able), (), least=0, most=MOST, show=label, within=within)
    return [able[name] for name in names] or chosen.runs


def _filter(chosen: Chosen, rows: Sequence[QuestionRow], runs: Sequence[RunRow]) -> tuple[list[int], str]:
    """Draw the filters; return the positions of matching questions, and the chosen metric."""
    first, second = bar("filter", 3), bar("kinds", 4)
    words = state.search("Search", "search", placeholder="words of the question or its answer", within=first[0])
    metric = state.select("Metric", "metric", chosen.metrics, chosen.families[MAIN][0], show=chosen.label, within=first[1])
    _style(chosen, first[2])
    kind = _one_of("Type", "type", sorted({row.type for row in rows if row.type}), second[0])
    hops = _one_of("Gold passages", "hops", hops_of(rows), second[1])
    length = state.select("Length", "length", LENGTH_NAMES, within=second[2])
    worst = worst_of(chosen.definitions.get(metric, {}))
    text = "At least one method has the worst score, for example after a failed answer"
    failures = state.switch("Failures only", "failures", help=text, within=second[3])
    tip = "Methods differ in their score (controls not counted)"
    differ = state.switch("Only where they differ", "differ", help=tip, within=second[3])
    columns = _scores(chosen, metric)
    judged = [run for run in runs if run.run in columns and (run.kind != "control" or not differ)]
    scores = np.stack([columns[run.run] for run in judged]) if judged else np.empty((0, len(rows)))
    return passing(rows, scores, worst, words=words, kind=kind, hops=hops, length=length, failures=failures, differ=differ), metric


def _one_of(label: str, name: str, options: Sequence[str], within: Any) -> str:
    return state.select(label, name, {ANY: "any"} | {value: value for value in options}, within=within)


def _style(chosen: Chosen, within: Any) -> None:
    """Offer the same questions with evidence in another style, if the experiment has them."""
    first = chosen.runs[0]
    boards = [runs[0] for runs in read.run_groups(chosen.at, chosen.experiment)]
    same_data = [run for run in boards if (run.styled.base, run.setting, run.seed) == (first.styled.base, first.setting, first.seed)]
    if len(same_data) < 2:
        return
    labels = {board_key(run): run.dataset for run in same_data}
    st.session_state["choose-style"] = board_key(first)
    within.selectbox(
        "Style",
        list(labels),
        format_func=labels.__getitem__,
        key="choose-style",
        on_change=lambda: state.write(board=st.session_state["choose-style"], runs=None),
    )


def _scores(chosen: Chosen, metric: str) -> dict[str, NDArray[np.float64]]:
    return read.scores(chosen.at, chosen.runs[0].dataset_fingerprint, tuple(run.run for run in chosen.runs), metric)


def _list(chosen: Chosen, rows: Sequence[QuestionRow], results: Sequence[int], position: int, metric: str, runs: Sequence[RunRow]) -> None:
    def go(to: int) -> None:
        state.write(question=rows[results[to]].question)

    last = len(results) - 1
    with st.container(horizontal=True, vertical_alignment="center"):
        st.button("Previous", on_click=go, args=(max(0, position - 1),), disabled=position == 0, shortcut="k", key="previous")
        st.button("Next", on_click=go, args=(min(last, position + 1),), disabled=position == last, shortcut="j", key="next")
    start = position // PAGE * PAGE
    page = results[start : start + PAGE]
    columns = _scores(chosen, metric)
    scored = {run.run: run.method for run in runs if (run.kind != "control" or runs is not chosen.runs) and run.run in columns}
    names = dict(islice(scored.items(), MOST_SQUARES))
    scores = {run: [None if np.isnan(value) else float(value) for value in columns[run][page]] for run in names}
    of_all = f" of {len(rows):,}" if len(results) < len(rows) else ""
    index = f"{position + 1:,} of {len(results):,} questions{of_all and f' (filtered{of_all})'}"
    whose = f"the first {len(names)} of {len(scored):,} methods, " if len(names) < len(scored) else ""
    listed = f"{start + 1:,}–{start + len(page):,} listed; squares: {chosen.label(metric)} of {whose}"
    show(el("p", el("strong", index), aside(listed + ", ".join(names.values())), cls="place"), "place")
    listing = question.question_list(
        [rows[number] for number in page],
        rows[results[position]].question,
        scores,
        names,
        metric,
        chosen.definitions,
        earlier=rows[results[start - PAGE]].question if start else None,
        later=rows[results[start + PAGE]].question if start + PAGE < len(results) else None,
    )
    show(listing, "list", state.act(("question",)))


def _detail(chosen: Chosen, row: QuestionRow, shown_runs: Sequence[RunRow], metric: str) -> None:
    runs = tuple(run.run for run in shown_runs)
    answers = read.answers(chosen.at, row, runs, depth=question.DEPTH)
    passages = read.passages(chosen.at, row.evidence)
    metrics = list(dict.fromkeys([metric, *chosen.families[MAIN]]))
    cutoffs = {run.run: question.cutoffs(run, metric) for run in shown_runs}
    verdicts = read.verdicts(chosen.at, row.question, chosen.runs[0].dataset_fingerprint, chosen.runs[0].setting, runs)
    here = question.answered_here(answers, chosen.runs)
    whose = question.conversations(answers, here, verdicts)
    call = state.pick(question.CALL, ["", *whose], "")
    judged = question.verdicts(verdicts, {run.run: run.method for run in chosen.runs}, call, row.question)
    opened = state.pick("calls", ["", *(answer.run for answer in answers if answer.calls_kept)], "")
    shown = [
        question.question(row),
        question.answer_table(row, passages, answers, shown_runs, metrics, chosen.definitions),
        question.gold_passages(row, passages),
        el("h3", "Ranked evidence", cls="section"),
        key(sentences=bool(row.supporting_facts), answers=bool(records.informative_golds(row.golds))),
        *(
            question.evidence(row, answer, passages, cutoffs[answer.run], opened=number < _OPENED)
            for number, answer in enumerate(a for a in answers if a.evidence)
        ),
        *([el("h3", "Contexts, statements and searches", cls="section")] if any(answer.record for answer in answers) else []),
        *(question.returned(answer, row.question) for answer in answers if answer.record),
        *([el("h3", "Verdicts of judges", cls="section"), *judged] if judged else []),
        question.prompts(answers, here, {"calls": opened, question.CALL: call}, row.question),
        *(question.calls(answer, read.calls(chosen.at, opened, row.question), row.question) for answer in answers if answer.run == opened),
        question.conversation(judgments.conversations(store_of(chosen.at), [call]).get(call), whose[call]) if call else None,
    ]
    show(el("div", *shown, cls="stack"), "detail", state.act((question.CALL, "calls")))


def hops_of(rows: Sequence[QuestionRow]) -> list[str]:
    """List the numbers of gold passages that occur, in ascending order."""
    return [str(count) for count in sorted({len(row.evidence) for row in rows})]


def passing(
    rows: Sequence[QuestionRow],
    scores: NDArray[np.float64],
    worst: float | None,
    *,
    words: str = "",
    kind: str = ANY,
    hops: str = ANY,
    length: str = ANY,
    failures: bool = False,
    differ: bool = False,
) -> list[int]:
    """Return the positions of the questions that pass all filters; the default values do not filter.

    Args:
        scores: Shape (methods, questions), NaN without a score.
        worst: Worst value of the metric; None if it is unbounded, so that no score is a failure.
        hops: Number of gold passages, as text.
        length: One of `LENGTHS`.
        failures: Only questions on which a method has the worst score.
        differ: Only questions on which the methods' scores differ.
    """
    able = np.ones(len(rows), dtype=bool)
    if failures:
        able &= (scores == worst).any(axis=0) if worst is not None and len(scores) else False
    if differ:
        scored = ~np.isnan(scores)
        highest = np.where(scored, scores, -np.inf).max(axis=0, initial=-np.inf)
        able &= highest > np.where(scored, scores, np.inf).min(axis=0, initial=np.inf)
    low, high = LENGTHS.get(length, (0, 10**9))
    searched = words.casefold().split()

    def meets(row: QuestionRow) -> bool:
        if kind not in (ANY, row.type) or hops not in (ANY, str(len(row.evidence))) or not low <= len(row.text.split()) <= high:
            return False
        text = f"{row.text}\n{' '.join(row.golds)}".casefold()
        return all(word in text for word in searched)

    return [number for number, row in enumerate(rows) if able[number] and meets(row)]


def worst_of(definition: Mapping[str, Any]) -> float | None:
    """Return the metric's worst value; None if it is unbounded on that side."""
    value = definition.get("low" if definition.get("higher_is_better", True) else "high")
    return None if value is None else float(value)
