"""Cross-validation of ARK: each question goes to the checkpoint that was trained without its fold."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.core.fingerprint import CHECKPOINT_CARD
from benchmarks.datasets import fold_of
from benchmarks.schema import Query
from methods.api import Ranking
from methods.ark.retriever import ArkConfig, ArkFoldsConfig, FoldsIndex
from methods.retrieval.dense import DenseConfig
from tests.support.errors import raises


class Named:
    """Index that answers with its name."""

    def __init__(self, name: int) -> None:
        self.name, self.built, self.notes = name, list[str](), dict[str, str]()

    def build_for(self, queries: Sequence[Query]) -> None:
        self.built += [query.text for query in queries]

    def retrieve(self, queries: Sequence[Query], k: int) -> list[Ranking]:
        assert {query.text for query in queries} <= set(self.built)
        return [Ranking(f"{query.id}/{self.name}", (), ()) for query in queries]


def test_each_query_uses_the_index_of_its_fold_and_results_keep_query_order() -> None:
    queries = [Query(f"q{n}", f"Question {n}?") for n in range(20)]
    index = FoldsIndex([Named(number) for number in (1, 2, 3)])
    index.build_for(queries)
    named = [ranking.query_id for ranking in index.retrieve(queries, 5)]
    assert named == [f"{query.id}/{fold_of(query.text, 3)}" for query in queries]
    assert {name.partition("/")[2] for name in named} == {"1", "2", "3"}


def test_fold_depends_only_on_the_normalized_words_of_the_question() -> None:
    assert fold_of("Who  founded\nVelmar?", 7) == fold_of("who founded velmar?", 7)


def test_checkpoint_that_may_have_been_trained_on_its_fold_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DenseConfig, "preflight", lambda self: None)
    folders = []
    for number, fold in enumerate(("-1/2", "-2/2", None), 1):
        folder = tmp_path / str(number)
        folder.mkdir()
        options = {"files": {} if fold is None else {"fold": fold}}
        (folder / CHECKPOINT_CARD).write_text(json.dumps({"method": "ark", "config": {"data_options": options}}))
        folders.append(str(folder))
    one, two, every = folders
    ArkFoldsConfig(models=(one, two)).preflight()
    assert ArkConfig.model_validate({"model": every}).model == every
    for models, place in (((two, one), "models.0"), ((one, every), "models.1"), ((one, one), "models.1")):
        with raises("checkpoint-of-other-fold", place):
            ArkFoldsConfig(models=models).preflight()
