"""Texts of triples."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.graphs import TripleCorpus
from methods.graphs.triples import LinearizeConfig, linearize, linearized, relation_text

JAMAICA = ("Jamaica", "location.country.languages_spoken", "Jamaican English")


def test_triple_texts_equal_the_figure_of_the_paper() -> None:
    assert linearize(JAMAICA) == "Jamaica languages_spoken Jamaican English"


def test_options_write_the_whole_relation_and_spaces() -> None:
    assert linearize(JAMAICA, "full") == "Jamaica location.country.languages_spoken Jamaican English"
    assert linearize(JAMAICA, underscores="space") == "Jamaica languages spoken Jamaican English"
    assert linearize(JAMAICA, "full", "space") == "Jamaica location.country.languages spoken Jamaican English"
    assert linearize(("snake_case", "a.b", "m.0_1"), underscores="space") == "snake_case b m.0_1"


@pytest.mark.parametrize(
    ("relation", "text"), [("treatments", "treatments"), ("a.b.", "b"), (".", "."), ("", ""), ("a..b", "b"), ("a. ", "a")]
)
def test_relations_with_no_or_many_dots_have_a_text(relation: str, text: str) -> None:
    assert relation_text(relation) == text


texts = st.text(alphabet="ab._ é", max_size=6)


@pytest.mark.slow
@given(
    st.lists(st.tuples(texts, texts, texts), min_size=1, max_size=12),
    st.sampled_from(["last", "full"]),
    st.sampled_from(["keep", "space"]),
    st.randoms(),
)
def test_batch_of_triples_equals_one_by_one(rows, rel, underscores, random) -> None:  # type: ignore[no-untyped-def]
    triples = TripleCorpus.of_triples(rows).triples
    config = LinearizeConfig(rel=rel, underscores=underscores)
    assert linearized(triples, config=config) == [linearize(triple, rel, underscores) for triple in triples]
    some = np.array([random.randrange(len(triples)) for _ in range(5)])
    assert linearized(triples, some, config) == [linearize(triples[int(n)], rel, underscores) for n in some]
