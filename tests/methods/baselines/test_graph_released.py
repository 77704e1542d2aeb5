"""Graph systems against outputs of their authors' code (`golden/graphs` in the folder of real samples; skipped without it)."""

from __future__ import annotations

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
from methods.baselines.graph_rag.hipporag import EPS, Facts, Hippo2Config, Hippo2Index
from methods.graphs.extraction import ChunkRead, triple_records
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
    """Model whose filter keeps the first facts that it is shown."""

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


def test_hipporag2_has_the_released_names_facts_and_edges(graphs: Path) -> None:
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
def test_hipporag2_ranks_as_released(graphs: Path, kept: str) -> None:
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
