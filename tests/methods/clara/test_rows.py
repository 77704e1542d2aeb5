"""Rows of CLaRa's stages: from every source, with randomly placed positives and without leaked gold."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import registry
from benchmarks.core.errors import UserError
from benchmarks.core.random import Draws
from benchmarks.datasets.clara import StageRow
from benchmarks.read_questions import Recorder, left_out_counts, recording
from benchmarks.registry import DataReference
from benchmarks.text import has_answer
from benchmarks.worlds.dataset import WorldsConfig
from benchmarks.worlds.questions import answer_of
from methods.clara.config import PoolConfig, ScpDataConfig
from methods.clara.data import instruction_rows, joint_rows, joint_rows_of, scp_rows
from methods.clara.rows import (
    ScpRow,
    documents,
    facts_of,
    instruction_row,
    joint_row,
    pooled,
    rephrased,
    rows_about,
    scp_row,
    simple_pairs,
    world_rows,
    write_rows,
)
from tests.support.errors import raises

SMALL: dict[str, Any] = {"entities": 120, "community": 60}
WORLDS = "worlds/multihop:train"


def test_position_of_a_positive_is_uniform_over_seeds() -> None:
    positions = Counter[int]()
    for seed in range(4000):
        documents, result = pooled("q", ["gold"], (f"other {n}" for n in range(19)), 20, seed=seed)
        assert len(documents) == 20
        assert documents[result[0]] == "gold"
        positions[result[0]] += 1
    expected = 4000 / 20
    chi_square = sum((positions[position] - expected) ** 2 / expected for position in range(20))
    assert chi_square < 43.8  # 19 degrees of freedom, p = 0.001


def test_position_of_a_positive_is_uniform_over_questions() -> None:
    positions = Counter(pooled(f"q{n}", ["a", "b"], map(str, range(8)), 10)[1][0] for n in range(2000))
    low = sum(number for position, number in positions.items() if position < 5)
    # Of two places in ten, the lower one is below five with probability 1 - (5·4)/(10·9).
    assert abs(low / 2000 - (1 - 20 / 90)) < 0.04


@given(
    st.lists(st.text("abc", min_size=1, max_size=2), max_size=6),
    st.lists(st.text("abc", min_size=1, max_size=2)),
    st.integers(1, 12),
    st.integers(0, 5),
)
def test_pool_puts_positives_first_without_duplicate_texts(positives: list[str], others: list[str], size: int, seed: int) -> None:
    documents, positions = pooled("q", positives, others, size, seed=seed)
    distinct = list(dict.fromkeys([*positives, *others]))
    assert sorted(documents) == sorted(distinct[:size])
    assert {documents[position] for position in positions} == set(dict.fromkeys(positives)) & set(documents)
    assert set(list(dict.fromkeys(positives))[:size]) <= set(documents)
    assert pooled("q", positives, others, size, seed=seed) == (documents, positions)


def test_rows_of_the_released_sample_are_read(data_folder: Path) -> None:
    path = data_folder / "clara" / "pretrain_data.100.jsonl"
    natives = [json.loads(line) for line in path.read_text("utf-8").split("\n") if line]
    rows = scp_rows("clara_stages/pretraining:train", options={"path": str(path)})
    assert [(row.kind, row.document, list(row.questions), list(row.answers)) for row in rows] == [
        (native["data_type"], native["docs"][0], native["question"] if native["data_type"] == "qa" else [], native["answers"])
        for native in natives
    ]
    some = scp_rows("clara_stages/pretraining:train", ScpDataConfig(documents=10), {"path": str(path)})
    assert len({row.document for row in some}) == 10


def test_pisco_rows_use_the_teachers_text_as_target(tmp_path: Path) -> None:
    path = tmp_path / "pisco.jsonl"
    path.write_text(json.dumps({"query": "q?", "docs": list("abcdefg"), "mistral_label": "It is a."}) + "\n", "utf-8")
    (row,) = instruction_rows("pisco:train", options={"path": str(path)})
    assert (row.question, row.documents, row.answer) == ("q?", tuple("abcde"), "It is a.")


@pytest.mark.parametrize("blank", ["", "  ", None, []])
def test_row_with_a_blank_teacher_answer_is_left_out_and_counted(tmp_path: Path, blank: Any) -> None:
    path = tmp_path / "rows.jsonl"
    good = {"question": "Who?", "docs": ["Ada came."], "gold_answer": "Ada", "answer": "It was Ada."}
    untaught = {key: value for key, value in good.items() if key != "answer"}
    listed = good | {"answer": ["It was Ada."]}
    path.write_text("".join(json.dumps(row) + "\n" for row in (good, good | {"answer": blank}, untaught, listed)), "utf-8")
    for read, name in ((instruction_rows, "instruction_tuning"), (joint_rows, "e2e_training_nq_no_pos")):
        with recording(Recorder()):
            rows = read(f"clara_stages/{name}:train", None, {"path": str(path)})
            assert left_out_counts() == {"rows_without_answer": 1}
        assert [row.answer for row in rows] == ["It was Ada.", "Ada", "It was Ada."]


def test_positives_that_come_first_in_released_rows_are_shuffled() -> None:
    texts = tuple(f"document {number}" for number in range(20))
    rows = [joint_row(StageRow(f"r{n}", "answer", texts, (("q", ("a",)),), positives=(0, 1))) for n in range(200)]
    for row in rows:
        assert {row.documents[positive] for positive in row.positives} == {"document 0", "document 1"}
    assert sum(row.positives == (0, 1) for row in rows) < 8


def test_target_is_the_teachers_text_if_available() -> None:
    row = StageRow("r", "answer", ("d",), (("q", ("short",)),), target="It is short.")
    assert (instruction_row(row).answer, instruction_row(row).gold) == ("It is short.", "short")
    assert joint_row(row).answer == "It is short."


def test_row_of_another_stage_is_refused() -> None:
    pair = (("q", ("a",)),)
    with pytest.raises(UserError, match="not for pretraining"):
        scp_row(StageRow("r", "answer", ("d",), pair))
    with pytest.raises(UserError, match="not for joint training"):
        joint_row(StageRow("r", "qa", ("d",), pair))
    with pytest.raises(ValueError, match="1 questions, 2 answers"):
        ScpRow("qa", "d", ("q",), ("a", "b"))


def test_written_rows_of_all_stages_are_read_back(tmp_path: Path) -> None:
    scp = world_rows(DataReference("worlds", "multihop", "train"), WorldsConfig(**SMALL), ScpDataConfig(documents=5))
    joint = joint_rows(WORLDS, options={**SMALL, "questions": 6})
    tuning = instruction_rows(WORLDS, PoolConfig(depth=5), {**SMALL, "questions": 6})
    kept = {}
    for name, rows in (("pretraining", scp), ("e2e_training_nq_with_pos", joint), ("instruction_tuning", tuning)):
        kept[name] = tmp_path / f"{name}.jsonl"
        write_rows(kept[name], rows)
    read = scp_rows("clara_stages/pretraining:train", options={"path": str(kept["pretraining"])})
    assert [(r.kind, r.document, r.answers) for r in read] == [(r.kind, r.document, r.answers) for r in scp]
    again = joint_rows("clara_stages/e2e_training_nq_with_pos:train", options={"path": str(kept["e2e_training_nq_with_pos"])})
    for old, new in zip(joint, again, strict=True):
        assert (old.question, old.answer, old.golds) == (new.question, new.answer, new.golds)
        gold = [{row.documents[positive] for positive in row.positives} for row in (old, new)]
        assert gold[0]
        assert gold[0] == gold[1]
    taught = instruction_rows("clara_stages/instruction_tuning:train", options={"path": str(kept["instruction_tuning"])})
    assert [(r.question, r.documents, r.answer) for r in taught] == [(r.question, r.documents, r.answer) for r in tuning]


def test_documents_always_include_the_positives() -> None:
    benchmark = registry.load(WORLDS, {**SMALL, "questions": 20})
    for source in ("record", "retriever", "both"):
        rows = joint_rows(WORLDS, PoolConfig(source=source, depth=12), {**SMALL, "questions": 20})
        for row, question in zip(rows, benchmark.questions, strict=True):
            gold = {passage.full_text for passage in benchmark.corpus.get(question.evidence)}
            assert {row.documents[positive] for positive in row.positives} == gold
            assert len(row.documents) <= 12
            assert source == "retriever" or len(row.documents) >= 10


def test_target_is_the_alias_that_occurs_in_the_evidence() -> None:
    benchmark = registry.load(WORLDS, {**SMALL, "questions": 40})
    queries = [question for question in benchmark.questions if not question.answer_set]
    changed = replace(
        benchmark,
        questions=[
            replace(item, answers=("nobody says so",), aliases={"nobody says so": (item.answers[0], item.answers[0][:3])})
            for item in queries
        ],
    )
    stated = 0
    for row, item in zip(joint_rows_of(changed, PoolConfig()), queries, strict=True):
        evidence = [row.documents[positive] for positive in row.positives]
        if any(item.answers[0] in text for text in evidence):
            assert row.answer == item.answers[0]
            stated += 1
    assert stated > 10
    for row, item in zip(joint_rows_of(replace(benchmark, questions=queries), PoolConfig()), queries, strict=True):
        evidence = [row.documents[positive] for positive in row.positives]
        if any(item.answers[0] in text for text in evidence) or not any(g in t for g in item.golds for t in evidence):
            assert row.answer == item.answers[0]


def test_documents_are_distinct_texts_of_the_corpus() -> None:
    benchmark = registry.load(WORLDS, {**SMALL, "questions": 20})
    known = {passage.full_text for passage in benchmark.corpus}
    for row in joint_rows(WORLDS, options={**SMALL, "questions": 20}):
        assert set(row.documents) <= known
        assert len(set(row.documents)) == len(row.documents)


def test_benchmark_without_candidates_requires_a_retriever() -> None:
    benchmark = registry.load(WORLDS, {**SMALL, "questions": 3})
    bare = replace(benchmark, questions=[replace(question, candidates=None) for question in benchmark.questions])
    with raises("no-candidates"):
        joint_rows_of(bare, PoolConfig())
    assert all(row.documents for row in joint_rows_of(bare, PoolConfig(source="retriever")))


def test_every_fact_of_a_document_has_a_question_with_its_answer_in_the_text() -> None:
    query = 0
    for document in documents(DataReference("worlds", "multihop", "train"), WorldsConfig(**SMALL)):
        facts = facts_of(document.sentences)
        text = document.passage.full_text
        pairs = simple_pairs(facts, text, Draws("t"))
        assert len(pairs) == len({(fact.head.index, fact.relation.id) for fact in facts})
        for pair in pairs:
            assert all(answer in text for answer in pair.answer.split(", "))
            query += 1
    assert query > 100


def test_complex_questions_need_two_facts_of_the_document() -> None:
    for subset in ("multihop", "long"):
        rows = world_rows(DataReference("worlds", subset, "train"), WorldsConfig(**SMALL, worlds=1), ScpDataConfig(mix="simple+complex"))
        simple = {row.document: set(row.questions) for row in rows if row.id.endswith("/simple")}
        complex_rows = [row for row in rows if row.id.endswith("/complex")]
        assert complex_rows
        for row in complex_rows:
            assert len(set(row.questions)) == len(row.questions)
            assert not set(row.questions) & simple[row.document]
            assert all(has_answer(row.document, [part]) for a in row.answers for part in a.split(" and ")[:1])


@pytest.mark.slow
def test_paraphrase_keeps_every_fact_in_other_words() -> None:
    facts = changed = 0
    for document in documents(DataReference("worlds", "long", "train"), WorldsConfig(**SMALL, worlds=1)):
        reported = rephrased(document.sentences, Draws("t", document.passage.id))
        assert len(reported) == len(document.sentences)
        text = " ".join(reported).casefold()
        for fact in facts_of(document.sentences):
            answer, accepted = answer_of(fact)
            assert any(form.casefold() in text for form in (answer, *accepted))
            assert fact.head.name.casefold() in text or any(a.casefold() in text for a in fact.head.aliases)
            facts += 1
        changed += sum(sentence not in {sentence.text for sentence in document.sentences} for sentence in reported)
    assert changed > 0.9 * facts > 100


@pytest.mark.parametrize(
    ("mix", "types"),
    [
        ("none", set()),
        ("simple", {"simple"}),
        ("paraphrase", {"paraphrase"}),
        ("simple+complex", {"simple", "complex"}),
        ("all", {"simple", "complex", "paraphrase"}),
    ],
)
def test_mix_contains_only_its_row_types(mix: str, types: set[str]) -> None:
    rows = scp_rows(WORLDS, ScpDataConfig(mix=mix), SMALL)  # type: ignore[arg-type]
    assert {row.id.rpartition("/")[2] for row in rows} == types


def test_larger_document_sample_contains_the_smaller_one() -> None:
    drawn = [{r.document for r in scp_rows(WORLDS, ScpDataConfig(documents=n), SMALL)} for n in (5, 10, 20)]
    assert [len(item) for item in drawn] == [5, 10, 20]
    assert drawn[0] < drawn[1] < drawn[2]


def test_rows_of_worlds_are_reproducible_and_depend_on_the_seed() -> None:
    item = next(iter(documents(DataReference("worlds", "multihop", "train"), WorldsConfig(**SMALL))))
    assert rows_about(item, ("simple", "paraphrase")) == rows_about(item, ("simple", "paraphrase"))
    assert any(rows_about(item, ("simple",), 0) != rows_about(item, ("simple",), seed) for seed in range(1, 6))


def test_row_files_without_question_types_refuse_a_mix_of_them(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    line = {"data_type": "qa", "question": ["q?"], "answers": ["a"], "docs": ["d"]}
    file.write_text(json.dumps(line) + "\n", "utf-8")
    options = {"path": str(file)}
    with raises("simple-questions-unknown"):
        scp_rows("clara_stages/pretraining:train", ScpDataConfig(mix="simple"), options)
    assert scp_rows("clara_stages/pretraining:train", ScpDataConfig(mix="paraphrase"), options) == []
    with raises("no-pretraining-rows"):
        scp_rows("pisco:train", ScpDataConfig(), options)


def test_test_worlds_are_never_used_for_pretraining() -> None:
    with raises("seed-of-other-split"):
        scp_rows(WORLDS, options={**SMALL, "seed": 100_000})
