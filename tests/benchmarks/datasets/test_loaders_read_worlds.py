"""Worlds written in every native format and loaded by the loader of real data."""

import json
import re
from functools import cache

import pytest

from benchmarks.registry import load
from tests.support import worlds_native
from tests.support.errors import raises
from tests.support.worlds_native import FORMATS, write_native

READ_AS = {
    "hotpotqa": "hotpotqa:dev",
    "2wikimultihopqa": "2wikimultihopqa:dev",
    "musique": "musique:dev",
    "musique_full": "musique/full:dev",
    "longbench": "longbench/multifieldqa_en:test",
    "ultradomain": "ultradomain/biology:test",
    "rog": "webqsp:test",
    "nsm": "cwq:test",
    "webqsp": "webqsp:test",
    "cwq": "cwq:test",
    "tog_webqsp": "webqsp:test",
    "tog_cwq": "cwq_tog:test",
    "nq_open": "nq/open:test",
    "nq_csv": "nq/dpr:test",
    "nq_reader": "nq/dpr:test",
    "nq_kilt": "nq/kilt:test",
    "nq_contexts": "nq/dpr:test",
}
WITH_PASSAGES = {*worlds_native.MULTIHOP_FORMATS, "nq_reader", "nq_contexts"}
"""Formats whose records contain the passages of their questions."""
WITHOUT_ALIASES = {"hotpotqa", *worlds_native.GRAPH_FORMATS} - {"cwq"}
"""Formats without a field for aliases of an answer."""
FLAT_ANSWERS = {*worlds_native.DOCUMENT_FORMATS, *worlds_native.NQ_FORMATS}
"""Formats that list every accepted wording as an answer."""


@cache
def world_for(form):
    return load(f"worlds/{FORMATS[form].subsets[0]}:test", {"questions": 30})


def test_every_native_format_has_a_loader_under_test():
    assert READ_AS.keys() == FORMATS.keys()


@pytest.mark.parametrize("form", FORMATS)
def test_world_in_every_native_format_loads_with_equal_gold_and_passages(form, tmp_path):
    world = world_for(form)
    written = write_native(world, form, tmp_path / "test_records.json")
    benchmark = load(READ_AS[form], {"path": str(tmp_path / "test_records.json")})
    known = {question.id: question for question in world.questions}
    # Twins exist only in MuSiQue-full.
    results = [question for question in benchmark.questions if question.answerable]
    assert len(benchmark.questions) == len(written) * (2 if form == "musique_full" else 1)
    for identifier, question in zip(written, results, strict=True):
        truth = known[identifier]
        assert question.text == truth.text
        assert question.golds == (truth.answers if form in WITHOUT_ALIASES else truth.golds)
        assert question.answers == (truth.golds if form in FLAT_ANSWERS else truth.answers)
        assert question.answer_set == (FORMATS[form].subsets == ("graph",))
        # Equal ids mean equal passages, to the last byte.
        if form in WITH_PASSAGES:
            assert set(question.candidates) == set(truth.candidates)
            assert set(question.evidence) == set(truth.evidence)
            original = world_for(form).corpus.get(truth.candidates)
            again = benchmark.corpus.get(truth.candidates)
            assert [(p.title, p.text) for p in again] == [(p.title, p.text) for p in original]
        if form in worlds_native.MULTIHOP_FORMATS:
            assert question.candidates == truth.candidates
        if form in ("hotpotqa", "2wikimultihopqa"):
            assert set(question.supporting_facts) == set(truth.supporting_facts)
        if form == "2wikimultihopqa":
            assert question.triples == truth.triples
        if form in ("rog", "nsm"):
            assert set(question.candidates) == set(truth.candidates)
            assert set(benchmark.extra["graphs"][question.id]) == set(world_for(form).extra["graphs"][truth.id])


@pytest.mark.parametrize("form", FORMATS)
def test_question_without_text_is_refused_with_its_position(form, tmp_path):
    path = tmp_path / "test_records.json"
    written = write_native(world_for(form), form, path)
    text = next(question.text for question in world_for(form).questions if question.id == written[2])
    whole = path.read_text("utf-8")
    value = text if form == "nq_csv" else json.dumps(text, ensure_ascii=False)
    path.write_text(whole.replace(value, " " if form == "nq_csv" else '" "', 1), "utf-8")
    with raises("bad-record") as caught:
        load(READ_AS[form], {"path": str(path)})
    assert re.search(r"test_records\.json, .*(line|record) \d+.*, field", str(caught.value.where))
