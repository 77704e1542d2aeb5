"""A run against qrels: every cell of trec_eval, on files whose ids hold whatever trec_eval takes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.core.errors import UserError
from benchmarks.io.judged import read_table
from benchmarks.schema import Question
from judges.metric import parse
from judges.score import score
from methods.api import Evidence, Prediction
from ragmeter.cli import main
from results.formats import trec_eval
from tests.support.errors import raises

QUESTIONS = 24
NAMES = ("msmarco_v2.1_doc_{}#3_123", "doc#{}", "doc{}", "#{}", "Zürich\u00a0{}", "漢{}", "%41{}", "d'{}\"")
# As pytrec_eval names families of measures; ours are their cells.
FAMILIES = {
    *("num_ret", "num_rel", "num_rel_ret", "map", "Rprec", "bpref", "recip_rank", "iprec_at_recall", "11pt_avg", "P", "recall"),
    *("ndcg", "ndcg_cut", "map_cut", "success", "set_P", "set_recall", "set_F"),
}


def made(seed: int, folder: Path) -> tuple[Path, Path]:
    """A run with ties, long and short rankings, and qrels with grades, unjudged, unreturned and unasked documents."""
    rng = np.random.default_rng(seed)
    documents = [name.format(number) for name in NAMES for number in range(60)]
    run, qrels = folder / "run.txt", folder / "qrels.txt"
    with open(run, "w", encoding="utf-8") as lines:
        for question in range(QUESTIONS):
            ranked = rng.permutation(documents)[: int(rng.integers(1, len(documents)))]
            scores = rng.choice([0.5, 0.25, 1e-9, 1 / 3, -2.0, 16777216.0, 16777217.0], len(ranked)) + rng.integers(0, 9, len(ranked))
            lines.writelines(
                f"q#{question} Q0 {name} {rank} {float(value)!r} tag\n"
                for rank, (name, value) in enumerate(zip(ranked, scores, strict=True))
            )
        lines.write("q#unjudged Q0 doc1 1 1.0 tag\n")
    with open(qrels, "w", encoding="utf-8") as lines:
        for question in range(QUESTIONS + 2):
            judged = rng.permutation(documents)[: int(rng.integers(1, 200))]
            grades = rng.choice([-1, 0, 0, 1, 2, 3], len(judged)) if question else np.zeros(len(judged), dtype=int)
            lines.writelines(f"q#{question}\t0 {name}  {grade}\r\n" for name, grade in zip(judged, grades, strict=True))
    return run, qrels


def plainly(run: Path, qrels: Path):  # type: ignore[no-untyped-def]
    """The two files as pytrec_eval takes them, read by their columns alone."""
    scores: dict[str, dict[str, float]] = {}
    grades: dict[str, dict[str, int]] = {}
    for line in run.read_bytes().splitlines():
        question, _, name, _, value, _ = (part.decode() for part in line.split())
        scores.setdefault(question, {})[name] = float(value)
    for line in qrels.read_bytes().splitlines():
        question, _, name, grade = (part.decode() for part in line.split())
        grades.setdefault(question, {})[name] = int(grade)
    return scores, grades


@pytest.mark.parametrize("seed", range(3))
def test_every_cell_is_trec_evals(seed: int, tmp_path: Path) -> None:
    pytrec_eval = pytest.importorskip("pytrec_eval")
    run, qrels = made(seed, tmp_path)
    scores, grades = plainly(run, qrels)
    theirs = pytrec_eval.RelevanceEvaluator(grades, FAMILIES).evaluate(scores)
    ours = trec_eval.evaluate(run, qrels)
    assert ours.unjudged == 1
    cells = 0
    for row, question in enumerate(ours.questions):
        assert ours.retrieved[row] == (question in theirs)
        mine = {name: values[row] for name, values in ours.values.items()}
        for name, value in theirs.get(question, {}).items():
            if name not in ("num_q", "runid"):
                assert mine[name] == value, (question, name)
                cells += 1
    assert cells == QUESTIONS * len(ours.values)
    means = {name: pytrec_eval.compute_aggregated_measure(name, [row[name] for row in theirs.values()]) for name in ours.values}
    summary = ours.summary()
    assert summary.pop("num_q") == QUESTIONS
    logs = [np.log(max(row["map"], 1e-5)) for row in theirs.values()]
    assert summary.pop("gm_map") == pytest.approx(np.exp(np.mean(logs)))
    assert summary == pytest.approx(means, abs=1e-12)
    assert ours.summary(complete=True)["map"] == pytest.approx(means["map"] * QUESTIONS / (QUESTIONS + 2))


def test_ranking_metrics_over_predictions_are_trec_evals_whatever_the_ids(tmp_path: Path) -> None:
    """The way of a benchmark's question: all positives of grade 1, the ranking in the order given."""
    run, qrels = made(7, tmp_path)
    grades = {q: {d: int(grade) for d, grade in row.items()} for q, row in read_table(qrels, "qrels").values.items()}
    rankings = {q: trec_eval.order(row) for q, row in read_table(run, "run").values.items()}
    questions = [Question(q, "?", (), evidence=tuple(d for d, grade in row.items() if grade > 0)) for q, row in grades.items()]
    predictions = [
        Prediction(q.id, "", tuple(Evidence(name, -float(rank)) for rank, name in enumerate(rankings.get(q.id, ())))) for q in questions
    ]
    binary = [{name: int(grade > 0) for name, grade in row.items()} for row in grades.values()]
    theirs = trec_eval.measures([rankings.get(q.id, []) for q in questions], binary)
    names = {f"{ours}@{k}": f"{name}_{k}" for k in (5, 10, 100) for ours, name in
             (("recall", "recall"), ("precision", "P"), ("ndcg", "ndcg_cut"), ("map", "map_cut"))}  # fmt: skip
    names |= {"hit@5": "success_5", "mrr@1000": "recip_rank"}
    ours = score(questions, predictions, list(names))
    for our_name, name in names.items():
        values = ours[str(parse(our_name))]
        assert np.isnan(values).tolist() == [not q.evidence for q in questions]
        np.testing.assert_allclose(np.nan_to_num(values), theirs[name], atol=1e-12)
    assert max(len(q.evidence) for q in questions) > 8


