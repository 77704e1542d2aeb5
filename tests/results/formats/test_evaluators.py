"""Official prediction files over the authors' own data, and files that break a rule; `test_official_scores.py` fuzzes them."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.core.errors import UserError
from benchmarks.registry import load
from ragmeter.api import run
from ragmeter.runner.provenance import environment
from ragmeter.runner.submissions import Checked, Checker, short_card
from results.formats.predictions import FORMATS
from results.store.queries import runs
from results.store.score_queries import score_columns
from results.store.store import Store
from results.submission import storing
from tests.support import evaluators
from tests.support.evaluators import Rows
from tests.support.worlds_native import write_native


def rows_of(path: Path) -> Rows:
    text = path.read_text(encoding="utf-8")
    return json.loads(text) if text.startswith("[") else [json.loads(line) for line in text.splitlines()]


def made_multihop(data: Rows, draws: random.Random) -> dict[str, Any]:
    answers, facts, triples = {}, {}, {}
    for row in data:
        answers[row["_id"]] = draws.choice([row["answer"], f"The {row['answer']}, indeed", "no", "yes", ""])
        sentences = [[title, index] for title, texts in row["context"] for index in range(len(texts))]
        gold = row["supporting_facts"]
        facts[row["_id"]] = draws.sample(gold, draws.randint(0, len(gold))) + draws.sample(sentences, draws.randint(0, 2))
        known = [list(triple) for triple in row.get("evidences", ())]
        triples[row["_id"]] = draws.sample(known, draws.randint(0, len(known))) + [["a", "b", "c"]] * draws.randint(0, 1)
    return {"answer": answers, "sp": facts} | ({"evidence": triples} if "evidences" in data[0] else {})


def made_musique(data: Rows, draws: random.Random) -> Rows:
    rows = []
    for row in data:
        gold = [paragraph["idx"] for paragraph in row["paragraphs"] if paragraph["is_supporting"]]
        support = [*draws.sample(gold, draws.randint(0, len(gold))), draws.randrange(len(row["paragraphs"]))]
        answer = draws.choice([row["answer"], f"a {row['answer']} there", "", *row["answer_aliases"]])
        rows.append({"id": row["id"], "predicted_answer": answer, "predicted_support_idxs": support,
                     "predicted_answerable": row["answerable"] != (draws.random() < 0.2)})  # fmt: skip
    return rows


def made_longbench(data: Rows, draws: random.Random) -> Rows:
    return [
        {"pred": draws.choice([row["answers"][-1], f"It is {row['answers'][0]}.", "no"])}
        | {name: row[name] for name in ("answers", "all_classes", "length")}
        for row in data
    ]


def made_rog(data: Rows, draws: random.Random) -> Rows:
    rows = []
    for row in data:
        listed = [*draws.sample(row["answer"], draws.randint(0, len(row["answer"]))), "nobody", *row["answer"][:1]]
        prediction = listed if draws.random() < 0.5 else "\n".join(listed)
        rows.append({"id": row["id"], "question": row["question"], "prediction": prediction, "ground_truth": row["answer"], "input": "?"})
    return rows


Made = Callable[[Rows, random.Random], Any]
Official = Callable[[Rows, str], evaluators.Result]
FILES: list[tuple[str, str, str, str | None, Made, Official]] = [
    ("hotpotqa", "hotpotqa:dev", "hotpotqa", "hotpotqa/hotpot_distractor_train50.json", made_multihop, evaluators.hotpotqa),
    ("2wiki", "2wikimultihopqa:dev", "2wikimultihopqa", "2wikimultihopqa/2wiki_dev40.json", made_multihop, evaluators.two_wiki),
    ("musique", "musique/ans:dev", "musique", "musique/musique_ans_v1.0_train50.jsonl", made_musique, evaluators.musique),
    ("musique", "musique/full:dev", "musique_full", None, made_musique, evaluators.musique),
    (
        "longbench",
        "longbench/multifieldqa_en:test",
        "longbench",
        "longbench/multifieldqa_en.jsonl",
        made_longbench,
        partial(evaluators.longbench, metric="f1", even=False),
    ),
    ("rog", "webqsp:test", "rog", "webqsp/rog_style_webqsp.jsonl", made_rog, evaluators.rog),
]


def written(value: Any, path: Path) -> Path:
    lines = [json.dumps(row) for row in value] if isinstance(value, list) else [json.dumps(value, indent=1)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def checked(
    form: str, reference: str, data: Path, predictions: Path, store: Store, setting: str | None = None, *, strict: bool = False
) -> Checked:
    return Checker(store, data_path=str(data), strict=strict).check(str(predictions), short_card("theirs@1", reference, setting), form)


def agree(form: str, reference: str, data: Path, make: Made, official: Official, folder: Path) -> Checked:
    rows = rows_of(data)
    path = written(make(rows, random.Random(11)), folder / "theirs.json")
    if form == "2wiki":
        file = data.with_name("id_aliases.json")
        official = partial(official, aliases=rows_of(file) if file.is_file() else [])
    result, theirs = checked(form, reference, data, path, Store(folder / "store")), official(rows, path.read_text())
    assert result.report.ok, result.report.lines()
    assert list(result.report.official.values()) == pytest.approx(
        [theirs.printed[name if name in theirs.printed else "all"] for name in result.report.official]
    )
    # What is stored is the same, where every question can be scored.
    means = {re.split(r"[(#]", name)[0]: mean for name, mean in result.report.means.items()}
    for name, column in theirs.questions.items():
        if (ours := means.get(OURS.get(name, name))) is not None:
            assert ours == pytest.approx(evaluators.mean(column), abs=1e-12), name
    return result


OURS = {
    "answer_f1": "f1",
    "answer_em": "em",
    "group_answer_sufficiency_f1": "group_answer_f1",
    "group_support_sufficiency_f1": "group_support_f1",
    "evi_em": "evidence_em",
    "evi_f1": "evidence_f1",
    "all": "f1",
    "Accuracy": "rog_accuracy",
    "Hit": "rog_hit",
    "F1": "rog_f1",
}
"""Our names of what the scripts print."""


@pytest.mark.parametrize(("form", "reference", "native", "sample", "make", "official"), FILES)
def test_prediction_file_scores_equal_the_official_evaluator(
    form: str, reference: str, native: str, sample: str | None, make: Made, official: Official, tmp_path: Path
) -> None:
    subset = {"rog": "graph", "longbench": "long"}.get(native, "multihop")
    write_native(load(f"worlds/{subset}:test", {"questions": 30}), native, tmp_path / "data.json")
    agree(form, reference, tmp_path / "data.json", make, official, tmp_path)


@pytest.mark.parametrize(("form", "reference", "native", "sample", "make", "official"), [row for row in FILES if row[3]])
def test_so_it_does_on_the_authors_own_files(
    form: str, reference: str, native: str, sample: str, make: Made, official: Official, data_folder: Path, tmp_path: Path
) -> None:
    split = "train" if "train" in sample else reference.partition(":")[2]
    agree(form, f"{reference.partition(':')[0]}:{split}", data_folder / sample, make, official, tmp_path)


def test_stored_scores_equal_the_report_and_are_limited_to_the_format(tmp_path: Path) -> None:
    write_native(load("worlds/multihop:test", {"questions": 12}), "musique_full", tmp_path / "data.json")
    result = agree("musique", "musique/full:dev", tmp_path / "data.json", made_musique, evaluators.musique, tmp_path)
    store = Store(tmp_path / "store")
    kept = storing.store_report(store, result.report, result.target, result.metrics, environment=environment())
    (row,) = runs(store)
    columns = score_columns(store, row.dataset_fingerprint, [kept.run])
    stored = {metric: values for (_, metric), values in columns.values.items()}
    assert stored.keys() == result.report.scores.keys()
    assert all(np.array_equal(values, result.report.scores[name], equal_nan=True) for name, values in stored.items())
    assert not any(name.startswith(("recall", "mrr", "ndcg", "has_answer")) for name in stored)
    assert not result.report.of("warning")


CONTEXTS = [("Ada", "Ada wrote Quill."), ("Zoll", "Zoll is a town."), ("Ada", "Another Ada.")]


def contexts_file(folder: Path) -> Path:
    """Three questions of NQ with contexts, two of them with one text."""
    ctxs = [{"title": title, "text": text, "hasanswer": not number, "isgold": not number} for number, (title, text) in enumerate(CONTEXTS)]
    texts = ("who wrote quill", "what is zoll", "what is zoll")
    return written([{"question": text, "answers": ["Ada"], "ctxs": ctxs, "nq_annotated_gold": {}} for text in texts], folder / "data.jsonl")


def test_retriever_results_of_dpr_are_rankings_of_the_corpus(tmp_path: Path) -> None:
    def ctx(number: int, score: Any) -> dict[str, Any]:
        title, text = CONTEXTS[number]
        return {"id": f"wiki:{number}", "title": title, "text": text, "score": score, "has_answer": False}

    texts = ("what is zoll", "who wrote quill", "what is zoll")
    ranked = ([0], [1, 2, 0], [1, 1, 0])
    rows = [
        {"question": text, "answers": ["Ada"], "ctxs": [ctx(number, str(9 - place)) for place, number in enumerate(ranks)]}
        for text, ranks in zip(texts, ranked, strict=True)
    ]
    predictions = tmp_path / "retrieved.json"
    predictions.write_text(json.dumps(rows, indent=2))
    result = checked("dpr", "nq/dpr:test", contexts_file(tmp_path), predictions, Store(tmp_path / "store"), "corpus")
    assert result.report.ok, result.report.lines()
    assert [len(item.evidence) for item in result.report.predictions] == [3, 1, 2]
    assert result.report.scores["mrr@10#v2"].tolist() == [1 / 3, 1, 1 / 2]
    assert not any(name.startswith(("em", "f1")) for name in result.report.scores)
    wrong = ((ctx(0, 1) | {"title": "Nowhere"}, "unknown_evidence"), (ctx(0, "nan"), "wrong_type"), (ctx(0, float("-inf")), "wrong_type"))
    for context, code in wrong:
        predictions.write_text(json.dumps([rows[0] | {"ctxs": [context]}, *rows[1:]]))
        report = checked("dpr", "nq/dpr:test", contexts_file(tmp_path), predictions, Store(tmp_path / "store"), "corpus").report
        assert code in [finding.code for finding in report.of("error")]


def test_answers_come_by_id_or_from_dprs_reader(tmp_path: Path) -> None:
    data = contexts_file(tmp_path)
    questions = load("nq/dpr:test", {"path": str(data)}).questions
    by_id = written({question.id: answer for question, answer in zip(questions, ("the Ada", "x", "ada"), strict=True)}, tmp_path / "a.json")
    rows = [
        {"question": question.text, "gold_answers": ["Ada"], "predictions":
         [{"top_k": k, "prediction": {"text": text, "score": 1.0}} for k, text in ((5, "no"), (50, answer), (10, "no"))]}
        for question, answer in zip(questions, ("the Ada", "x", "ada"), strict=True)
    ]  # fmt: skip
    read = tmp_path / "reader.json"
    read.write_text(json.dumps(rows))
    for form, path in (("squad", by_id), ("dpr-reader", read)):
        report = checked(form, "nq/dpr:test", data, path, Store(tmp_path / "store")).report
        assert report.ok, report.lines()
        assert report.scores["em(rules=squad)#v2"].tolist() == [1, 0, 1]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, Path, Any]]:
    """By format: reference, data and a right predictions file."""
    folder = tmp_path_factory.mktemp("native")
    results: dict[str, tuple[str, Path, Any]] = {}
    for form, reference, native, _, make, _ in FILES:
        subset = {"rog": "graph", "longbench": "long"}.get(native, "multihop")
        data = folder / f"{native}.json"
        write_native(load(f"worlds/{subset}:test", {"questions": 5}), native, data)
        results[form] = reference, data, make(rows_of(data), random.Random(2))
    return results


def changed(predictions: Any, change: Callable[[Any], Any]) -> str:
    """A predictions file after a change of its rows, or of its text."""
    result = change(json.loads(json.dumps(predictions)))
    if isinstance(result, str):
        return result
    if isinstance(result, list):
        return "\n".join(map(json.dumps, result))
    # A member a line, behind the line that opens its section.
    members = {name: ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in part.items()) for name, part in result.items()}
    return "{" + "\n},\n".join(f"{json.dumps(name)}: {{\n{part}" for name, part in members.items()) + "\n}}"


def first(section: str, value: Any) -> Callable[[Any], Any]:
    """The second question's value in a section, changed."""

    def change(file: Any) -> Any:
        file[section][list(file[section])[1]] = value
        return file

    return change


