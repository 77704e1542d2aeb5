"""TREC files: round trips, ties, and the figures of trec_eval itself."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import registry, settings
from benchmarks.registry import Benchmark
from benchmarks.schema import Question
from judges.metric import parse as parse_metric
from judges.score import score
from methods.api import Evidence, Prediction
from results.formats import trec
from results.offered import LIMITS, Limits
from results.submission import Finding, Findings
from results.submission.card import parse_card
from results.submission.validate import Target, validate

IDS = st.text(st.characters(codec="utf-8"), max_size=12)
SCORES = st.floats(allow_nan=False, allow_infinity=False)

Run = dict[str, tuple[Evidence, ...]]


def written(run: Run, tag: str = "tag") -> str:
    sink = io.StringIO()
    trec.write_run(sink, run.items(), tag)
    return sink.getvalue()


def read(text: str, limits: Limits = LIMITS) -> tuple[Run, tuple[Finding, ...]]:
    findings = Findings()
    result = trec.read_run(io.BytesIO(text.encode()), findings, limits)
    return {question: evidence for question, (_, evidence) in result.items()}, findings.all()


def ranked(*ids: str, scores: Sequence[float] | None = None) -> tuple[Evidence, ...]:
    return tuple(Evidence(item, score) for item, score in zip(ids, scores or range(len(ids), 0, -1), strict=True))


@pytest.mark.parametrize(
    ("identifier", "column"),
    [
        ("doc-1", "doc-1"),
        ("p1#2", "p1#2"),
        ("#2", "%232"),
        ("a b", "a%20b"),
        ("100%", "100%25"),
        ("a%20b", "a%2520b"),
        ("", "%"),
        ("%", "%25"),
        ("Zürich", "Z%C3%BCrich"),
        ("a\tb\nc", "a%09b%0Ac"),
        ("\u2028", "%E2%80%A8"),
        ("\x7f", "%7F"),
    ],
)
def test_ids_become_one_column_and_come_back(identifier: str, column: str) -> None:
    assert trec.escape(identifier) == column
    assert trec.unescape(column) == identifier


@given(st.lists(IDS, unique=True, max_size=20))
def test_different_ids_stay_different_and_every_id_comes_back(ids: list[str]) -> None:
    columns = [trec.escape(identifier) for identifier in ids]
    assert [trec.unescape(column) for column in columns] == ids
    assert len(set(columns)) == len(ids)
    assert all(column.isascii() and len(column.split()) == 1 for column in columns)


def test_foreign_trec_ids_are_unchanged_except_for_stray_percent_signs() -> None:
    assert trec.unescape("Ünïcode") == "Ünïcode"
    for wrong in ("100%", "%zz", "%E2%80"):
        with pytest.raises(ValueError, match=r"%|utf-8"):
            trec.unescape(wrong)


@given(st.lists(SCORES, max_size=30))
def test_written_scores_fall_strictly_even_for_a_tool_that_reads_32_bits(scores: list[float]) -> None:
    result = np.array(trec.decreasing(scores), np.float32)
    assert np.isfinite(result).all()
    assert (np.diff(result) < 0).all()


@given(st.lists(st.floats(-(2.0**99), 2.0**99, width=32), unique=True, max_size=30))
def test_strictly_decreasing_scores_are_written_unchanged(scores: list[float]) -> None:
    falling = sorted({float(item) + 0.0 for item in scores}, reverse=True)
    assert trec.decreasing(falling) == falling


def test_a_tie_lowers_no_score_by_more_than_it_must() -> None:
    assert trec.decreasing([2.0, 2.0, 2.0, 1.0]) == [2.0, pytest.approx(2.0, rel=1e-6), pytest.approx(2.0, rel=2e-6), 1.0]
    assert trec.decreasing([0.0, 0.0]) == [0.0, pytest.approx(0.0, abs=1e-11)]
    assert trec.decreasing([1e300, 1e300, 5.0]) == [3.0, 2.0, 1.0]


RANKINGS = st.lists(st.tuples(IDS, SCORES), min_size=1, max_size=8, unique_by=lambda item: item[0])


@pytest.mark.slow
@given(st.dictionaries(IDS, RANKINGS, min_size=1, max_size=6))
def test_questions_and_order_come_back_whatever_the_ids_and_scores(run: dict[str, list[tuple[str, float]]]) -> None:
    given_run = {question: tuple(Evidence(*item) for item in ranking) for question, ranking in run.items()}
    result, findings = read(written(given_run))
    assert findings == ()
    assert {q: [item.id for item in e] for q, e in result.items()} == {q: [item.id for item in e] for q, e in given_run.items()}


@pytest.mark.slow
@given(st.dictionaries(IDS, st.lists(IDS, min_size=1, max_size=8, unique=True), min_size=1, max_size=6), st.data())
def test_a_run_without_ties_comes_back_exactly(run: dict[str, list[str]], data: st.DataObject) -> None:
    def falling(ids: list[str]) -> tuple[Evidence, ...]:
        grid = data.draw(st.lists(st.integers(-10_000, 10_000), min_size=len(ids), max_size=len(ids), unique=True))
        return ranked(*ids, scores=[item / 7 for item in sorted(grid, reverse=True)])

    given_run = {question: falling(ids) for question, ids in run.items()}
    assert read(written(given_run)) == (given_run, ())


def test_written_run_file_has_the_documented_layout() -> None:
    text = written({"q 1": ranked("a", "b#2", scores=[0.5, 0.25])}, "my run")
    assert text == "q%201 Q0 a 1 0.5 my%20run\nq%201 Q0 b#2 2 0.25 my%20run\n"


def test_document_that_is_ranked_twice_is_written_at_its_first_rank() -> None:
    text = written({"q": ranked("a", "b", "a", "c", "b", scores=[0.9, 0.8, 0.7, 0.6, 0.5])})
    assert text == "q Q0 a 1 0.9 tag\nq Q0 b 2 0.8 tag\nq Q0 c 3 0.6 tag\n"


def test_a_run_of_another_tool_is_ordered_by_score_then_rank() -> None:
    text = "q Q0 low 1 0.1 t\nq Q0 tie2 9 0.5 t\nq Q0 tie1 3 5e-1 t\nq\tQ0  high 2 7 t\r\n"
    result, (finding,) = read(text)
    assert [item.id for item in result["q"]] == ["high", "tie1", "tie2", "low"]
    assert (finding.code, finding.severity) == ("rank_ignored", "warning")


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("q Q0 d 1 0.5", "not_trec"),
        ("q Q0 d 1 nan t", "not_trec_number"),
        ("q Q0 d 1 inf t", "not_trec_number"),
        ("q Q0 d 1 1e999 t", "not_trec_number"),
        ("q Q0 d 1 1_0 t", "not_trec_number"),
        ("q Q0 d 1 0x1 t", "not_trec_number"),
        ("q Q0 ok 2 0.1 t", "evidence_twice"),
        ("q Q0 100% 1 0.5 t", "bad_escape"),
        ("q Q0 " + "x" * 2000 + " 1 0.5 t", "bad_id"),
    ],
)
def test_a_line_that_is_none_of_a_run_is_named(line: str, code: str) -> None:
    result, (finding,) = read(f"q Q0 ok 1 0.9 t\n{line}\n")
    assert (finding.code, finding.positions[0].line) == (code, 2)
    assert result == {"q": ranked("ok", scores=[0.9])}


def test_whole_scores_in_the_place_of_a_rank_are_refused() -> None:
    _, (finding,) = read("q\td\t30\nq\te\t20\n")
    assert (finding.code, finding.severity) == ("not_ranks", "error")
    assert read("q\td\t1\nq\te\t2\n") == ({"q": ranked("d", "e", scores=[-1.0, -2.0])}, ())


def test_long_rankings_and_many_questions_are_bounded() -> None:
    small = Limits(rows=3, evidence=2)
    text = "".join(f"q Q0 d{number} 1 {-number} t\n" for number in range(4))
    result, (finding,) = read(text, small)
    assert (len(result["q"]), finding.code, finding.count) == (2, "too_much_evidence", 2)
    result, (finding,) = read("".join(f"q{number} Q0 d 1 1 t\n" for number in range(6)), small)
    assert (list(result), finding.code) == (["q0", "q1", "q2"], "too_many_rows")
    assert "too_many_rows" in {item.code for item in read("q Q0 d 1 1 t\n" * 100, small)[1]}


def test_qrels_have_a_line_for_each_positive() -> None:
    sink = io.StringIO()
    positives = {"q 1": ("a", "b c"), "q2": (), "q3": ("%",)}
    graded = Question("q4", "?", (), evidence=("a",), grades={"a": 2.0, "b": 0.0})
    assert trec.write_qrels(sink, [*(Question(name, "?", (), evidence=row) for name, row in positives.items()), graded]) == 1
    assert sink.getvalue() == "q%201 0 a 1\nq%201 0 b%20c 1\nq3 0 %25 1\nq4 0 a 2\nq4 0 b 0\n"


@pytest.fixture(scope="module")
def world() -> Benchmark:
    return registry.load("worlds/multihop:validation").limited(25)


def shuffled(world: Benchmark, tied: bool) -> list[Prediction]:
    rng = np.random.default_rng(5)
    responses = []
    for question in world.questions:
        ids = [str(item) for item in rng.permutation(list(question.candidates or ()))]
        scores = [float(item) for item in (rng.integers(0, 3, len(ids)) if tied else -np.arange(len(ids)) / 3)]
        responses.append(Prediction(question.id, "", ranked(*ids, scores=scores)))
    return responses


@pytest.mark.parametrize("tied", [False, True])
def test_exported_files_give_trec_evals_figures_which_are_ours(world: Benchmark, tied: bool) -> None:
    pytrec_eval = pytest.importorskip("pytrec_eval")
    responses = shuffled(world, tied)
    text = written({item.question_id: item.evidence for item in responses})
    sink = io.StringIO()
    trec.write_qrels(sink, world.questions)

    # Read by the plain format alone, not by our reader.
    run: dict[str, dict[str, float]] = {}
    for question, _, document, _, value, _ in (line.split() for line in text.splitlines()):
        run.setdefault(question, {})[document] = float(np.float32(value))
    qrels: dict[str, dict[str, int]] = {}
    for question, _, document, grade in (line.split() for line in sink.getvalue().splitlines()):
        qrels.setdefault(question, {})[document] = int(grade)
    measures = {
        "recall_5": "recall@5",
        "P_5": "precision@5",
        "ndcg_cut_10": "ndcg@10",
        "map_cut_100": "map@100",
        "recip_rank": "mrr@100",
        "success_1": "hit@1",
    }
    theirs = pytrec_eval.RelevanceEvaluator(qrels, {"recall.5", "P.5", "ndcg_cut.10", "map_cut.100", "recip_rank", "success.1"}).evaluate(
        run
    )
    ours = score(world.questions, responses, measures.values())
    for their_name, our_name in measures.items():
        values = [theirs[trec.escape(question.id)][their_name] for question in world.questions]
        np.testing.assert_allclose(ours[str(parse_metric(our_name))], values, atol=1e-9)


def test_a_run_file_is_a_submission_of_rankings(world: Benchmark) -> None:
    card = parse_card(
        b"method: {name: x, version: '1'}\nbenchmark: worlds/multihop:validation\nsetting: distractor\n"
        b"retrieval_only: true\ntraining_data: []\n",
        "card.yaml",
    )
    response = shuffled(world, tied=False)
    text = written({item.question_id: item.evidence for item in response[:-2]} | {"nobody": ranked("p")})
    target = Target(world, settings.apply("distractor", world, 0))
    metrics = [parse_metric("recall@5"), parse_metric("em")]

    def check(raw: str):  # type: ignore[no-untyped-def]
        read_rows = trec.run_rows(target.in_setting)
        return validate(card, io.BytesIO(raw.encode()), target, file="r.txt", metrics=metrics, read=read_rows)

    report = check(text)
    assert [(item.code, item.count) for item in report.of("error")] == [("extra", 1)]
    assert report.findings[0].positions[0].line == text.count("\n")
    report = check("".join(line for line in text.splitlines(keepends=True) if not line.startswith("nobody")))
    assert report.ok
    assert [(item.code, item.count) for item in report.of("note")] == [("nothing_found", 2)]
    assert list(report.scores) == ["recall@5#v2"]
    assert [prediction.evidence for prediction in report.predictions] == [item.evidence for item in response[:-2]] + [(), ()]
    assert report.scores["recall@5#v2"][-1] == 0.0


def test_a_run_may_name_documents_of_one_passage(tmp_path: Path) -> None:
    (tmp_path / "docs.jsonl").write_text('{"id": 1, "text": "one two three"}\n{"id": "2", "text": "four five"}\n')
    (tmp_path / "q.csv").write_text("id,question,source\n7,Where?,2\n8,When?,1\n")
    card = parse_card(b"method: {name: x, version: '1'}\nbenchmark: files:test\nsetting: corpus\ntraining_data: []\n", "card.yaml")

    def check(size: int):  # type: ignore[no-untyped-def]
        options = {"path": str(tmp_path / "q.csv"), "documents": str(tmp_path / "docs.jsonl"), "chunk_size": size}
        loaded = registry.load("files:test", options)
        source = io.BytesIO(b"7 Q0 1 0 2.5 t\n7 Q0 2 1 2.0 t\n8 Q0 1 0 1 t\n")
        target, metrics = Target(loaded, settings.apply("corpus", loaded, 0)), [parse_metric("mrr@10")]
        retrieval = card.model_copy(update={"retrieval_only": True})
        return validate(retrieval, source, target, file="r.txt", metrics=metrics, read=trec.run_rows(loaded))

    assert check(3).scores["mrr@10#v2"].tolist() == [0.5, 1.0]
    assert [(item.code, item.count) for item in check(2).of("error")] == [("several_passages", 2)]
