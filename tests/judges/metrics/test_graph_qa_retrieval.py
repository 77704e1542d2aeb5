"""Results of triple retrievers, compared with naive loops: answers inside the graph, and reference triples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.graphs import TripleCorpus
from benchmarks.registry import Benchmark, load
from benchmarks.schema import Question, Triple, triple_id
from benchmarks.settings import apply
from judges.metric import QuestionGraphs, parse
from judges.score import check_invariants, score
from methods.api import Evidence, Prediction
from tests.support.errors import raises

JAMAICA: tuple[Triple, ...] = (
    ("Jamaican English", "language.countries_spoken_in", "Jamaica"),
    ("Jamaica", "location.languages_spoken", "Jamaican Creole"),
    ("Kingston", "location.containedby", "Jamaica"),
    ("Jamaica", "location.neighbors", "Jamaica"),
)
OTHER: Triple = ("Jamaican English", "language.family", "English")


def make_question(*answers: str, name: str = "q", **more: object) -> Question:
    return Question(name, "?", answers, answer_set=True, **more)  # type: ignore[arg-type]


def make_prediction(question: Question, triples: list[Triple]) -> Prediction:
    return Prediction(question.id, "", tuple(Evidence(triple_id(triple), 1.0) for triple in triples))


def entity_recall(question: Question, graph: tuple[Triple, ...], ranking: list[Triple], k: int) -> float:
    corpus = TripleCorpus.of_triples([*graph, *ranking, OTHER])
    graphs = QuestionGraphs({question.id: graph}, corpus)
    (values,) = score([question], [make_prediction(question, ranking)], [f"answer_entity_recall@{k}"], graphs=graphs).values()
    return float(values[0])


def test_answers_in_head_or_tail_of_the_first_k_triples_are_found() -> None:
    question = make_question("Jamaican English", "Jamaican Creole")
    ranking = [JAMAICA[2], JAMAICA[1], JAMAICA[0]]
    assert [entity_recall(question, JAMAICA, ranking, k) for k in (1, 2, 3, 100)] == [0, 0.5, 1, 1]


def test_answers_outside_the_graph_are_ignored() -> None:
    assert entity_recall(make_question("Jamaican English", "Spanish"), JAMAICA, [JAMAICA[0]], 1) == 1


def test_question_without_an_answer_in_its_graph_is_unscorable() -> None:
    for question in (make_question("Spanish"), make_question("yes"), make_question(), make_question("Jamaica", answerable=False)):
        assert np.isnan(entity_recall(question, JAMAICA, list(JAMAICA), 5))
    assert np.isnan(entity_recall(make_question("Jamaica"), (), list(JAMAICA), 5))


def test_empty_retrieval_and_missing_prediction_score_zero() -> None:
    question = make_question("Jamaica")
    assert entity_recall(question, JAMAICA, [], 5) == 0
    graphs = QuestionGraphs({"q": JAMAICA}, TripleCorpus.of_triples(JAMAICA))
    assert score([question], [None], ["answer_entity_recall@5"], graphs=graphs)["answer_entity_recall@5#v1"][0] == 0


def test_parts_of_names_do_not_match() -> None:
    assert entity_recall(make_question("Jamaican Creole"), JAMAICA, [JAMAICA[0]], 1) == 0


def test_triples_from_the_graph_of_another_question_count() -> None:
    question = make_question("Jamaican English")
    assert entity_recall(question, JAMAICA, [OTHER], 1) == 1


NAMES = [f"n{i}" for i in range(6)]
TRIPLES = st.lists(st.tuples(*map(st.sampled_from, (NAMES, ["a.b", "c"], NAMES))), max_size=12)


@given(TRIPLES, TRIPLES, st.sets(st.sampled_from([*NAMES, "outside"]), max_size=4), st.integers(1, 8))
def test_metric_equals_a_naive_loop(graph: list[Triple], ranking: list[Triple], answers: set[str], k: int) -> None:
    once = list(dict.fromkeys(ranking))
    inside = [answer for answer in answers if any(answer in (head, tail) for head, _, tail in graph)]
    value = entity_recall(make_question(*sorted(answers)), tuple(graph), once, k)
    if not inside:
        assert np.isnan(value)
        return
    top = once[:k]
    hits = [answer for answer in inside if any(answer in (head, tail) for head, _, tail in top)]
    assert value == pytest.approx(len(hits) / len(inside))


@given(TRIPLES, st.sets(st.tuples(*map(st.sampled_from, (NAMES, ["a.b", "c"], NAMES))), max_size=4), st.integers(1, 8))
def test_reference_triple_recall_equals_recall_over_triples(ranking: list[Triple], reference: set[Triple], k: int) -> None:
    question = make_question("x", evidence=tuple(triple_id(triple) for triple in sorted(reference)))
    once = list(dict.fromkeys(ranking))
    value = float(score([question], [make_prediction(question, once)], [f"recall@{k}"])[f"recall@{k}#v2"][0])
    if not reference:  # skipped, not counted as 0
        assert np.isnan(value)
    else:
        assert value == pytest.approx(sum(triple in once[:k] for triple in reference) / len(reference))


def test_unknown_triples_and_graphs_are_refused() -> None:
    with raises("question-graphs-needed"):
        score([make_question("x")], [Prediction("q", "")], ["answer_entity_recall@5"])
    graphs = QuestionGraphs({"q": JAMAICA}, TripleCorpus.of_triples(JAMAICA))
    with raises("unknown-triple"):
        score([make_question("Jamaica")], [Prediction("q", "", (Evidence("t0", 1.0),))], ["answer_entity_recall@5"], graphs=graphs)


def gold_first(question: Question, graph: tuple[Triple, ...]) -> Prediction:
    """Return a ranking with the triples that contain an answer first."""
    return make_prediction(question, sorted(set(graph), key=lambda item: not {item[0], item[2]} & set(question.answers)))


@pytest.mark.slow
def test_maximum_is_reached_on_worlds_in_both_scopes() -> None:
    world = load("worlds/graph:test", {"questions": 20})
    for scope in ("question", "split"):
        benchmark = apply(f"graph(scope={scope})", world, 0)
        values = _values(benchmark, [1200])
        assert (np.isnan(values[0]) == [q.answers in {("yes",), ("no",)} for q in benchmark.questions]).all()
        assert np.nanmin(values[0]) == 1
    assert np.isnan(_values(load("worlds/multihop:test", {"questions": 10}), [5])).all()


def _values(benchmark: Benchmark, ks: list[int]) -> np.ndarray:
    graphs = QuestionGraphs.of(benchmark)
    responses = [gold_first(q, tuple(graphs.graphs.get(q.id, ()))) for q in benchmark.questions]
    metrics = [parse(f"answer_entity_recall@{k}") for k in ks]
    values = score(benchmark.questions, responses, metrics, graphs=graphs)
    assert check_invariants({metric: values[str(metric)] for metric in metrics}) == []
    return np.array([values[str(metric)] for metric in metrics])


@pytest.mark.parametrize(
    ("reference", "path"),
    [
        ("webqsp:test", "webqsp/rog_style_webqsp.jsonl"),
        ("cwq:test", "cwq/rog_style_cwq.jsonl"),
        ("cwq:test", "cwq/rog_style_cwq_full_subgraph_4.jsonl"),
        ("cwq:train", "cwq/nsm"),
    ],
)
def test_real_records_score_like_a_naive_loop(data_folder: Path, reference: str, path: str) -> None:
    benchmark = load(reference, {"path": str(data_folder / path)})
    values = _values(benchmark, [1, 2, 1_000_000])
    expected = []
    for question in benchmark.questions:
        nodes = {name for head, _, tail in benchmark.extra["graphs"][question.id] for name in (head, tail)}
        inside = [answer for answer in question.answers if answer in nodes]
        expected.append(1.0 if inside else np.nan)
    np.testing.assert_array_equal(values[2], expected)
    assert (np.isnan(values[0]) == np.isnan(values[2])).all()
