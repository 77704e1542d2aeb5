"""Graph systems against outputs of their authors' code (`golden/graphs` in the folder of real samples; skipped without it)."""

from __future__ import annotations

import csv
import json
from asyncio import run
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.corpus import Corpus
from benchmarks.schema import Passage, Query
from methods.api import Usage
from methods.baselines.graph_rag import graphrag, lightrag
from methods.baselines.graph_rag.common import Group
from methods.baselines.graph_rag.graphrag import GraphRagIndex, LocalConfig, Report, Reported, relations_of, report_passages
from methods.baselines.graph_rag.hipporag import EPS, Facts, Hippo2Config, Hippo2Index
from methods.baselines.graph_rag.lightrag import LightConfig, LightIndex
from methods.graphs.communities import Community
from methods.graphs.extraction import ChunkRead, triple_records
from methods.graphs.index import GraphIndex
from methods.graphs.knowledge_graph import EntityRecord, RelationRecord
from methods.graphs.pagerank import iterate
from methods.models.chat import ChatConfig, Reply


@pytest.fixture(scope="module")
def graphs(data_folder: Path) -> Path:
    folder = data_folder / "golden" / "graphs"
    if not folder.is_dir():
        pytest.skip("no golden/graphs among the real samples")
    return folder


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


class StoredVectors:
    """Encoder with the recorded vector of each pair of instruction and text."""

    device = "cpu"

    def __init__(self, file: Path) -> None:
        stored = np.load(file)
        self._rows = dict(zip(zip(stored["instructions"], stored["texts"], strict=True), stored["vectors"], strict=True))

    def passages(self, texts: Sequence[str]) -> np.ndarray:
        return np.array([self._rows["", text] for text in texts], np.float32)

    def queries(self, texts: Sequence[str], instruction: str = "") -> np.ndarray:
        return np.array([self._rows[instruction, text] for text in texts], np.float32)


class Keeps:
    """Model whose filter keeps the first facts of its prompt."""

    config = ChatConfig(model="keeps", key_variable=None)
    in_flight = 1

    def __init__(self, number: int) -> None:
        self.number = number

    async def ask(self, messages: Any, **_: Any) -> Reply:
        shown = messages[-1]["content"]
        facts = json.JSONDecoder().raw_decode(shown, shown.rindex("["))[0]
        return Reply(json.dumps({"facts": facts[: self.number]}))


def hippo2(folder: Path, model: Any = None) -> Any:
    passages = read(folder / "input.json")["passages"]
    corpus = Corpus.of([Passage(str(item["id"]), item["title"], item["text"]) for item in passages])
    reads = [ChunkRead.of([triple_records(json.dumps({"triples": item["triples"]}))], []) for item in passages]
    config = Hippo2Config(extractor="noun_phrases")
    return Hippo2Index(config, corpus, StoredVectors(folder / "vectors.npz"), reads, Usage(), lambda *_: model, None)


def test_hipporag2_builds_the_names_facts_and_edges_of_the_released_code(graphs: Path) -> None:
    expected = read(graphs / "hipporag2" / "expected.json")
    made = hippo2(graphs / "hipporag2")
    group = made.group(Query("q", "any"))
    facts: Facts = made.facts(group)
    assert facts.phrases == expected["entities"]
    assert sorted(facts.printed) == expected["facts"]
    edges: Counter[tuple[Any, Any]] = Counter()
    for one, other, weight in expected["igraph_edges"]:
        edges[one, other] += weight
        edges[other, one] += weight
    graph = made.edges(facts, made.phrases(group.index, facts)).tocoo()
    nodes = [*facts.phrases, *range(len(group.rows))]
    ours = {(nodes[row], nodes[column]): value for row, column, value in zip(*graph.coords, graph.data, strict=True)}
    assert ours == pytest.approx(dict(edges), abs=1e-6)


