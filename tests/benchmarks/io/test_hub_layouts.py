"""The multi-hop datasets in hub layouts: served, fetched, and equal to the questions of the original files."""

import io
import json
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.core.fingerprint import file_sha256
from benchmarks.datasets import hotpotqa, musique, two_wiki
from benchmarks.datasets.multihop import restored
from benchmarks.records import BadRecord, Record, records
from benchmarks.registry import load
from tests.support.errors import raises
from tests.support.hub_server import HubServer, Repository
from tests.support.worlds_native import write_native


@pytest.fixture(autouse=True)
def _no_local_data(monkeypatch):
    monkeypatch.delenv("RAGMETER_DATA", raising=False)


@pytest.fixture(scope="module")
def world():
    return load("worlds/multihop:test", {"questions": 50})


@pytest.fixture
def native(world, tmp_path):
    """Return the original file of a format and its records."""

    def write(form):
        path = tmp_path / "native" / form / "records.json"
        write_native(world, form, path)
        return path, [dict(record.fields) for record in records(path)]

    return write


def columns(pairs, *names):
    """Return a list of tuples as an object of lists."""
    return {name: [pair[i] for pair in pairs] for i, name in enumerate(names)}


def hotpot_row(record):
    """Return a row of hotpotqa/hotpot_qa."""
    return {
        "id": record["_id"],
        "question": record["question"],
        "answer": record["answer"],
        "type": record["type"],
        "level": record["level"],
        "supporting_facts": columns(record["supporting_facts"], "title", "sent_id"),
        "context": columns(record["context"], "title", "sentences"),
    }


def two_wiki_row(record):
    """Return a row of xanhho/2WikiMultihopQA, with nested values as JSON text."""
    plain = {name: record[name] for name in ("_id", "type", "question", "answer")}
    return plain | {name: json.dumps(record[name]) for name in ("context", "supporting_facts", "evidences")}


def two_wiki_column_row(record):
    """Return a row of the copies in HotpotQA's layout."""
    facts = columns(record["evidences"], "fact", "relation", "entity")
    return hotpot_row({"level": None, **record}) | {"evidences": facts}


def parquet(rows, **options):
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), sink, **options)
    return sink.getvalue()


