"""Recorded rewrites: matched by position and title, mixed by `styled`, and read by SARK's training."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks import registry
from benchmarks.registry import Benchmark
from methods.sark.style_pairs import formal_of
from tests.support.errors import raises

TITLES = ("Alba", "Bero", "Cumo", "Dara", "Egon", "Fuda")
Lines = Sequence[Mapping[str, Any]]


def line(name: str, identifier: int | str, title: str, *, gold: bool = False, informal: str | None = None) -> dict[str, Any]:
    text = f"So, {title} is, like, a town." if informal is None else informal
    return {"set": name, "id": identifier, "title": title, "informal": text, "gold": gold}


def write(path: Path, rows: Lines) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a data folder with two questions in each layout, and rewrites of the evidence and two other passages."""
    monkeypatch.setenv("RAGMETER_DATA", str(tmp_path))
    passages = [{"title": title, "text": f"{title} is a town near {TITLES[place - 1]}."} for place, title in enumerate(TITLES)]
    write(tmp_path / "hipporag" / "passages.jsonl", passages)
    questions = [
        {"id": "2hop__1", "question": "Which town is near Alba?", "answer": "Bero", "aliases": ["Bero town"], "supporting": [0, 1]},
        {"id": "2hop__2", "question": "Which town is near Bero?", "answer": "Cumo", "aliases": [], "supporting": [2]},
    ]
    write(tmp_path / "hipporag" / "questions.jsonl", questions)
    contexts = [[title, [f"{title} is a town.", f" It is near {TITLES[place - 1]}."]] for place, title in enumerate(TITLES)]
    record = {
        "_id": "h1",
        "question": "Which town is near Alba?",
        "answer": "Bero",
        "type": "bridge",
        "level": "easy",
        "supporting_facts": [["Alba", 0], ["Bero", 0]],
        "context": [contexts[0], *contexts],
    }
    (tmp_path / "hotpotqa").mkdir()
    (tmp_path / "hotpotqa" / "hotpot_train_v1.1.json").write_text(json.dumps([record]))
    write(tmp_path / "recorded" / "styles.jsonl", ROWS)
    return tmp_path


MUSIQUE = [line("musique", place, title, gold=place < 3) for place, title in enumerate(TITLES[:5])]
HOTPOT = [line("hotpotqa", f"h1#{place + 1}", title, gold=place < 2) for place, title in enumerate(TITLES[:4])]
ROWS = [*MUSIQUE, *HOTPOT]


def load(name: str = "musique", **options: Any) -> Benchmark:
    return registry.load(f"rewritten/{name}:train", options)


def texts(benchmark: Benchmark, identifiers: Sequence[str]) -> dict[str, str]:
    return {passage.title: passage.text for passage in benchmark.corpus.get(identifiers)}


def test_only_rewritten_passages_are_candidates_and_the_others_are_counted(data: Path) -> None:
    loaded = load(candidates=3)
    assert set(texts(loaded, loaded.corpus.ids)) == set(TITLES[:5])
    assert loaded.extra["counts"] == {"passages_without_rewrite": 1}
    assert "recorded" in loaded.extra["notes"][0]
    first, second = loaded.questions
    for question in (first, second):
        assert set(question.evidence) < set(question.candidates or ())
        assert len(question.candidates or ()) == 3
    assert set(texts(loaded, second.candidates or ())) >= {"Cumo", "Bero"}  # its evidence, and the town that it names
    assert first.wanted == ("Bero",)


def test_positions_in_a_context_with_a_repeated_passage_are_resolved_by_title(data: Path) -> None:
    loaded = load("hotpotqa")
    assert set(texts(loaded, loaded.questions[0].evidence)) == {"Alba", "Bero"}
    assert set(texts(loaded, loaded.questions[0].candidates or ())) == set(TITLES[:4])


