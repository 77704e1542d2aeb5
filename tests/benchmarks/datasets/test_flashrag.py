"""FlashRAG datasets: golden answers, choices, and the paragraphs of multi-hop sets."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.core.errors import UserError
from benchmarks.registry import Benchmark, load
from judges.score import score
from methods.api import Prediction
from tests.support.hub_server import HubServer, Repository

CONTEXT = [["Works 1", ["Works 1 is a plant in Lyon.", " It opened in 1950."]], ["Firm 1", ["Firm 1 makes parts."]]]
FACTS = [["Works 1", 0], ["Firm 1", 0]]


def lines(rows: Sequence[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def read(folder: Path, subset: str, rows: Sequence[dict[str, Any]], split: str = "dev", **options: Any) -> Benchmark:
    (folder / f"{split}.jsonl").write_bytes(lines(rows))
    return load(f"flashrag/{subset}:{split}", {"path": str(folder / f"{split}.jsonl"), **options})


def row(**fields: Any) -> dict[str, Any]:
    return {"id": "dev_0", "question": "In which city is Works 1?", "golden_answers": ["Lyon", "city of Lyon"], **fields}


def test_open_domain_dataset_has_its_golden_answers(tmp_path: Path) -> None:
    (question,) = read(tmp_path, "nq", [row()]).questions
    assert (question.id, question.answers, question.candidates) == ("dev_0", ("Lyon", "city of Lyon"), None)


@pytest.mark.parametrize(("subset", "sentences", "text"), [
    ("hotpotqa", "sentences", "Works 1 is a plant in Lyon. It opened in 1950."),
    ("2wikimultihopqa", "content", "Works 1 is a plant in Lyon.  It opened in 1950."),
])  # fmt: skip
def test_multi_hop_dataset_equals_the_original_records(subset: str, sentences: str, text: str, tmp_path: Path) -> None:
    metadata = {
        "type": "bridge",
        "supporting_facts": {"title": [t for t, _ in FACTS], "sent_id": [s for _, s in FACTS]},
        "context": {"title": [t for t, _ in CONTEXT], sentences: [s for _, s in CONTEXT]},
    }
    benchmark = read(tmp_path, subset, [row(metadata=metadata)])
    native = {"_id": "dev_0", "question": row()["question"], "answer": ["Lyon", "city of Lyon"], "context": CONTEXT}
    native |= {"supporting_facts": FACTS, "type": "bridge", "level": "easy", "evidences": []}
    (tmp_path / "native.json").write_text(json.dumps([{k: v for k, v in native.items() if subset != "hotpotqa" or k != "evidences"}]))
    own = load(f"{subset}:dev", {"path": str(tmp_path / "native.json")})
    ours, theirs = benchmark.questions[0], own.questions[0]
    assert (ours.evidence, ours.supporting_facts, ours.answers) == (theirs.evidence, theirs.supporting_facts, theirs.answers)
    assert list(benchmark.corpus) == list(own.corpus)
    assert next(iter(benchmark.corpus)).text == text


def test_paragraphs_of_musique_are_candidates(tmp_path: Path) -> None:
    paragraphs = [{"idx": n, "title": f"T{n}", "paragraph_text": f"text {n}", "is_supporting": n == 1} for n in range(3)]
    benchmark = read(tmp_path, "musique", [row(metadata={"paragraphs": paragraphs})])
    (question,) = benchmark.questions
    assert [passage.title for passage in benchmark.corpus.get(question.evidence)] == ["T1"]
    assert len(question.candidates or ()) == 3


def test_choice_index_becomes_the_choice_text(tmp_path: Path) -> None:
    (question,) = read(tmp_path, "mmlu", [row(golden_answers=[1], choices=["Paris", "Lyon"])]).questions
    assert question.text.endswith("\nA. Paris\nB. Lyon")
    for answer in ("Lyon", "B"):
        assert [values[0] for values in score([question], [Prediction("dev_0", answer)], ["em"]).values()] == [1.0]
    with pytest.raises(UserError, match="choice 2"):
        read(tmp_path, "mmlu", [row(golden_answers=[2], choices=["Paris", "Lyon"])])


def test_flashrag_corpus_is_searched(tmp_path: Path) -> None:
    dump = tmp_path / "wiki.jsonl"
    dump.write_bytes(lines([{"id": 0, "contents": '"Works 1"\nWorks 1 is a plant in Lyon.'}, {"id": 1, "contents": "Lyon\nA city."}]))
    benchmark = read(tmp_path, "nq", [row()], corpus=str(dump))
    assert next((passage.title, passage.text) for passage in benchmark.corpus) == ("Works 1", "Works 1 is a plant in Lyon.")
    assert benchmark.corpus.by_native_id("1") == benchmark.corpus.ids[1]


def test_passage_of_one_line_has_no_title(tmp_path: Path) -> None:
    dump = tmp_path / "marco.jsonl"
    dump.write_bytes(lines([{"id": "0", "contents": "Works 1 is a plant in Lyon."}, {"id": "1", "contents": "A city.\n"}]))
    corpus = read(tmp_path, "nq", [row()], corpus=str(dump)).corpus
    assert [(passage.title, passage.text.strip()) for passage in corpus] == [("", "Works 1 is a plant in Lyon."), ("", "A city.")]


def test_datasets_are_fetched_from_the_hub(tmp_path: Path) -> None:
    repository = Repository({"nq/test.jsonl": lines([row()]), "popqa/test.jsonl": lines([row(id="test_7")])})
    with HubServer({"RUC-NLPIR/FlashRAG_datasets": repository}).as_hub(tmp_path):
        assert [question.id for question in load("flashrag/popqa:test", {"revision": "main"}).questions] == ["test_7"]


@pytest.mark.parametrize("dataset", ["nq/open:test", "hotpotqa:dev", "2wikimultihopqa:dev", "musique:dev"])
def test_other_loader_refuses_a_flashrag_file_and_suggests_flashrag(dataset: str, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_bytes(lines([row(metadata={"context": {"title": [], "sentences": []}})]))
    with pytest.raises(UserError) as error:
        load(dataset, {"path": str(tmp_path / "rows.jsonl")})
    assert "flashrag" in (error.value.try_this or "")


@pytest.mark.parametrize("fields", [{"golden_answers": []}, {"golden_answers": None}, {"question": " "}, {"id": None}, {"metadata": "x"}])
def test_record_without_a_question_or_its_gold_is_refused(fields: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        read(tmp_path, "nq", [row(**fields)])
    assert next(iter(fields)).removeprefix("golden_") in (error.value.where or "")
