"""Valid questions about a triple, and wordings of questions about worlds and real graphs."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.schema import Triple
from benchmarks.worlds.world import relations
from methods.api import Services
from methods.gpr.masked import MaskedTriple, fault, names
from methods.gpr.questions import QuestionsConfig, generator_of, parse, questions_of
from methods.gpr.sampling import TripleIndex
from methods.gpr.wordings import WorldsQuestions, wordings
from methods.graphs.triples import PretrainingGraph, load_graph

ADHD: Triple = ("Attention deficit hyperactivity disorder", "medicine.disease.treatments", "Modafinil")


def services() -> Services:
    return Services(seed=0, device="cpu")


@pytest.mark.parametrize(
    ("reply", "question"),
    [
        ("What treats ADHD?", "What treats ADHD?"),
        ("What treats ADHD", "What treats ADHD?"),
        ("What treats ADHD.", "What treats ADHD?"),
        ('"What treats ADHD?"', "What treats ADHD?"),
        ("“What treats ADHD?”", "What treats ADHD?"),
        ("Question: What treats ADHD?", "What treats ADHD?"),
        ("**Question:** What treats ADHD?", "What treats ADHD?"),
        ('1. "What treats ADHD?"', "What treats ADHD?"),
        ("- Question 2: 'What treats ADHD?'", "What treats ADHD?"),
        ("\n\n  * What treats\tADHD?\nWhat else?", "What treats ADHD?"),
        ("1912 saw which war begin?", "1912 saw which war begin?"),
        ("---\n\n", ""),
        ("", ""),
    ],
)
def test_reply_is_parsed_as_one_question(reply: str, question: str) -> None:
    assert parse(reply) == question


@given(st.text(max_size=60))
def test_parsing_never_fails_for_any_reply(reply: str) -> None:
    question = parse(reply)
    assert question == "" or question.endswith("?")
    assert parse(question) == question
    assert "\n" not in question


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        ("What is a treatment for ADHD?", None),
        ("What does [MASK] treat, please?", "contains the mask"),
        ("What does <mask> treat, please?", "contains the mask"),
        ("Is modafinil a treatment for ADHD?", "names the answer"),
        ("Is “Modafinil” a treatment?", "names the answer"),
        ("What treats?", "fewer than 3 words"),
        ("What is the medicine.disease.treatments of ADHD?", "contains the relation's identifier"),
    ],
)
def test_question_that_contains_its_answer_is_rejected(question: str, reason: str | None) -> None:
    assert fault(question, MaskedTriple(ADHD, "tail")) == reason


def test_entity_counts_as_named_only_with_all_its_words() -> None:
    assert names("Who led the U.S. army?", "U.S")
    assert names("Who wrote MACBETH, the play?", "Macbeth")
    assert not names("Which museum is it?", "US")
    assert not names("Where is it?", "!!!")
    assert names("Who sang in !!! first?", "!!!")


def world_graph(seed: int = 3) -> PretrainingGraph:
    options = {"entities": 200, "community": 60, "triples": 20, "questions": 2, "seed": seed}
    return load_graph(["worlds/graph:train"], {"worlds": options})


@pytest.mark.slow
def test_nearly_every_world_triple_has_a_question_for_each_end() -> None:
    graph = world_graph()
    config = QuestionsConfig()
    results = questions_of(graph, config, generator_of(config, services()))
    assert len(results) > 1.9 * len(graph)
    for position, side, text in zip(results.triples.tolist(), results.sides.tolist(), results.texts, strict=True):
        masked = MaskedTriple(graph.triples[position], ("head", "tail")[side])
        assert masked.visible.casefold() in text.casefold()
        assert fault(text, masked) is None
        assert "{" not in text
        assert text[0] == text[0].upper()
        assert text.endswith("?")
        assert text.count("?") == 1


def test_training_wordings_differ_from_test_questions() -> None:
    query, mine = set(), set()
    for relation in relations():
        templates = (*relation.asks, *relation.inverse)
        query |= {text.replace("{h}", "{x}").replace("{t}", "{x}").casefold() for text in templates}
        for side in ("head", "tail"):
            mine |= {text.casefold() for text in wordings(relation, side)}
    assert len(mine) > 500
    assert not mine & query


def test_every_trained_relation_has_questions_in_both_directions() -> None:
    for relation in relations():
        for side in ("head", "tail"):
            texts = wordings(relation, side)
            assert len(texts) >= 3
            for text in texts:
                assert text.count("{x}") == 1
                assert text.count("which") + text.count("how many") >= 1


def test_relations_held_out_of_training_have_no_question() -> None:
    withheld = [relation for relation in relations() if relation.held_out]
    assert len(withheld) >= 5
    masked = [MaskedTriple(("Korv", item.id, "Ada Rin"), side) for item in withheld for side in ("head", "tail")]
    generator = WorldsQuestions()
    assert generator.generate(masked) == [None] * len(masked)
    assert generator.counts == {"dropped: a relation withheld from training": len(masked)}


def test_world_wordings_are_well_formed_questions() -> None:
    described = ("Korv", "species.discoverer", "Ada Rin")
    texts = {WorldsQuestions().generate([MaskedTriple((f"Korv {n}", *described[1:]), "tail")])[0] for n in range(40)}
    heads = {str(text).partition("Korv")[0] for text in texts}
    assert heads == {"By which person was ", "", "Which person first described "}
    (occupied,) = WorldsQuestions().generate([MaskedTriple(("Ada Rin", "person.occupation", "organist"), "head")])
    assert occupied is not None
    assert "an organist" in occupied


def test_limit_samples_triples_by_the_seed() -> None:
    graph = world_graph()
    config = QuestionsConfig(triples=50, sides=("tail",))
    item, same, other = (questions_of(graph, config, generator_of(config, services()), seed=seed) for seed in (1, 1, 2))
    assert item.counts["triples"] == 50
    assert 45 <= len(item) <= 50
    assert set(item.sides.tolist()) == {1}
    assert item.texts == same.texts
    assert item.texts != other.texts


@pytest.mark.slow
def test_real_graph_gives_questions_and_training_rows(data_folder: Path) -> None:
    options = {
        "webqsp": {"path": str(data_folder / "webqsp" / "rog_style_webqsp.jsonl")},
        "cwq": {"path": str(data_folder / "cwq" / "rog_style_cwq_full_subgraph_4.jsonl")},
    }
    graph = load_graph(["webqsp:test", "cwq:test"], options, allow_test=True)
    config = QuestionsConfig(generator="template")
    results = questions_of(graph, config, generator_of(config, services()))
    assert results.counts["unnamed"] == graph.counts["triples_with_unnamed"]
    assert results.counts["accepted"] == len(results) > 1.8 * results.counts["triples"]
    for head, _, tail in graph.triples.take(results.triples):
        assert not head.startswith(("m.0", "g.1"))
        assert not tail.startswith(("m.0", "g.1"))
    drawn = TripleIndex(graph.heads, graph.relations, graph.tails, graph.triples).draw(0, 0, None, results.triples)
    assert len(drawn.rows) + drawn.dropped == len(results)
    assert drawn.dropped < 0.05 * len(results)
    assert (results.triples[drawn.rows] == drawn.anchor).all()
    ends = [{head, tail} for head, _, tail in graph.triples]
    rows = list(zip(drawn.anchor.tolist(), drawn.neighbor.tolist(), drawn.negative.tolist(), strict=True))
    assert all(ends[anchor] & ends[neighbor] and anchor != neighbor for anchor, neighbor, _ in rows)
    assert not any(ends[anchor] & ends[negative] for anchor, _, negative in rows)
    # Unnamed ends bridge to answers: their triples are drawn although nobody asks about them.
    assert graph.unnamed[graph.heads[drawn.neighbor]].any() or graph.unnamed[graph.tails[drawn.neighbor]].any()