@pytest.mark.parametrize(("kind", "informal"), [("evidence", {"Alba", "Bero"}), ("distractors", {"Cumo", "Dara", "Egon"})])
def test_styled_dataset_restyles_the_evidence_or_the_distractors(data: Path, kind: str, informal: set[str]) -> None:
    config = {"base": "rewritten/musique", "rewriter": "own", "mix": {"informal": 1}, "restyled": kind}
    mixed = registry.load("styled:train", config)
    shown = texts(mixed, mixed.questions[0].candidates or ())
    assert {title for title, text in shown.items() if text.startswith("So, ")} == informal
    assert "styled_kept_formal" not in mixed.extra["counts"]
    assert "recorded" in mixed.extra["notes"][0]
    assert "by=llm-recorded" in mixed.name


def test_training_set_has_both_styles_of_every_candidate(data: Path) -> None:
    formal, own = formal_of(load())
    assert own is not None
    for question in formal.questions:
        for candidate in question.candidates or ():
            styled = own.get(question.id, candidate, "informal")
            assert styled is not None
            assert styled.text.startswith("So, ")


def test_question_without_rewritten_evidence_is_excluded(data: Path) -> None:
    write(data / "recorded" / "styles.jsonl", MUSIQUE[1:])
    loaded = load()
    assert [question.id for question in loaded.questions] == ["2hop__2"]
    assert loaded.extra["counts"]["questions_without_rewrite"] == 1
    write(data / "recorded" / "styles.jsonl", MUSIQUE[3:])
    with raises("no-rewritten-question", where="styles.jsonl"):
        load()


def test_first_of_two_rewrites_is_used(data: Path) -> None:
    write(data / "recorded" / "styles.jsonl", [*MUSIQUE, line("musique", 0, "Alba", gold=True, informal="Another text.")])
    loaded = load()
    assert loaded.extra["counts"]["repeated_rewrites"] == 1
    assert all("Another" not in item.styled.text for item in loaded.extra["pairs"])


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("musique", {"set": "nq"}),
        ("musique", {"id": 6}),
        ("musique", {"id": -1}),
        ("musique", {"id": "0"}),
        ("musique", {"title": "Bero"}),
        ("musique", {"gold": False}),
        ("musique", {"gold": None}),
        ("musique", {"informal": "  "}),
        ("hotpotqa", {"id": "h2#1"}),
        ("hotpotqa", {"id": "h1"}),
        ("hotpotqa", {"id": "h1#x"}),
        ("hotpotqa", {"id": "h1#9", "title": "Zeno"}),
        ("hotpotqa", {"title": "Zeno"}),
        ("hotpotqa", {"gold": False}),
    ],
)
def test_line_that_does_not_match_its_source_is_reported(data: Path, name: str, change: Mapping[str, Any]) -> None:
    rows = [dict(row) for row in (MUSIQUE if name == "musique" else HOTPOT)]
    rows[0] |= change
    write(data / "recorded" / "styles.jsonl", rows)
    with raises("bad-record", where="styles.jsonl, line 1"):
        load(name)


def test_skip_bad_skips_and_reports_a_bad_line(data: Path) -> None:
    write(data / "recorded" / "styles.jsonl", [*MUSIQUE, line("musique", 17, "Zeno")])
    loaded = load(skip_bad=True)
    assert [item.where for item in loaded.skipped] == [f"{data}/recorded/styles.jsonl, line 6, field id"]
    assert len(loaded.questions) == 2


def test_missing_supporting_line_is_reported(data: Path) -> None:
    row = {"id": "2hop__1", "question": "Which town is near Alba?", "answer": "Bero", "supporting": [0, 17]}
    write(data / "hipporag" / "questions.jsonl", [row])
    with raises("bad-record", where="questions.jsonl, line 1"):
        load()


def test_missing_files_are_reported(data: Path) -> None:
    with raises("missing-file", where="elsewhere/passages.jsonl"):
        load(source="elsewhere")
    (data / "recorded" / "styles.jsonl").unlink()
    with raises("data-file-not-found", where="recorded"):
        load()