@pytest.mark.parametrize("kept", ["all", "first_two", "none"])
def test_hipporag2_ranks_like_the_released_code(graphs: Path, kept: str) -> None:
    expected = read(graphs / "hipporag2" / "expected.json")
    made = hippo2(graphs / "hipporag2", Keeps({"all": 5, "first_two": 2, "none": 0}[kept]))
    cases = [case for case in expected["cases"] if case["filter"] == kept and not case["depends_on_set_order"]]
    assert len(cases) >= 8
    for case in cases:
        query = Query("q", case["question"])
        nearby = made._found(query)
        facts = made.facts(nearby.group)
        assert [nearby.scores[fact] for fact in nearby.facts] == pytest.approx(case["fact_scores"], abs=1e-6)
        assert [facts.printed[fact] for fact in nearby.facts] == [str(tuple(fact)) for fact in case["facts_before_filter"]]
        ranking = run(made.retrieve_one(query, 30))
        scores = dict(zip(case["ranking"], case["scores"], strict=True))
        assert [scores[int(identifier)] for identifier in ranking.ids] == pytest.approx(case["scores"], abs=1e-6)
        if kept != "none":
            chi, _ = made.restarts(facts, nearby.facts[: {"all": 5, "first_two": 2}[kept]], nearby)
            ranks = iterate(made.walk(nearby.group), chi[:, None], tolerance=EPS).scores[len(facts.phrases) :, 0]
            assert [ranks[number] for number in case["ranking"]] == pytest.approx(case["scores"], abs=1e-6)


class Nothing:
    """Encoder for searches with given results."""

    device = "cpu"

    def passages(self, texts: Sequence[str]) -> np.ndarray:
        return np.zeros((len(texts), 2), np.float32)

    queries = passages


def group_of(entities: dict[str, tuple[str, str, list[str]]], relations: list[dict[str, Any]], chunks: dict[str, str], held: str) -> Group:
    """Return a group over a given graph: entities (description, chunks), relations and chunks."""
    reads = []
    for chunk in chunks:
        own = tuple(EntityRecord(name, kind, text) for name, (kind, text, some) in entities.items() if chunk in some)
        stated = tuple(
            RelationRecord(item["source"], item["target"], item["description"], item["weight"] / len(item[held]), item.get("keywords", ""))
            for item in relations
            if chunk in item[held]
        )
        reads.append(ChunkRead(own, stated))
    return Group(np.arange(len(chunks)), GraphIndex(list(chunks.values()), reads, Nothing()))


def table(context: str, name: str, separator: str) -> list[list[str]]:
    """Return the rows of a table in a recorded context, without its header."""
    lines = context.split(f"-----{name}-----\n")[1].split("\n-----")[0].split("    -----")[0].replace(",\t", ",").splitlines()
    return list(csv.reader([line for line in lines if line.strip(" `csv")][1:], delimiter=separator))


def rows_of(context: str) -> list[set[tuple[str, ...]]]:
    """Return the rows of the three tables without numbers and dates, in any order of rows and of a relation's ends."""
    relations = {(*sorted(row[1:3]), *row[3:7]) for row in table(context, "Relationships", ",")}
    return [{tuple(row[1:]) for row in table(context, name, ",")} for name in ("Entities", "Sources")] + [relations]


