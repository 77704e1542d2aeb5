"""What a run was trained on, by cards and checkpoints, and whether that is what it is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import pytest

from results.boards.systems import contaminated_by, systems
from results.store import checkpoints
from results.store.checkpoints import Checkpoint, known_checkpoints
from results.store.queries import RunRow
from results.store.read_questions import Record, Touched
from results.store.store import Store
from results.store.training_data import declared, references_of, trained_on
from results.store.variants import style_of_name

A, B, C = "a" * 64, "b" * 64, "c" * 64
DAY = datetime(2026, 3, 1)


def checkpoint(
    sha256: str, config: Mapping[str, Any], stage: str = "reranker", parents: Sequence[str] = (), data: Sequence[str] = ()
) -> Checkpoint:
    return Checkpoint("sark", 1, stage, config, tuple(parents), tuple(data), sha256, Path("folder"))


def run(dataset: str, weights: str | None = A, named: Sequence[str] = (A,), **facts: Any) -> RunRow:
    """A run of BM25, reranked by a model with these weights."""
    described = {
        "method": {"id": "bm25", "config": {}, "weights": None},
        "rerankers": [{"id": "sark", "config": {"model": "somewhere"}, "weights": weights}],
        "compressor": None,
        "reader": None,
        "k": 5,
    }
    reported = {"checkpoints": list(named)}
    plain = RunRow(f"run-{dataset}", "e", "ours", "bm25", "retriever", dataset, "f" * 16, "distractor", 0, 10, 10, 0,
                   "finished", None, DAY, DAY, "run", described, reported, {}, None, None, style_of_name(dataset))  # fmt: skip
    return replace(plain, **facts)


CARDS: dict[str, dict[str, Any]] = {"bm25": {"training_data": []}, "sark": {"training_data": []}}
TRAINED = {A: checkpoint(A, {"data": ["hotpotqa:train+dev"], "validation": ["nq:test"], "base": "somewhere"})}


@pytest.mark.parametrize(
    ("dataset", "reason"),
    [
        ("hotpotqa:dev", "hotpotqa:train+dev was trained on by checkpoint aaaaaaaa (sark, reranker)"),
        ("hotpotqa/fullwiki:dev", "hotpotqa:train+dev was trained on by checkpoint aaaaaaaa (sark, reranker)"),
        ("styled:dev(hotpotqa,informal=0.5,seed=0)", "hotpotqa:train+dev was trained on by checkpoint aaaaaaaa (sark, reranker)"),
        ("hotpotqa:test", None),
        ("nq:test", None),
        ("worlds/multihop:train", None),
    ],
)
def test_a_run_of_a_checkpoint_that_learned_what_is_asked_is_contaminated(dataset: str, reason: str | None) -> None:
    query = run(dataset)
    assert contaminated_by(query, CARDS, TRAINED) == (() if reason is None else (reason,))
    (row,) = systems({"a": [query]}, CARDS, TRAINED)
    assert row.training == ("hotpotqa:train+dev",)
    assert row.declares


def test_controls_are_not_contaminated_since_they_see_the_gold_anyway() -> None:
    assert contaminated_by(run("hotpotqa:dev", kind="control"), CARDS, TRAINED) == ()


def test_what_a_checkpoint_began_from_counts_however_far_back() -> None:
    known = {
        A: checkpoint(A, {"data": ["nq:train"]}, parents=[B]),
        B: checkpoint(B, {"graph": ["webqsp:train"]}, parents=[C, A]),  # a circle must end
        C: checkpoint(C, {"data": {"scp": ["musique:dev"], "joint": ["hotpotqa:dev"], "options": {}}}, "scp"),
    }
    assert list(trained_on(run("musique:dev"), CARDS, known)) == ["nq:train", "webqsp:train", "musique:dev"]
    assert contaminated_by(run("musique:dev"), CARDS, known) == ("musique:dev was trained on by checkpoint cccccccc (sark, scp)",)
    assert contaminated_by(run("hotpotqa:dev"), CARDS, known) == ()  # of a stage that came later


def test_a_checkpoint_among_the_weights_counts_where_provenance_does_not_name_it() -> None:
    for weights in (A, f"{B}-{A}"):
        assert contaminated_by(run("hotpotqa:dev", weights, named=()), CARDS, TRAINED)
    assert not contaminated_by(run("hotpotqa:dev", B, named=()), CARDS, TRAINED)


def test_equal_data_under_another_name_contaminate() -> None:
    known = {A: checkpoint(A, {"data": ["mine:train"]}, data=["e" * 16])}
    assert not contaminated_by(run("theirs:test"), CARDS, known)
    assert contaminated_by(run("theirs:test", dataset_fingerprint="e" * 16), CARDS, known) == (
        "the same data were used to train checkpoint aaaaaaaa (sark, reranker)",
    )


class Read:
    """A record of read questions in which so many are those of any benchmark."""

    def __init__(self, count: int) -> None:
        self._ids = frozenset(map(str, range(count)))

    def touched(self, dataset: str, who: str, fold: tuple[int, int] | None = None) -> Touched:
        return Touched(self._ids, (who,))


@pytest.mark.parametrize(("read", "contaminated"), [(None, True), (Read(0), False), (Read(1), True)])
def test_part_of_a_split_contaminates_only_if_its_questions_were_read_or_nobody_knows(read: Read | None, contaminated: bool) -> None:
    config = {"graph": ["webqsp:test"], "graph_options": {"webqsp": {"ids": "s.json#a"}}}
    known = {A: replace(checkpoint(A, config), read=cast(Record | None, read))}
    assert bool(contaminated_by(run("webqsp:test(ids=b)"), CARDS, known)) is contaminated


@pytest.mark.parametrize(("read", "contaminated"), [(None, True), (Read(0), False), (Read(1), True)])
def test_training_worlds_of_another_seed_do_not_contaminate(read: Read | None, contaminated: bool) -> None:
    known = {A: replace(checkpoint(A, {"data": ["worlds/long:train"]}), read=cast(Record | None, read))}
    assert bool(contaminated_by(run("worlds/long:train(seed=100)"), CARDS, known)) is contaminated


@pytest.mark.parametrize("by_card", [True, False])
def test_a_record_does_not_speak_for_a_card_or_a_base_without_record(by_card: bool) -> None:
    recorded = replace(checkpoint(A, {"data": ["worlds/long:train"]}, parents=[B]), read=cast(Record | None, Read(0)))
    base = checkpoint(B, {} if by_card else {"data": ["worlds/long:train"]})
    cards = CARDS | {"bm25": {"training_data": ["worlds/long:train"] if by_card else []}}
    assert contaminated_by(run("worlds/long:train(seed=100)"), cards, {A: recorded, B: base})


def test_generated_training_worlds_are_not_those_that_are_asked() -> None:
    known = {A: checkpoint(A, {"data": ["worlds:train"], "validation": ["worlds:validation"]})}
    for dataset in ("worlds/multihop:test(mix=single:1)", "styled:validation(worlds/multihop,formal=1,seed=0)"):
        assert contaminated_by(run(dataset), CARDS, known) == ()
    assert contaminated_by(run("styled:train(worlds/multihop,formal=1,seed=0)"), CARDS, known)


@pytest.mark.parametrize(
    ("config", "stage", "expected"),
    [
        ({"data": ["nq:train", "nq:train", 3, "no reference!"]}, "reranker", ("nq:train",)),
        ({"graph": ["webqsp:train+validation"]}, "towers", ("webqsp:train+validation",)),
        ({"graph": ["webqsp:test"], "graph_options": {"webqsp": {"ids": "s.json#a"}}}, "towers", ("webqsp:test(ids=s.json#a)",)),
        ({"data": ["files:train"], "data_options": {"files": {"fold": "-1/5"}}}, "stage1", ("files:train(fold=-1/5)",)),
        ({"data": {"scp": ["a:x"], "instruction": ["b:x"], "joint": ["c:x"], "options": {"d": []}}}, "instruction", ("b:x",)),
        ({"data": {"scp": ["a:x"], "instruction": ["b:x"], "joint": ["c:x"]}}, "supervised", ("c:x",)),
        ({"data": {"first": ["a:x"], "second": ["b:x"]}}, "whole", ("a:x", "b:x")),
        ({"data": ["styled:train"], "data_options": {"styled": {"base": "hotpotqa"}}}, "r", ("styled:train(hotpotqa)",)),
        ({"data": {"joint": ["styled:train"], "options": {}}}, "joint", ("styled:train(worlds/multihop)",)),
        ({"corpus": "somewhere", "validation": ["nq:dev"]}, "s", ()),
    ],
)
def test_references_are_read_from_the_options_of_trainings(config: dict[str, Any], stage: str, expected: tuple[str, ...]) -> None:
    assert references_of(checkpoint(A, config, stage)) == expected


@pytest.mark.parametrize(
    ("facts", "known", "expected"),
    [
        ({}, TRAINED, True),
        ({}, {}, False),  # its checkpoint is not registered
        ({}, {A: checkpoint(A, {"data": ["nq:train"]}, parents=[B])}, False),  # nor that which it began from
        ({}, {A: checkpoint(A, {"rows": "mine.jsonl"})}, False),  # it does not say
        ({"weights": "50e606e9af5cbfd4", "named": ()}, TRAINED, False),  # a model of others
        ({"weights": None, "named": ()}, TRAINED, False),  # behind a name alone
        ({"weights": None, "named": (), "provenance": {"models": {"counted": [], "weights_here": True}}}, {}, True),
        ({"card": {"training_data": []}}, {}, True),
    ],
)
def test_all_training_data_are_known_only_where_something_describes_those_of_each_part(
    facts: dict[str, Any], known: dict[str, Checkpoint], expected: bool
) -> None:
    query = run("nq:test", **facts)
    assert declared(query, CARDS, known) is expected
    (row,) = systems({"a": [query]}, CARDS, known)
    assert row.declares is expected


def test_a_method_whose_card_names_its_data_is_described_and_one_without_a_card_is_not() -> None:
    query = run("nq:test", "50e606e9af5cbfd4", named=())
    cards = {"bm25": {}, "sark": {"training_data": ["nq:train"]}}
    assert declared(query, cards, {})
    assert not declared(query, {}, {})
    assert trained_on(query, cards, {}) == {"nq:train": ""}


def test_registered_checkpoints_are_found_by_their_hash(tmp_path: Path) -> None:
    store, folder = Store(tmp_path / "store"), tmp_path / "model"
    folder.mkdir()
    (folder / "weights").write_text("1 2 3")
    checkpoints.describe(folder, method="sark", stage="reranker", config={"data": ["nq:dev"]})
    made = checkpoints.register(store, folder)
    known = known_checkpoints(store)
    assert list(known) == [made.sha256]
    assert contaminated_by(run("nq:dev", made.sha256, [made.sha256]), CARDS, known)
