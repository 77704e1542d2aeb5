"""The graph for pretraining: the union of datasets' graphs, independent of their questions, refused for test splits."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.registry import load
from methods.graphs.triples import linearized, load_graph, unnamed
from tests.support.errors import raises

SMALL = {"worlds": {"entities": 120, "community": 60, "triples": 40, "questions": 6}}


def rog(path: Path, rows: list[dict[str, object]]) -> dict[str, dict[str, object]]:
    """Write a file in RoG's layout, as options of webqsp."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return {"webqsp": {"path": str(path), "layout": "rog"}}


def row(number: int, graph: list[list[str]], question: str = "who is it", answer: str = "Ann") -> dict[str, object]:
    return {
        "id": f"WebQTrn-{number}",
        "question": question,
        "answer": [answer],
        "q_entity": ["Bob"],
        "a_entity": [answer],
        "graph": graph,
        "choices": [],
    }


BOB = [["Bob", "people.person.sister", "Ann"], ["Ann", "people.person.brother", "Bob"]]
LOOP = [["Ann", "people.person.self", "Ann"], ["m.0abc", "film.film.actor", "Ann"], *BOB]


def test_graphs_of_all_references_are_merged_and_counted(tmp_path: Path) -> None:
    options = rog(tmp_path / "train.jsonl", [row(0, BOB + BOB[:1]), row(1, LOOP), row(2, [])])
    graph = load_graph(["webqsp:train", "worlds/graph:train"], {**options, **SMALL})
    world = load_graph(["worlds/graph:train"], SMALL)
    assert len(graph) == graph.counts["triples"] == 4 + len(world)
    assert set(graph.triples) == {tuple(item) for item in LOOP} | set(world.triples)
    assert graph.counts["webqsp:train"] == 4
    assert graph.counts["worlds/graph:train"] == len(world)
    assert graph.counts["self_loops"] == 1
    assert graph.counts["unnamed_entities"] == 1
    assert graph.counts["triples_with_unnamed"] == 1
    assert graph.counts["entities"] == len(set(graph.names.to_pylist())) == 3 + world.counts["entities"]
    assert graph.references == ("webqsp:train", "worlds/graph:train")
    assert len(graph.fingerprints) == 2
    assert graph.test == ()
    names, relations = graph.names.to_pylist(), graph.triples.relations.to_pylist()
    numbers = zip(graph.heads.tolist(), graph.relations.tolist(), graph.tails.tolist(), strict=True)
    assert [(names[h], relations[r], names[t]) for h, r, t in numbers] == list(graph.triples)
    assert graph.nameable.sum() == len(graph) - 1


def test_graph_does_not_depend_on_questions_and_answers(tmp_path: Path) -> None:
    rows = [row(0, BOB), row(1, LOOP)]
    item = load_graph(["webqsp:train"], rog(tmp_path / "one.jsonl", rows))
    queries = [{**a, "question": "what else", "answer": ["Cleo"], "a_entity": [], "q_entity": ["Ann"]} for a in rows]
    other = load_graph(["webqsp:train"], rog(tmp_path / "two.jsonl", queries))
    assert list(item.triples) == list(other.triples)
    assert linearized(item.triples) == linearized(other.triples)
    assert item.fingerprint == other.fingerprint
    assert item.counts == other.counts
    assert item.fingerprints != other.fingerprints


def test_graph_of_a_world_does_not_depend_on_its_sampled_questions() -> None:
    few, many = (
        load_graph(["worlds/graph:train"], {"worlds": {**SMALL["worlds"], "questions": count, "question_alias": share}})
        for count, share in ((1, 0.0), (20, 1.0))
    )
    assert list(few.triples) == list(many.triples)
    assert few.fingerprint == many.fingerprint


def test_graph_of_a_world_too_small_for_a_question_type_is_loaded() -> None:
    small = {"entities": 30, "community": 30, "triples": 60, "mix": {"multi": 1.0}}
    with raises("too-few-world-questions"):
        load("worlds/graph:train", small)
    assert len(load_graph(["worlds/graph:train"], {"worlds": small})) > 100


def test_test_graphs_are_refused_by_default_and_reported_if_allowed(tmp_path: Path) -> None:
    rows = [{**row(0, BOB), "id": "WebQTest-0"}]
    options = rog(tmp_path / "test.jsonl", rows)
    with raises("test-graph"):
        load_graph(["webqsp:test"], options)
    assert load_graph(["webqsp:test"], options, allow_test=True).test == ("webqsp:test",)


@pytest.mark.parametrize("split", ["train+test", "test"])
def test_test_split_is_detected_among_several_and_as_the_default(split: str) -> None:
    with raises("test-graph"):
        load_graph([f"webqsp:{split}"])
    with raises("test-graph"):
        load_graph(["worlds/graph"])


@pytest.mark.parametrize(("split", "allow"), [("validation", False), ("validation", True), ("test", True)])
def test_validation_and_test_worlds_are_refused_for_training(split: str, allow: bool) -> None:
    with raises("seed-of-other-split"):
        load_graph([f"worlds/graph:{split}"], SMALL, allow_test=allow)


def test_data_without_graphs_is_refused() -> None:
    with raises("no-graphs"):
        load_graph(["worlds/multihop:train"], {"worlds": {"entities": 120, "community": 60, "questions": 3}})
    with raises("no-pretraining-graph"):
        load_graph([])


def test_graphs_without_a_triple_are_refused(tmp_path: Path) -> None:
    with raises("empty-graphs"):
        load_graph(["webqsp:train"], rog(tmp_path / "none.jsonl", [row(0, []), row(1, [])]))


def test_freebase_ids_are_not_used_as_names() -> None:
    names = ["m.0abc", "g.11b_x", "/m/027rn", "/m/", "a/m/027rn", "m.", "Mm.0abc", "m.Night", "m.0abc de", "G.1", "", "Ann"]
    assert unnamed(pa.array(names)).tolist() == [True] * 3 + [False] * 9


@pytest.mark.slow
def test_real_rows_give_one_graph(data_folder: Path) -> None:
    options = {
        "webqsp": {"path": str(data_folder / "webqsp" / "rog_style_webqsp.jsonl")},
        "cwq": {"path": str(data_folder / "cwq" / "rog_style_cwq_full_subgraph_4.jsonl")},
    }
    graph = load_graph(["webqsp:test", "cwq:test"], options, allow_test=True)
    wanted = {
        tuple(triple)
        for name in ("webqsp/rog_style_webqsp.jsonl", "cwq/rog_style_cwq_full_subgraph_4.jsonl")
        for line in (data_folder / name).read_text("utf-8").splitlines()
        for triple in json.loads(line)["graph"]
    }
    assert set(graph.triples) == wanted
    assert len(graph) == len(wanted)
    assert graph.heads.dtype == np.int32
    assert 0 < graph.counts["triples_with_unnamed"] < len(graph)
