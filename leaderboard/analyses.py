"""What the pages about datasets, judges, styles and budgets read, remembered as `leaderboard.source` remembers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import streamlit as st

from leaderboard.source import Source
from results import battle_board, board, dataset_facts, judge_cards, judgements, queries
from results.battle_board import BattleBoard
from results.board import Board
from results.dataset_facts import DatasetFacts, Sample
from results.judge_cards import JudgeCard
from results.store import Store


def _store(at: Source) -> Store:
    return Store(Path(at.folder))


@st.cache_data(show_spinner=False, max_entries=8)
def datasets(at: Source) -> list[DatasetFacts]:
    """Stored datasets with what is known of them."""
    return dataset_facts.dataset_facts(_store(at))


@st.cache_data(show_spinner=False, max_entries=64)
def samples(at: Source, fingerprint: str, number: int, start: int) -> list[Sample]:
    """Some of a dataset's questions."""
    return dataset_facts.samples(_store(at), fingerprint, number, start)


@st.cache_data(show_spinner=False, max_entries=8)
def judges(at: Source) -> dict[str, dict[str, Any]]:
    """Cards of judges by id."""
    return judgements.judges(_store(at))


@st.cache_data(show_spinner="Reading what the judge said …", max_entries=16)
def judge_card(at: Source, judge: str) -> JudgeCard:
    """What is known of a judge that the store knows."""
    return judge_cards.judge_card(_store(at), judge)


@st.cache_data(show_spinner="Reading what the judge said …", max_entries=16)
def battles(at: Source, judge: str, length: bool) -> list[BattleBoard]:
    """A pair judge's boards; `length`: strengths with what a longer answer gains taken off."""
    store = _store(at)
    return battle_board.battle_boards(store, queries.runs(store), length=length, judge=judge)


@st.cache_data(show_spinner="Reading what the judge said …", max_entries=16)
def judged_boards(at: Source, judge: str) -> list[Board]:
    """Boards of the runs that a point judge has judged, with its measures as columns."""
    store = _store(at)
    metrics = [measure["metric"] for measure in judges(at)[judge]["measures"]]
    runs = set(judgements.judged_runs(store, judge))
    groups = [[run for run in group if run.run in runs] for group in board.groups(queries.runs(store))]
    return [board.board(store, group, metrics=metrics) for group in groups if group]
