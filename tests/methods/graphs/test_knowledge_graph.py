"""Records parsed from replies, merged into graphs, joined by similarity, and stored in files."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.core.errors import UserError
from benchmarks.datasets.long_document import chunks as word_windows
from methods.graphs.chunking import CHUNKS, ChunkConfig, chunk
from methods.graphs.extraction import PROMPTS
from methods.graphs.knowledge_graph import (
    Edge,
    EntityRecord,
    GraphBuilder,
    KnowledgeGraph,
    Node,
    Records,
    RelationRecord,
    clean_name,
    parse,
    render,
    similar_pairs,
)
from tests.support.errors import raises

word = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=6)
phrase = st.lists(word, min_size=1, max_size=4).map(" ".join)
entities = st.builds(EntityRecord, phrase.map(str.upper), phrase.map(str.upper), phrase)
name, strength, keywords = phrase.map(str.upper), st.integers(1, 10).map(float), st.just("") | phrase
relations = st.builds(RelationRecord, name, name, phrase, strength, keywords, st.none()).filter(lambda item: item.source != item.target)


@pytest.mark.slow
@given(st.lists(entities, max_size=6), st.lists(relations, max_size=6))
def test_written_records_can_be_parsed_back(some: list[EntityRecord], pairs: list[RelationRecord]) -> None:
    assert parse(render(some, pairs)) == Records(tuple(some), tuple(pairs))


@pytest.mark.slow
@given(st.text(max_size=200), st.lists(entities, min_size=1, max_size=4), st.integers(0, 400))
def test_corrupt_reply_never_raises_and_its_losses_are_counted(noise: str, some: list[EntityRecord], at: int) -> None:
    whole = render(some, [])
    cut = parse(whole[: at % len(whole)])
    assert len(cut.entities) == len(some) or cut.malformed
    parse(whole[:at] + noise + whole[at:])


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("", "empty reply"),
        ("I'm sorry, I cannot help with that.", "no record in the reply"),
        ('("entity"<|>A<|>T<|>d)', "no end marker"),
        ('("entity"<|>A<|>T<|>d', "record not closed"),
        ('("entity"<|>A<|>T)<|COMPLETE|>', "entity with too few fields"),
        ('("entity"<|>A<|>T<|>d<|>e)<|COMPLETE|>', "entity with too many fields"),
        ('("entity"<|>""<|>T<|>d)<|COMPLETE|>', "entity without a name"),
        ('("relationship"<|>A<|>B<|>d)<|COMPLETE|>', "relationship with too few fields"),
        ('("relationship"<|>A<|>a<|>d<|>3)<|COMPLETE|>', "relationship of an entity to itself"),
        ('("entity"<|>A<|>T<|>d)## oh ##("entity"<|>B<|>T<|>d)<|COMPLETE|>', "text between records"),
    ],
)
def test_malformed_records_are_counted_by_reason(reply: str, reason: str) -> None:
    assert parse(reply).malformed[reason] == 1


def test_fences_prose_and_stray_delimiters_are_ignored() -> None:
    reply = (
        'Sure!\n```\n##\n("entity"<|>“Ines  Aldane”<|>person<|>kept ## a diary (in {braces}) &amp; more)\n##\n'
        "(relationship<|>'Ines Aldane'<|>town museum<|>sold<|>very)## ##\n<|COMPLETE|>\n```\nHope this helps (really)."
    )
    result = parse(reply)
    assert result.entities == (EntityRecord("INES ALDANE", "PERSON", "kept ## a diary (in {braces}) & more"),)
    assert result.relations == (RelationRecord("INES ALDANE", "TOWN MUSEUM", "sold", 1.0),)
    assert not result.malformed
    assert result.repaired == {"strength is not a number": 1}


def test_records_with_markdown_are_read() -> None:
    result = parse('(**"entity"**<|>A<|>T<|>d)##\n(**relationship**<|>A<|>B<|>d<|>3)<|COMPLETE|>')
    assert (result.entities, result.relations) == ((EntityRecord("A", "T", "d"),), (RelationRecord("A", "B", "d", 3.0),))


@pytest.mark.parametrize(
    ("given_", "read"), [("7", 7), ("nan", 1), ("0", 1), ("99", 10), ("inf", 1), ('"3"', 3), ("8/10", 8), ("**8**", 8), ("strength: 8", 8)]
)
def test_strengths_are_clamped_between_one_and_ten(given_: str, read: float) -> None:
    result = parse(f'("relationship"<|>A<|>B<|>d<|>{given_})<|COMPLETE|>')
    assert result.relations[0].strength == read


def test_names_lose_quotes_markup_and_control_characters() -> None:
    assert clean_name(' "Tom\x00 &quot;T&quot;  O’Neil" ') == 'TOM "T" O’NEIL'


def test_templates_insert_braces_dollars_and_placeholders_verbatim() -> None:
    text = "{text} $text ${given} {0} %s $$"
    for name, values in (("extraction", {"text": text}), ("names", {"text": text}), ("queries", {"given": text, "most": "10"})):
        (_, user) = PROMPTS[name].load().messages(**values)
        assert text in user["content"]


def test_custom_template_must_have_the_placeholders(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text("Read {text} for $5.\n---\n$text")
    with raises("template-lone-dollar"):
        PROMPTS["extraction"].load(path)
    path.write_text("Read $this")
    with raises("template-unknown-placeholder"):
        PROMPTS["extraction"].load(path)
    path.write_text("Read $text for $$5")
    assert PROMPTS["extraction"].load(path).messages(text="{x}") == [{"role": "user", "content": "Read {x} for $5"}]


chunk_records = st.lists(
    st.builds(
        Records,
        st.lists(entities, max_size=4).map(tuple),
        st.lists(relations.map(lambda r: r._replace(strength=r.strength / 3)), max_size=4).map(tuple),
    ),
    min_size=1,
    max_size=6,
)


@pytest.mark.slow
@given(chunk_records, st.randoms(use_true_random=False))
def test_graph_does_not_depend_on_the_order_of_chunks(records: list[Records], rng: random.Random) -> None:
    def built(order: list[int]) -> KnowledgeGraph:
        builder = GraphBuilder()
        for number in order:
            builder.add(number, records[number])
        return builder.build("d")

    order = list(range(len(records)))
    first = built(order)
    rng.shuffle(order)
    assert built(order) == first
    assert {node.name for node in first.nodes} >= {end for edge in first.edges for end in (edge.source, edge.target)}


def small() -> KnowledgeGraph:
    builder = GraphBuilder()
    builder.add(
        0,
        parse(
            '("entity"<|>a<|>x<|>one)##("entity"<|>a<|>y<|>two)##("relationship"<|>b<|>a<|>r<|>2)##'
            '("relationship"<|>c<|>d<|>s<|>1)##broken<|COMPLETE|>'
        ),
    )
    builder.add(3, parse('("entity"<|>A<|>y<|>one)##("relationship"<|>A<|>B<|>q<|>5)<|COMPLETE|>'))
    return builder.build("d")


def test_merging_uses_the_most_common_type_sums_strengths_and_adds_missing_nodes() -> None:
    graph = small()
    assert graph.nodes[0] == Node("A", "Y", ("one", "two"), (0, 3))
    assert graph.nodes[1] == Node("B", "UNKNOWN", ("q", "r"), (0, 3))
    assert graph.edges[0] == Edge("A", "B", 7.0, ("q", "r"), (0, 3))


def test_similarity_edges_do_not_change_extracted_edges() -> None:
    graph = small()
    joined = graph.with_similarities([(0, 1, 0.9), (0, 2, 0.85)])
    assert joined.edges[0] == Edge("A", "B", 7.0, ("q", "r"), (0, 3), 0.9)
    assert joined.edges[0].kinds == ("extracted", "similarity")
    assert [e.kinds for e in joined.edges if (e.source, e.target) == ("A", "C")] == [("similarity",)]
    matrix = joined.adjacency().toarray()
    assert (matrix == matrix.T).all()
    assert not matrix.diagonal().any()
    assert set(np.unique(matrix)) == {0.0, 1.0}


@given(rows=st.integers(0, 40), seed=st.integers(0, 10**6), tau=st.floats(-0.5, 0.99), block=st.integers(1, 17))
def test_similar_pairs_equal_a_naive_loop(rows: int, seed: int, tau: float, block: int) -> None:
    vectors = np.random.default_rng(seed).normal(size=(rows, 3)).astype(np.float32)
    if rows > 2:
        vectors[0] = 0
    results = {(i, j): cosine for i, j, cosine in similar_pairs(vectors, tau, block=block)}
    exact = {}
    for i in range(rows):
        for j in range(i + 1, rows):
            lengths = np.linalg.norm(vectors[i]) * np.linalg.norm(vectors[j])
            if lengths:
                exact[i, j] = float(vectors[i] @ vectors[j] / lengths)
    assert {pair for pair, cosine in exact.items() if cosine > tau + 1e-5} <= set(results)
    assert set(results) <= {pair for pair, cosine in exact.items() if cosine > tau - 1e-5}
    assert set(similar_pairs(vectors, min(tau + 0.1, 1.0))) <= set(similar_pairs(vectors, tau))


def test_threshold_is_inclusive_if_configured() -> None:
    vectors = np.array([[1, 0], [0, 1], [1, 0]], np.float32)
    assert [pair[:2] for pair in similar_pairs(vectors, 1.0)] == []
    assert [pair[:2] for pair in similar_pairs(vectors, 1.0, inclusive=True)] == [(0, 2)]


def test_stored_graph_loads_identically(tmp_path: Path) -> None:
    graph = small().with_similarities([(0, 1, 0.9), (0, 2, 0.85)])
    graph.save(tmp_path / "kg.json")
    assert KnowledgeGraph.load(tmp_path / "kg.json") == graph


def test_graph_with_a_non_finite_number_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        small().with_similarities([(0, 1, float("nan"))]).save(tmp_path / "kg.json")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "response"),
    [
        (lambda g: g.pop("nodes"), "nodes"),
        (lambda g: g.update(format=2), "format"),
        (lambda g: g["edges"][0].update(strength="7"), "edges.0.strength"),
        (lambda g: g["edges"][0].update(target="NOBODY"), "is not a node"),
        (lambda g: g["edges"].append(g["edges"][0]), "occurs twice"),
        (lambda g: g["edges"][0].update(strength=0.0), "neither an extracted"),
        (lambda g: g["nodes"].append(g["nodes"][0]), "occurs twice"),
    ],
)
def test_file_that_is_not_a_graph_is_refused_naming_file_and_field(tmp_path: Path, change: object, response: str) -> None:
    path = tmp_path / "kg.json"
    small().save(path)
    value = json.loads(path.read_text())
    change(value)  # type: ignore[operator]
    path.write_text(json.dumps(value))
    with pytest.raises(UserError, match=response) as caught:
        KnowledgeGraph.load(path)
    assert str(path) in str(caught.value)
    path.write_text("{")
    with raises("file-hash-mismatch"):
        KnowledgeGraph.load(path)


@pytest.mark.slow
@given(st.lists(word, max_size=60), st.integers(1, 12), st.integers(0, 11), st.sampled_from([" ", "\n", " \n\n "]))
def test_word_chunks_equal_those_of_the_loaders(words: list[str], size: int, overlap: int, gap: str) -> None:
    text = gap.join(words)
    config = ChunkConfig.model_validate({"unit": "word", "size": size, "overlap": min(overlap, size - 1)})
    results = chunk(text, config)
    assert [item.text for item in results] == [part.strip() for part in word_windows(text, size, config.overlap)]
    assert all(text[item.start : item.end] == item.text for item in results)
    assert [item.index for item in results] == list(range(len(results)))


def test_token_chunks_have_the_configured_size_and_overlap() -> None:
    text = " ".join(f"Wordlike{number} things, {{braces}} and naïve café." for number in range(80))
    results = chunk(text, CHUNKS["kg"].model_copy(update={"size": 64, "overlap": 8}))
    assert len(results) > 5
    assert all(text[item.start : item.end] == item.text for item in results)
    assert all(a.start < b.start < a.end <= b.end for a, b in pairwise(results))
    assert results[0].start == 0
    assert results[-1].end == len(text)


def test_sentence_chunks_split_overlong_sentences() -> None:
    rows = "\n-----\n".join(" ".join(["row"] * 100) for _ in range(4))
    results = chunk(f"One is here. Two is there.\n\n{rows}", CHUNKS["sentence"])
    assert [len(item.text.split()) for item in results] == [3, 3, 100, 100, 100, 100]