@pytest.mark.parametrize(
    ("run", "qrels", "where", "what"),
    [
        ("q Q0 d 1 1.0 t\nq Q0 d 1\n", "q 0 d 1\n", "run.txt:2", "bad-line"),
        ("q Q0 d 1 high t\n", "q 0 d 1\n", "run.txt:1", "bad-line"),
        ("q Q0 d 1 1e99 t\n", "q 0 d 1\n", "run.txt:1", "bad-line"),
        ("q Q0 d 1 2 t\nr Q0 d 1 2 t\n\nq Q0 d 2 1 t\n", "q 0 d 1\n", "run.txt:4", "unknown-layout"),
        ("q Q0 d 1 1.0 t\n", "q 0 d 1\nq 0 d 0\n", "qrels.txt:2", "unknown-layout"),
        ("q Q0 d 1 1.0 t\n", "q 0 d high\n", "qrels.txt:1", "bad-line"),
        ("q Q0 d 1 1.0 t\n", "q Q0 d 1 1.0 t\n", "qrels.txt:1", "bad-line"),
        ("q Q0 d 1 1.0 t\n", "", "qrels.txt", "no-data-line"),
        ("q Q0 d 1 1.0 t\n", "p 0 d 1\n", "run.txt", "run-and-qrels-disjoint"),
    ],
)
def test_invalid_run_or_qrels_names_file_and_line(run: str, qrels: str, where: str, what: str, tmp_path: Path) -> None:
    (tmp_path / "run.txt").write_text(run)
    (tmp_path / "qrels.txt").write_text(qrels)
    with raises(what) as error:
        trec_eval.evaluate(tmp_path / "run.txt", tmp_path / "qrels.txt")
    assert where in (error.value.where or "")


# What `trec_eval -c -m all_trec` printed for the files of seed 5: each release's own binary, built from NIST's repository.
PRINTED: dict[trec_eval.Version, dict[str, str]] = {
    9: {
        "map": "0.0618", "gm_map": "0.0159", "bpref": "0.2830", "recip_rank": "0.3736", "11pt_avg": "0.0863", "P_5": "0.1462",
        "iprec_at_recall_0.00": "0.4140", "iprec_at_recall_0.10": "0.1186", "iprec_at_recall_0.90": "0.0040", "ndcg": "0.2550",
    },
    10: {
        "map": "0.0583", "gm_map": "0.0146", "bpref": "0.2822", "recip_rank": "0.2722", "11pt_avg": "0.0785", "P_5": "0.1308",
        "iprec_at_recall_0.00": "0.3105", "iprec_at_recall_0.10": "0.1259", "iprec_at_recall_0.90": "0.0083", "ndcg": "0.2433",
        "rbp": "0.0715", "rbp_resid": "0.7404", "unj_5": "0.6923", "unj_10": "0.6692", "unj_20": "0.6750",
    },
}  # fmt: skip