Line = Callable[[int], int]
"""From the number of questions to the line that is named."""
BAD: list[tuple[str, Callable[[Any], Any], str, Line | None]] = [
    ("hotpotqa", first("sp", [["No such title", 0]]), "unknown_title", lambda n: n + 5),
    ("hotpotqa", first("sp", [["No such title"]]), "wrong_type", lambda n: n + 5),
    ("hotpotqa", first("answer", 3), "wrong_type", lambda n: 3),
    ("hotpotqa", lambda file: file | {"answer": file["answer"] | {"nobody": ""}}, "extra", lambda n: n + 2),
    ("hotpotqa", lambda file: file | {"answer": dict(list(file["answer"].items())[1:])}, "missing_answer", lambda n: n + 3),
    ("hotpotqa", lambda file: {"answer": file["answer"]}, "missing_field", lambda n: 1),
    ("hotpotqa", lambda file: file | {"scores": {}}, "unknown_key", lambda n: 2 * n + 5),
    ("hotpotqa", lambda file: changed(file, dict)[:-3], "not_json", lambda n: 2 * n + 3),
    ("hotpotqa", lambda file: "[]", "not_json", lambda n: 1),
    ("hotpotqa", lambda file: '{"answer": {"x": "1", "x": "2"}, "sp": {}}', "extra", lambda n: 1),
    ("2wiki", first("evidence", [["a", "b"]]), "wrong_type", lambda n: 2 * n + 7),
    ("2wiki", lambda file: {key: file[key] for key in ("answer", "sp")}, "missing_field", lambda n: 1),
    ("musique", lambda rows: rows[:-1], "missing", None),
    ("musique", lambda rows: [*rows, rows[0]], "duplicate", lambda n: n + 1),
    ("musique", lambda rows: [rows[0] | {"id": "nobody"}, *rows[1:]], "extra", lambda n: 1),
    ("musique", lambda rows: [*rows[:3], rows[3] | {"predicted_support_idxs": [99]}, *rows[4:]], "unknown_paragraph", lambda n: 4),
    ("musique", lambda rows: [rows[0] | {"predicted_support_idxs": ["1"]}, *rows[1:]], "wrong_type", lambda n: 1),
    ("musique", lambda rows: [rows[0] | {"predicted_answerable": 1}, *rows[1:]], "wrong_type", lambda n: 1),
    ("longbench", lambda rows: [rows[1], rows[0], *rows[2:]], "other_question", lambda n: 1),
    ("longbench", lambda rows: [rows[0] | {"length": 3}, *rows[1:]], "other_question", lambda n: 1),
    ("longbench", lambda rows: [*rows, rows[0]], "extra", lambda n: n + 1),
    ("longbench", lambda rows: [rows[0] | {"pred": None}, *rows[1:]], "wrong_type", lambda n: 1),
    ("rog", lambda rows: [rows[0] | {"prediction": [1]}, *rows[1:]], "wrong_type", lambda n: 1),
    ("rog", lambda rows: [rows[0], *rows], "duplicate", lambda n: 2),
    ("rog", lambda rows: [{"prediction": "x"}, *rows[1:]], "missing_field", lambda n: 1),
]  # fmt: skip