def jsonl(rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def shards(folder, stem, rows, count=3):
    step = -(-len(rows) // count)
    return {
        f"{folder}/{stem}-{i:05}-of-{count:05}.parquet": parquet(rows[i * step : (i + 1) * step], row_group_size=7) for i in range(count)
    }


def hub(card, files, home):
    return HubServer({card.hub_id: Repository({"README.md": b"# a set\n", **files})}).as_hub(home)


def plain(benchmark):
    """Return the questions without fields that only the original file has."""
    return [replace(question, aliases={}, metadata={}) for question in benchmark.questions]


@pytest.mark.parametrize("subset", ["distractor", "fullwiki"])
def test_hotpotqa_in_shards_equals_the_original_questions(native, tmp_path, subset):
    path, rows = native("hotpotqa")
    files = shards(subset, "validation", [hotpot_row(row) for row in rows])
    with hub(hotpotqa.CARD, files, tmp_path / "home"):
        fetched = load(f"hotpotqa/{subset}:dev", {"revision": "main"})
    own = load(f"hotpotqa/{subset}:dev", {"path": str(path)})
    assert fetched.questions == own.questions
    assert list(fetched.corpus) == list(own.corpus)
    assert fetched.fingerprint == own.fingerprint
    assert set(fetched.extra["source"]["files"]) == set(files)


def test_hotpotqa_json_lines_and_hub_conversion_are_read(native, tmp_path):
    path, rows = native("hotpotqa")
    hub_rows = [hotpot_row(row) for row in rows]
    own = load("hotpotqa:dev", {"path": str(path)})
    for files in ({"distractor/validation.jsonl": jsonl(hub_rows)}, {"distractor/validation/0000.parquet": parquet(hub_rows)}):
        with hub(hotpotqa.CARD, files, tmp_path / next(iter(files)).replace("/", "-")):
            assert load("hotpotqa:dev", {"revision": "main"}).questions == own.questions


def test_2wiki_with_nested_values_as_text_is_read(native, tmp_path):
    path, rows = native("2wikimultihopqa")
    with hub(two_wiki.CARD, {"dev.parquet": parquet([two_wiki_row(row) for row in rows])}, tmp_path / "home"):
        fetched = load("2wikimultihopqa:dev", {"revision": "main"})
    own = load("2wikimultihopqa:dev", {"path": str(path)})
    assert plain(fetched) == plain(own)
    assert any(question.triples for question in fetched.questions)
    assert fetched.corpus.fingerprint == own.corpus.fingerprint


def test_2wiki_in_columns_is_read(native, tmp_path):
    path, rows = native("2wikimultihopqa")
    files = shards("data", "validation", [two_wiki_column_row(row) for row in rows], 1)
    with hub(two_wiki.CARD, files, tmp_path / "home"):
        fetched = load("2wikimultihopqa:dev", {"revision": "main"})
    assert plain(fetched) == plain(load("2wikimultihopqa:dev", {"path": str(path)}))


@pytest.mark.parametrize("form", ["musique", "musique_full"])
@pytest.mark.parametrize("layout", ["lines", "parquet", "columns"])
def test_musique_is_read_in_every_layout(native, tmp_path, form, layout):
    path, rows = native(form)
    subset, folder = ("full", "default") if form == "musique_full" else ("ans", "answerable")
    if layout == "lines":
        files = {f"musique_{subset}_v1.0_dev.jsonl": path.read_bytes()}
    else:
        if layout == "columns":
            rows = [
                row | {name: columns([tuple(item.values()) for item in row[name]], *row[name][0])}
                for row in rows
                for name in ["paragraphs"]
            ]
        files = shards(folder, "validation", rows)
    with hub(musique.CARD, files, tmp_path / "home"):
        fetched = load(f"musique/{subset}:dev", {"revision": "main"})
    own = load(f"musique/{subset}:dev", {"path": str(path)})
    assert fetched.questions == own.questions
    assert fetched.fingerprint == own.fingerprint


@pytest.mark.parametrize(
    ("reference", "sample", "made", "card", "name"),
    [
        ("hotpotqa:train", "hotpotqa/hotpot_distractor_train50.json", hotpot_row, hotpotqa.CARD, "distractor/train-00000-of-00001.parquet"),
        ("2wikimultihopqa:dev", "2wikimultihopqa/2wiki_dev40.json", two_wiki_row, two_wiki.CARD, "dev.parquet"),
        ("musique:train", "musique/musique_ans_v1.0_train50.jsonl", dict, musique.CARD, "answerable/train-00000-of-00001.parquet"),
    ],
)
def test_real_samples_are_equal_in_the_hub_layout(data_folder, tmp_path, reference, sample, made, card, name):
    own = load(reference, {"path": str(data_folder / sample)})
    rows = [made(dict(record.fields)) for record in records(data_folder / sample)]
    with hub(card, {name: parquet(rows)}, tmp_path / "home"):
        fetched = load(reference, {"revision": "main"})
    assert len(fetched.questions) == len(rows)
    assert plain(fetched) == plain(own)
    assert fetched.corpus.fingerprint == own.corpus.fingerprint


def test_option_revision_overrides_the_revision_of_the_card(native, tmp_path):
    path, rows = native("hotpotqa")
    files = {"distractor/validation.jsonl": jsonl([hotpot_row(row) for row in rows])}
    with hub(hotpotqa.CARD, files, tmp_path / "home"):
        with raises("no-revision"):
            load("hotpotqa:dev")
        unpinned = load("hotpotqa:dev", {"revision": "main"})
    assert unpinned.extra["source"]["hub"] == "hotpotqa/hotpot_qa"
    assert unpinned.extra["source"]["files"] == {
        "distractor/validation.jsonl": file_sha256_of(files["distractor/validation.jsonl"], tmp_path)
    }
    assert len(unpinned.questions) == len(rows)
    assert path.exists()


def file_sha256_of(content, folder):
    (folder / "copy").write_bytes(content)
    return file_sha256(folder / "copy")


def test_splits_joined_by_plus_keep_the_files_of_both(native, tmp_path):
    _, rows = native("hotpotqa")
    half = len(rows) // 2
    files = {
        "distractor/train.jsonl": jsonl([hotpot_row(row) for row in rows[:half]]),
        "distractor/validation.jsonl": jsonl([hotpot_row(row) for row in rows[half:]]),
    }
    with hub(hotpotqa.CARD, files, tmp_path / "home"):
        both = load("hotpotqa:train+dev", {"revision": "main"})
    assert len(both.questions) == len(rows)
    assert set(both.extra["source"]["files"]) == set(files)


def test_local_folder_precedes_the_hub_and_option_revision_precedes_both(native, tmp_path, monkeypatch):
    path, rows = native("hotpotqa")
    local = tmp_path / "data" / "hotpotqa"
    local.mkdir(parents=True)
    (local / "hotpot_dev_distractor_v1.json").write_bytes(path.read_bytes())
    monkeypatch.setenv("RAGMETER_DATA", str(local.parent))
    with hub(hotpotqa.CARD, {"distractor/validation.jsonl": jsonl([hotpot_row(rows[0])])}, tmp_path / "home"):
        monkeypatch.setenv("RAGMETER_DATA", str(local.parent))
        assert len(load("hotpotqa:dev").questions) == len(rows)
        assert "source" not in load("hotpotqa:dev").extra
        assert len(load("hotpotqa:dev", {"revision": "main"}).questions) == 1


def test_downloaded_copy_of_the_repository_is_read_as_a_folder(native, tmp_path):
    path, rows = native("hotpotqa")
    for name, content in shards("distractor", "validation", [hotpot_row(row) for row in rows]).items():
        (tmp_path / "copy" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "copy" / name).write_bytes(content)
    own = load("hotpotqa:dev", {"path": str(path)})
    assert load("hotpotqa:dev", {"path": str(tmp_path / "copy")}).fingerprint == own.fingerprint
    (tmp_path / "copy" / "distractor" / "validation-00001-of-00003.parquet").unlink()
    with raises("missing-shards"):
        load("hotpotqa:dev", {"path": str(tmp_path / "copy")})


def test_offline_error_names_both_remedies(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setenv("RAGMETER_OFFLINE", "1")
    with raises("not-in-cache") as caught:
        load("hotpotqa:dev")
    assert "set path to the file" in caught.value.try_this
    assert "--offline" in caught.value.try_this


def test_real_rows_without_ids_get_stable_ids_and_a_note(data_folder, tmp_path):
    path = data_folder / "hotpotqa" / "hf_rows_20.json"
    rows = json.loads(path.read_text())
    benchmark = load("hotpotqa:dev", {"path": str(path)})
    assert [q.text for q in benchmark.questions] == [row["question"] for row in rows]
    assert [q.answers for q in benchmark.questions] == [(row["answer"],) for row in rows]
    assert benchmark.extra["counts"]["made_ids"] == len(rows) == 20
    assert "20 records have no id in the file" in benchmark.extra["notes"][0]
    for question, row in zip(benchmark.questions, rows, strict=True):
        passages = benchmark.corpus.get(question.candidates)
        assert [p.title for p in passages] == row["context"]["title"]
        assert [list(p.sentences) for p in passages] == row["context"]["sentences"]
        assert {p.title for p in benchmark.corpus.get(question.evidence)} == set(row["supporting_facts"]["title"])
    (tmp_path / "turned.jsonl").write_bytes(jsonl(rows[::-1]))
    turned = load("hotpotqa:dev", {"path": str(tmp_path / "turned.jsonl")})
    assert [q.id for q in turned.questions] == [q.id for q in benchmark.questions][::-1]


def row(**changes):
    record = {
        "_id": "h1",
        "question": "?",
        "answer": "Zoll",
        "type": "bridge",
        "level": "hard",
        "supporting_facts": [["Ada", 0]],
        "context": [["Ada", ["Ada was born in Zoll."]]],
    }
    return hotpot_row(record) | changes


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"context": {"title": ["Ada", "Zoll"], "sentences": [["x"]]}}, "differ in length (2 title, 1 sentences)"),
        ({"context": {"title": ["Ada"]}}, "field 'context.sentences' is not a list"),
        ({"context": {"title": "Ada", "sentences": []}}, "field 'context.title' is not a list"),
        ({"supporting_facts": {"title": ["Ada"], "sent_id": []}}, "differ in length"),
        ({"context": "[[1, "}, "not JSON"),
        ({"context": {"title": [7], "sentences": [["x"]]}}, "must be a string"),
        ({"supporting_facts": {"title": ["Ada"], "sent_id": ["0"]}}, "must be an integer"),
    ],
)
def test_faulty_row_is_reported_and_can_be_skipped(tmp_path, changes, says):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(jsonl([row(), row(id="h2") | changes]))
    with pytest.raises(BadRecord) as caught:
        load("hotpotqa:dev", {"path": str(path)})
    assert says in caught.value.what
    assert f"{path}, line 2, field" in caught.value.where
    benchmark = load("hotpotqa:dev", {"path": str(path), "skip_bad": True})
    assert [q.id for q in benchmark.questions] == ["h1"]
    assert len(benchmark.skipped) == 1


