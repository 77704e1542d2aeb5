"""Question sets as other tools export them: LlamaIndex, LangSmith, Langfuse, Prodigy, pandas, spreadsheets, joined files."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.registry import CAVEATS, Benchmark, load
from tests.support.errors import raises


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def as_csv(*rows: dict[str, str]) -> str:
    sink = io.StringIO()
    writer = csv.DictWriter(sink, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return sink.getvalue()


def read(path: Path, **options: Any) -> Benchmark:
    return load("files", {"path": str(path), **options})


def answers(benchmark: Benchmark) -> dict[str, tuple[str, ...]]:
    return {question.text: question.answers for question in benchmark.questions}


RETRIEVAL = {
    "queries": {"a": "Who founded Lyon?", "b": "Where is it?"},
    "corpus": {"n1": "Plancus founded it.", "n2": "It lies on the Rhône.", "n3": "It rains."},
    "relevant_docs": {"a": ["n1"], "b": ["n2", "n3"]},
    "mode": "text",
}


@pytest.mark.parametrize("indent", [None, 2])
def test_llama_index_questions_come_with_their_passages_and_gold(indent: int | None, tmp_path: Path) -> None:
    benchmark = read(write(tmp_path / "pg_eval_dataset.json", json.dumps(RETRIEVAL, indent=indent)))
    gold = {question.id: [passage.text for passage in benchmark.corpus.get(question.evidence)] for question in benchmark.questions}
    assert gold == {"a": ["Plancus founded it."], "b": ["It lies on the Rhône.", "It rains."]}
    assert len(benchmark.corpus) == 3
    assert "corpus" in benchmark.card.settings


def test_llama_index_passages_that_are_empty_or_missing_are_refused_or_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "q.json", json.dumps(RETRIEVAL | {"corpus": {"n1": "Plancus founded it.", "n2": " "}}))
    with raises("bad-record", where="corpus['n2']"):
        read(path)
    benchmark = read(path, skip_bad=True)
    assert len(benchmark.skipped) == 1
    assert any(note.startswith("2 of 3 pieces of gold evidence") for note in benchmark.extra[CAVEATS])


def test_objects_in_cells_are_read_as_in_json(tmp_path: Path) -> None:
    inputs, outputs = {"question": "Who?", "k": 3}, {"answer": "Ann"}
    rows = [{"inputs": written(inputs), "outputs": written(outputs), "note": ""} for written in (json.dumps, json.dumps)]
    path = write(tmp_path / "langsmith.csv", as_csv(*rows))
    fields = {"question": "inputs.question", "answers": "outputs.answer"}
    with raises("unknown-fields") as caught:
        read(path)
    assert all(f"{role}: {name}" in (caught.value.try_this or "") for role, name in fields.items())
    assert answers(read(path, fields=fields)) == {"Who?": ("Ann",)}
    printed = write(tmp_path / "pandas.csv", as_csv({"inputs": str(inputs), "outputs": str(outputs)}))
    assert answers(read(printed, fields=fields)) == {"Who?": ("Ann",)}


def test_remedy_names_reference_outputs_before_those_of_a_model(tmp_path: Path) -> None:
    row = {"inputs": {"question": "Who?"}, "outputs": {"answer": "Bob"}, "reference_outputs": {"answer": "Ann"}}
    with raises("unknown-fields") as caught:
        read(write(tmp_path / "q.jsonl", json.dumps(row)))
    assert "answers: reference_outputs.answer" in (caught.value.try_this or "")


def test_langfuse_cells_in_json_are_decoded(tmp_path: Path) -> None:
    texts = write(tmp_path / "texts.csv", as_csv({"id": "1", "input": '"Who \\u0026 when?"', "expectedOutput": '"Ann"'}))
    assert answers(read(texts)) == {"Who & when?": ("Ann",)}
    objects = {"input": json.dumps({"question": "Who?"}), "expectedOutput": json.dumps({"answer": "Ann"})}
    assert answers(read(write(tmp_path / "objects.csv", as_csv(objects)))) == {"Who?": ("Ann",)}


def test_cell_that_is_not_json_like_those_before_is_refused(tmp_path: Path) -> None:
    rows = [{"input": json.dumps(f"Who {number}?"), "expected": "x"} for number in range(100)]
    path = write(tmp_path / "q.csv", as_csv(*rows, {"input": "Who?", "expected": "x"}))
    with raises("bad-record", where="line 102"):
        read(path)
    mixed = write(tmp_path / "mixed.csv", as_csv(*rows[:3], {"input": "Who?", "expected": "x"}))
    assert read(mixed).questions[0].text == '"Who 0?"'


def test_decisions_of_prodigys_annotators_are_no_answers(tmp_path: Path) -> None:
    rows = [{"text": f"{word}?", "answer": word, "_input_hash": 1, "_task_hash": 2} for word in ("accept", "reject")]
    path = write(tmp_path / "q.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    with raises("annotation-decisions"):
        read(path)
    assert answers(read(path, fields={"answers": None})) == {"accept?": (), "reject?": ()}


def test_columns_of_pandas_name_the_remedy_in_every_orientation(tmp_path: Path) -> None:
    split = {"columns": ["question", "answer"], "index": [0, 1], "data": [["Who?", "Ann"], ["When?", "1900"]]}
    columns = {"question": {"0": "Who?", "1": "When?"}, "answer": {"0": "Ann", "1": "1900"}}
    for number, content in enumerate((split, columns)):
        with raises("columns-not-records"):
            read(write(tmp_path / f"{number}.json", json.dumps(content)))


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
def test_header_of_a_joined_table_is_no_question(mark: str, quoting: int, tmp_path: Path) -> None:
    sink = io.StringIO()
    csv.writer(sink, quoting=quoting).writerows([("question", "answer"), ("Who?", "Ann")])
    path = write(tmp_path / "q.csv", (mark + sink.getvalue()) * 2)
    with raises("bad-record", where="line 3"):
        read(path)
    benchmark = read(path, skip_bad=True)
    assert [question.text for question in benchmark.questions] == ["Who?", "Who?"]
    assert len(benchmark.skipped) == 1


def test_byte_order_marks_of_joined_files_are_ignored(tmp_path: Path) -> None:
    row = "\ufeff" + json.dumps({"question": "Who?", "answer": "Ann"}) + "\n"
    lines = write(tmp_path / "q.jsonl", row + row.replace("Who", "When"))
    table = write(tmp_path / "q.csv", "\ufeffquestion,answer\nWho?,Ann\n\ufeffWhen?,Ann\n")
    assert answers(read(lines)) == answers(read(table)) == {"Who?": ("Ann",), "When?": ("Ann",)}


def test_missing_values_within_lists_are_no_answers(tmp_path: Path) -> None:
    path = write(tmp_path / "q.csv", as_csv({"question": "Who?", "answers": '["Ann", NaN]'}))
    assert answers(read(path)) == {"Who?": ("Ann",)}
    with raises("bad-record"):
        read(write(tmp_path / "p.csv", as_csv({"question": "Who?", "answers": "[nan]"})))


@pytest.mark.parametrize(
    ("cells", "counted"),
    [
        (("#NAME?", "Ann"), "1 answers are a word"),
        (("WAHR", "FALSCH"), "all 2 answers"),
        (("2021-05-03 00:00:00", "x"), "1 answers are dates"),
    ],
)
def test_cells_that_a_spreadsheet_converted_are_reported(cells: tuple[str, ...], counted: str, tmp_path: Path) -> None:
    rows = [{"question": f"{number}?", "answer": cell} for number, cell in enumerate(cells)]
    (caveat,) = read(write(tmp_path / "q.csv", as_csv(*rows))).extra[CAVEATS]
    assert caveat.startswith(counted)
