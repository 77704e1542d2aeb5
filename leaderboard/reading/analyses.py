"""What the pages about datasets, judges, styles and budgets read, remembered as in `source.py`."""

from __future__ import annotations

from typing import Any

import streamlit as st

from leaderboard.reading import source
from leaderboard.reading.source import Source, store_of
from results import battle_board, board, dataset_facts, judge_cards, judgements, queries, told
from results import style_curves as curves_of
from results import style_drops as drops_of
from results.battle_board import BattleBoard
from results.board import Board
from results.dataset_facts import DatasetFacts, Sample
from results.judge_cards import JudgeCard
from results.queries import UserError
from results.style_curves import CurveTable, Over
from results.style_drops import DropTable


@st.cache_data(show_spinner=False, max_entries=8)
def datasets(at: Source) -> list[DatasetFacts]:
    """Stored datasets with what is known of them."""
    return dataset_facts.dataset_facts(store_of(at))


@st.cache_data(show_spinner=False, max_entries=64)
def samples(at: Source, fingerprint: str, number: int, start: int) -> list[Sample]:
    """Some of a dataset's questions."""
    return dataset_facts.samples(store_of(at), fingerprint, number, start)


@st.cache_data(show_spinner=False, max_entries=8)
def judges(at: Source) -> dict[str, dict[str, Any]]:
    """Cards of judges by id."""
    return judgements.judges(store_of(at))


@st.cache_data(show_spinner="Reading what the judge said …", max_entries=16)
def judge_card(at: Source, judge: str) -> JudgeCard:
    """What is known of a judge that the store knows."""
    return judge_cards.judge_card(store_of(at), judge)


@st.cache_data(show_spinner="Reading what the judge said …", max_entries=16)
def battles(at: Source, judge: str, length: bool) -> list[BattleBoard]:
    """A pair judge's boards; `length`: strengths with what a longer answer gains taken off."""
    store = store_of(at)
    return battle_board.battle_boards(store, queries.runs(store), length=length, judge=judge)


@st.cache_data(show_spinner="Reading what the judge said …", max_entries=16)
def judged_boards(at: Source, judge: str) -> list[Board]:
    """Boards of the runs that a point judge has judged, with its measures as columns."""
    store = store_of(at)
    metrics = [measure["metric"] for measure in judges(at)[judge]["measures"]]
    runs = set(judgements.judged_runs(store, judge))
    groups = [[run for run in group if run.run in runs] for group in board.groups(queries.runs(store))]
    return [board.board(store, group, metrics=metrics) for group in groups if group]


@st.cache_data(show_spinner=False, max_entries=8)
def styled_experiments(at: Source) -> list[str]:
    """Experiments that ask about candidates told in more than one way, newest first."""
    found = []
    for row in source.experiments(at):
        runs = [run for group in source.run_groups(at, row.name) for run in group]
        # One telling in two settings is nothing to compare.
        if any(len({side.told for side in sides}) > 1 for sides in told.sides(runs).values()):
            found.append(row.name)
    return found


@st.cache_data(show_spinner="Comparing …", max_entries=16)
def style_drops(at: Source, experiment: str) -> list[DropTable]:
    """What each telling costs each method.

    Raises:
        UserError: No base is asked about both formally and otherwise.
    """
    return drops_of.style_drops(store_of(at), experiment)


@st.cache_data(show_spinner="Comparing …", max_entries=16)
def style_curves(at: Source, experiment: str, over: Over) -> list[CurveTable]:
    """Curves of an experiment's methods; none where nothing has two points."""
    try:
        return curves_of.style_curves(store_of(at), experiment, over)
    except UserError:
        return []
