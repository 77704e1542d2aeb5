"""The question page: find a question, and see what every run made of it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import numpy as np
import streamlit as st

from leaderboard import read, state
from leaderboard.elements import formats
from leaderboard.elements.formats import MAIN
from leaderboard.elements.nodes import el
from leaderboard.views import judge, question
from leaderboard.widgets import Chosen, bar, choose, permalink, show, tell
from results.store.queries import QuestionRow

ANY = "any"
# Questions listed at a time.
PAGE = 50
# Methods whose score stands beside a question in the list; more are read in its table.
MOST_SQUARES = 24
# Runs whose evidence is open at first.
_OPENED = 2


def render() -> None:
    """Draw the page."""
    state.begin("questions")
    show(el("h1", "Questions", cls="page"), "title")
    chosen = choose()
    if chosen is None:
        return
    rows = read.questions(chosen.at, chosen.runs[0].dataset_fingerprint)
    result, metric = _filter(chosen, rows)
    if not result:
        tell("No question matches", "Search for less, or turn a filter off.")
        state.settle("question", "")
        return
    position = _position(rows, result)
    left, right = st.columns([1, 2.6], gap="medium")
    with left:
        _list(chosen, rows, result, position, metric)
    with right:
        _detail(chosen, rows[result[position]])
        permalink()


def _filter(chosen: Chosen, rows: Sequence[QuestionRow]) -> tuple[list[int], str]:
    """Draw the filters; positions of the questions that pass, and the metric that they are seen by."""
    types = sorted({row.type for row in rows if row.type})
    text_column, type_column, metric_column = bar("filter", 3)
    with text_column:
        wanted = state.search("Search", "search", placeholder="words of the question or its answer")
    with type_column:
        kind = state.select("Type", "type", [ANY, *types], ANY, show=lambda name: "any type" if name == ANY else name)
    with metric_column:
        metric = state.select("Metric", "metric", chosen.metrics, chosen.families[MAIN][0], show=formats.metric_label)
    differ = state.switch(
        "Only where they differ", "differ", help="Questions on which the methods (controls apart) do not all score the same"
    )
    words = wanted.casefold().split()
    passing = [
        number
        for number, row in enumerate(rows)
        if kind in (ANY, row.type) and all(word in f"{row.text}\n{' '.join(row.golds)}".casefold() for word in words)
    ]
    return (_differing(chosen, metric, passing) if differ else passing), metric


def _differing(chosen: Chosen, metric: str, passing: Sequence[int]) -> list[int]:
    columns = read.scores(chosen.at, chosen.runs[0].dataset_fingerprint, tuple(run.run for run in chosen.runs), metric)
    compared = [columns[run.run] for run in chosen.runs if run.kind != "control" and run.run in columns]
    if len(compared) < 2:
        return []
    table = np.stack(compared)
    scored = ~np.isnan(table)
    highest = np.where(scored, table, -np.inf).max(axis=0)
    lowest = np.where(scored, table, np.inf).min(axis=0)
    return [number for number in passing if highest[number] > lowest[number]]


def _position(rows: Sequence[QuestionRow], results: Sequence[int]) -> int:
    """Return the index of the URL's question among the filtered ones; 0 if it is not among them."""
    names = [rows[number].question for number in results]
    query = state.read("question", names[0])
    position = names.index(query) if query in names else 0
    if query != names[position]:
        state.miss("question", query, names[position])
    state.settle("question", names[position])
    return position


def _list(chosen: Chosen, rows: Sequence[QuestionRow], results: Sequence[int], position: int, metric: str) -> None:
    def go(to: int) -> None:
        state.write(question=rows[results[to]].question)

    last = len(results) - 1
    with st.container(horizontal=True, vertical_alignment="center"):
        st.button("Previous", on_click=go, args=(max(0, position - 1),), disabled=position == 0, shortcut="k", key="previous")
        st.button("Next", on_click=go, args=(min(last, position + 1),), disabled=position == last, shortcut="j", key="next")
    start = position // PAGE * PAGE
    page = results[start : start + PAGE]
    columns = read.scores(chosen.at, chosen.runs[0].dataset_fingerprint, tuple(run.run for run in chosen.runs), metric)
    scored = {run.run: run.method for run in chosen.runs if run.kind != "control" and run.run in columns}
    names = dict(islice(scored.items(), MOST_SQUARES))
    scores = {run: [_or_none(columns[run][number]) for number in page] for run in names}
    of_all = f" of {len(rows):,}" if len(results) < len(rows) else ""
    index = f"{position + 1:,} of {len(results):,} questions{of_all and f' (filtered{of_all})'}"
    whose = f"the first {len(names)} of {len(scored):,} methods, " if len(names) < len(scored) else ""
    listed = f"{start + 1:,}–{start + len(page):,} listed; squares: {formats.metric_label(metric)} of {whose}"
    show(el("p", el("strong", index), el("span", listed + ", ".join(names.values()), cls="aside"), cls="place"), "place")
    show(
        question.question_list(
            [rows[number] for number in page],
            rows[results[position]].question,
            scores,
            names,
            metric,
            chosen.definitions,
            earlier=rows[results[start - PAGE]].question if start else None,
            later=rows[results[start + PAGE]].question if start + PAGE < len(results) else None,
        ),
        "list",
        state.act(("question",)),
    )


def _detail(chosen: Chosen, row: QuestionRow) -> None:
    runs = tuple(run.run for run in chosen.runs)
    answers = read.answers(chosen.at, row, runs)
    passages = read.passages(chosen.at, row.evidence)
    metrics = list(dict.fromkeys([state.view()["metric"], *chosen.families[MAIN]]))
    verdicts = read.verdicts(chosen.at, row.question, chosen.runs[0], runs)
    here = judge.answered_here(answers, chosen.runs)
    whose = judge.calls(answers, here, verdicts)
    call = state.pick(judge.CALL, ["", *whose], "")
    judged = judge.verdicts(verdicts, {run.run: run.method for run in chosen.runs}, call, row.question)
    opened = state.pick("calls", ["", *(answer.run for answer in answers if answer.calls_kept)], "")
    shown = [
        question.question(row),
        question.answer_table(row, passages, answers, chosen.runs, metrics, chosen.definitions, read.DEPTH),
        question.gold_passages(row, passages),
        el("h3", "Ranked evidence", cls="section"),
        question.marks(row),
        *(question.evidence(row, answer, opened=number < _OPENED) for number, answer in enumerate(a for a in answers if a.evidence)),
        *([el("h3", "Contexts, statements and searches", cls="section")] if any(answer.record for answer in answers) else []),
        *(question.returned(answer, row.question) for answer in answers if answer.record),
        *([el("h3", "Verdicts of judges", cls="section"), *judged] if judged else []),
        question.callers(answers, opened),
        *(question.calls(answer, read.calls(chosen.at, opened, row.question), row.question) for answer in answers if answer.run == opened),
        judge.readers([answer for answer in answers if not answer.calls_kept], here, call, row.question),
        judge.conversation(read.conversation(chosen.at, call), whose[call]) if call else None,
    ]
    show(el("div", *shown, cls="stack"), "detail", state.act((judge.CALL, "calls")))


def _or_none(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


if __name__ == "__main__":
    # Streamlit runs this file; what it holds is imported once.
    from leaderboard.pages import question as page

    page.render()