@pytest.mark.parametrize("version", [9, 10])
def test_measures_equal_the_output_of_each_trec_eval_release(version: trec_eval.Version, tmp_path: Path) -> None:
    summary = trec_eval.evaluate(*made(5, tmp_path), version).summary(complete=True)
    assert {name: f"{summary[name]:.4f}" for name in PRINTED[version]} == PRINTED[version]
    assert ("rbp" in summary) == (version == 10)


def test_scores_that_differ_beyond_32_bits_are_tied_in_version_9_only(tmp_path: Path) -> None:
    (tmp_path / "qrels").write_text("q 0 a 1\nq 0 b 0\n")
    (tmp_path / "run").write_text("q Q0 a 1 16777217 t\nq Q0 b 2 16777216 t\n")
    values = [trec_eval.evaluate(tmp_path / "run", tmp_path / "qrels", version).values["recip_rank"][0] for version in trec_eval.VERSIONS]
    assert values == [0.5, 1.0]


def test_notes_count_questions_whose_lines_are_in_another_order(tmp_path: Path) -> None:
    qrels = tmp_path / "qrels"
    qrels.write_text("q1 0 a 1\nq2 0 a 1\n")
    for scores, moved in (((2, 1), 0), ((1, 1), 2), ((1, 2), 2)):
        run = tmp_path / "run"
        run.write_text("".join(f"{name} Q0 {doc} 1 {score} t\n" for name in ("q1", "q2") for doc, score in zip("ab", scores, strict=True)))
        notes = trec_eval.evaluate(run, qrels).notes
        assert [note.split()[0] for note in notes] == [str(moved)] * (moved > 0)


def test_trec_eval_notes_report_ignored_lines(tmp_path: Path) -> None:
    (tmp_path / "qrels").write_text("# judged twice\nq 0 a 1.5\nr 0 b 1.0\n")
    (tmp_path / "run").write_text("q Q0 a 1 2 t\ns Q0 a 1 2 t\n")
    result = trec_eval.evaluate(tmp_path / "run", tmp_path / "qrels", 10)
    assert result.values["map"].tolist() == [1.0, 0.0]
    assert [any(word in note for note in result.notes) for word in ("comments", "1 grade not whole", "-c", "without judgments")] == [
        True
    ] * 4


def test_one_command_scores_a_run_on_a_beir_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytrec_eval = pytest.importorskip("pytrec_eval")
    run, qrels = made(2, tmp_path)
    scores, grades = plainly(run, qrels)
    rows = "".join(f"{question}\t{name}\t{grade}\n" for question, row in grades.items() for name, grade in row.items())
    (tmp_path / "set" / "qrels").mkdir(parents=True)
    (tmp_path / "set" / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + rows, encoding="utf-8")
    command = ["judge", "score", "--trec", str(run), str(tmp_path / "set"), "--metric", "nDCG@10", "--json"]
    monkeypatch.setattr(sys, "argv", ["ragmeter", *command])
    with pytest.raises(SystemExit):
        main()
    printed = json.loads(capsys.readouterr().out)
    theirs = pytrec_eval.RelevanceEvaluator(grades, {"ndcg_cut.10"}).evaluate(scores)
    assert {question: printed["questions"][question] for question in theirs} == theirs
    assert printed["trec_eval"].startswith("9.0.8")


@pytest.mark.parametrize(("text", "name"), [("nDCG@10", "ndcg_cut_10"), ("ndcg_cut.10", "ndcg_cut_10"), ("P@5", "P_5"), ("map", "map")])
def test_a_measure_may_be_written_as_other_tools_do(text: str, name: str) -> None:
    assert trec_eval.measure(text, ["map", "P_5", "ndcg_cut_10"]) == name
    with pytest.raises(UserError):
        trec_eval.measure("nDCG@11", ["ndcg_cut_10"])


def test_the_command_prints_trec_evals_table(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    run, qrels = made(1, tmp_path)
    expected = trec_eval.evaluate(run, qrels)
    monkeypatch.setattr(sys, "argv", ["ragmeter", "judge", "score", "--trec", str(run), str(qrels), "--json"])
    with pytest.raises(SystemExit):
        main()
    printed = json.loads(capsys.readouterr().out)
    assert {row["measure"]: row["value"] for row in printed["measures"]} == pytest.approx(expected.summary())
    assert printed["questions"]["q#3"]["ndcg"] == expected.values["ndcg"][expected.questions.index("q#3")]
