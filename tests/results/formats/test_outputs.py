"""Predictions as other tools write them: every layout gives the same answers, and what does not fit is named with its line."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from benchmarks.registry import Benchmark, load
from benchmarks.schema import PAGES
from judges.metric import parse
from methods.api import FAILED, Prediction
from results.formats.outputs import FORMATS
from results.offered import LIMITS, PREDICTIONS
from results.submission import Finding, Findings

QUESTIONS = {"a": "Who digs?", "b": "Who flies?", "c": "Who digs?"}
ANSWERS = {"a": "ants", "b": "bees", "c": ""}
SHOWN = ["Ants dig.", 'They "dig".\n']


@pytest.fixture
def benchmark(tmp_path: Path) -> Benchmark:
    rows = [{"id": name, "question": text, "golden_answers": ["x"]} for name, text in QUESTIONS.items()]
    (tmp_path / "nq.jsonl").write_text(lines(rows))
    return load("flashrag/nq:test", {"path": str(tmp_path / "nq.jsonl")})


def lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def read(name: str, text: str, benchmark: Benchmark) -> tuple[dict[str, Prediction], tuple[Finding, ...]]:
    findings = Findings()
    rows = list(FORMATS[name].reader(benchmark)(io.BytesIO(text.encode()), findings, LIMITS))
    return {row.prediction.question_id: row.prediction for row in rows}, findings.all()


def by_text(*fields: str) -> list[dict[str, Any]]:
    question, answer = fields
    return [{question: QUESTIONS[name], answer: ANSWERS[name]} for name in QUESTIONS]


def of_flashrag() -> list[dict[str, Any]]:
    retrieved = [{"id": "7", "contents": text} for text in SHOWN]
    return [
        {"id": name, "question": QUESTIONS[name], "golden_answers": [], "output": {"pred": ANSWERS[name], "retrieval_result": retrieved}}
        for name in QUESTIONS
    ]


def of_lm_eval() -> list[dict[str, Any]]:
    return [
        {
            "doc_id": place,
            "doc": {"question": QUESTIONS[name]},
            "resps": [["x"]],
            "filtered_resps": [answer],
            "filter": kind,
            "em": float("nan"),
        }
        for place, name in enumerate(QUESTIONS)
        for kind, answer in (("strict", ANSWERS[name]), ("flexible", "other"))
    ]


def of_ragas(*fields: str) -> list[dict[str, Any]]:
    return [{**row, fields[2]: SHOWN, "faithfulness": float("nan")} for row in by_text(*fields[:2])]


def of_promptfoo() -> list[dict[str, Any]]:
    return [
        {
            "vars": {"question": QUESTIONS[name], "context": SHOWN},
            "provider": {"id": "openai:m"},
            "promptIdx": 0,
            "response": {"output": ANSWERS[name], "tokenUsage": {"prompt": 3, "completion": 2, "total": 5}},
            "cost": 0.5,
        }
        for name in QUESTIONS
    ]


def table(
    rows: list[dict[str, Any]], delimiter: str = ",", quoting: Literal[0, 1] = csv.QUOTE_MINIMAL, columns: Sequence[str] | None = None
) -> str:
    sink = io.StringIO()
    writer = csv.DictWriter(sink, columns or list(rows[0]), delimiter=delimiter, quoting=quoting, extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    return sink.getvalue()


NEW, OLD = ("user_input", "response", "retrieved_contexts"), ("question", "answer", "contexts")
FILES = {
    "efficientqa": {"lines": lines(by_text("question", "prediction")), "array": json.dumps(by_text("question", "prediction"))},
    "kilt": {"lines": lines([{"id": name, "output": [{"answer": ANSWERS[name]}]} for name in QUESTIONS])},
    "flashrag": {"array": json.dumps(of_flashrag(), indent=4), "lines": lines(of_flashrag())},
    "lm-eval": {"lines": lines(of_lm_eval())},
    "ragas": {
        "lines": lines(of_ragas(*NEW)),
        "array, older names": json.dumps(of_ragas(*OLD)),
        "columns of objects": json.dumps({key: {str(n): row[key] for n, row in enumerate(of_ragas(*NEW))} for key in of_ragas(*NEW)[0]}),
        "columns of lists": json.dumps({key: [row[key] for row in of_ragas(*OLD)] for key in of_ragas(*OLD)[0]}),
        "CSV with a byte order mark": "\ufeff" + table(of_ragas(*NEW)),
        "CSV with quotes around everything": table(of_ragas(*NEW), ",", csv.QUOTE_ALL),
        "CSV with semicolons": table(of_ragas(*NEW), ";"),
        "CSV with semicolons and Excel's first line": "sep=;\r\n" + table(of_ragas(*NEW), ";"),
        "tab-separated": table(of_ragas(*NEW), "\t"),
        "CSV with empty rows and columns": table(of_ragas(*NEW)).replace("\r\n", ",,\r\n") + ",,,,,\r\n" * 2,
        "CSV without the empty cells at the end of a row": table(
            [row | ({NEW[2]: ""} if row[NEW[0]] == QUESTIONS["b"] else {}) for row in of_ragas(*NEW)], columns=NEW
        ).replace("bees,\r\n", "bees\r\n"),
        "CSV with other capitals": table(of_ragas(*NEW)).replace("user_input,response", "User_Input, Response", 1),
        "rows by number": json.dumps({str(n): row for n, row in enumerate(of_ragas(*NEW))}),
        "rows below a key": json.dumps({"name": "x", "samples": of_ragas(*NEW)}, indent=1),
        "columns of objects in another order": json.dumps(
            {
                key: dict(sorted(((str(n), row[key]) for n, row in enumerate(of_ragas(*NEW))), reverse=key == "response"))
                for key in of_ragas(*NEW)[0]
            }
        ),
    },
    "promptfoo": {
        "version 3": json.dumps(
            {"evalId": "e", "results": {"version": 3, "prompts": [], "results": of_promptfoo()}, "config": {}}, indent=1
        ),
        "lines": lines(of_promptfoo()),
    },
}


@pytest.mark.parametrize(("name", "layout"), [(name, layout) for name, files in FILES.items() for layout in files])
def test_every_layout_gives_the_answers_of_each_question(name: str, layout: str, benchmark: Benchmark) -> None:
    predictions, findings = read(name, FILES[name][layout], benchmark)
    assert not [finding for finding in findings if finding.severity == "error"]
    assert {question: prediction.answer for question, prediction in predictions.items()} == ANSWERS
    if name in ("flashrag", "ragas", "promptfoo"):
        assert [item.text for item in predictions["a"].contexts or ()] == SHOWN
    if name == "promptfoo":
        usage = predictions["a"].usage
        assert (usage.prompt_tokens, usage.completion_tokens, usage.cost_usd) == (3, 2, 0.5)


@pytest.mark.parametrize(
    "fields",
    [
        {"retrieved_contexts": None, "contexts": SHOWN},
        *({name: SHOWN} for name in ("retrieval_context", "source_documents", "documents", "docs", "ctxs", "passages", "context")),
        {"source_nodes": [{"node": {"id_": "n", "text": text}, "score": 0.5} for text in SHOWN]},
        {"context": [{"lc": 1, "type": "constructor", "id": ["Document"], "kwargs": {"page_content": text}} for text in SHOWN]},
        {"docs": [{"title": "T", "passage": text} for text in SHOWN]},
        {"retrievalContext": SHOWN},
    ],
)
def test_contexts_of_other_tools_are_found(fields: dict[str, Any], benchmark: Benchmark) -> None:
    predictions, findings = read("ragas", lines([{"question": "Who flies?", "answer": "bees", **fields}]), benchmark)
    assert ([item.text for item in predictions["b"].contexts or ()], findings) == (SHOWN, ())


@pytest.mark.parametrize(
    "output",
    [
        {"retrieval_result": [{"contents": "x"}], "final_retrieval_result": SHOWN},
        {"retrieval_results": {str(n): {"query": "q", "docs": [{"contents": text}]} for n, text in enumerate(SHOWN)}},
        {"retrieval_results": {"0": {"queries": ["q", "r"], "docs": [[{"contents": text}] for text in SHOWN]}}},
    ],
)
def test_flashrags_documents_of_several_searches_are_read(output: dict[str, Any], benchmark: Benchmark) -> None:
    predictions, findings = read("flashrag", lines([{"id": "b", "output": {"pred": "bees", **output}}]), benchmark)
    assert ([item.text for item in predictions["b"].contexts or ()], findings) == (SHOWN, ())


@pytest.mark.parametrize("known", [{}, {"id": "a"}])
def test_questions_match_in_another_unicode_form_and_with_other_white_space(known: dict[str, str], benchmark: Benchmark) -> None:
    questions = (replace(benchmark.questions[0], text="Où est  le café ?\nA. ici"), *benchmark.questions[1:])
    changed = replace(benchmark, questions=questions)
    for text in ("Ou\u0300 est le cafe\u0301\u00a0?\nA. ici", "Où est le café ?\r\nA. ici ", *(["Où est le café ?"] if known else [])):
        predictions, findings = read("efficientqa", lines([{**known, "question": text, "prediction": "x"}]), changed)
        assert (list(predictions), [item for item in findings if item.severity == "error"]) == ([questions[0].id], [])
    _, findings = read("efficientqa", lines([{**known, "question": "Où est", "prediction": "x"}]), changed)
    assert [item.code for item in findings if item.severity == "error"] == ["other_question" if known else "extra"]


@pytest.mark.parametrize("name", ["actual_output", "actualOutput", "output", "result", "prediction"])
def test_only_answer_of_a_row_is_read_under_the_names_of_other_tools(name: str, benchmark: Benchmark) -> None:
    predictions, findings = read("ragas", lines([{"input": "Who flies?", name: "bees", "expected_output": "gold"}]), benchmark)
    assert (predictions["b"].answer, findings) == ("bees", ())


def test_pyserinis_results_are_read(benchmark: Benchmark, tmp_path: Path) -> None:
    (tmp_path / "dump.jsonl").write_text(lines([{"id": n, "contents": f"T{n}\\ntext {n}"} for n in range(3)]))
    searched = load("flashrag/nq:test", {"path": str(tmp_path / "nq.jsonl"), "corpus": str(tmp_path / "dump.jsonl")})
    results = {
        str(n): {"question": text, "answers": [], "contexts": [{"docid": "2", "score": "1.5", "has_answer": True}]}
        for n, text in enumerate(QUESTIONS.values())
    }
    predictions, findings = read("dpr", json.dumps(results), searched)
    assert ([len(predictions[name].evidence) for name in QUESTIONS], findings) == ([1, 1, 1], ())


def test_dprs_results_are_read_as_lines_and_as_an_array(benchmark: Benchmark, tmp_path: Path) -> None:
    (tmp_path / "dump.jsonl").write_text(lines([{"id": n, "contents": f"T{n}\\ntext {n}"} for n in range(3)]))
    searched = load("flashrag/nq:test", {"path": str(tmp_path / "nq.jsonl"), "corpus": str(tmp_path / "dump.jsonl")})
    results = [
        {"question": text, "answers": [], "ctxs": [{"id": "2", "score": "1.5"}, {"id": "0", "score": 1}]} for text in QUESTIONS.values()
    ]
    read_as = [read("dpr", text, searched) for text in (lines(results), json.dumps(results))]
    assert read_as[0] == read_as[1]
    assert [item.score for item in read_as[0][0]["a"].evidence] == [1.5, 1.0]
    assert read("dpr-reader", lines([{"question": "Who flies?", "predictions": []}]), searched)[0]["b"].answer == ""


def test_pages_of_kilt_are_kept_in_their_order(benchmark: Benchmark) -> None:
    row = {"id": "a", "output": [{"answer": "ants", "provenance": [{"wikipedia_id": 7}, {"title": "t"}, {"wikipedia_id": "3 "}]}]}
    assert read("kilt", lines([row]), benchmark)[0]["a"].notes == {PAGES: ["7", "3"]}


def test_failed_call_of_promptfoo_is_a_failed_question(benchmark: Benchmark) -> None:
    row = {"vars": {"question": "Who flies?"}, "provider": "p", "response": {}, "error": "timeout"}
    assert read("promptfoo", lines([row]), benchmark)[0]["b"].notes[FAILED] == "timeout"


@pytest.mark.parametrize(("length", "codes"), [(32_766, []), (32_767, ["cut_cell"]), (32_768, [])])
def test_cells_as_long_as_excels_longest_are_named(length: int, codes: list[str], benchmark: Benchmark) -> None:
    _, findings = read("ragas", table([{"question": "Who flies?", "answer": "bees", "contexts": "x" * length}]), benchmark)
    assert [item.code for item in findings] == codes


def test_rows_that_end_before_the_last_column_are_named(benchmark: Benchmark) -> None:
    text = "question,note,response\nWho flies?,bees\nWho digs?,x,ants\n"
    predictions, (short,) = read("ragas", text, benchmark)
    assert (short.code, predictions["b"].answer, predictions["a"].answer) == ("short_row", "", "ants")


@pytest.mark.parametrize("write", [lines, table])
def test_contexts_are_kept_whole(write: Callable[[list[dict[str, Any]]], str], benchmark: Benchmark) -> None:
    csv.field_size_limit(131_072)  # the module's own
    rows = [{"question": "Who flies?", "answer": "bees", "contexts": ["x" * 150_000, "\n" * 20_000, "z"]}]
    predictions, findings = read("ragas", write(rows), benchmark)
    assert ([len(item.text) for item in predictions["b"].contexts or ()], findings) == ([150_000, 20_000, 1], ())


@pytest.mark.parametrize(
    ("name", "text", "code", "line"),
    [
        ("efficientqa", '{"question": "Who digs?", "prediction": "a"}\n{"question": "Who sings?", "prediction": "a"}\n', "extra", 2),
        ("efficientqa", '{"question": "Who flies?", "prediction": 3}\n', "wrong_type", 1),
        ("efficientqa", '{"prediction": "a"}\n', "missing_field", 1),
        ("efficientqa", '{"question": "Who flies?", "prediction": "a"}\n{"question"\n', "not_json", 2),
        ("kilt", '{"id": "a", "output": [{"answer": "x"}, {"answer": "y"}]}\n', "several_outputs", 1),
        ("kilt", '{"id": "a", "output": [{"answer": "x", "provenance": "p"}]}\n', "wrong_type", 1),
        ("flashrag", '[{"id": "a", "output": {}}]', "missing_field", 1),
        ("flashrag", '[{"id": "a", "question": "Who sings?", "output": {"pred": "x"}}]', "other_question", 1),
        ("lm-eval", '{"doc": {"question": "Who flies?"}, "filtered_resps": [[-1.5, false]]}\n', "no_text", 1),
        ("lm-eval", '{"doc": {"question": "Who flies?"}, "filtered_resps": [["-1.5", "False"]]}\n', "no_text", 1),
        ("flashrag", '[{"id": "a", "output": {"pred": "x", "retrieval_result": {"1": []}}}]', "wrong_type", 1),
        ("ragas", '{"question": "Who flies?", "answer": "x", "contexts": {"text": ["x"]}}', "wrong_type", 1),
        ("ragas", '{"query": "Who flies?", "answer": "gold", "result": "bees"}', "several_answers", 1),
        ("ragas", '{"query": "Who flies?", "output": "x", "result": "bees"}', "several_answers", 1),
        ("ragas", '{"input": "Who flies?", "actual_output": null, "expected_output": "gold"}', "missing_field", 1),
        ("ragas", "question,answer,answer\nWho flies?,bees,birds\n", "not_csv", 1),
        ("ragas", '{"question": {"0": "Who flies?", "1": "Who digs?"}, "answer": {"0": "x", "2": "y"}}', "missing_field", 1),
        ("ragas", "question,answer\n\"Who flies?,bees\n", "not_csv", None),
        ("ragas", "question,answer\nWho flies?,bees, birds\n", "not_csv", 2),
        ("ragas", "question,answer,contexts\nWho flies?,bees\n", "not_csv", 2),
        ("ragas", "[1]", "wrong_type", 1),
        ("promptfoo", '{"vars": {"question": "Who flies?"}, "provider": "p", "response": {"output": "x"}}\n'
                      '{"vars": {"question": "Who digs?"}, "provider": "q", "response": {"output": "x"}}\n', "several_systems", 2),
    ],
)  # fmt: skip
def test_record_that_does_not_fit_is_named(name: str, text: str, code: str, line: int | None, benchmark: Benchmark) -> None:
    _, findings = read(name, text, benchmark)
    (finding,) = [item for item in findings if item.severity == "error"]
    assert finding.code == code
    assert line is None or finding.positions[0].line == line


def test_no_format_scores_what_its_files_cannot_say() -> None:
    metrics = [parse(name) for name in ("f1", "recall@5", "kilt_em", "kilt_rprec")]
    scored = {name: [metric.entry.id for metric in FORMATS[name].scorable(metrics)] for name in ("ragas", "kilt", "beir")}
    assert scored == {"ragas": ["f1", "recall"], "kilt": ["f1", "kilt_em", "kilt_rprec"], "beir": ["recall", "kilt_rprec"]}


def test_offered_formats_are_those_that_are_read() -> None:
    assert tuple(FORMATS) == PREDICTIONS