@pytest.mark.parametrize(("form", "change", "code", "line"), BAD)
def test_strict_check_names_problems_with_their_lines(
    files: dict[str, tuple[str, Path, Any]], form: str, change: Callable[[Any], Any], code: str, line: Line | None, tmp_path: Path
) -> None:
    reference, data, predictions = files[form]
    path = tmp_path / "theirs"
    path.write_text(changed(predictions, change))
    report = checked(form, reference, data, path, Store(tmp_path / "store"), strict=True).report
    errors = {finding.code: finding for finding in report.of("error")}
    assert code in errors
    if line is not None:
        n = len(predictions["answer"] if isinstance(predictions, dict) else predictions)
        assert errors[code].positions[0].line == line(n)


@pytest.mark.parametrize(
    ("form", "change", "code", "count"),
    [
        ("hotpotqa", first("sp", [["No such title", 0]]), "unknown_title", 1),
        ("hotpotqa", first("sp", [["No such title"]]), "odd_fact", 1),
        ("hotpotqa", lambda file: file | {"answer": file["answer"] | {"nobody": 7}}, "extra", 1),
        ("hotpotqa", lambda file: {name: dict(list(part.items())[2:]) for name, part in file.items()}, "missing", 2),
        ("hotpotqa", lambda file: file | {"scores": {}}, "unknown_key", 1),
        ("2wiki", lambda file: file | {"evidence": {}}, "missing_evidence", 3),
        ("musique", lambda rows: rows[::-1], "other_order", 4),
        ("musique", lambda rows: [rows[0] | {"predicted_support_idxs": [99, "98"]}, *rows[1:]], "unknown_paragraph", 2),
        ("longbench", lambda rows: rows[::-1], "other_order", 4),
        ("longbench", lambda rows: rows[:2], "missing", 2),
        ("rog", lambda rows: changed(rows[1:], list) + "\n{", "not_json", 1),
    ],
)
def test_what_the_script_tolerates_is_counted(
    files: dict[str, tuple[str, Path, Any]], form: str, change: Callable[[Any], Any], code: str, count: int, tmp_path: Path
) -> None:
    reference, data, predictions = files[form]
    path = tmp_path / "theirs"
    path.write_text(changed(predictions, change))
    report = checked(form, reference, data, path, Store(tmp_path / "store")).report
    assert report.ok, report.lines()
    assert {finding.code: finding.count for finding in report.of("warning")}[code] == count


