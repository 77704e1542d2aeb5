"""Graph RAG systems: each against its formula, corrupt replies, and a model that knows the answers."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from benchmarks import registry as datasets
from benchmarks.core.errors import Broke
from benchmarks.corpus import Corpus
from benchmarks.schema import Passage, Query
from benchmarks.settings import Setting, apply
from methods.api import FAILED, UNREAD_PASSAGES, Services, Usage
from methods.baselines.graph_rag.common import alternating, within
from methods.baselines.graph_rag.graphrag import GraphRagIndex, LocalConfig, Report, Reported, _Points, report_passages
from methods.baselines.graph_rag.hipporag import (
    Facts,
    Hippo2Config,
    Hippo2Index,
    HippoConfig,
    HippoIndex,
    adjacency,
    phrases_and_passages,
    similar_phrases,
)
from methods.baselines.graph_rag.lightrag import Keywords, LightConfig, LightIndex, csv_table
from methods.baselines.graph_rag.linear_rag import LinearConfig, LinearIndex
from methods.baselines.graph_rag.memorag import MemoConfig, MemoIndex, lines_of
from methods.baselines.graph_rag.raptor import RaptorConfig, RaptorIndex
from methods.flow import each, run
from methods.graphs.communities import communities
from methods.graphs.extraction import ChunkRead, LLMExtractor, OpenIE, triple_records
from methods.graphs.index import GraphIndex, chunks_of, read_chunks, read_locally
from methods.graphs.knowledge_graph import Edge, KnowledgeGraph, Node, RelationRecord
from methods.graphs.noun_phrases import NounPhrases, near
from methods.models.chat import ChatConfig, Reply
from methods.models.structured import parse as parse_json
from methods.pipeline import assemble
from methods.registry import Component
from ragmeter.scripted import WorldTruth

TRIPLES = {
    "triples": [
        [["Ada", "kept", "Tower"], ["Ada", "wrote", "Diary"]],
        [["Tower", "stands in", "Bay"], ["Bay", "lies in", "North"]],
        [["Diary", "is in", "Museum"], ["Museum", "lies in", "Bay"]],
        [["Rex", "kept", "Mill"]],
    ]
}
TEXTS = ["Ada kept the Tower and wrote a Diary.", "The Tower stands in Bay.", "The Diary is in the Museum of Bay.", "Rex kept the Mill."]


class Words:
    """Encoder by words: texts that share words are similar."""

    device = "cpu"
    notes = MappingProxyType({})

    def passages(self, texts: Sequence[str]) -> np.ndarray:
        vectors = np.zeros((len(texts), 64), np.float32)
        for row, text in enumerate(texts):
            for word in re.findall(r"\w+", text.lower()):
                vectors[row, zlib.crc32(word.encode()) % 64] += 1
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)

    def queries(self, texts: Sequence[str], instruction: str | None = None) -> np.ndarray:
        return self.passages(texts)


class Says:
    """Model that gives replies one after another and then repeats the last one; records its requests."""

    config = ChatConfig(model="says", key_variable=None)
    in_flight = 4

    def __init__(self, *texts: str | None) -> None:
        self.texts, self.asked = list(texts), list[Any]()

    async def ask(self, messages: Any, **options: Any) -> Reply:
        self.asked.append(messages)
        text = self.texts.pop(0) if len(self.texts) > 1 else self.texts[0]
        return Reply("", "no reply") if text is None else Reply(text, prompt_tokens=5, completion_tokens=2)


CORPUS = Corpus.of([Passage(f"p{n}", "", text) for n, text in enumerate(TEXTS)])
READS = [ChunkRead.of([triple_records(json.dumps({"triples": some}))], []) for some in TRIPLES["triples"]]
QUERY = Query("q", "Who kept the Tower?")


def index(kind: type, config: Any, *, model: Any = None, folder: Path | None = None) -> Any:
    return kind(config, CORPUS, Words(), READS, Usage(), lambda *_: model, folder)


def ranked(made: Any, query: Query = QUERY, k: int = 10) -> Any:
    return run(made.retrieve_one(query, k))


def test_index_notes_the_passages_whose_records_could_not_be_had() -> None:
    config, nothing = HippoConfig(extractor="noun_phrases"), ChunkRead.of([triple_records('{"triples": []}')], [Reply("")])
    assert index(HippoIndex, config).notes == {}
    refused = ChunkRead.of([], [Reply("", failed="Error code: 400")])
    prose = ChunkRead.of([triple_records("I cannot find any.")], [Reply("")])
    reads = [refused, prose, nothing, refused, *READS]
    made = HippoIndex(config, CORPUS, Words(), reads, Usage(), lambda *_: None)  # type: ignore[arg-type]
    assert made.notes == {UNREAD_PASSAGES: {"failed": 2, "unusable": 1, "of": len(reads)}}


def test_hipporag_walk_equals_the_linear_solution_with_node_specificity() -> None:
    made = index(HippoIndex, HippoConfig(extractor="noun_phrases"))
    group = made.group(QUERY)
    facts = made.facts(group)
    chi, linked = made.restart(group, ["TOWER", "MILL"])
    assert linked == ["TOWER", "MILL"]
    assert chi[facts.phrases.index("TOWER")] == 0.5 * chi[facts.phrases.index("MILL")]
    graph = adjacency(facts, similar_phrases(facts.phrases, made.phrases(group.index, facts), 0.8)).toarray()
    start = chi / chi.sum()
    solved = 0.5 * np.linalg.solve(np.eye(len(chi)) - 0.5 * graph.T / graph.sum(1), start)
    scores = made.passage_scores(group, solved)
    naive = [sum(solved[facts.phrases.index(name.upper())] for s, _, o in some for name in (s, o)) for some in TRIPLES["triples"]]
    assert np.allclose(scores, naive)
    assert ranked(made, Query("q", "Where are Tower and Mill?")).ids == tuple(f"p{n}" for n in np.argsort(-scores, kind="stable"))


def test_hipporag2_walks_over_passages_and_falls_back_to_dense_without_facts() -> None:
    config = Hippo2Config(extractor="noun_phrases")
    made = index(Hippo2Index, config)
    by_mode = made._found(QUERY)
    facts = made.facts(by_mode.group)
    chi, linked = made.restarts(facts, by_mode.facts, by_mode)
    assert len(linked) <= config.entities
    graph = phrases_and_passages(facts, {}).toarray()
    assert (graph == graph.T).all()
    solved = 0.5 * np.linalg.solve(np.eye(len(chi)) - 0.5 * graph.T / graph.sum(1), chi / chi.sum())[len(facts.phrases) :]
    assert ranked(made).ids == tuple(f"p{n}" for n in np.argsort(-solved, kind="stable"))
    dense = tuple(f"p{n}" for n in np.argsort(-by_mode.dense, kind="stable"))
    nothing = ranked(index(Hippo2Index, config, model=Says('{"facts": []}')))
    assert (nothing.ids, nothing.notes["hipporag2"]["fallback"]) == (dense, "dense")
    kept = ranked(index(Hippo2Index, config, model=Says('{"facts": ["ada kept tower.", "the moon is made of cheese"]}')))
    assert "Ada kept Tower" in kept.notes["hipporag2"]["facts"]
    assert kept.notes["hipporag2"]["facts that the model changed"] == 2
    for reply in (None, "I cannot."):
        spoilt = ranked(index(Hippo2Index, config, model=Says(reply)))
        assert spoilt.ids == dense
        assert "fallback" in spoilt.notes["hipporag2"]


def test_question_without_entities_is_ranked_by_dense_scores() -> None:
    made = index(HippoIndex, HippoConfig(extractor="noun_phrases"))
    ranking = ranked(made, Query("q", "who wrote it?"))
    assert ranking.notes["hipporag"]["fallback"] == "dense"
    assert len(ranking.ids) == len(TEXTS)


def test_rankings_contain_only_candidates_in_either_scope() -> None:
    for scope in ("document", "corpus"):
        for kind, config in ((HippoIndex, HippoConfig), (Hippo2Index, Hippo2Config), (LightIndex, LightConfig)):
            made = index(kind, config(extractor="noun_phrases", scope=scope))
            assert set(ranked(made, replace(QUERY, candidates=("p1", "p3"))).ids) <= {"p1", "p3"}
            assert len(ranked(made, k=1).ids) == 1


def test_repeated_facts_are_counted_and_a_graph_may_have_none() -> None:
    facts = Facts.of([*READS, READS[0], ChunkRead()])
    assert facts.mentions[facts.texts.index("Ada kept Tower")] == 2
    assert facts.fact_chunks.shape == (len(facts.texts), 6)
    empty = Facts.of([ChunkRead()])
    assert phrases_and_passages(empty, {}).shape == (1, 1)


def test_malformed_triples_are_counted() -> None:
    records = triple_records('{"triples": [["a", "is", "b"], ["a", "b"], ["", "is", "c"], ["d", "is", "D"], ["e", "is", 7]]}')
    assert [relation.description for relation in records.relations] == ["a is b", "e is 7"]
    assert records.malformed["triple without two ends"] == 3
    mixed = '[["a", "is", "b"], ["a", "is", null], "a is b", {"object": "c", "subject": "b", "predicate": "is"}, ["a", "is", ["b", "c"]]]'
    for reply in (mixed, f"```json\n{mixed}\n```", f'{{"triples": {mixed}}}'):
        records = triple_records(reply)
        assert [relation.description for relation in records.relations] == ["a is b", "b is c"]
        assert records.malformed["triple without two ends"] == 3
    assert triple_records("__import__('os')").malformed["triples that are not JSON"] == 1


def test_keywords_are_read_as_text_and_without_an_empty_list() -> None:
    for reply in (
        '{"high_level_keywords": "x, y", "low_level_keywords": ["z"]}',
        '{"high_level_keywords": ["x", "y"], "low_level_keywords": "z"}',
    ):
        assert parse_json(reply, Keywords).value == Keywords(high_level_keywords=["x", "y"], low_level_keywords=["z"])
    assert parse_json('{"low_level_keywords": ["z"]}', Keywords).value == Keywords(high_level_keywords=[], low_level_keywords=["z"])
    assert parse_json('{"keywords": ["z"]}', Keywords).value is None


def test_incomplete_point_loses_no_other() -> None:
    """The released code leaves out points without a description or a score."""
    reply = '{"points": [{"description": "a", "score": 80, "reports": [1]}, {"description": "b"}, {"description": "c", "score": "high"}]}'
    read = parse_json(reply, _Points).value
    assert read is not None
    assert [(point.description, point.score) for point in read.points] == [("a", 80.0)]


def test_gleaning_continues_the_conversation_until_nothing_is_missing() -> None:
    first, more = '("entity"<|>A<|>T<|>d)##<|COMPLETE|>', '("relationship"<|>A<|>B<|>d<|>k, l<|>3)##<|COMPLETE|>'
    model = Says(first, more, "<|COMPLETE|>", "never asked")
    read = run(LLMExtractor(model, keywords=True, gleanings=3).read_one("text"))
    assert (len(read.entities), read.relations) == (1, (RelationRecord("A", "B", "d", 3.0, "k, l"),))
    assert (read.model_calls, read.counts) == (3, {})
    assert [message["role"] for message in model.asked[2]] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert run(LLMExtractor(Says("no records"), gleanings=0).read_one("text")).counts == {"malformed: no record in the reply": 1}


def test_interrupted_build_requests_only_the_rest_and_fails_if_all_calls_fail(tmp_path: Path) -> None:
    good = json.dumps({"triples": [["a", "is", "b"]]})
    texts = [f"text {n}" for n in range(5)]
    model = Says('{"names": []}', good, '{"names": []}', None)
    first = read_chunks(OpenIE(model), texts, tmp_path, 1)
    assert [read.lasting for read in first] == [True, False, False, False, False]
    model = Says(good)
    again = read_chunks(OpenIE(model), texts, tmp_path, 1)
    assert len(model.asked) == 2 * 4
    assert all(read.relations for read in again)
    with pytest.raises(Broke):
        read_chunks(OpenIE(Says(None)), ["else"], tmp_path, 1)


def test_pairs_within_a_window_equal_a_double_loop() -> None:
    positions = np.sort(np.random.default_rng(0).integers(0, 60, 25))
    naive = [[i, j] for i in range(25) for j in range(i + 1, 25) if positions[j] - positions[i] <= 7]
    assert near(positions, 7).tolist() == naive
    assert near(positions[:0], 7).shape == (0, 2)


def test_vector_of_an_entity_is_the_mean_over_its_name_and_sentences() -> None:
    made = GraphIndex(TEXTS, read_locally(NounPhrases(), TEXTS), Words(), sentences=True)
    for node, vector in zip(made.graph.nodes, made.entities, strict=True):
        mean = np.mean(Words().passages([node.name.lower(), *node.descriptions]), axis=0)
        assert np.allclose(vector, mean / np.linalg.norm(mean), atol=1e-6)
    assert made.relations.shape == (len(made.graph.edges), 64)


def test_rules_extract_names() -> None:
    names = NounPhrases().names("Was the University of Copenhagen's Jan Solovej in charge in 1963, or He?")
    assert names == ("UNIVERSITY OF COPENHAGEN", "JAN SOLOVEJ", "1963")
    assert NounPhrases().names("what is it?") == ()


def test_spacy_pipeline_extracts_names(tmp_path: Path) -> None:
    spacy = pytest.importorskip("spacy")
    pipeline = spacy.blank("en")
    pipeline.add_pipe("entity_ruler").add_patterns([{"label": "NAME", "pattern": [{"IS_TITLE": True, "OP": "+"}]}])
    pipeline.to_disk(tmp_path)
    reader = NounPhrases(pipeline=str(tmp_path))
    assert reader.names("And is Jan Solovej of Copenhagen there?") == ("JAN SOLOVEJ", "COPENHAGEN")
    assert [(edge.source, edge.target) for edge in reader.records(chunks_of(TEXTS))[3].relations] == [("MILL", "REX")]
    options = {"extractor": "noun_phrases", "encoder": {"model": "minilm"}}
    assert HippoConfig(**options, pipeline=str(tmp_path)).made_of() != HippoConfig(**options).made_of()


def graph(pairs: Sequence[tuple[str, str, float]]) -> KnowledgeGraph:
    names = sorted({name for one, other, _ in pairs for name in (one, other)})
    nodes = tuple(Node(name, "T", (f"about {name}",), (0,)) for name in names)
    return KnowledgeGraph("d", nodes, tuple(Edge(*sorted((a, b)), weight, (f"{a} {b}",), (0,)) for a, b, weight in pairs))


def clique(names: str) -> list[tuple[str, str, float]]:
    return [(a, b, 1.0) for n, a in enumerate(names) for b in names[n + 1 :]]


def test_two_cliques_are_two_communities_in_any_edge_order() -> None:
    pytest.importorskip("graspologic_native", reason="extra graphs")
    pairs = [*clique("ABCDE"), *clique("VWXYZ"), ("E", "V", 0.1)]
    expected = [(0, 1, 2, 3, 4), (5, 6, 7, 8, 9)]
    assert [community.entities for community in communities(graph(pairs))] == expected
    assert [community.entities for community in communities(graph(pairs[::-1]))] == expected
    assert communities(graph([*pairs[:10], ("P", "Q", 1.0)]))[0].entities == (0, 1, 2, 3, 4)
    assert communities(replace(graph(pairs), edges=())) == []
    assert communities(KnowledgeGraph("d")) == []
    large = communities(graph(clique("ABCDEFGHIJKLMNOP")), max_size=4)
    assert all(community.parent is None or community.level > 0 for community in large)


def test_reports_without_a_title_are_rejected_and_reports_respect_the_token_limit() -> None:
    pytest.importorskip("graspologic_native", reason="extra graphs")
    good = '{"title": "Tower and Bay", "summary": "s", "findings": [{"summary": "f", "explanation": "e"}]}'
    config = LocalConfig(extractor="noun_phrases", report_tokens=100, context="native", llm={"model": "m"})
    made = index(GraphRagIndex, config, model=Says(good, '{"title": "", "summary": "s"}', None))
    reported = run(made.prepared(made.group(QUERY)))
    assert len(reported.reports) + sum(reported.counts.values()) == len(reported.communities)
    assert made.usage.model_calls == len(reported.communities)
    shown = report_passages(
        Reported(reported.communities, {c.id: Report(title=f"t{c.id}", summary="s") for c in reported.communities}), [0]
    )
    assert len(shown) == 1


def test_cost_of_graphs_of_candidates_counts_for_the_index_and_builds_resume(tmp_path: Path) -> None:
    pytest.importorskip("graspologic_native", reason="extra graphs")
    config = LocalConfig(extractor="noun_phrases", context="native", max_community=2, llm={"model": "m"})
    queries = [replace(QUERY, id=f"q{n}", candidates=some) for n, some in enumerate([("p0", "p1"), ("p1", "p2", "p3"), ("p0", "p1")])]
    good = '{"title": "Tower and Bay", "summary": "s"}'
    whole = index(GraphRagIndex, config, model=Says(good))
    whole.build_for(queries)
    assert len(whole.model.asked) == whole.usage.model_calls > 2
    assert sum(ranked(whole, query).usage.model_calls for query in queries) == 0

    class CutOff(Says):
        async def ask(self, messages: Any, **options: Any) -> Reply:
            if len(self.asked) == 2:
                raise RuntimeError("killed")
            return await super().ask(messages, **options)

    with pytest.raises(RuntimeError, match="killed"):
        index(GraphRagIndex, config, model=CutOff(good), folder=tmp_path).build_for(queries)
    for left in (len(whole.model.asked) - 2, 0):
        again = index(GraphRagIndex, config, model=Says(good), folder=tmp_path)
        again.build_for(queries)
        assert (len(again.model.asked), again.usage) == (left, whole.usage)
    assert json.loads((tmp_path / "cost.json").read_text())["model_calls"] == whole.usage.model_calls


def test_within_respects_the_budget_and_alternating_interleaves_lists() -> None:
    passages = [Passage(str(n), "", "x" * 40) for n in range(5)]
    assert [len(within(passages, budget)) for budget in (0, 9, 10, 29, 30, 1000)] == [0, 0, 1, 2, 3, 5]
    assert alternating([1, 2, 3], [3, 4], []) == [1, 3, 2, 4]


def test_local_search_ranks_by_entity_order_and_adds_relations_to_the_native_context() -> None:
    made = index(GraphRagIndex, LocalConfig(extractor="noun_phrases", context="native", entities=2))
    ranking = ranked(made)
    first = made.group(QUERY).index.graph.nodes[ranking.notes["graphrag"]["entities"][0]]
    assert ranking.ids[0] in {f"p{chunk}" for chunk in first.chunks}
    context = run(made.contexts_one(QUERY, ranking.top(1)))
    assert context.passages[-1].id == ranking.ids[0]
    assert any(passage.id.startswith("relation") for passage in context.passages)


def test_low_level_keywords_retrieve_entities_and_high_level_ones_relations() -> None:
    reply = json.dumps({"high_level_keywords": ["Rex kept Mill"], "low_level_keywords": ["Museum"]})
    by_mode = {}
    for mode in ("local", "global", "hybrid", "mix", "naive"):
        config = LightConfig(extractor="noun_phrases", mode=mode, top_k=1)
        by_mode[mode] = ranked(index(LightIndex, config, model=Says(reply)))
    assert set(by_mode["local"].ids) == {"p2"}
    assert by_mode["global"].ids == ("p3",)
    assert set(by_mode["hybrid"].ids) == {"p2", "p3"}
    assert set(by_mode["mix"].ids) == {"p0", "p1", "p2", "p3"} == set(by_mode["naive"].ids)
    assert by_mode["naive"].usage.model_calls == 0


def test_csv_tables_quote_cells_and_stop_before_the_row_that_exceeds_the_budget() -> None:
    rows = [['a "b", c', 1], ["d", 2.5], ["e", 3]]
    assert csv_table(("x", "y"), rows, 1e9, combined=False) == '"id","x","y"\n"0","a ""b"", c","1"\n"1","d","2.5"\n"2","e","3"\n'
    assert csv_table(("x", "y"), rows[1:], 1e9, combined=True) == "id,\tx,\ty\n1,\td,2.5\n2,\te,3"
    assert csv_table(("x", "y"), rows[1:], 3, combined=True) == "id,\tx,\ty\n1,\td,2.5"
    options = {"extractor": "noun_phrases", "context": "native", "tables": "csv"}
    made = index(LightIndex, LightConfig(**options))
    (shown,) = run(made.contexts_one(QUERY, ranked(made).top(2))).passages
    assert [shown.text.count(text) for text in ("-----", "```csv", "\n1,\t", "\n3,\tAda")] == [6, 3, 3, 0]


def test_invalid_keywords_are_requested_twice_and_then_replaced_by_the_question() -> None:
    model = Says("none", "none again")
    ranking = ranked(index(LightIndex, LightConfig(extractor="noun_phrases"), model=model))
    assert len(model.asked) == 2
    assert ranking.notes["lightrag"]["fallback"].startswith("the question as keywords")
    assert ranking.ids == ranked(index(LightIndex, LightConfig(extractor="noun_phrases"))).ids


def test_relations_are_ordered_by_the_degrees_of_their_ends() -> None:
    made = index(LightIndex, LightConfig(extractor="noun_phrases"))
    group = made.group(QUERY)
    edges = group.index.graph.edges
    order = made.by_degree(group, np.arange(len(edges)))
    degree = {node.name: sum(node.name in (e.source, e.target) for e in edges) for node in group.index.graph.nodes}
    sums = [degree[edges[edge].source] + degree[edges[edge].target] for edge in order]
    assert sums == sorted(sums, reverse=True)


def test_clues_of_up_to_three_words_are_dropped() -> None:
    assert lines_of(["1. one two three\n- one two three four\n* one two three four"]) == ["one two three four"]


@pytest.mark.parametrize("text", ["", "Ada kept the Tower.", "nothing is named here"])
def test_every_system_retrieves_the_only_passage_of_a_corpus(text: str) -> None:
    corpus = Corpus.of([Passage("only", "", text)])
    rules, asks = {"extractor": "noun_phrases", "context": "native"}, {"llm": {"model": "m"}, "context": "native"}
    systems: dict[type, Any] = {
        HippoIndex: HippoConfig(**rules),
        Hippo2Index: Hippo2Config(**rules),
        LightIndex: LightConfig(**rules),
        GraphRagIndex: LocalConfig(**rules),
        LinearIndex: LinearConfig(**rules),
        MemoIndex: MemoConfig(**asks, draft=True),
        RaptorIndex: RaptorConfig(**asks),
    }
    for kind, config in systems.items():
        model: Any = Says("no clue") if config.llm is not None else None
        made = kind(config, corpus, Words(), None, Usage(), lambda *_, model=model: model)
        ranking = ranked(made)
        assert (kind, ranking.ids) == (kind, ("only",))
        assert np.isfinite(ranking.scores).all()
        assert run(made.contexts_one(QUERY, ranking)).passages


WORLD, OPTIONS = "worlds/long:validation", {"questions": 8, "worlds": 1}
SYSTEMS: dict[str, dict[str, Any]] = {
    "hipporag": {},
    "hipporag2": {},
    "lightrag": {"mode": "mix"},
    "graphrag": {},
    "graphrag_global": {},
    "graphrag_drift": {"questions": 4, "depth": 2},
    "memorag": {"memory": "lite", "draft": True},
    "raptor": {"reduction": "svd"},
    "linear_rag": {},
}


@pytest.mark.slow
@pytest.mark.parametrize("corruption", [0.0, 0.2])
def test_answer_is_correct_exactly_if_the_context_contains_its_proof(corruption: float, tiny_encoder: str, tmp_path: Path) -> None:
    """Tests both contexts. With a share of corrupt replies every question still ends and all losses are counted."""
    world = apply(Setting.parse("document"), datasets.load(WORLD, OPTIONS), 0)
    document = world.questions[0].document_id
    world = replace(
        world,
        questions=[question for question in world.questions if question.document_id == document],
        corpus=Corpus.of([passage for passage in world.corpus if passage.document_id == document]),
    )
    truth = WorldTruth([world], config=OPTIONS)
    llm = {"scripted": WORLD, "options": OPTIONS, "corruption": corruption}
    reader = Component.of("chat", {"llm": {**llm, "corruption": 0.0}})
    right, counted = 0, 0
    for name, options in SYSTEMS.items():
        whole = name in ("graphrag_global", "graphrag_drift")
        for context in ("native",) if whole else ("passages", "native"):
            system = Component.of(name, {"llm": llm, "encoder": {"model": tiny_encoder}, "context": context, **options})
            services = Services(cache=tmp_path / "cache.sqlite", artifacts=tmp_path / "kept", device="cpu")
            method = assemble(system, services, **({} if whole else {"reader": reader}))
            indexed = method.index(world.corpus)
            built = method.build_for([question.query() for question in world.questions]) or indexed.usage  # type: ignore[attr-defined]
            assert (built.model_calls > 0) == (name != "linear_rag")
            predictions = {prediction.question_id: prediction for prediction in method.answer(q.query() for q in world.questions)}
            assert len(predictions) == len(world.questions)
            for question in world.questions:
                prediction = predictions[question.query().id]
                counted += FAILED in prediction.notes or any(word in str(prediction.notes) for word in ("fallback", "could not", "without"))
                if corruption or whole:
                    continue
                ranking = replace(each(method._index, "retrieve", [question.query()], 100)[0].top(5))  # type: ignore[attr-defined]
                shown = each(method._index, "contexts", [question.query()], [ranking])[0].passages  # type: ignore[attr-defined]
                proven = truth.proven_by(question, [passage.full_text for passage in shown])
                assert prediction.answer == (truth.answer_to(question.text) if proven else "unknown")
                right += proven
    assert right > 5 or corruption
    assert counted or not corruption


@pytest.mark.slow
def test_walk_improves_recall_on_real_passages_with_published_triples(data_folder: Path, tmp_path: Path) -> None:
    """A part of what `python -m perf.graph_rag --passages FOLDER` measures."""
    rows = [json.loads(line) for line in (data_folder / "hipporag" / "passages.jsonl").read_text().splitlines()]
    questions = [json.loads(line) for line in (data_folder / "hipporag" / "questions.jsonl").read_text().splitlines()][:6]
    kept = sorted({n for question in questions for n in question["supporting"]} | set(range(40)))
    corpus = Corpus.of([Passage(str(n), rows[n]["title"], rows[n]["text"]) for n in kept])
    reads = [ChunkRead.of([triple_records(json.dumps({"triples": rows[n]["triples"]}))], []) for n in kept]

    def recall(index: Any, k: int) -> float:
        rankings = each(index, "retrieve", [Query(question["id"], question["question"]) for question in questions], k)
        golds = [set(map(str, question["supporting"])) for question in questions]
        return float(np.mean([len(gold & set(ranking.ids)) / len(gold) for ranking, gold in zip(rankings, golds, strict=True)]))

    # Both encode the same passages: vectors are kept.
    services = Services(device="cpu", artifacts=tmp_path)
    system = Component.of("hipporag2", {"extractor": "noun_phrases", "scope": "corpus"}).build(services)
    walked = recall(system.opened(corpus, reads, Usage(), None), 5)
    dense = recall(Component.of("dense").build(services).index(corpus), 5)
    print(f"recall@5: HippoRAG 2 {walked:.3f}, dense {dense:.3f}")
    assert walked > dense
