"""Documents to rephrase: each document once, with itself as the answer."""

from __future__ import annotations

import pytest

from benchmarks import registry
from tests.support.errors import raises

WORLD = {"questions": 6}


def test_each_document_becomes_a_question_with_itself_as_answer_and_only_candidate() -> None:
    base = registry.load("worlds/multihop:test", WORLD)
    result = registry.load("rephrased:test", {"base": "worlds/multihop", "base_config": WORLD})
    assert result.corpus.fingerprint == base.corpus.fingerprint
    assert [question.candidates for question in result.questions] == [(identifier,) for identifier in base.corpus.ids]
    for question in result.questions:
        (passage,) = result.corpus.get(question.evidence)
        assert question.answers == (passage.full_text,)
        assert question.query().candidates == (passage.id,)
    assert len({question.id for question in result.questions}) == len(base.corpus)


def test_positives_are_the_passages_of_the_evidence() -> None:
    base = registry.load("worlds/multihop:test", WORLD)
    result = registry.load("rephrased:test", {"base": "worlds/multihop", "base_config": WORLD, "positives": True})
    named = {item for question in base.questions for item in question.evidence}
    assert {question.evidence[0] for question in result.questions} == named
    assert 0 < len(named) < len(base.corpus)
    assert result.name != registry.load("rephrased:test", {"base": "worlds/multihop", "base_config": WORLD}).name


def test_sample_depends_on_the_seed_and_has_the_requested_size() -> None:
    def sampled_ids(**more: int) -> list[str]:
        config = {"base": "worlds/multihop", "base_config": WORLD, "documents": 7, **more}
        return [question.id for question in registry.load("rephrased:test", config).questions]

    assert len(set(sampled_ids())) == 7
    assert sampled_ids() == sampled_ids() != sampled_ids(seed=1)
    assert len(sampled_ids(documents=10_000)) > 7


@pytest.mark.parametrize("base", ["rephrased", "worlds/multihop:train"])
def test_unsuitable_base_is_refused(base: str) -> None:
    with raises("unsuitable-base"):
        registry.load("rephrased:test", {"base": base})
