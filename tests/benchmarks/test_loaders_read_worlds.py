"""One code path serves worlds and real data: what a world writes in a native format loads with the same truth."""

import pytest

from benchmarks.registry import load
from benchmarks.worlds.native import write_native

FORMATS = {
    "hotpotqa": "hotpotqa:dev",
    "2wikimultihopqa": "2wikimultihopqa:dev",
    "musique": "musique:dev",
    "musique_full": "musique/full:dev",
}


@pytest.fixture(scope="module")
def world():
    return load("worlds/multihop:test")


@pytest.mark.parametrize("form", FORMATS)
def test_a_world_loads_through_a_native_format_with_the_same_truth(world, tmp_path, form):
    path = tmp_path / "records.json"
    written = write_native(world, form, path)
    benchmark = load(FORMATS[form], {"path": str(path)})
    known = {question.id: question for question in world.questions}
    answerable = [question for question in benchmark.questions if question.answerable]
    assert len(answerable) == len(written)
    assert len(benchmark.questions) == len(written) * (2 if form == "musique_full" else 1)
    for identifier, question in zip(written, answerable, strict=True):
        truth = known[identifier]
        assert question.text == truth.text
        assert question.answers == truth.answers
        # HotpotQA's format has no place for aliases.
        assert question.golds == (truth.answers if form == "hotpotqa" else truth.golds)

        def content(source, ids):
            return [(p.title, " ".join(s.strip() for s in p.sentences) or p.text) for p in source.corpus.get(ids)]

        assert content(benchmark, question.candidates) == content(world, truth.candidates)
        assert sorted(content(benchmark, question.evidence)) == sorted(content(world, truth.evidence))
        if form == "2wikimultihopqa":
            assert question.triples == truth.triples
        if form in ("hotpotqa", "2wikimultihopqa"):
            assert len(question.supporting_facts) == len(truth.supporting_facts)