def test_two_layouts_in_one_file_are_refused_even_with_skip_bad(tmp_path):
    path = tmp_path / "rows.jsonl"
    authors = restored(Record(row(id="h2"), path, "line 2")).fields
    path.write_bytes(jsonl([row(), dict(authors)]))
    with raises("mixed-record-layouts"):
        load("hotpotqa:dev", {"path": str(path), "skip_bad": True})


def test_rows_of_another_dataset_are_refused(native, tmp_path):
    _, rows = native("2wikimultihopqa")
    path = tmp_path / "rows.parquet"
    path.write_bytes(parquet([two_wiki_row(row) for row in rows]))
    with raises("record-of-other-dataset"):
        load("hotpotqa:dev", {"path": str(path)})
    with raises("record-of-other-dataset"):
        load("musique:dev", {"path": str(path)})


def test_question_id_in_two_shards_is_an_error_with_both_files(native, tmp_path):
    _, rows = native("hotpotqa")
    row = hotpot_row(rows[0])
    for i in range(2):
        (tmp_path / f"hotpot_dev_distractor-0000{i}-of-00002.json").write_text(json.dumps([row]))
    with raises("duplicate-question") as caught:
        load("hotpotqa:dev", {"path": str(tmp_path)})
    assert "00000-of" in caught.value.where
    assert "00001-of" in caught.value.where


def test_test_split_without_gold_loads_from_the_hub(native, tmp_path):
    _, rows = native("hotpotqa")
    bare = {"answer": None, "type": None, "level": None, "supporting_facts": {"title": [], "sent_id": []}}
    rows = [hotpot_row(row) | bare for row in rows]
    with hub(hotpotqa.CARD, {"fullwiki/test-00000-of-00001.parquet": parquet(rows)}, tmp_path / "home"):
        benchmark = load("hotpotqa/fullwiki:test", {"revision": "main"})
    assert len(benchmark.questions) == len(rows)
    assert benchmark.extra["counts"]["questions_without_gold"] == len(rows)
