"""Clusters of dependent questions: a naive closure, declared clusters, and missing ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.clusters import Sampled, connected, sampled
from benchmarks.registry import load
from benchmarks.schema import Question
from tests.support.errors import raises


@given(st.lists(st.lists(st.integers(0, 12), max_size=3), max_size=12))
def test_connected_components_equal_a_naive_closure(holds: list[list[int]]) -> None:
    groups: list[tuple[set[int], set[int]]] = []
    for item, things in enumerate(holds):
        members, held = {item}, set(things)
        for group in [group for group in groups if group[1] & held]:
            groups.remove(group)
            members |= group[0]
            held |= group[1]
        groups.append((members, held))
    labels = connected(holds)
    for members, _ in groups:
        assert {item for item, label in enumerate(labels) if label == labels[min(members)]} == members


def question(number: int, document: str | None = None, evidence: tuple[str, ...] = (), **metadata: object) -> Question:
    return Question(f"q{number}", "?", ("a",), evidence=evidence, document_id=document, metadata=metadata)


def test_shared_clusters_are_detected_and_named() -> None:
    alone = [question(n, f"d{n}", (f"p{n}",)) for n in range(4)]
    documents = [question(n, f"d{n // 2}", (f"p{n}",)) for n in range(4)]
    chained = [question(n, None, (f"p{n}", f"p{n + 1}") if n < 2 else ()) for n in range(4)]
    worlds = [question(n, f"d{n}", world=str(n // 2)) for n in range(4)]
    words = [sampled(items).in_words(4) for items in (alone, documents, chained, worlds)]
    assert words == ["4 questions", "4 questions in 2 documents", "4 questions in 3 evidence groups", "4 questions in 2 worlds"]


def test_declared_cluster_is_used_and_refused_if_questions_lack_it() -> None:
    items = [question(n, "d", topic="t" if n else None) for n in range(3)]
    assert sampled(items, "question").in_words(3) == "3 questions"
    assert sampled(items, "document").in_words(3) == "3 questions in 1 document"
    with raises("missing-clusters") as caught:
        sampled(items, "topic", where="e.yaml:3")
    assert (caught.value.where, "topic" in (caught.value.try_this or "")) == ("e.yaml:3", True)
    assert sampled(items[1:], "topic").count(2) == 1


@pytest.mark.slow
def test_each_world_is_a_cluster_and_a_limit_keeps_all_worlds() -> None:
    for subset in ("multihop", "long", "graph"):
        benchmark = load(f"worlds/{subset}:test")
        assert benchmark.sampled().in_words(200) == "200 questions in 30 worlds"
        assert len({item.metadata["world"] for item in benchmark.questions[:30]}) == 30
        # At most twice the earlier single world, passages (or triples) and questions together.
        before = load(f"worlds/{subset}:test", {"worlds": 2 if subset == "long" else 1})
        assert len(benchmark.corpus) + 200 <= 2 * (len(before.corpus) + 200)


def test_cluster_of_the_card_is_used_if_questions_have_it(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGMETER_DATA", str(data_folder))
    cwq = load("cwq:test")
    sources = {item.id.split("_")[0] for item in cwq.questions}
    assert cwq.sampled().in_words(len(cwq.questions)) == f"{len(cwq.questions)} questions in {len(sources)} webqsp_ids"
    assert load("nq:dev").sampled() == Sampled()
    lacking = replace(cwq, card=cwq.card.model_copy(update={"cluster": "document"}))
    assert lacking.sampled() == sampled(cwq.questions)
    with raises("missing-clusters"):
        lacking.sampled("document")
