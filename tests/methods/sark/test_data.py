"""Rows of SARK from worlds and from SARK's files, without a language model, and refused data."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import registry
from benchmarks.styles.rules import RuleRewriter
from benchmarks.styles.sark_files import write_sark
from methods.api import Services
from methods.sark.config import PRESETS, SarkDataConfig
from methods.sark.data import data_of, training_benchmarks
from methods.sark.rows import SarkRow
from methods.sark.style_pairs import formal_of
from tests.support.errors import raises

PAPER_DATA, WORLDS_DATA = (
    {name: value for name, value in PRESETS[preset].items() if name in SarkDataConfig.model_fields} for preset in ("paper", "worlds")
)
WORLDS = {"questions": 12, "mix": {"single": 1.0}}


def offline(**labels: Any) -> SarkDataConfig:
    """Make options for worlds with a reader that takes no time."""
    data = json.loads(json.dumps(WORLDS_DATA))
    data["labels"] |= {"reader": "extractive", **labels}
    return SarkDataConfig.model_validate(data)


def test_worlds_give_reproducible_rows_without_a_model(tmp_path: Path) -> None:
    benchmarks = training_benchmarks(["worlds/multihop:train"], {"worlds": WORLDS})
    config = offline(known=0.5)
    config.check_data()
    result = data_of(config, benchmarks, Services(device="cpu"), tmp_path / "work")
    labels = [row.label for row in result.rows]
    assert {0, 1} <= set(labels)
    assert result.counts["positives"] == labels.count(1)
    assert result.counts["negatives"] == labels.count(0)
    questions = {question.id: question for question in benchmarks[0].questions}
    for row in result.rows:
        assert row.list is not None
        assert set(questions[row.question_id].evidence) & set(row.list_ids)
        assert row.list_ids[0] in questions[row.question_id].evidence
        assert row.label is None or row.formal != row.informal
    # Known or not, all labels of a question are alike; no more negatives than asked for.
    by_question: dict[str, list[int | None]] = {}
    for row in result.rows:
        by_question.setdefault(row.question_id, []).append(row.label)
    assert all(len(set(some)) == 1 for some in by_question.values())
    assert all(len(some) <= 2 for some in by_question.values() if some[0] == 0)
    assert data_of(config, benchmarks, Services(device="cpu"), tmp_path / "work") == result
    assert data_of(config, benchmarks, Services(device="cpu"), tmp_path / "again") == result


def test_pocket_model_labels_the_evidence_of_single_passage_questions(tmp_path: Path) -> None:
    options = {"questions": 1, "mix": {"single": 1.0}, "candidates": 6}
    benchmarks = training_benchmarks(["worlds/multihop:train"], {"worlds": options})
    config = SarkDataConfig.model_validate({**WORLDS_DATA, "labels": {**WORLDS_DATA["labels"], "known": 0.0}})
    result = data_of(config, benchmarks, Services(device="cpu"), tmp_path)
    positives = [(row.question_id, row.passage_id) for row in result.rows if row.label == 1]
    evidence = {(question.id, passage) for question in benchmarks[0].questions for passage in question.evidence}
    assert set(positives) <= evidence
    assert positives
    assert result.counts["negatives"] == 0


def test_evidence_labels_every_candidate_without_a_reader(tmp_path: Path) -> None:
    benchmarks = training_benchmarks(["worlds/multihop:train"], {"worlds": {"questions": 12}})
    questions = {question.id: question for question in benchmarks[0].questions}
    options = {"by": "evidence", "passages": "all", "known": 0.0}
    config = offline(**options, reader="none", most_negatives=None, judge="match")
    assert config.wanted_judge is None
    result = data_of(config, benchmarks, Services(device="cpu"), tmp_path / "all")
    labels = {(row.question_id, row.passage_id): row.label for row in result.rows}
    assert labels == {(item.id, passage): int(passage in item.evidence) for item in questions.values() for passage in item.candidates or ()}
    fewer = data_of(offline(**options, most_negatives=2), benchmarks, Services(device="cpu"), tmp_path / "two")
    assert fewer.counts["positives"] == result.counts["positives"] == sum(len(question.evidence) for question in questions.values())
    assert fewer.counts["negatives"] == 2 * len(questions)
    assert fewer.counts["negatives_left_out"] == result.counts["negatives"] - fewer.counts["negatives"]


def test_questions_without_evidence_among_their_candidates_get_no_label_by_evidence(tmp_path: Path) -> None:
    (benchmark,) = training_benchmarks(["worlds/multihop:train"], {"worlds": {"questions": 4}})
    first = replace(benchmark.questions[0], evidence=())
    changed = replace(benchmark, questions=(first, *benchmark.questions[1:]))
    result = data_of(offline(by="evidence", passages="all", known=0.0), [changed], Services(device="cpu"), tmp_path)
    assert result.counts["questions_without_evidence_to_label"] == 1
    assert [row.label for row in result.rows if row.question_id == first.id] == [None]


def test_candidates_of_mixed_styles_are_mined_in_the_formal_style() -> None:
    options = {"questions": 8}
    plain = registry.load("worlds/multihop:train", options)
    back, own = formal_of(registry.load("worlds/style:train", options))
    assert [(q.id, q.candidates, q.evidence, q.supporting_facts) for q in back.questions] == [
        (q.id, q.candidates, q.evidence, q.supporting_facts) for q in plain.questions
    ]
    assert set(back.corpus.ids) == set(plain.corpus.ids)
    assert own is not None
    rewriter = RuleRewriter("train")
    for question in back.questions:
        formal = back.corpus.get(question.candidates or ())
        for item, styled in zip(formal, rewriter.rewrite(formal, "informal"), strict=True):
            assert own.get(question.id, item.id, "informal") == styled


def test_worlds_provide_their_own_style_pairs(tmp_path: Path) -> None:
    benchmarks = training_benchmarks(["worlds/style:train"], {"worlds": WORLDS})
    by_rules = data_of(offline(known=0.5), benchmarks, Services(device="cpu"), tmp_path / "rules")
    config = offline(known=0.5).model_dump(mode="json") | {"styles": {"by": "own"}}
    result = data_of(SarkDataConfig.model_validate(config), benchmarks, Services(device="cpu"), tmp_path / "own")
    assert result.rows == by_rules.rows
    assert not list((tmp_path / "own").rglob("pairs-*"))
    plain = training_benchmarks(["worlds/multihop:train"], {"worlds": WORLDS})
    with raises("no-passages-in-two-styles"):
        data_of(SarkDataConfig.model_validate(config), plain, Services(device="cpu"), tmp_path / "plain")


def test_candidates_can_come_from_a_retriever(tmp_path: Path) -> None:
    benchmarks = training_benchmarks(["worlds/multihop:train"], {"worlds": WORLDS})
    config = offline(known=0.5).model_dump(mode="json") | {"candidates": {"source": "retriever", "retriever": "bm25", "depth": 20}}
    result = data_of(SarkDataConfig.model_validate(config), benchmarks, Services(device="cpu"), tmp_path)
    own = {question.id: set(question.candidates or ()) for question in benchmarks[0].questions}
    assert any(set(row.list_ids) - own[row.question_id] for row in result.rows)
    bare = replace(benchmarks[0], questions=[replace(question, candidates=None) for question in benchmarks[0].questions])
    assert data_of(SarkDataConfig.model_validate(config), [bare], Services(device="cpu"), tmp_path / "bare").rows
    with raises("no-candidates"):
        data_of(offline(), [bare], Services(device="cpu"), tmp_path / "none")


def test_too_few_candidates_for_a_list_still_give_labeled_rows(tmp_path: Path) -> None:
    options = {**WORLDS, "candidates": 4}
    benchmarks = training_benchmarks(["worlds/multihop:train"], {"worlds": options})
    result = data_of(offline(known=0.5), benchmarks, Services(device="cpu"), tmp_path)
    assert result.counts["lists"] == 0
    assert result.counts["lists_too_short"] == 12
    assert result.rows
    assert all(row.label is not None and row.list is None for row in result.rows)


@pytest.mark.slow
def test_limited_rows_without_a_model_are_a_subset_of_all(tmp_path: Path) -> None:
    benchmarks = training_benchmarks(["worlds/multihop:train"], {"worlds": WORLDS})
    data = offline(known=0.5).model_dump(mode="json")
    data |= {"candidates": {"source": "retriever", "retriever": "bm25", "depth": 20}}
    config = SarkDataConfig.model_validate(data)
    whole = data_of(config, benchmarks, Services(device="cpu"), tmp_path / "whole")
    for rows in (1, 5, 10_000):
        limited = config.model_copy(update={"rows": rows})
        result = data_of(limited, benchmarks, Services(device="cpu"), tmp_path / str(rows))
        assert len(result.rows) == min(rows, len(whole.rows))
        assert [row for row in whole.rows if row in result.rows] == result.rows
    assert result.rows == whole.rows


def test_rows_with_given_labels_are_limited_too(data_folder: Path, tmp_path: Path) -> None:
    path = data_folder / "sark_style" / "sark_sample.json"
    value = training_benchmarks(["sark:train"], {"sark": {"path": str(path)}})
    result = data_of(offline().model_copy(update={"rows": 4}), value, Services(device="cpu"), tmp_path)
    assert len(result.rows) == 4


def test_modified_rows_file_is_refused(tmp_path: Path) -> None:
    benchmarks = training_benchmarks(["worlds/multihop:train"], {"worlds": WORLDS})
    data_of(offline(), benchmarks, Services(device="cpu"), tmp_path)
    path = tmp_path / "rows.jsonl"
    path.write_text(path.read_text("utf-8").replace('"label": 1', '"label": 0'), "utf-8")
    with raises("rows-changed"):
        data_of(offline(), benchmarks, Services(device="cpu"), tmp_path)
    # Other options are other rows.
    more = data_of(offline(known=1.0), benchmarks, Services(device="cpu"), tmp_path)
    assert more.counts["negatives"] > 0


def test_options_of_a_loader_that_name_a_subset_are_refused() -> None:
    with raises("options-of-subset", where="data_options"):
        training_benchmarks(["worlds/multihop:train"], {"worlds/multihop": WORLDS})


def test_questions_without_a_correct_answer_are_skipped(tmp_path: Path) -> None:
    (benchmark,) = training_benchmarks(["worlds/multihop:train"], {"worlds": WORLDS})
    first, second, *rest = benchmark.questions
    odd = replace(benchmark, questions=[replace(first, answers=()), replace(second, answerable=False), *rest])
    result = data_of(offline(known=0.5), [odd], Services(device="cpu"), tmp_path)
    assert result.counts["questions_without_answer"] == 2
    assert not {first.id, second.id} & {row.question_id for row in result.rows}
    none = replace(benchmark, questions=[replace(first, answers=())])
    with raises("no-training-row") as caught:
        data_of(offline(), [none], Services(device="cpu"), tmp_path / "none")
    assert "by: evidence" in (caught.value.try_this or "")


def test_labels_and_lists_by_evidence_need_no_answers(tmp_path: Path) -> None:
    (benchmark,) = training_benchmarks(["worlds/multihop:train"], {"worlds": WORLDS})
    plain = replace(benchmark, questions=[replace(item, answers=()) for item in benchmark.questions])
    for name, labels in (("labels", {"by": "evidence"}), ("lists", {"passages": "none"})):
        config = SarkDataConfig.model_validate({"labels": labels})
        made = [data_of(config, [item], Services(device="cpu"), tmp_path / f"{name}{at}") for at, item in enumerate((benchmark, plain))]
        assert made[0].rows == made[1].rows != []
        assert "questions_without_answer" not in made[1].counts or made[1].counts["questions_without_answer"] == 0


def test_saved_rows_in_sarks_layout_are_loaded_unchanged(tmp_path: Path) -> None:
    benchmarks = training_benchmarks(["worlds/multihop:train"], {"worlds": WORLDS})
    mined = data_of(offline(known=0.5), benchmarks, Services(device="cpu"), tmp_path / "mined")
    labels: dict[str, dict[str, int]] = {}
    orders: dict[str, tuple[str, ...]] = {}
    for row in mined.rows:
        orders[row.question_id] = row.list_ids
        if row.label is not None:
            labels.setdefault(row.question_id, {})[row.passage_id] = row.label
    kept = replace(benchmarks[0], questions=[question for question in benchmarks[0].questions if question.id in labels])
    write_sark(kept, tmp_path / "train.json", "labels", labels=labels, orders=orders)
    value = training_benchmarks(["sark:train"], {"sark": {"path": str(tmp_path / "train.json")}})
    # No reader is asked: there is none of this name to be built.
    result = data_of(offline(), value, Services(device="cpu"), tmp_path / "given")
    assert result.counts["questions_with_labels_of_their_own"] == len(kept.questions)

    def comparable(rows: Sequence[SarkRow]) -> list[tuple[Any, ...]]:
        return sorted((row.query, row.formal, row.label, [formal for formal, _ in row.list or ()]) for row in rows)

    assert comparable(result.rows) == comparable([row for row in mined.rows if row.label is not None])


def test_sample_of_the_papers_repository_gives_six_rows(data_folder: Path, tmp_path: Path) -> None:
    path = data_folder / "sark_style" / "sark_sample.json"
    value = training_benchmarks(["sark:train"], {"sark": {"path": str(path)}})
    result = data_of(offline(), value, Services(device="cpu"), tmp_path)
    records = json.loads(path.read_text("utf-8"))
    assert [(row.query, row.formal, row.label) for row in result.rows] == [
        (record["query"], record["passage"], record["label"]) for record in records
    ]
    for row in result.rows:
        assert [formal for formal, _ in row.list or ()] == records[0]["candidate_passages"]


def test_test_worlds_and_questions_of_other_sets_are_refused() -> None:
    for reference, code in (("worlds/multihop:test", "test-split"), ("worlds/multihop:validation", "seed-of-other-split")):
        with raises(code):
            training_benchmarks([reference], {"worlds": {"questions": 2}})
    unseen = registry.load("worlds/multihop:train", {"questions": 2})
    with raises("trained-on-question"):
        training_benchmarks(["worlds/style:train"], {"worlds": {"questions": 2}}, [unseen])


@pytest.mark.parametrize(
    ("options", "response"),
    [
        ({"labels": {"by": "llm"}}, "by: llm needs llm"),
        ({"labels": {"by": "llm", "llm": {"model": "m"}, "known": 0.5}}, "known is for readers"),
        ({"lists": {"by": "llm"}}, "by: llm needs llm"),
        ({"styles": {"by": "llm"}}, "by: llm needs llm"),
        ({"styles": {"by": "file"}}, "styles by file need file"),
    ],
)
def test_options_that_lack_their_source_are_refused(options: dict[str, Any], response: str) -> None:
    with pytest.raises(ValueError, match=response):
        SarkDataConfig.model_validate(options)


@pytest.mark.parametrize(
    ("options", "response"),
    [
        ({"labels": {"reader": "bm25"}}, "wrong-kind"),
        ({"labels": {"reader": "nobody"}}, "unknown-method"),
        ({"labels": {"reader": "extractive", "reader_options": {"spam": 1}}}, "bad-option"),
        ({"candidates": {"source": "retriever", "retriever": "extractive"}}, "wrong-kind"),
        ({"labels": {"reader": "extractive"}, "styles": {"style": "epic"}}, "unknown-style"),
        ({"labels": {"reader": "extractive"}, "styles": {"by": "file", "file": "/none.jsonl"}}, "missing-file"),
        ({"labels": {"by": "llm", "llm": {"model": "m", "key_variable": "RAGMETER_NO_SUCH_KEY"}}}, "missing-variable"),
    ],
)
def test_unusable_options_are_refused_before_loading(options: dict[str, Any], response: str) -> None:
    config = SarkDataConfig.model_validate(options)
    with raises(response):
        config.check_data()


def test_options_of_the_paper_are_valid() -> None:
    config = SarkDataConfig.model_validate(PAPER_DATA)
    assert config.labels.judge == "match"
    assert config.labels.extra is not None
    assert config.labels.extra.n == 100
    assert {llm.model for llm in config.llms} == {"Qwen/Qwen2.5-14B-Instruct"}