def test_graphrag_orders_relations_reports_and_passages_like_the_released_code(graphs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph_input, expected = (read(graphs / "graphrag" / f"{name}.json") for name in ("input", "expected"))
    entities = {item["title"]: ("thing", item["description"], item["text_unit_ids"]) for item in graph_input["entities"]}
    group = group_of(entities, graph_input["relationships"], graph_input["text_units"], "text_unit_ids")
    corpus = Corpus.of([Passage(name, "", text) for name, text in graph_input["text_units"].items()])
    made = GraphRagIndex(LocalConfig(extractor="noun_phrases"), corpus, Nothing(), group.index.reads, Usage(), lambda *_: None)
    monkeypatch.setattr(made, "group", lambda query: group)
    positions = group.index.graph.positions
    ranks = {frozenset((item["source"], item["target"])): item["rank"] for item in graph_input["relationships"]}
    listed = tuple(
        Community(item["community"], item["level"], item["parent"], tuple(positions[name] for name in item["entities"]))
        for item in graph_input["communities"]
    )
    reports = {
        item["community"]: Report(title=f"Community {item['community']}", summary=".", rating=item["report_rank"])
        for item in graph_input["communities"]
    }
    for case in expected["local"]:
        if case["max_context_tokens"] < 8000:
            continue
        nodes = [positions[name] for name in case["selected"]]
        edges = [group.index.graph.edges[place] for place in relations_of(group.index, nodes, case["top_k_relationships"])]
        shown = table(case["context"], "Relationships", "|")
        # Of relations between selected entities, the links are those of an earlier step.
        chosen = set(case["selected"])
        links = {frozenset(row[1:3]): 0 if chosen.issuperset(row[1:3]) else int(row[5]) for row in shown}
        theirs = {ends: (number, ranks[ends]) for ends, number in links.items()}
        ours = [frozenset((edge.source, edge.target)) for edge in edges]
        assert set(ours) == set(theirs)
        # Relations with equal links and ranks may stand in either order.
        assert [theirs[ends] for ends in ours] == list(theirs.values())
        titles = [report.title for report in report_passages(Reported(listed, reports), nodes, 2)]
        assert titles == [row["title"] for row in case["records"]["reports"]]
        monkeypatch.setattr(graphrag, "nearest", lambda *_, nodes=nodes, **__: np.array(nodes))
        sources = [row[0] for row in table(case["context"], "Sources", "|")]
        assert list(made.ranked(Query("q", "?"), 10).ids) == sources


@pytest.mark.parametrize("mode", ["local", "global", "hybrid"])
def test_lightrag_1_1_7_orders_entities_relations_and_passages_like_the_released_code(
    graphs: Path, mode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph_input, expected = (read(graphs / "lightrag" / f"{name}.json") for name in ("input", "expected"))
    entities = {name: (item["type"], item["description"], item["chunks"]) for name, item in graph_input["entities"].items()}
    group = group_of(entities, graph_input["relations"], graph_input["chunks"], "chunks")
    graph = group.index.graph
    edges = {frozenset((edge.source, edge.target)): place for place, edge in enumerate(graph.edges)}
    keys = {frozenset((item["source"], item["target"])): (item["degree"], item["weight"]) for item in graph_input["relations"]}
    # An index lists the chunks of a relation in the order in which it reads them.
    unsorted = {
        frozenset((item["source"], item["target"])) for item in graph_input["relations"] if item["chunks"] != sorted(item["chunks"])
    }
    corpus = Corpus.of([Passage(name, "", text) for name, text in graph_input["chunks"].items()])
    made = LightIndex(
        LightConfig(extractor="noun_phrases", mode=mode), corpus, Nothing(), group.index.reads, Usage(), lambda *_: None, None
    )
    monkeypatch.setattr(made, "group", lambda query: group)
    ordered = same = 0
    for case in expected["cases"]:
        if case["mode"] != mode or case["token_limits"] < 4000 or case["context"] is None:
            continue
        matches = {
            "entities": [graph.positions[name] for name in case["entities_found"]],
            "relations": [edges[frozenset(ends)] for ends in case["relations_found"]],
        }
        searched = iter([matches[kind] for kind in {"local": ["entities"], "global": ["relations"]}.get(mode, ["entities", "relations"])])
        monkeypatch.setattr(lightrag, "nearest", lambda *_, searched=searched, **__: np.array(next(searched), int))
        ranking = made._ranked(Query("q", "?"), "low", "high", 10, {}, Usage())
        note = ranking.notes["lightrag"]
        shown = [row[1] for row in table(case["context"], "Entities", ",")]
        assert sorted(graph.nodes[node].name for node in note["entities"]) == sorted(shown)
        theirs = list(dict.fromkeys(frozenset(row[1:3]) for row in table(case["context"], "Relationships", ",")))
        ours = [frozenset((graph.edges[place].source, graph.edges[place].target)) for place in note["relations"]]
        assert set(ours) == set(theirs)
        # Relations with equal degrees and weights may stand in either order.
        assert [keys[ends] for ends in ours] == [keys[ends] for ends in theirs]
        texts = [row[1] for row in table(case["context"], "Sources", ",")]
        passages = [graph_input["chunks"][identifier] for identifier in ranking.ids]
        found_relations = set(map(frozenset, case["relations_found"]))
        if mode != "local" and (len({keys[ends] for ends in found_relations}) < len(found_relations) or found_relations & unsorted):
            assert set(passages) == set(texts)
        else:
            assert passages == list(dict.fromkeys(texts))
            ordered += 1
        written = made.written(group, ranking)
        same += written == case["context"]
        assert rows_of(written) == rows_of(case["context"])
    assert ordered >= 2
    # Equal to the letter unless relations tie, or were found by keywords: then their ends and dates stand in another form.
    assert same == {"local": 3, "global": 0, "hybrid": 1}[mode]