@pytest.mark.parametrize("form", ["longbench", "rog"])
def test_report_names_questions_that_the_script_leaves_out_and_tables_count(
    files: dict[str, tuple[str, Path, Any]], form: str, tmp_path: Path
) -> None:
    reference, data, predictions = files[form]
    path = tmp_path / "theirs"
    for lacking in (0, 2):
        path.write_text(changed(predictions, lambda rows, n=lacking: rows[: len(rows) - n]))
        report = checked(form, reference, data, path, Store(tmp_path / f"store{lacking}")).report
        assert (report.left_out, report.to_json()["official_left_out"]) == (lacking, lacking)
        assert (f"over {report.questions - lacking} question" in report.lines()[-1]) == bool(lacking)
        # Both sum up the same values, over fewer and over all questions.
        theirs = max(value for value in report.official.values() if value is not None)
        ours = max(value for value in report.means.values() if value is not None)
        assert theirs / 100 * (report.questions - lacking) == pytest.approx(ours * report.questions, abs=1e-3)


def test_a_copy_of_a_musique_paragraph_is_another_paragraph(tmp_path: Path) -> None:
    texts = [("Ada", "Ada wrote Quill.", False), ("Ada", "Ada wrote Quill.", True), ("Zoll", "Zoll is a town.", False)]
    paragraphs = [
        {"idx": 9 - at, "title": title, "paragraph_text": text, "is_supporting": supports}
        for at, (title, text, supports) in enumerate(texts)
    ]
    row = {"id": "2hop__1_2", "question": "Who?", "answer": "Ada", "answer_aliases": [], "answerable": True, "paragraphs": paragraphs}
    data = written([row], tmp_path / "data.jsonl")
    for claimed, f1 in (([8], 1.0), ([9], 0.0), ([8, 9], 2 / 3), ([7, 8, 9], 1 / 2)):
        stated = {"id": row["id"], "predicted_answer": "Ada", "predicted_support_idxs": claimed, "predicted_answerable": True}
        report = checked("musique", "musique:dev", data, written([stated], tmp_path / "p"), Store(tmp_path / "store")).report
        assert report.scores["support_f1#v2"].tolist() == pytest.approx([f1])
    paragraphs[0]["idx"] = 8
    with pytest.raises(UserError, match="idx 8 is the number of two paragraphs"):
        load("musique:dev", {"path": str(written([row], tmp_path / "data.jsonl"))})


