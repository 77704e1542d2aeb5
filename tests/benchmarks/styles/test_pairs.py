"""Style pairs in a file, and the rewriting that fills it and resumes after a kill."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.registry import load
from benchmarks.schema import Passage, passage_id
from benchmarks.styles.pairs import ANY, Rewriting, StylePairs, load_pairs, read_pairs, restyled, write_pairs
from benchmarks.styles.rewrite import rewrite_candidates
from benchmarks.styles.rules import Outcome, RuleRewriter
from tests.support.errors import raises

STYLES = ("informal", "humor")


@pytest.fixture(scope="module")
def world():
    """Return five questions with ten candidates each; some passages are candidates of several questions."""
    return load("worlds/multihop:test", {"questions": 5})


def passage(title: str, text: str, sentences: tuple[str, ...] = (), document: str | None = None) -> Passage:
    return Passage(passage_id(title, text, document), title, text, sentences, document)


class Counting(RuleRewriter):
    """Rule-based rewriter that counts its requests and can be killed."""

    def __init__(self, survives: int | None = None, refuses: str = "") -> None:
        super().__init__("test")
        self.requested: list[tuple[str, str]] = []
        self.survives = survives
        self.refuses = refuses

    def outcomes(self, passages: Sequence[Passage], style: str) -> Iterator[Outcome]:  # type: ignore[override]
        for passage, outcome in zip(passages, super().outcomes(passages, style), strict=True):
            if self.survives is not None and len(self.requested) >= self.survives:
                raise KeyboardInterrupt
            self.requested.append((passage.id, style))
            yield Outcome(None, failed=("refusal: no", "empty: nothing")) if passage.id == self.refuses else outcome


TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=30)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(
    rows=st.lists(
        st.tuples(st.sampled_from(["", "q1", "q2"]), TEXTS, TEXTS, TEXTS.filter(str.strip), st.booleans()),
        max_size=6,
        unique_by=lambda row: (row[0], row[1], row[2]),
    )
)
def test_pairs_round_trip_through_a_file(tmp_path: Path, rows):
    made = []
    for question, title, text, styled, failed in rows:
        formal = passage(title, text, (text,), "d1" if failed else None)
        rephrased = None if failed else restyled(formal, styled, (styled,))
        made.append(Rewriting(question, formal, "humor", rephrased, "" if failed else "m", ("x: y",) if failed else ()))
    path = tmp_path / "pairs.jsonl"
    assert write_pairs(path, made, rewriter="r", made_from="b", overwrite=True) == len(made)
    results = list(read_pairs(path))
    # A failed line keeps no sentences, because it is never looked up.
    assert results == [item if item.styled else replace(item, formal=replace(item.formal, sentences=())) for item in made]
    assert StylePairs(results).fingerprint == StylePairs(reversed(made)).fingerprint


def test_pairs_are_looked_up_by_id_within_one_question():
    formal = passage("t", "x")
    pairs = StylePairs([Rewriting("q1", formal, "informal", restyled(formal, "x!"))])
    assert pairs.get("q1", formal.id, "informal").text == "x!"
    assert pairs.get("q2", formal.id, "informal") is None
    assert pairs.get("q1", formal.id, "humor") is None
    shared = StylePairs([Rewriting(ANY, formal, "informal", restyled(formal, "x?"))])
    assert shared.get("q2", formal.id, "informal").text == "x?"


def test_two_texts_for_one_pair_are_refused():
    formal = passage("t", "x")
    with raises("two-texts-of-passage"):
        StylePairs([Rewriting("q", formal, "informal", restyled(formal, text)) for text in ("a", "b")])


def test_passage_is_rewritten_once_and_each_question_gets_a_line(world, tmp_path: Path):
    rewriter = Counting()
    summary = rewrite_candidates(world, rewriter, STYLES, tmp_path / "p.jsonl")
    distinct = {c for q in world.questions for c in q.candidates}
    assert len(rewriter.requested) == len(set(rewriter.requested)) == 2 * len(distinct) == summary.requested
    pairs = load_pairs(tmp_path / "p.jsonl")
    assert len(pairs) == summary.pairs == 2 * sum(len(q.candidates) for q in world.questions)
    plain = RuleRewriter("test")
    for pair in pairs:
        assert pair.styled == plain.rewrite([pair.formal], pair.style)[0]
    assert pairs.by == {"rule": len(pairs)}


@pytest.mark.parametrize("survives", [0, 7, 40])
@pytest.mark.parametrize("cut", [0, 1, 90])
def test_killed_rewriting_resumes_to_the_same_file(world, tmp_path: Path, survives: int, cut: int):
    whole, killed = tmp_path / "whole.jsonl", tmp_path / "killed.jsonl"
    rewrite_candidates(world, Counting(), STYLES, whole)
    with pytest.raises(KeyboardInterrupt):
        rewrite_candidates(world, Counting(survives), STYLES, killed)
    header_end = killed.read_bytes().index(b"\n") + 1
    size = max(header_end, killed.stat().st_size - cut)
    with killed.open("rb+") as file:  # as after a kill: in the middle of a line
        file.truncate(size)
    kept = {(line.formal.id, line.style) for line in load_pairs_of_complete_lines(killed)}
    second = Counting()
    summary = rewrite_candidates(world, second, STYLES, killed)
    assert set(killed.read_text("utf-8").splitlines()) == set(whole.read_text("utf-8").splitlines())
    assert not kept & set(second.requested)
    assert summary.pairs == len(load_pairs(whole))
    third = Counting()
    rewrite_candidates(world, third, STYLES, killed)
    assert third.requested == []


def load_pairs_of_complete_lines(path: Path) -> list[Rewriting]:
    lines = path.read_text("utf-8").splitlines(keepends=True)
    complete = path.with_suffix(".complete")
    complete.write_text("".join(line for line in lines if line.endswith("\n")), "utf-8")
    return list(read_pairs(complete))


def test_permanent_failures_are_counted_and_retried_only_on_request(world, tmp_path: Path):
    path = tmp_path / "p.jsonl"
    bad = world.questions[0].candidates[0]
    requested_by = sum(bad in question.candidates for question in world.questions)
    first = rewrite_candidates(world, Counting(refuses=bad), STYLES, path)
    assert first.given_up == 2 * requested_by
    assert first.tries == {"refusal": 2, "empty": 2}
    assert load_pairs(path).failed == {"informal": requested_by, "humor": requested_by}
    again = Counting()
    assert rewrite_candidates(world, again, STYLES, path).given_up == 2 * requested_by
    assert again.requested == []
    last = rewrite_candidates(world, again, STYLES, path, retry_failed=True)
    assert [query for query, _ in again.requested] == [bad, bad]
    assert (last.given_up, last.pairs) == (0, first.pairs + first.given_up)
    assert load_pairs(path).failed == {}


def test_texts_of_two_rewriters_or_benchmarks_in_one_file_are_refused(world, tmp_path: Path):
    path = tmp_path / "p.jsonl"
    rewrite_candidates(world, RuleRewriter("test"), STYLES, path)
    with raises("file-options-mismatch"):
        rewrite_candidates(world, RuleRewriter("train"), STYLES, path)
    with raises("file-options-mismatch"):
        rewrite_candidates(load("worlds/multihop:test", {"questions": 4}), RuleRewriter("test"), STYLES, path)


def test_rewriting_requires_questions_with_candidates(world, tmp_path: Path):
    bare = replace(world, questions=[replace(question, candidates=None) for question in world.questions])
    with raises("no-candidates-to-rewrite"):
        rewrite_candidates(bare, RuleRewriter("test"), STYLES, tmp_path / "p.jsonl")


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"formal": "another text"}, "bad-record"),
        ({"styled": " "}, "bad-record"),
        ({"styled": 3}, "bad-record"),
        ({"question": None}, "bad-record"),
        ({"sentences": {"styled": "x"}}, "bad-record"),
    ],
)
def test_faulty_line_is_reported(tmp_path: Path, change, what):
    formal = passage("t", "x")
    path = tmp_path / "p.jsonl"
    write_pairs(path, [Rewriting("q", formal, "humor", restyled(formal, "y"))], rewriter="r", made_from="b")
    head, row = path.read_text("utf-8").splitlines()
    path.write_text(f"{head}\n{json.dumps({**json.loads(row), **change})}\n", "utf-8")
    with raises(what) as error:
        load_pairs(path)
    assert "line 2" in error.value.where


def test_unrelated_file_is_refused(tmp_path: Path):
    path = tmp_path / "p.jsonl"
    path.write_text('{"question": "q"}\n', "utf-8")
    with raises("not-style-pairs"):
        load_pairs(path)
    with raises("output-exists"):
        write_pairs(path, [], rewriter="r", made_from="b")
