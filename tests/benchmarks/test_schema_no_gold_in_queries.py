"""Inputs of methods, searched field by field for gold."""

import dataclasses
import json
from collections.abc import Sequence

import pytest

from benchmarks.registry import load
from benchmarks.schema import GoldQuery, Passage, Query, Question
from benchmarks.settings import apply, possible_settings

ALLOWED = {
    Query: {"id", "text", "document_id", "candidates", "topic_entities", "turns"},
    Passage: {"id", "title", "text", "sentences", "document_id"},
}
GIVEN = (".text", ".topic_entities[]")
"""Fields of a query that contain text."""
SAMPLES = {
    "hotpotqa:train": "hotpotqa/hotpot_distractor_train50.json",
    "2wikimultihopqa:dev": "2wikimultihopqa/2wiki_dev40.json",
    "musique:train": "musique/musique_ans_v1.0_train50.jsonl",
    "nq:test": "nq/nq-open-oracle.200.jsonl.gz",
    "longbench/qasper:test": "longbench/qasper.jsonl",
    "ultradomain/mix:all": "ultradomain/mix.jsonl",
    "webqsp:test": "webqsp/rog_style_webqsp.jsonl",
    "cwq:test": "cwq/rog_style_cwq.jsonl",
}


@pytest.fixture(params=SAMPLES)
def benchmark(request, data_folder):
    return load(request.param, {"path": str(data_folder / SAMPLES[request.param])})


def leaves(value, name=""):
    """Yield every (field path, plain value) below a value; a type that is not plain is its own leaf."""
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from leaves(getattr(value, field.name), f"{name}.{field.name}")
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for item in value:
            yield from leaves(item, f"{name}[]")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, f"{name}[{key}]")
    else:
        yield name, value


def test_query_has_no_gold_field():
    for kind, names in ALLOWED.items():
        assert {field.name for field in dataclasses.fields(kind)} == names


def test_query_cannot_be_extended(benchmark):
    query = benchmark.questions[0].query()
    with pytest.raises((AttributeError, TypeError)):
        object.__setattr__(query, "question", benchmark.questions[0])
    assert not isinstance(query, GoldQuery)


def test_queries_and_passages_hold_only_plain_texts_and_opaque_ids(benchmark):
    handed = [*(q.query() for q in benchmark.questions), *benchmark.corpus]
    for thing in handed:
        assert type(thing) in ALLOWED
        for name, value in leaves(thing):
            assert value is None or type(value) is str, name
            if name in (".id", ".candidates[]"):
                kind = "t" if "graphs" in benchmark.extra else "p"  # triples, passages
                assert value[0] == ("q" if type(thing) is Query and name == ".id" else kind)
                assert len(value) == 17
                assert set(value[1:]) <= set("0123456789abcdef")


def test_native_ids_and_labels_do_not_reach_queries(benchmark):
    forbidden = {q.id for q in benchmark.questions} | {q.type for q in benchmark.questions}
    forbidden |= {q.metadata.get(key) for q in benchmark.questions for key in ("level", "shape", "answer_id")} - {None}
    for question in benchmark.questions:
        assert not forbidden & {value for _, value in leaves(question.query())}
        gold = {*question.golds, *(part for triple in question.triples for part in triple)}
        # Topic entities are given by the dataset; one of them may be the answer too.
        assert not gold & {value for name, value in leaves(question.query()) if name not in GIVEN}


def test_changing_only_the_gold_does_not_change_the_query(benchmark):
    for question in benchmark.questions:
        kept = {name: getattr(question, name) for name in ALLOWED[Query]}
        other = Question(**kept, answers=("another answer",))
        assert other.query() == question.query()


def test_gold_position_is_not_predictable_in_any_setting(benchmark):
    for name in set(possible_settings(benchmark)) - {"gold_only"}:
        firsts, lasts, several = 0, 0, 0
        for question in apply(name, benchmark, seed=1).questions:
            ids = question.candidates or ()
            if 0 < len(question.evidence) < len(ids):
                several += 1
                firsts += set(ids[: len(question.evidence)]) == set(question.evidence)
                lasts += set(ids[-len(question.evidence) :]) == set(question.evidence)
        assert firsts <= several / 4
        assert lasts <= several / 4


def test_native_flags_that_leak_gold_are_dropped(tmp_path, data_folder):
    line = (data_folder / SAMPLES["musique:train"]).read_text().split("\n")[0]
    native = json.loads(line)
    question = load("musique:train", {"path": str(data_folder / SAMPLES["musique:train"])}).questions[0]
    shown = json.dumps(dataclasses.asdict(question.query()))
    for name in ("is_supporting", "question_decomposition", "answer", "answerable", "paragraph_support_idx"):
        assert name not in shown
    assert native["id"] not in shown
