"""Retrieval tasks in the layouts of BEIR, MTEB and BRIGHT, with scores that equal pytrec_eval."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.core.errors import UserError
from benchmarks.corpus_build import build_corpus
from benchmarks.datasets import beir
from benchmarks.registry import Benchmark, load
from benchmarks.settings import apply
from judges.score import score
from methods.api import Evidence, Prediction
from results.formats.outputs import FORMATS
from results.offered import LIMITS
from results.submission import Findings
from tests.support.errors import raises
from tests.support.hub_server import HubServer, Repository

DOCUMENTS = {"d1": ("Ants", "Ants dig."), "d2": ("Bees", "Bees fly."), "d3": ("Bees", "Bees fly."), "q2": ("", "Who flies?")}
QUESTIONS = {"q1": "Who digs?", "q2": "Who flies?", "q3": "Who swims?", "q4": "Who sings?"}
GRADES = {"q1": {"d1": 2, "d2": 0}, "q2": {"d2": 1, "d3": 2, "gone": 1}, "q3": {"d1": 0}}


def lines(rows: list[dict[str, object]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def parquet(rows: list[dict[str, object]]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), sink)
    return sink.getvalue()


CORPUS = [{"_id": name, "title": title, "text": text, "metadata": {}} for name, (title, text) in DOCUMENTS.items()]
QUERIES = [{"_id": name, "text": text} for name, text in QUESTIONS.items()]
ROWS = [{"query-id": q, "corpus-id": d, "score": g} for q, row in GRADES.items() for d, g in row.items()]
TSV = "query-id\tcorpus-id\tscore\n" + "".join("\t".join(map(str, row.values())) + "\n" for row in ROWS)
BEIR = {"corpus.jsonl": lines(CORPUS), "queries.jsonl": lines(QUERIES), "qrels/test.tsv": TSV.encode()}
MTEB = {
    "corpus/corpus-00000-of-00001.parquet": parquet([{"_id": row["_id"], "text": row["text"], "title": row["title"]} for row in CORPUS]),
    "queries/queries-00000-of-00001.parquet": parquet(QUERIES),
    "data/test-00000-of-00001.parquet": parquet(ROWS),
}
FOLDERS: Mapping[str, Mapping[str, bytes]] = {
    "BEIR": BEIR,
    "BEIR in gzip, with byte order marks, CRLF and blank lines": {
        "corpus.jsonl.gz": gzip.compress(b"\xef\xbb\xbf" + BEIR["corpus.jsonl"].replace(b"\n", b"\r\n\r\n")),
        "queries.jsonl": b"\xef\xbb\xbf" + BEIR["queries.jsonl"].replace(b"\n", b"\r\n"),
        "qrels/test.tsv": b"\xef\xbb\xbf" + BEIR["qrels/test.tsv"].replace(b"\n", b"\r\n"),
    },
    "MTEB in Parquet": MTEB,
    "MTEB in shards": {name: raw for name, raw in MTEB.items() if not name.startswith("data/")}
    | {f"data/test-0000{part}-of-00002.parquet": parquet(ROWS[part::2]) for part in range(2)},
    "MTEB in JSON Lines": {**BEIR, "qrels/test.jsonl": lines(ROWS), "qrels/test.tsv": TSV.encode()},
}


def write_files(folder: Path, files: Mapping[str, bytes]) -> Path:
    for name, raw in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(raw)
    return folder


def require_read(benchmark: Benchmark) -> None:
    corpus = benchmark.corpus
    assert [(passage.title, passage.text) for passage in corpus] == list(DOCUMENTS.values())
    assert [(q.id, q.text, q.answers) for q in benchmark.questions] == [(q, QUESTIONS[q], ()) for q in GRADES]
    for question in benchmark.questions:
        known = {corpus.by_native_id(d): g for d, g in GRADES[question.id].items() if d in DOCUMENTS}
        assert {name: grade for name, grade in question.grades.items() if name in corpus} == known
        assert len(question.grades) == len(GRADES[question.id])
        assert question.evidence == tuple(name for name, grade in question.grades.items() if grade > 0)
    assert benchmark.extra["counts"] == {
        "questions_without_judgments": 1,
        "questions_without_positives": 1,
        "positives_absent": 1,
        "questions_with_own_document": 1,
    }


@pytest.mark.parametrize("name", FOLDERS)
def test_folder_is_read_in_every_layout(name: str, tmp_path: Path) -> None:
    benchmark = load("beir:test", {"path": str(write_files(tmp_path / "animals", FOLDERS[name]))})
    require_read(benchmark)
    assert benchmark.name == "beir:test(animals)"


def test_archive_is_read_in_place_and_equals_its_folder(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "animals.zip", "w") as archive:
        for name, raw in BEIR.items():
            archive.writestr(f"animals/{name}", raw)
    packed = load("beir:test", {"path": str(tmp_path / "animals.zip")})
    require_read(packed)
    assert packed.fingerprint == load("beir:test", {"path": str(write_files(tmp_path / "animals", BEIR))}).fingerprint


def test_hub_repositories_are_read(tmp_path: Path) -> None:
    texts = {name: raw for name, raw in BEIR.items() if "qrels" not in name}
    repositories = {
        "BeIR/animals": Repository(texts),
        "BeIR/animals-qrels": Repository({"test.tsv": BEIR["qrels/test.tsv"]}),
        "mteb/animals": Repository(MTEB),
        "mteb/many": Repository({f"{name.split('/')[0]}/en-{Path(name).name}": raw for name, raw in MTEB.items() if "data" not in name}
                                | {"qrels/en/test.tsv": TSV.encode()}),
    }  # fmt: skip
    with HubServer(repositories).as_hub(tmp_path / "home"):
        for options in (
            {"hub": "BeIR/animals"},
            {"hub": "BeIR/animals", "revision": "main"},
            {"hub": "mteb/animals"},
            {"hub": "mteb/many", "part": "en"},
        ):
            require_read(load("beir:test", options))


def test_bright_excludes_the_documents_listed_by_a_question(tmp_path: Path) -> None:
    documents = [{"id": name, "content": text} for name, (_, text) in DOCUMENTS.items()]
    examples = [
        {"query": "Who digs?", "id": "0", "excluded_ids": ["d2", "N/A"], "gold_ids": ["d1"], "gold_ids_long": ["x"]},
        {"query": "Who flies?", "id": "1", "excluded_ids": ["N/A"], "gold_ids": ["d2", "d3"], "gold_ids_long": ["x"]},
    ]
    files = {"documents/ants-00000-of-00001.parquet": parquet(documents), "examples/ants-00000-of-00001.parquet": parquet(examples)}
    benchmark = load("beir:test", {"path": str(write_files(tmp_path / "BRIGHT", files)), "part": "ants"})
    d1, d2, d3 = (benchmark.corpus.by_native_id(name) for name in ("d1", "d2", "d3"))
    assert [(q.evidence, q.excluded) for q in benchmark.questions] == [((d1,), (d2,)), ((d2, d3), ())]
    assert benchmark.name == "beir:test(BRIGHT, ants)"


def test_skipped_comments_in_judgments_are_counted(tmp_path: Path) -> None:
    benchmark = load("beir:test", {"path": str(write_files(tmp_path, {**BEIR, "qrels/test.tsv": f"{TSV}#q4\td1\t1\n".encode()}))})
    assert benchmark.extra["counts"]["comments_in_judgments"] == 1


def test_document_with_the_query_id_is_ignored_if_requested(tmp_path: Path) -> None:
    benchmark = load("beir:test", {"path": str(write_files(tmp_path, BEIR)), "ignore_identical_ids": True})
    assert [question.excluded for question in benchmark.questions] == [(), (benchmark.corpus.by_native_id("q2"),), ()]
    assert benchmark.extra["counts"]["identical_ids_ignored"] == 1


def test_scores_equal_pytrec_eval_exactly(tmp_path: Path) -> None:
    pytrec_eval = pytest.importorskip("pytrec_eval")
    rng = np.random.default_rng(0)
    names = [f"d{number}" for number in range(200)]
    grades = {f"q{n}": {d: int(rng.integers(0, 4)) for d in rng.permutation(names)[:30].tolist()} for n in range(40)}
    run = {q: {d: float(-rank) for rank, d in enumerate(rng.permutation(names)[:120].tolist())} for q in grades}
    files = {
        "corpus.jsonl": lines([{"_id": name, "text": f"text {number % 150}"} for number, name in enumerate(names)]),
        "queries.jsonl": lines([{"_id": q, "text": q} for q in grades]),
        "qrels/test.tsv": (
            "query-id\tcorpus-id\tscore\n" + "".join(f"{q}\t{d}\t{g}\n" for q, r in grades.items() for d, g in r.items())
        ).encode(),
    }
    benchmark = load("beir:test", {"path": str(write_files(tmp_path, files))})
    find = benchmark.corpus.by_native_id
    predictions = {q: Prediction(q, "", tuple(Evidence(str(find(d)), s) for d, s in row.items())) for q, row in run.items()}
    ours = score(benchmark.questions, predictions, ["ndcg@10", "map@100", "recall@100"])
    measures = dict(zip(ours, ("ndcg_cut_10", "map_cut_100", "recall_100"), strict=True))
    theirs = pytrec_eval.RelevanceEvaluator(grades, {"ndcg_cut.10", "map_cut.100", "recall.100"}).evaluate(run)
    for metric, values in ours.items():
        assert values.tolist() == [theirs[question.id][measures[metric]] for question in benchmark.questions]


def test_run_with_native_ids_becomes_rankings(tmp_path: Path) -> None:
    benchmark = apply("corpus", load("beir:test", {"path": str(write_files(tmp_path, BEIR))}), 0)
    findings = Findings()
    rows = list(FORMATS["trec"].reader(benchmark)(io.BytesIO(b"q1 Q0 d3 1 2.5 t\nq1 Q0 d1 2 1.5 t\n"), findings, LIMITS))
    ranked = {row.prediction.question_id: [item.id for item in row.prediction.evidence] for row in rows}
    assert ranked == {"q1": [benchmark.corpus.by_native_id("d3"), benchmark.corpus.by_native_id("d1")], "q2": [], "q3": []}
    assert findings.errors == 0


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "questions"),
        ({"queries.jsonl": b'{"_id": "q1"}\n'}, "text"),
        ({"queries.jsonl": b'{"_id": "q1", "text": "a"}\n{"_id": "q1", "text": "a"}\n'}, "twice"),
        ({"queries.jsonl": BEIR["queries.jsonl"]}, "judgments"),
        ({**BEIR, "qrels/test.tsv": b"q1\td1\n"}, "2 columns"),
        ({**BEIR, "qrels/test.tsv": b"other 0 d1 1\n"}, "judged"),
        ({**BEIR, "corpus.jsonl": b'{"_id": "d1"}\n'}, "text"),
        ({**BEIR, "corpus.jsonl": b'{"text": "a"}\n'}, "_id"),
        ({**BEIR, "corpus.jsonl": b'{"_id": "d1", "text": "a"}\n{"_id": "d1", "text": "b"}\n'}, "d1"),
    ],
)
def test_missing_or_invalid_file_is_reported_with_its_path(files: Mapping[str, bytes], words: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        load("beir:test", {"path": str(write_files(tmp_path, files))})
    assert words in " ".join(error.value.lines())
    assert str(tmp_path) in (error.value.where or "")


def test_judgments_of_another_corpus_are_refused(tmp_path: Path) -> None:
    other = b"query-id\tcorpus-id\tscore\nq1\tx1\t1\nq2\tx2\t1\n"
    with raises("judged-documents-absent"):
        load("beir", {"path": str(write_files(tmp_path, BEIR | {"qrels/test.tsv": other}))})


def test_corpus_folder_must_keep_documents_with_equal_text(tmp_path: Path) -> None:
    path = write_files(tmp_path / "animals", BEIR)
    merged, kept = tmp_path / "merged", tmp_path / "kept"
    build_corpus(path / "corpus.jsonl", merged)
    build_corpus(path / "corpus.jsonl", kept, layout="beir")
    with raises("unreadable-documents"):
        load("beir:test", {"path": str(path), "corpus": str(merged)})
    require_read(load("beir:test", {"path": str(path), "corpus": str(kept)}))


def test_file_instead_of_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="folder or a zip"):
        load("beir:test", {"path": str(write_files(tmp_path, BEIR) / "corpus.jsonl")})
    with pytest.raises(UserError, match="does not exist"):
        load("beir:test", {"path": str(tmp_path / "nowhere")})


def test_qrels_file_of_a_folder_is_found(tmp_path: Path) -> None:
    assert beir.qrels_of(write_files(tmp_path, BEIR)) == tmp_path / "qrels/test.tsv"
