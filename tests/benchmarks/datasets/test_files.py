"""Users' own files: every layout loads to the same questions, and errors name file, line, field and remedy."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

from benchmarks.registry import CAVEATS, MAPPING, Benchmark, load
from benchmarks.schema import SPANS
from tests.support.errors import raises
from tests.support.hub_server import HubServer, Repository

LEAVE = "# Leave\n\nEverybody has 28 days of leave a year.\n\n## Parents\n\nParents have “twelve weeks” of paid leave.\n"
OFFICE = "The office opens at eight and closes at six.\n"
ROWS = [
    {"id": "a", "question": "How many days of leave?", "answer": "28 days", "source": "leave.md"},
    {"id": "b", "question": "When does the office open; on Mondays?", "answer": "eight", "source": "office"},
    {"id": "c", "question": "How long is “parental” leave?", "answer": "twelve weeks", "source": "LEAVE"},
]


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    (folder / "sub").mkdir(parents=True)
    (folder / "leave.md").write_text(LEAVE, "utf-8")
    (folder / "sub" / "office.txt").write_text(OFFICE, "utf-8")
    return folder


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def as_csv(rows: list[Mapping[str, Any]], **options: Any) -> str:
    sink = io.StringIO()
    writer = csv.DictWriter(sink, list(rows[0]), **options)
    writer.writeheader()
    writer.writerows(rows)
    return sink.getvalue()


def parquet(rows: list[Any]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), sink)
    return sink.getvalue()


def read(path: Path, **options: Any) -> Benchmark:
    return load("files", {"path": str(path), **options})


def gold(benchmark: Benchmark) -> dict[str, list[str]]:
    return {q.id: [p.document_id or p.text for p in benchmark.corpus.get(q.evidence)] for q in benchmark.questions}


LAYOUTS: dict[str, Callable[[], bytes]] = {
    "rows.jsonl": lambda: "".join(json.dumps(row) + "\n" for row in ROWS).encode(),
    "rows.jsonl.gz": lambda: gzip.compress("\n".join(json.dumps(row) for row in ROWS).encode()),
    "rows.json": lambda: json.dumps(ROWS, indent=2).encode(),
    "nested.json": lambda: json.dumps({"version": 1, "data": ROWS}, indent=1).encode(),
    "rows.csv": lambda: as_csv(ROWS).encode(),
    "bom.csv": lambda: as_csv(ROWS).encode("utf-8-sig"),
    "excel.csv": lambda: as_csv(ROWS, dialect="excel", delimiter=";").encode("cp1252"),
    "unicode.txt": lambda: as_csv(ROWS, dialect="excel-tab").encode("utf-16"),
    "sep.csv": lambda: ("sep=;\r\n" + as_csv(ROWS, delimiter=";", quoting=csv.QUOTE_ALL)).encode(),
    "rows.tsv": lambda: as_csv(ROWS, delimiter="\t").encode(),
    "rows.parquet": lambda: parquet(ROWS),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_gives_the_same_questions(name: str, tmp_path: Path, docs: Path) -> None:
    benchmark = read(write(tmp_path / name, LAYOUTS[name]()), documents=str(docs))
    assert [(q.id, q.text, q.answers) for q in benchmark.questions] == [(r["id"], r["question"], (r["answer"],)) for r in ROWS]
    assert gold(benchmark) == {"a": ["leave.md"], "b": ["sub/office.txt"], "c": ["leave.md"]}
    assert "question: question" in benchmark.extra[MAPPING]


def test_datasets_on_disk_load_as_saved(tmp_path: Path, docs: Path) -> None:
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_list(ROWS)
    rows.save_to_disk(tmp_path / "one")
    datasets.DatasetDict({"validation": rows.select([2, 0])}).save_to_disk(tmp_path / "several")
    assert [q.id for q in read(tmp_path / "one", documents=str(docs)).questions] == ["a", "b", "c"]
    assert [q.id for q in load("files:dev", {"path": str(tmp_path / "several"), "documents": str(docs)}).questions] == ["c", "a"]
    with raises("unknown-split"):
        read(tmp_path / "several")


def test_hub_repository_is_read_by_configuration_and_split(tmp_path: Path) -> None:
    files = {"en/validation-00000-of-00001.parquet": parquet(ROWS), "de/validation-00000-of-00001.parquet": parquet(ROWS[:1])}
    with HubServer({"owner/name": Repository(files)}).as_hub(tmp_path):
        benchmark = load("files:dev", {"hub": "owner/name", "config": "en", "revision": "main"})
    assert len(benchmark.questions) == 3
    assert benchmark.extra["source"]["hub"] == "owner/name"


def test_nested_fields_are_mapped_and_supporting_passages_are_gold(tmp_path: Path) -> None:
    row = {
        "query": "Who?",
        "gold": "Ann",
        "aliases": ["A.", "Anna"],
        "contexts": [
            {"text": "Ann did.", "title": "Ann", "is_supporting": True},
            {"text": "Bo did not.", "title": "Bo", "is_supporting": False},
        ],
        "meta": {"topic": "people"},
    }
    path = write(tmp_path / "q.jsonl", json.dumps(row))
    fields = {"question": "query", "answers": ["gold", "aliases"], "metadata": "meta.topic"}
    (question,) = read(path, fields=fields).questions
    assert question.answers == ("Ann", "A.", "Anna")
    assert [len(question.candidates or ()), len(question.evidence)] == [2, 1]
    assert question.metadata["meta.topic"] == "people"
    assert question == read(path, fields={"metadata": ["meta.topic"]}).questions[0]


def test_gold_field_accepts_passage_ids_titles_and_positions(tmp_path: Path) -> None:
    rows = [
        {"question": "1?", "docs": [{"id": "x", "text": "one"}, {"id": "y", "text": "two"}], "gold_ids": ["y"]},
        {"question": "2?", "docs": [{"id": "x", "text": "one"}], "gold_ids": "x"},
    ]
    assert list(gold(read(write(tmp_path / "ids.json", json.dumps(rows)))).values()) == [["two"], ["one"]]
    by_place = [{"question": "1?", "contexts": ["one", "two"], "evidence": [1]}]
    assert list(gold(read(write(tmp_path / "places.json", json.dumps(by_place)))).values()) == [["two"]]


def test_passages_that_lack_a_part_keep_the_others(tmp_path: Path) -> None:
    contexts = [{"text": "Ann did.", "title": "Ann", "is_supporting": True}, {"text": "Bo did not."}]
    rows = [
        {"question": "1?", "contexts": contexts},
        {"question": "2?", "contexts": [contexts[0], {"text": "Bo did not.", "title": None, "is_supporting": None}]},
        {"question": "3?", "contexts": [{"text": None, "title": "Cy", "is_supporting": False}, contexts[0]]},
    ]
    benchmark = read(write(tmp_path / "q.json", json.dumps(rows)))
    assert [[passage.title for passage in benchmark.corpus.get(q.evidence)] for q in benchmark.questions] == [["Ann"]] * 3
    assert [len(question.candidates or ()) for question in benchmark.questions] == [2, 2, 1]


def test_places_of_gold_count_passages_that_are_null(tmp_path: Path) -> None:
    row = {"question": "1?", "contexts": ["one", None, "two"], "evidence": [2]}
    assert list(gold(read(write(tmp_path / "q.json", json.dumps([row])))).values()) == [["two"]]
    for place in (1, 3, -1):
        with raises("bad-record"):
            read(write(tmp_path / "q.json", json.dumps([row | {"evidence": [place]}])))


def test_passages_written_as_text_are_read_as_a_list(tmp_path: Path) -> None:
    rows = [
        {"question": "1?", "answer": "x", "contexts": "['one, \\'1\\'', 'two']", "evidence": "[1]"},
        {"question": "2?", "answer": "x", "contexts": json.dumps(["one, '1'", "two"]), "evidence": "[0, 1]"},
        {"question": "3?", "answer": "x", "contexts": "[1] two", "evidence": "[0]"},
        {"question": "4?", "answer": "x", "contexts": "[]", "evidence": ""},
        {"question": "5?", "answer": "x", "contexts": " ", "evidence": ""},
    ]
    benchmark = read(write(tmp_path / "q.csv", as_csv(rows)))
    assert list(gold(benchmark).values()) == [["two"], ["one, '1'", "two"], ["[1] two"], [], []]
    assert [len(question.candidates or ()) for question in benchmark.questions] == [2, 2, 1, 0, 0]
    for wrong in ("['one' 'two']", '[{"text": "one"}, {"text": "two"}]', "['one', 'tw"):
        with raises("bad-record", where="line 2"):
            read(write(tmp_path / "wrong.csv", as_csv([rows[0] | {"contexts": wrong}])))


def test_a_list_of_passages_may_be_named_without_brackets(tmp_path: Path) -> None:
    rows = [
        {"question": "1?", "contexts": "one"},
        {"question": "2?", "contexts": ["one", "two"], "names": ["A", None], "gold": [False, True]},
    ]
    benchmark = read(
        write(tmp_path / "q.json", json.dumps(rows)), fields={"documents": "contexts", "titles": "names?", "supporting": "gold?"}
    )
    assert [(passage.title, passage.text) for passage in benchmark.corpus] == [("", "one"), ("A", "one"), ("", "two")]
    assert list(gold(benchmark).values()) == [[], ["two"]]


def test_parts_of_passages_written_as_text_are_read_as_lists(tmp_path: Path) -> None:
    row = {"question": "1?", "contexts": "['one', 'two']", "names": "['A', None]", "flags": "[False, True]"}
    fields = {"titles": "names", "supporting": "flags"}
    benchmark = read(write(tmp_path / "q.csv", as_csv([row])), fields=fields)
    assert [(passage.title, passage.text) for passage in benchmark.corpus] == [("A", "one"), ("", "two")]
    assert list(gold(benchmark).values()) == [["two"]]


def test_gold_spans_match_passages_of_every_chunk_size(tmp_path: Path, docs: Path) -> None:
    start = LEAVE.index("Parents have")
    rows = [
        {"question": "1?", "spans": [{"document": "leave", "start": start, "end": start + 26}]},
        {"question": "2?", "spans": [{"document": "leave", "text": 'Parents have "twelve weeks"'}]},
    ]
    path = write(tmp_path / "q.json", json.dumps(rows))
    for size, passages in ((3, 2), (100, 1)):
        benchmark = read(path, documents=str(docs), chunk_size=size)
        assert [len(question.evidence) for question in benchmark.questions] == [passages, passages]
        lengths = [sum(end - start for start, end in parts.values()) for ((_, parts),) in (q.metadata[SPANS] for q in benchmark.questions)]
        assert lengths == [length for q in benchmark.questions for length, _ in q.metadata[SPANS]]


def test_gold_quotes_match_the_passage_that_contains_them(tmp_path: Path, docs: Path) -> None:
    rows = [
        {"question": "1?", "document": "leave.md", "quote": 'parents  have "twelve weeks"'},
        {"question": "2?", "document": "", "quote": "at eight"},
    ]
    benchmark = read(write(tmp_path / "q.csv", as_csv(rows)), documents=str(docs), chunker="headings")
    first, second = (benchmark.corpus.get(q.evidence) for q in benchmark.questions)
    assert [p.title for p in first] == ["Leave > Parents"]
    assert [p.document_id for p in second] == ["sub/office.txt"]


def test_sentences_as_evidence_are_guessed_as_quotes_of_the_named_document(tmp_path: Path, docs: Path) -> None:
    (docs / "copy.txt").write_text(OFFICE, "utf-8")
    sentence = OFFICE.strip()
    rows: list[dict[str, Any]] = [{"question": "1?", "evidence": sentence, "source_doc": "copy.txt"}]
    benchmark = read(write(tmp_path / "q.json", json.dumps(rows)), documents=str(docs))
    assert [p.document_id for p in benchmark.corpus.get(benchmark.questions[0].evidence)] == ["copy.txt"]
    listed = read(write(tmp_path / "l.json", json.dumps([{"question": "1?", "evidence": [sentence]}])), documents=str(docs))
    assert len(listed.questions[0].evidence) == 1
    # A name of a document is no sentence, and a field for quotes is not guessed again.
    named = read(
        write(tmp_path / "n.json", json.dumps([{"question": "1?", "evidence": "copy.txt", "quote": sentence}])), documents=str(docs)
    )
    assert named.questions[0].evidence == benchmark.questions[0].evidence


def test_quotations_that_stand_in_several_places_are_counted(tmp_path: Path, docs: Path) -> None:
    (docs / "copy.txt").write_text(OFFICE + "Closed on Sundays.\n", "utf-8")
    rows = [{"question": f"{number}?", "quote": quote} for number, quote in enumerate(("opens at eight", "28 days", "Closed on Sundays"))]
    benchmark = read(write(tmp_path / "q.json", json.dumps(rows)), documents=str(docs))
    assert [len(question.evidence) for question in benchmark.questions] == [1, 1, 1]
    assert [note.split()[0] for note in benchmark.extra[CAVEATS]] == ["1"]
    named = [row | {"source": "copy.txt"} for row in rows[:1]]
    assert read(write(tmp_path / "named.json", json.dumps(named)), documents=str(docs)).extra[CAVEATS] == ()


def test_numeric_answers_of_tables_and_json_are_equal(tmp_path: Path) -> None:
    rows = [{"question": "How many?", "answer": 1.0}, {"question": "Which?", "answer": 2.5}]
    of_json = read(write(tmp_path / "q.json", json.dumps(rows)))
    of_csv = read(write(tmp_path / "q.csv", as_csv(rows)))
    of_parquet = read(write(tmp_path / "q.parquet", parquet(rows)))
    assert of_json.questions == of_csv.questions == of_parquet.questions
    assert [question.golds for question in of_json.questions] == [("1.0", "1"), ("2.5",)]
    whole = read(write(tmp_path / "w.json", json.dumps([{"question": "How many?", "answer": 1}])))
    assert whole.questions[0].golds == ("1",)


def test_answers_with_an_undeclared_separator_are_counted_and_reported(tmp_path: Path) -> None:
    path = write(tmp_path / "q.csv", "question,answer\nWho?,Ada|Ada Marsh\nWhere?,Lyon\n")
    whole, divided = read(path), read(path, separator="|")
    assert any(note.startswith("1 answers contain '|'") for note in whole.extra["caveats"])
    assert divided.questions[0].golds == ("Ada", "Ada Marsh")
    assert divided.extra["caveats"] == ()


def test_answers_that_look_like_missing_values_are_reported(tmp_path: Path) -> None:
    whole = read(write(tmp_path / "q.csv", "question,answer\nWho?,nan\nWhere?,Lyon\nWhat?,#N/A\nWhy?,None\n"))
    assert any(note.startswith("3 answers are a word for a missing value") for note in whole.extra["caveats"])


@pytest.mark.parametrize(("answers", "caveats"), [(("True", "FALSE"), 1), (("True", "yes"), 0)])
def test_answers_that_are_all_truth_values_are_reported(answers: tuple[str, ...], caveats: int, tmp_path: Path) -> None:
    rows = [{"question": f"Is it {number}?", "answer": answer} for number, answer in enumerate(answers)]
    benchmark = read(write(tmp_path / "boolq.csv", as_csv(rows)))
    assert len(benchmark.extra[CAVEATS]) == caveats
    assert [question.answers for question in benchmark.questions] == [(answer,) for answer in answers]


def test_ids_that_pandas_wrote_as_floats_still_match(tmp_path: Path) -> None:
    documents = write(tmp_path / "d.csv", "id,text\n1,one\n2,two\n")
    questions = write(tmp_path / "q.csv", "question,doc_id\nWhich?,2.0\nWhat?,1.0\n")
    assert [p for (p,) in gold(read(questions, documents=str(documents))).values()] == ["2", "1"]


def test_fingerprint_includes_the_field_mapping_and_chunking(tmp_path: Path, docs: Path) -> None:
    path = write(tmp_path / "q.csv", as_csv([{**row, "gold": row["answer"]} for row in ROWS]))
    guess = read(path, documents=str(docs))
    assert guess.fingerprint == read(path, documents=str(docs), fields={"question": "question"}).fingerprint
    others = [{"fields": {"answers": "gold"}}, {"chunker": "whole"}, {"chunk_size": 200}]
    prints = [read(path, documents=str(docs), **options).fingerprint for options in others]
    assert len({guess.fingerprint, *prints}) == 4


BAD: dict[str, tuple[str | bytes, str, str]] = {
    "missing": (
        "".join(f'{{"question": "{n}?", "answer": "x"}}\n' for n in range(4116)) + '{"question": "?"}\n',
        "bad-record",
        "line 4117",
    ),
    "ragged": ('question,answer\nWho?,Ann\n"When, and where?",now\nWho, and why?,Bo\n', "bad-record", "line 4"),
    "quote": ('question,answer\nWho?,Ann\n"When?,now\nWhy?,so\n', "bad-record", "line 3"),
    "mixed": ("question,answer\nWo?,Köln\n".encode() + "Wer?,Müller\n".encode("cp1252"), "bad-record", "line 3"),
    "twice": ("id,question,answer\na,Who?,Ann\na,When?,now\n", "duplicate-question", "line 3"),
    "no question": ("question,answer\n  ,Ann\n", "bad-record", "line 2"),
    "true": ('{"question": "Is it?", "answer": true}\n', "bad-record", "line 1"),
    "numpy": ("question,answers\nWho?,\"['Ann' 'Bo']\"\n", "bad-record", "line 2"),
    "page": ("<!DOCTYPE html><html><title>Log in</title></html>", "foreign-file-format", ""),
    "columns": ('{"question": {"0": "a?", "1": "b?"}, "answer": {"0": "a", "1": "b"}}', "columns-not-records", ""),
    "header": ("question,answer,answer\na,b,c\n", "bad-header", "line 1"),
    "markdown": ("| question | answer |\n|---|:-:|\n| Who? | Ann |\n", "markdown-table", "line 2"),
    "no header": ("Who?,Ann\nWhen?,now\n", "unknown-fields", ""),
    "empty": ("", "empty-file", ""),
    "binary": (b"question\x00,answer\x00\n" + bytes(range(20)) * 10, "file-not-utf8", ""),
    "huge": (f'question,answer\n"{"x" * 1_000_001}",y\n', "bad-record", "line 2"),
}


@pytest.mark.parametrize("name", BAD)
def test_faulty_row_is_reported_with_its_position(name: str, tmp_path: Path) -> None:
    content, code, where = BAD[name]
    path = write(tmp_path / ("q.jsonl" if str(content[:1]) in ("{", "b'{'") else "q.csv"), content)
    with raises(code, where) as caught:
        read(path)
    assert str(path) in (caught.value.where or "")
    assert caught.value.try_this


@pytest.mark.parametrize("name", ["missing", "ragged", "mixed", "numpy", "huge"])
def test_skip_bad_counts_skipped_rows_and_every_table_states_them(name: str, tmp_path: Path) -> None:
    content = BAD[name][0]
    raw = content.encode() if isinstance(content, str) else content
    good = b'{"question": "?", "answer": "y"}\n' if raw.startswith(b"{") else b"Why?,because\n"
    benchmark = read(write(tmp_path / ("q.jsonl" if raw.startswith(b"{") else "q.csv"), raw + good), skip_bad=True)
    assert len(benchmark.skipped) == 1
    assert BAD[name][2] in benchmark.skipped[0].where
    assert len(benchmark.extra[CAVEATS]) == 1


def test_empty_answers_are_counted(tmp_path: Path) -> None:
    benchmark = read(write(tmp_path / "q.csv", "question,answer\nWho?,Ann\nWhen?,\n"))
    assert benchmark.extra["counts"]["questions_without_answers"] == 1
    assert [question.answers for question in benchmark.questions] == [("Ann",), ()]


def test_two_documents_with_one_id_are_refused_or_skipped(tmp_path: Path) -> None:
    documents = write(tmp_path / "d.jsonl", '{"id": 1, "text": "one"}\n{"id": 1, "text": "uno"}\n{"id": 1, "text": "one"}\n')
    questions = write(tmp_path / "q.csv", "question,doc_id\nWhich?,1\n")
    with raises("duplicate-document", "line 2"):
        read(questions, documents=str(documents))
    benchmark = read(questions, documents=str(documents), skip_bad=True)
    assert (len(benchmark.corpus), len(benchmark.skipped)) == (1, 1)


@pytest.mark.parametrize("path", ["body", "body[]", "parts[].text"])
def test_paragraphs_of_a_document_are_all_read(path: str, tmp_path: Path) -> None:
    row = {"id": 1, "body": ["one", "two"], "parts": [{"text": "one"}, {"text": "two"}], "other": {"text": "one"}}
    documents = write(tmp_path / "d.jsonl", "".join(json.dumps(row | {"id": number}) + "\n" for number in (1, 2)))
    questions = write(tmp_path / "q.csv", "question,source\nWho?,1\n")
    benchmark = read(questions, documents=str(documents), document_fields={"text": path})
    assert [passage.text for passage in benchmark.corpus] == ["one\n\ntwo"] * 2
    for wrong in ({"text": "other"}, {"text": "parts"}, {"text": "other.text", "title": "body"}):
        with raises("bad-record", where="line 1"):
            read(questions, documents=str(documents), document_fields=wrong)


def test_documents_without_ids_are_named_by_their_row(tmp_path: Path) -> None:
    documents = write(tmp_path / "d.jsonl", '{"title": "A", "text": "one"}\n{"title": "A", "text": "two"}\n')
    questions = write(tmp_path / "q.jsonl", '{"question": "Which?", "supporting": [1]}\n')
    options = {"documents": str(documents), "document_fields": {"id": "#"}, "fields": {"evidence": "supporting"}, "chunker": "whole"}
    benchmark = read(questions, **options)
    assert [passage.text for passage in benchmark.corpus.get(benchmark.questions[0].evidence)] == ["two"]
    write(documents, '{"title": "A"}\n{"title": "A", "text": "two"}\n')
    with raises("bad-record", "line 1"):
        read(questions, **options, skip_bad=True)


def test_folds_partition_the_questions_without_sharing_gold(tmp_path: Path) -> None:
    documents = write(tmp_path / "d.jsonl", "".join(f'{{"id": {n}, "text": "document {n}"}}\n' for n in range(20)))
    rows = [f'{{"id": "q{n}", "question": "Question {n}?", "gold": ["{n % 20}"]}}\n' for n in range(40)]
    options = {"documents": str(documents), "fields": {"evidence": "gold", "answers": None}}
    questions = write(tmp_path / "q.jsonl", "".join(rows))
    inside = [read(questions, **options, fold=f"{part}/3") for part in (1, 2, 3)]
    assert sorted(q.id for fold in inside for q in fold.questions) == sorted(f"q{n}" for n in range(40))
    for part, fold in enumerate(inside, 1):
        rest = read(questions, **options, fold=f"-{part}/3")
        inside_gold, rest_gold = ({name for q in benchmark.questions for name in q.evidence} for benchmark in (fold, rest))
        assert inside_gold.isdisjoint(rest_gold)
        others = {q.id for other in inside if other is not fold for q in other.questions}
        assert {q.id for q in rest.questions} < others
        counts = rest.extra["counts"]
        assert len(rest.questions) + counts["questions_sharing_evidence"] == len(others)
        assert rest.extra["variant"] != fold.extra["variant"]
    for wrong in ("0/3", "4/3", "1/1", "one"):
        with raises("bad-option"):
            read(questions, **options, fold=wrong)


def test_unmatched_gold_is_refused_and_partly_matched_gold_reported(tmp_path: Path, docs: Path) -> None:
    with raises("gold-matches-nothing", "q.csv"):
        read(write(tmp_path / "q.csv", "question,source\nWho?,handbook.pdf\n"), documents=str(docs))
    benchmark = read(write(tmp_path / "p.csv", "question,source\nWho?,handbook.pdf\nWhen?,office\n"), documents=str(docs))
    assert "1 of 2" in benchmark.extra[CAVEATS][0]
    assert [name in benchmark.corpus for question in benchmark.questions for name in question.evidence] == [False, True]


def test_ambiguous_document_name_is_refused(tmp_path: Path, docs: Path) -> None:
    write(docs / "office.md", "The other office.")
    path = write(tmp_path / "q.csv", "question,source\nWho?,office\nWhen?,leave\n")
    with raises("bad-record", "line 2"):
        read(path, documents=str(docs))
    benchmark = read(path, documents=str(docs), skip_bad=True)
    assert (len(benchmark.questions), len(benchmark.skipped)) == (1, 1)
    assert read(write(tmp_path / "q.csv", "question,source\nWho?,office.md\n"), documents=str(docs)).questions


def test_gold_document_with_several_passages_is_matched_by_document(tmp_path: Path, docs: Path) -> None:
    benchmark = read(write(tmp_path / "q.csv", "question,source\nWho?,leave\n"), documents=str(docs), chunker="headings")
    assert len(benchmark.questions[0].evidence) == 2
    assert "recall@5(level=documents)" in benchmark.card.metrics
    assert benchmark.extra[CAVEATS]


def test_explicit_evidence_requires_documents_and_guessed_evidence_is_dropped(tmp_path: Path) -> None:
    path = write(tmp_path / "q.csv", "question,answer,source\nWho?,Ann,mail\n")
    assert read(path).questions[0].evidence == ()
    with raises("no-documents"):
        read(path, fields={"evidence": "source"})


def test_answer_of_a_model_beside_accepted_answers_is_no_gold(tmp_path: Path) -> None:
    exported = {"question": "Where?", "answer": "In Paris", "contexts": ["Lyon lies on the Rhône."]}
    for name, gold in (("ground_truth", "Lyon"), ("ground_truths", ["Lyon"]), ("expected_output", "Lyon")):
        path = write(tmp_path / "ragas.json", json.dumps([exported | {name: gold}]))
        assert read(path).questions[0].answers == ("Lyon",)
    unclear = write(tmp_path / "unclear.json", json.dumps([exported | {"reference": "Lyon"}]))
    with raises("two-answer-fields"):
        read(unclear)
    assert read(unclear, fields={"answers": "answer"}).questions[0].answers == ("In Paris",)
    equal = write(tmp_path / "equal.json", json.dumps([exported | {"reference": ["In Paris", "Paris"]}]))
    assert read(equal).questions[0].answers == ("In Paris",)


def test_typed_columns_give_the_values_that_people_wrote(tmp_path: Path) -> None:
    features = {"answer": {"names": ["no", "yes"], "_type": "ClassLabel"}}
    labeled = pa.schema([("question", pa.string()), ("answer", pa.int64())], {"huggingface": json.dumps({"info": {"features": features}})})
    several = {"answer": {"feature": features["answer"], "_type": "Sequence"}}
    answers_of = [("question", pa.string()), ("answer", pa.list_(pa.int64()))]
    listed = pa.schema(answers_of, {"huggingface": json.dumps({"info": {"features": several}})})
    small = pa.struct([("value", pa.float32())])
    questions = pa.array(["Where?", "Why?"])
    tables = {
        "labels": (pa.table([questions, pa.array([1, 0])], schema=labeled), ("yes", "no")),
        "floats": (pa.table({"question": questions, "answer": pa.array([0.1, 2.5], pa.float32())}), ("0.1", "2.5")),
        "halves": (pa.table({"question": questions, "answer": pa.array([0.1, 2.5], pa.float16())}), ("0.1", "2.5")),
        "lists": (pa.table({"question": questions, "answer": pa.array([[0.1], [2.5, None]], pa.list_(pa.float32()))}), ("0.1", "2.5")),
        "structs": (pa.table({"question": questions, "answer": pa.array([{"value": 0.1}, {"value": 2.5}], small)}), ("0.1", "2.5")),
        "labels in lists": (pa.table([questions, pa.array([[1, 0], [0]])], schema=listed), ("yes", "no")),
    }
    for name, (table, answers) in tables.items():
        pq.write_table(table, tmp_path / f"{name}.parquet")
        feather.write_feather(table, tmp_path / f"{name}.arrow")
        for ending in ("parquet", "arrow"):
            assert tuple(question.answers[0] for question in read(tmp_path / f"{name}.{ending}").questions) == answers


def test_unknown_roles_and_fields_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "q.csv", "question,answer\nWho?,Ann\n")
    with raises("unknown-role"):
        read(path, fields={"answer": "answer"})
    with raises("unknown-field"):
        read(path, fields={"answers": "anser"})


def test_gold_texts_become_the_corpus_if_there_are_no_documents(tmp_path: Path) -> None:
    text = "user_input,reference_contexts,reference\n1?,\"['one one', 'two']\",x\n2?,\"['two']\",y\n"
    benchmark = read(write(tmp_path / "testset.csv", text))
    assert [passage.text for passage in benchmark.corpus] == ["one one", "two"]
    assert list(gold(benchmark).values()) == [["one one", "two"], ["two"]]
    assert benchmark.questions[0].candidates is None


def test_sentence_passages_and_squad_answers_are_detected(tmp_path: Path) -> None:
    row = {
        "question": "Who?",
        "answers": {"text": ["Ann"], "answer_start": [0]},
        "context": {"title": ["A", "B"], "sentences": [["Ann.", " Is."], ["Bo."]]},
    }
    benchmark = read(write(tmp_path / "q.jsonl", json.dumps(row)))
    assert benchmark.questions[0].answers == ("Ann",)
    assert [(passage.title, passage.text) for passage in benchmark.corpus] == [("A", "Ann. Is."), ("B", "Bo.")]


@pytest.mark.parametrize(
    "answer",
    [
        {"value": "Ann", "aliases": ["Anna"], "normalized_aliases": ["ann"], "type": "FreeForm"},
        {"text": ["Ann", "Anna"], "answer_start": [0, 4]},
        [{"text": "Ann", "answer_start": 0}, {"text": "Anna", "answer_start": 4}],
        [{"answer": "Ann"}, {"answer": "Anna"}],
    ],
)
def test_answers_within_objects_are_detected(answer: Any, tmp_path: Path) -> None:
    row = {"question": "Who?", "answer": answer}
    assert read(write(tmp_path / "q.jsonl", json.dumps(row))).questions[0].answers == ("Ann", "Anna")


def test_names_in_camel_case_are_detected(tmp_path: Path) -> None:
    row = {"Question": "Who?", "QuestionId": "tc_1", "Answer": {"Value": "Ann", "Aliases": ["Anna"], "NormalizedAliases": ["ann"]}}
    (question,) = read(write(tmp_path / "q.json", json.dumps([row]))).questions
    assert (question.id, question.answers) == ("tc_1", ("Ann", "Anna"))
    row = {"id": "7", "input": "Who?", "expectedOutput": "Ann", "sourceTraceId": "x"}
    assert read(write(tmp_path / "q.jsonl", json.dumps(row))).questions[0].answers == ("Ann",)


def test_assertions_of_promptfoo_are_no_answers(tmp_path: Path) -> None:
    path = write(tmp_path / "q.csv", "question,__expected\nWho?,contains: Ann\nWhen?,llm-rubric: polite\n")
    assert [question.answers for question in read(path).questions] == [(), ()]


def test_error_names_fields_within_objects(tmp_path: Path) -> None:
    path = write(tmp_path / "q.jsonl", json.dumps({"inputs": {"question": "Who?"}, "outputs": {"answer": "Ann"}}))
    with raises("unknown-fields") as caught:
        read(path)
    paths = {"question": "inputs.question", "answers": "outputs.answer"}
    assert all(f"{role}: {path}" in (caught.value.try_this or "") for role, path in paths.items())
    assert read(path, fields=paths).questions[0].answers == ("Ann",)


def test_error_names_a_list_of_documents_in_one_field(tmp_path: Path, docs: Path) -> None:
    with raises("gold-matches-nothing") as caught:
        read(write(tmp_path / "q.csv", "question,source\nWho?,office; leave.md\n"), documents=str(docs))
    assert '["office", "leave.md"]' in (caught.value.try_this or "")


def test_passages_of_ms_marco_are_detected(tmp_path: Path) -> None:
    row = {"query": "who", "answers": ["Ann"], "passages": {"is_selected": [0, 1], "passage_text": ["one", "two"], "url": ["u", "v"]}}
    assert list(gold(read(write(tmp_path / "q.jsonl", json.dumps(row)))).values()) == [["two"]]


def test_shards_are_read_together(tmp_path: Path) -> None:
    for number in range(2):
        rows = [{"question": f"{number}?", "answer": "x", "source": f"d{number}"}]
        write(tmp_path / f"test-{number:05}-of-00002.parquet", parquet(rows))
        write(tmp_path / f"docs-{number:05}-of-00002.jsonl", json.dumps({"id": f"d{number}", "text": f"text {number}"}))
    benchmark = read(tmp_path / "test-00001-of-00002.parquet", documents=str(tmp_path / "docs-00000-of-00002.jsonl"))
    assert [question.text for question in benchmark.questions] == ["0?", "1?"]
    assert list(gold(benchmark).values()) == [["d0"], ["d1"]]
    (tmp_path / "docs-00001-of-00002.jsonl").unlink()
    with raises("missing-shards"):
        read(tmp_path / "test-00001-of-00002.parquet", documents=str(tmp_path / "docs-00000-of-00002.jsonl"))


def test_one_record_with_nested_fields_is_a_record(tmp_path: Path) -> None:
    row = {"question": {"text": "Who?"}, "answers": [{"text": "Ann"}, {"text": "Anna"}]}
    (question,) = read(write(tmp_path / "q.jsonl", json.dumps(row)), fields={"question": "question.text"}).questions
    assert (question.text, question.answers) == ("Who?", ("Ann", "Anna"))


def test_common_names_of_gold_fields_are_guessed(tmp_path: Path) -> None:
    row = {"question": "Who?", "possible_answers": '["Ann", "Anna"]', "relevant_passage_ids": "[0, 1]"}
    documents = write(tmp_path / "d.jsonl", "".join(json.dumps({"passage": text, "id": place}) + "\n" for place, text in enumerate("xyz")))
    (question,) = read(write(tmp_path / "q.csv", as_csv([row])), documents=str(documents)).questions
    assert (question.answers, len(question.evidence)) == (("Ann", "Anna"), 2)


@pytest.mark.parametrize("layout", ["object", "array", "parquet"])
def test_nested_squad_gives_its_questions_with_their_paragraphs(layout: str, tmp_path: Path) -> None:
    entries = [
        {"id": "a", "question": "Who?", "answers": [{"text": "Ann", "answer_start": 0}, {"text": "Anna", "answer_start": 0}]},
        {"id": "b", "question": "When?", "answers": [], "is_impossible": True},
    ]
    articles = [{"title": "T", "paragraphs": [{"context": "Ann is.", "qas": entries}]}]
    content = json.dumps({"version": "v2.0", "data": articles} if layout == "object" else articles).encode()
    benchmark = read(write(tmp_path / "q.json", parquet(articles) if layout == "parquet" else content))
    assert [(q.id, q.answers, q.answerable) for q in benchmark.questions] == [("a", ("Ann", "Anna"), True), ("b", (), False)]
    assert [(passage.title, passage.text) for passage in benchmark.corpus] == [("T", "Ann is.")]
    assert [len(question.evidence) for question in benchmark.questions] == [1, 0]


def test_record_of_a_known_dataset_names_its_reader(tmp_path: Path) -> None:
    row = {"_id": "a", "question": "Who?", "answer": "Ann", "supporting_facts": [["T", 0]], "context": [["T", ["Ann is."]]]}
    with raises("bad-record") as caught:
        read(write(tmp_path / "q.json", json.dumps([row])))
    assert "hotpotqa" in (caught.value.try_this or "")


def test_a_table_with_one_column_may_hold_commas(tmp_path: Path) -> None:
    assert [q.text for q in read(write(tmp_path / "q.csv", "question\nWho, and when?\nWhy?\n")).questions] == ["Who, and when?", "Why?"]


def test_document_names_match_with_or_without_parent_folders(tmp_path: Path, docs: Path) -> None:
    rows = "question,source\n1?,docs/leave.md\n2?,C:\\files\\docs\\sub\\office.txt\n3?,./LEAVE.MD\n"
    assert list(gold(read(write(tmp_path / "q.csv", rows), documents=str(docs))).values()) == [
        ["leave.md"],
        ["sub/office.txt"],
        ["leave.md"],
    ]
    single = read(write(tmp_path / "one.csv", "question,source\n1?,leave\n"), documents=str(docs / "leave.md"))
    assert list(gold(single).values()) == [["leave.md"]]


def test_unsupported_inputs_are_refused(tmp_path: Path) -> None:
    with raises("spreadsheet"):
        read(write(tmp_path / "q.xlsx", b"PK\x03\x04"))
    with raises("bad-header"):
        read(write(tmp_path / "json.csv", '{"question":"Who?","answer":"Ann"}\n'))
    with raises("no-answers"):
        read(write(tmp_path / "q.csv", "question,answer\nWho?,\nWhen?,\n"))
    with raises("not-saved-dataset"):
        read(tmp_path)
    by_id = {f"q{number}": {"question": f"{number}?", "answer": "x"} for number in range(2)}
    with raises("records-by-id"):
        read(write(tmp_path / "q.json", json.dumps(by_id)))
    with raises("records-by-id"):
        documents = write(tmp_path / "d.json", json.dumps({"1": {"title": "T", "text": "one"}, "2": {"text": "two"}}))
        read(write(tmp_path / "named.csv", "question,source\nWho?,1\n"), documents=str(documents))


@pytest.mark.parametrize("encoding", ["utf-16", "cp1252"])
@pytest.mark.parametrize("whole", [True, False])
def test_json_in_other_encodings_is_read_like_tables(tmp_path: Path, docs: Path, encoding: str, whole: bool) -> None:
    text = json.dumps(ROWS, ensure_ascii=False) if whole else "".join(json.dumps(row, ensure_ascii=False) + "\r\n" for row in ROWS)
    benchmark = read(write(tmp_path / "q.jsonl", text.encode(encoding)), documents=str(docs))
    assert benchmark.questions[2].text == "How long is “parental” leave?"
    assert gold(benchmark) == gold(read(write(tmp_path / "u.jsonl", text.encode()), documents=str(docs)))
    assert encoding in benchmark.extra[MAPPING]


def test_line_in_a_different_encoding_is_reported(tmp_path: Path) -> None:
    lines = [json.dumps({"question": f"Café {number}?"}, ensure_ascii=False) for number in range(3)]
    raw = b"\n".join(line.encode("cp1252" if number == 1 else "utf-8") for number, line in enumerate(lines))
    with raises("bad-record", where="line 2"):
        read(write(tmp_path / "q.jsonl", raw))


def test_earlier_turns_exclude_the_current_question(tmp_path: Path) -> None:
    before = [{"role": "system", "content": "Be brief."}, {"role": "human", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    rows = [
        {"question": "Where?", "answer": "Lyon", "messages": [*before, {"role": "user", "content": "Where?"}]},
        {"question": "When?", "answer": "1900", "messages": []},
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    first, second = read(write(tmp_path / "q.jsonl", text)).questions
    assert ([(turn.role, turn.text) for turn in first.turns], second.turns) == ([("user", "Hi"), ("assistant", "Hello")], ())
    with raises("bad-record", where="line 1"):
        read(write(tmp_path / "q.jsonl", text.replace("human", "judge")))
