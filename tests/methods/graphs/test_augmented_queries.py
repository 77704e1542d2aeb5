"""Augmented queries and seeds: tolerant parsing of replies, templates, names matched to nodes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.schema import Question
from methods.graphs.augmented_queries import PATTERNS, QueryRequest, TemplateQueries, read_queries
from methods.graphs.extraction import strings_in
from methods.graphs.knowledge_graph import KnowledgeGraph, Node
from methods.graphs.neighborhood import GraphNamer, Neighborhood, Seeds, Subgraph, seeds_of, texts_of
from methods.graphs.picture import layout, svg

TWO = '{"queries": ["Who?", "Where?"]}'


@pytest.mark.parametrize(
    "reply",
    [
        TWO,
        f"```json\n{TWO}\n```",
        f"Here you are:\n```\n{TWO}\n```\nGood luck {{you}}!",
        f"Sure. {TWO} That is all.",
        '{"confusing_questions": ["Who?", "Where?"]}',
        '["Who?", "Where?"]',
        '{"queries": ["Who?", "Where?",]}',
        '{"queries": ["Who?", "Where?"',
        '{"queries": ["Who?", "who? ", "", "  ", "Where?"]}',
        '{"queries": ["Who?", 3, null, "Where?"]}',
    ],
)
def test_query_list_is_parsed_from_any_wrapping(reply: str) -> None:
    assert read_queries(reply) == ("Who?", "Where?")


@pytest.mark.parametrize("reply", ["", "No.", "{}", '{"a": ["x"], "b": ["y"]}', '{"queries": "Who?"}', "[1, 2]", "}{ ]]"])
def test_reply_without_a_list_of_texts_gives_no_query(reply: str) -> None:
    assert read_queries(reply) == ()


def test_at_most_ten_queries_are_kept() -> None:
    assert len(read_queries(json.dumps([f"Query {number}?" for number in range(15)]))) == 10


@given(st.text(max_size=120))
def test_parsing_never_fails_for_any_text(reply: str) -> None:
    assert all(isinstance(item, str) for item in strings_in(reply) or ())


def request(*, entities: int = 12) -> QueryRequest:
    nodes = tuple(Node(f"PLACE {n}", "TOWN", (f"Place {n} lies {n} miles off {{braces}}.",)) for n in range(entities))
    answer = Node("GOLD", "PERSON", ("Gold founded Place 3.",))
    return QueryRequest(Question("q", "Who founded Place 3?", ("Gold",)), (answer, *nodes), ("GOLD",))


def test_every_template_adds_a_fact_without_the_answer_to_the_question() -> None:
    (made,) = TemplateQueries().generate([request()])
    assert len(made.queries) == len(set(made.queries)) == 10
    assert made.failed is None
    for query in made.queries:
        before, question, behind = query.partition("Who founded Place 3?")
        assert question
        assert "miles off {braces}" in before + behind
        assert not [name for name in ("gold", "place 3 ") if name in (before + behind).lower()]
    for patterns in PATTERNS.values():
        marks = [part for pattern in patterns for part in pattern.replace("}", "{").split("{")[::2] if len(part) > 4]
        assert any(mark in query for mark in marks for query in made.queries)
    assert TemplateQueries().generate([request()]) == [made]


def test_neighborhood_without_descriptions_is_recorded_as_a_failure() -> None:
    (made,) = TemplateQueries().generate([QueryRequest(Question("q", "?", ("a",)), (Node("A", "T"),))])
    assert made.queries == ()
    assert made.failed


GRAPH = KnowledgeGraph(
    "d", tuple(Node(name, "T") for name in sorted(["ANNE", "LAKE ANNE", "PORT VELMAR", "1871", "OLD PORT", "VELMAR INN", "X"]))
)


def seeds(answer: str) -> Seeds:
    named = GraphNamer().names(texts_of(Question("q", "what?", (answer,))), GRAPH)
    return seeds_of(GRAPH, [named])[0]


def test_seeds_are_the_nodes_named_in_the_answer_longest_name_first() -> None:
    assert seeds('"Port Velmar"') == Seeds(("PORT VELMAR",), "name", ("PORT VELMAR",))
    assert seeds("at Lake Anne in 1871").names == ("LAKE ANNE", "1871")


def test_answer_without_a_node_falls_back_to_five_nodes_with_most_common_words() -> None:
    assert seeds("Velmar") == Seeds(("PORT VELMAR", "VELMAR INN"), "jaccard5", ("VELMAR",))
    assert seeds("yes") == Seeds((), "", ("YES",))


def test_picture_escapes_names_marks_seeds_and_notes_omissions() -> None:
    import xml.etree.ElementTree as tree

    wild = "<SCRIPT>alert('&')\x00</SCRIPT>"
    graph = KnowledgeGraph("d", (Node(wild, "T"), Node("B", "T"), Node("C", "T"))).with_similarities([(0, 1, 0.9)])
    cut = Subgraph((wild,), 1, 3, 2.0)
    around = Neighborhood("q", Seeds((wild,), "name", (wild,)), (wild, "B", "C"), (0.6, 0.3, 0.1), Subgraph((wild, "B"), 2, 3, 1.0), cut)
    drawn = svg(graph, around)
    root = tree.fromstring(drawn)
    assert "<SCRIPT" not in drawn
    circles = [node.get("class") for node in root.iter("{http://www.w3.org/2000/svg}circle")]
    assert circles == ["node small seed", "node large", "node outside"]
    assert "cut behind rank 1" in drawn
    assert svg(graph, around) == drawn


def test_picture_places_entities_at_distinct_positions() -> None:
    positions = layout(90)
    assert len({(round(x), round(y)) for x, y in positions}) == 90
    assert layout(40) == layout(40)