def test_every_format_is_tried_here() -> None:
    assert FORMATS.keys() - {"jsonl", "trec", "squad", "dpr", "dpr-reader"} == {row[0] for row in FILES}


@pytest.mark.slow
def test_a_run_scores_pairs_once_all_are_answered(tmp_path: Path) -> None:
    """Answers are scored as they come, a pair's two not always together."""
    write_native(load("worlds/multihop:test", {"questions": 40}), "musique_full", tmp_path / "data.json")
    benchmark = {"id": "musique/full", "split": "dev", "config": {"path": str(tmp_path / "data.json")}}
    plan = {"name": "x", "benchmarks": [benchmark], "methods": [{"id": "gold_answer"}, {"id": "empty_answer"}]}
    run(plan, store=tmp_path / "store")
    store = Store(tmp_path / "store")
    for row, best in zip(sorted(runs(store), key=lambda row: row.method, reverse=True), (1.0, 0.0), strict=True):
        columns = score_columns(store, row.dataset_fingerprint, [row.run]).values
        for name in ("group_answer_f1#v2", "group_support_f1#v1"):
            values = columns[row.run, name]
            assert np.isnan(values).sum() == len(values) // 2
            assert np.nanmean(values) == best
        assert columns[row.run, "sufficiency#v1"].mean() == best
