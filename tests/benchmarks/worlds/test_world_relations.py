"""Relations that no training world has: which they are, and the questions about them."""

from __future__ import annotations

from functools import cache

import pytest

from benchmarks.registry import Benchmark, load
from benchmarks.worlds.world import relations
from tests.support.errors import raises

HELD_OUT = frozenset(
    [
        "town.patron_saint",
        "landmark.first_explorer",
        "person.burial_place",
        "person.patron",
        "work.illustrator",
        "work.manuscript_owner",
        "organisation.archivist",
        "species.namesake",
        "event.witness",
        "award.namesake",
    ]
)
"""Fixed, because a relation that moved to the other part would turn training data into test data."""


@cache
def graph(split: str = "test", **config: object) -> Benchmark:
    return load(f"worlds/graph:{split}", {"questions": 60, **config})


def topics(benchmark: Benchmark) -> list[set[str]]:
    return [set(question.metadata["relations"]) for question in benchmark.questions]


def held(benchmark: Benchmark) -> set[str]:
    """Return every relation of the corpus, whose triples are all triples of the worlds."""
    triples = benchmark.corpus.triples  # type: ignore[attr-defined]
    return set(triples.relations.to_pylist())


def test_partition_of_the_ontology_is_fixed() -> None:
    assert {relation.id for relation in relations() if relation.held_out} == HELD_OUT


@pytest.mark.slow
@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_worlds_hold_only_seen_relations_by_default(split: str) -> None:
    plain = graph(split)
    assert not held(plain) & HELD_OUT
    named = graph(split, relations="seen")
    assert named.fingerprint == plain.fingerprint
    assert named.name == plain.name


@pytest.mark.slow
def test_every_question_about_unseen_relations_is_about_one() -> None:
    unseen = graph(relations="unseen", questions=120)
    assert held(unseen) >= HELD_OUT
    assert all(about & HELD_OUT for about in topics(unseen))
    assert {question.type for question in unseen.questions} == {"single", "bridge"}
    assert all(question.metadata["unseen_relation"] for question in unseen.questions)
    assert len({relation for about in topics(unseen) for relation in about & HELD_OUT}) == len(HELD_OUT)
    for question in unseen.questions:
        assert set(question.evidence) <= set(question.candidates or ())
        assert len(question.candidates or ()) >= 115


@pytest.mark.slow
def test_seen_relations_can_be_queried_in_worlds_with_unseen_relations() -> None:
    seen, unseen = graph(relations="seen", unseen_relations=True), graph(relations="unseen")
    assert not any(about & HELD_OUT for about in topics(seen))
    assert seen.corpus.fingerprint == unseen.corpus.fingerprint
    both = [bool(about & HELD_OUT) for about in topics(graph(relations="all"))]
    assert any(both)
    assert not all(both)


@pytest.mark.slow
def test_unanswerable_questions_respect_the_relation_option() -> None:
    unseen = graph(relations="unseen", unanswerable=0.5)
    seen = graph(relations="seen", unseen_relations=True, unanswerable=0.5)
    assert sum(not question.answerable for question in unseen.questions) == 30
    assert all(about & HELD_OUT for about in topics(unseen))
    assert not any(about & HELD_OUT for about in topics(seen))


@pytest.mark.slow
def test_relation_option_is_part_of_the_benchmark_name() -> None:
    assert graph(relations="unseen").name == "worlds/graph:test(relations=unseen)"
    assert graph(relations="all").name == "worlds/graph:test(relations=all)"
    assert graph(relations="seen", unseen_relations=True).name == "worlds/graph:test(relations=seen)"
    assert graph().name == graph(unseen_relations=True).name == "worlds/graph:test"


def test_relations_all_equals_option_unseen_relations() -> None:
    assert graph(relations="all").fingerprint == graph(unseen_relations=True).fingerprint


@pytest.mark.parametrize("split", ["train", "validation"])
@pytest.mark.parametrize("wanted", ["unseen", "all"])
def test_held_out_relations_require_test_worlds(split: str, wanted: str) -> None:
    with raises("held-out-relation") as caught:
        graph(split, relations=wanted)
    assert caught.value.where == f"relations: {wanted}"


def test_mix_without_suitable_question_types_is_refused() -> None:
    for mix in ({"comparison": 1.0}, {"multi": 0.5, "single": 0.0}):
        with raises("relations-not-trained"):
            load("worlds/graph:test", {"relations": "unseen", "mix": mix})
    with raises("shares-expected"):
        load("worlds/graph:test", {"mix": {}})
    with raises("bad-option"):
        graph(relations="sen")
