"""Texts paired by others: parallel versions, and SARK's two layouts."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.registry import load
from benchmarks.schema import Passage, passage_id
from benchmarks.settings import apply, possible_settings
from benchmarks.styles.mix import styled
from benchmarks.styles.pairs import Fields, StylePairs, import_parallel, load_pairs, write_pairs
from benchmarks.styles.sark_files import LABELS, contents, import_sark, passage_of, write_sark
from tests.support.errors import raises

BIBLE = "sark_style/bible_genesis.jsonl"
SAMPLE = "sark_style/sark_sample.json"
VERSIONS = ("KJV", "YLT", "WEB", "BBE")


@pytest.fixture
def native(data_folder: Path) -> list[dict]:
    return [json.loads(line) for line in (data_folder / BIBLE).read_text("utf-8").splitlines()]


def test_each_verse_becomes_a_question_over_its_chapter(data_folder: Path, native):
    result = load("parallel_style", {"path": str(data_folder / BIBLE)})
    verses = [(row["id"], number, row["styles"]) for row in native for number in range(row["n_verses"])]
    assert len(result.questions) == len(verses) == sum(len(row["verses"]) for row in native) == 1533
    assert len(result.corpus) == len({text for row in native for text in row["styles"]["KJV"]})
    texts = {passage.id: passage.text for passage in result.corpus}
    for question, (chapter, number, styles) in zip(result.questions, verses, strict=True):
        assert question.id == f"{chapter}:{number + 1}"
        assert question.text == styles["WEB"][number].strip()
        assert [texts[candidate] for candidate in question.candidates] == list(dict.fromkeys(styles["KJV"]))
        assert [texts[item] for item in question.evidence] == [styles["KJV"][number]]
    assert possible_settings(result) == ("distractor", "corpus", "oracle", "gold_only", "closed_book")


def test_four_bible_versions_are_paired_by_verse(data_folder: Path, native, tmp_path: Path):
    fields = Fields({"formal": "styles.KJV", "ylt": "styles.YLT", "web": "styles.WEB", "bbe": "styles.BBE"}, id="id")
    results = list(import_parallel(data_folder / BIBLE, fields))
    expected = {
        (row["styles"]["KJV"][n], version.lower()): row["styles"][version][n]
        for row in reversed(native)
        for n in reversed(range(row["n_verses"]))
        for version in VERSIONS[1:]
    }
    assert {(item.formal.text, item.style): item.styled.text for item in results} == expected
    path = tmp_path / "bible.jsonl"
    write_pairs(path, results, rewriter="people", made_from=BIBLE)
    assert Counter(pair.style for pair in load_pairs(path)) == Counter(style for _, style in expected)


@pytest.mark.slow
def test_versions_of_the_base_can_be_mixed(native, tmp_path: Path):
    path = str(tmp_path / "bible.jsonl")
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in native[:8]), "utf-8")
    mix = {"ylt": 0.5, "bbe": 0.25}
    made = load("styled", {"base": "parallel_style", "base_config": {"path": path}, "rewriter": "own", "mix": mix})
    base = load("parallel_style", {"path": path})
    assert made.fingerprint == styled(base, StylePairs(base.extra["pairs"]), mix).fingerprint
    for question in made.questions:
        size = len(question.candidates)
        assert question.metadata["styled"]["counts"].get("formal", 0) == round(0.25 * size)
        assert question.evidence[0] in question.candidates


def test_option_hardest_selects_the_texts_most_similar_to_another(tmp_path: Path):
    path = tmp_path / "parallel.jsonl"
    formal = ["The sons of Ham were four.", "It rained.", "The sons of Shem were five.", "They went out."]
    path.write_text(json.dumps({"id": "a", "formal": formal, "informal": ["one", "two", "three", "four"]}) + "\n", "utf-8")
    every, hard = (load("parallel_style/own", {"path": str(path), **more}) for more in ({}, {"hardest": 2}))
    assert [question.text for question in hard.questions] == ["one", "three"]
    known = {question.id: question for question in every.questions}
    assert all(known[question.id] == question for question in hard.questions)
    assert hard.corpus.fingerprint == every.corpus.fingerprint


def test_records_with_paired_fields_are_loaded(tmp_path: Path):
    path = tmp_path / "parallel.jsonl"
    path.write_text(
        '{"n": 1, "src": "It is raining.", "chat": "ugh, rain", "head": "Weather"}\n'
        '{"n": 2, "src": "He left.", "chat": " ", "head": "Him"}\n',
        "utf-8",
    )
    config = {"path": str(path), "styles": {"formal": "src", "informal": "chat"}, "id": "n", "title": "head"}
    result = load("parallel_style/own", config)
    assert [(q.id, q.text) for q in result.questions] == [("1:1", "ugh, rain")]
    assert [(p.title, p.text) for p in result.corpus] == [("Weather", "It is raining."), ("Him", "He left.")]
    assert [(item.style, item.styled.text) for item in result.extra["pairs"]] == [("informal", "ugh, rain")]
    assert result.extra["counts"] == {"blank_texts": 1}


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ('{"id": "a", "formal": ["x", "y"], "informal": ["z"]}', "bad-record"),
        ('{"id": "a", "formal": "x"}', "bad-record"),
        ('{"id": "a", "formal": "x", "informal": 3}', "bad-record"),
        ('{"formal": "x", "informal": "y"}', "bad-record"),
        ('{"id": "a", "formal": "x", "informal": "y"}\n{"id": "a", "formal": "x", "informal": "y"}', "duplicate-record"),
    ],
)
def test_texts_without_parallel_fields_are_refused(tmp_path: Path, row: str, what: str):
    path = tmp_path / "parallel.jsonl"
    path.write_text(row + "\n", "utf-8")
    with raises(what):
        load("parallel_style/own", {"path": str(path)})


def test_parallel_fields_require_two_styles():
    with raises("too-few-style-fields"):
        Fields({"formal": "x"})


def test_sample_has_one_question_with_six_labeled_passages(data_folder: Path):
    native = json.loads((data_folder / SAMPLE).read_text("utf-8"))
    result = load("sark:train", {"path": str(data_folder / SAMPLE)})
    assert len(result.questions) == len({row["query"] for row in native}) == 1
    (question,) = result.questions
    texts = {passage.id: contents(passage) for passage in result.corpus}
    labels = {texts[item]: label for item, label in question.metadata["labels"].items()}
    assert labels == {row["passage"]: row["label"] for row in native}
    assert [texts[item] for item in question.metadata["order"]] == native[0]["candidate_passages"]
    assert {texts[item] for item in question.evidence} == {row["passage"] for row in native if row["label"] == 1}
    assert sorted(texts[candidate] for candidate in question.candidates) == sorted(native[0]["candidate_passages"])
    assert result.extra["counts"] == {"questions_without_answers": 1}


@pytest.mark.slow
def test_sample_round_trips_unchanged(data_folder: Path, tmp_path: Path):
    result = load("sark:train", {"path": str(data_folder / SAMPLE)})
    path = tmp_path / "train.json"
    assert write_sark(result, path, LABELS) == 6
    assert json.loads(path.read_text("utf-8")) == json.loads((data_folder / SAMPLE).read_text("utf-8"))
    assert load("sark:train", {"path": str(path)}).fingerprint == result.fingerprint


def test_worlds_round_trip_through_ranked_lists(tmp_path: Path):
    base = load("worlds/style:test", {"questions": 30})
    path = tmp_path / "test.jsonl"
    assert write_sark(base, path) == 30
    again = load("sark:test", {"path": str(path)})
    assert [(q.text, q.candidates, q.answers) for q in again.questions] == [(q.text, q.candidates, q.golds) for q in base.questions]
    assert {p.id: (p.title, p.text) for p in again.corpus} == {p.id: (p.title, p.text) for p in base.corpus}


def test_worlds_round_trip_through_labels(tmp_path: Path):
    base = load("worlds/multihop:train", {"questions": 20})
    labels = {q.id: {candidate: int(candidate in q.evidence) for candidate in q.candidates} for q in base.questions}
    orders = {q.id: sorted(q.candidates, key=lambda item: -labels[q.id][item]) for q in base.questions}
    path = tmp_path / "train.json"
    assert write_sark(base, path, LABELS, labels=labels, orders=orders) == 200
    again = load("sark:train", {"path": str(path)})
    for old, new in zip(base.questions, again.questions, strict=True):
        assert new.metadata["labels"] == labels[old.id]
        assert list(new.metadata["order"]) == orders[old.id]
        assert set(new.evidence) == set(old.evidence)
    # The order is the label, so it must not reach a method.
    assert sum(q.candidates[: len(q.evidence)] == q.evidence for q in again.questions) < 5
    with raises("question-lacks-field"):
        write_sark(base, tmp_path / "other.json", LABELS)


def test_two_files_with_matching_rows_become_pairs(tmp_path: Path):
    formal = load("worlds/multihop:test", {"questions": 25})
    rendering = styled(formal, informal=1.0)
    paths = [tmp_path / "formal.jsonl", tmp_path / "informal.jsonl"]
    for benchmark, path in zip((formal, rendering), paths, strict=True):
        write_sark(benchmark, path)
    pairs = StylePairs(import_sark(*paths, "informal", by="m"))
    base = load("sark:test", {"path": str(paths[0])})
    assert len(pairs) == sum(len(q.candidates) for q in base.questions)
    mixed = styled(base, pairs, informal=1.0)
    assert [q.candidates for q in mixed.questions] == [q.candidates for q in rendering.questions]


def test_files_with_unmatched_rows_are_refused(tmp_path: Path):
    rows = [{"question": q, "answers": ["a"], "rank_list": ["x", "y"]} for q in ("one?", "two?")]

    def written(name: str, rows: list[dict]) -> Path:
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
        return path

    whole = written("a", rows)
    with raises("rows-of-different-questions"):
        list(import_sark(whole, written("b", rows[::-1]), "informal"))
    with raises("row-counts-differ"):
        list(import_sark(whole, written("c", rows[:1]), "informal"))
    with raises("row-lengths-differ"):
        list(import_sark(whole, written("d", [{**row, "rank_list": ["x"]} for row in rows]), "informal"))


@given(
    title=st.text(st.characters(exclude_characters='"\n', exclude_categories=("Cs",)), max_size=10),
    text=st.text(st.characters(exclude_categories=("Cs",)), max_size=20).filter(lambda text: not text.startswith('"')),
)
def test_passage_as_one_string_equals_the_structured_passage(title: str, text: str):
    made = Passage(passage_id(title, text), title, text)
    assert passage_of(contents(made)) == made


@pytest.mark.parametrize(
    ("rows", "what"),
    [
        ([{"query": "q", "passage": "a", "label": 2, "candidate_passages": ["a"]}], "bad-record"),
        ([{"query": "q", "passage": "a", "label": True, "candidate_passages": ["a"]}], "bad-record"),
        ([{"query": "q", "passage": "a", "label": 1, "candidate_passages": []}], "bad-record"),
        (
            [
                {"query": "q", "passage": "a", "label": 1, "candidate_passages": ["a"]},
                {"query": "q", "passage": "b", "label": 1, "candidate_passages": ["b"]},
            ],
            "bad-record",
        ),
        (
            [
                {"query": "q", "passage": "a", "label": 1, "candidate_passages": ["a"]},
                {"query": "q", "passage": "a", "label": 0, "candidate_passages": ["a"]},
            ],
            "bad-record",
        ),
        ([{"question": "q", "answers": ["a"], "rank_list": ["x"]}] * 2, "duplicate-question"),
        ([{"question": "q", "answer": ["a"]}], "not-sark-record"),
        ([{"question": "q", "paragraphs": []}], "record-of-other-dataset"),
    ],
)
def test_faulty_row_is_reported(tmp_path: Path, rows, what):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    with raises(what) as error:
        load("sark:train", {"path": str(path)})
    assert str(path) in error.value.where


def test_retrieved_list_is_exported_in_rank_order(tmp_path: Path):
    base = load("worlds/multihop:test", {"questions": 5})
    oracle = apply("oracle(n=3)", base, seed=1)
    write_sark(oracle, tmp_path / "t.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text("utf-8").splitlines()]
    assert [len(row["rank_list"]) for row in rows] == [3] * 5
