"""Overlap with training files, compared with sets of tuples, in every format and across every boundary."""

import csv
import gzip
import json
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import leakage as module
from benchmarks.corpus import Corpus
from benchmarks.leakage import ANSWERS, CONTEXTS, QUESTION, contamination
from benchmarks.ngrams import NOWHERE, NgramIndex
from benchmarks.registry import load
from benchmarks.schema import Passage, Question, passage_id
from benchmarks.text import normalize
from benchmarks.training_texts import Text, texts, training_files, unit
from tests.support.errors import raises

QUESTION_TEXT = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
WORDS = QUESTION_TEXT.split()
PASSAGE = " ".join(reversed(WORDS))


@pytest.fixture
def benchmark_of():
    """Return a function that builds a benchmark of questions from text, answers and one passage."""
    benchmark = load("worlds/multihop:test", {"questions": 1})

    def make(*rows):
        passages = [Passage(passage_id("", text), "", text) for _, _, text in rows]
        questions = [
            Question(f"q{number}", text, answers, evidence=(passage.id,))
            for number, ((text, answers, _), passage) in enumerate(zip(rows, passages, strict=True))
        ]
        return replace(benchmark, questions=questions, corpus=Corpus.of(passages))

    return make


def lines(path: Path, *rows) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def grams(words, n):
    if len(words) < n:
        return [tuple(words)] if words else []
    return [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]


few_words = st.lists(st.sampled_from("abcd"), max_size=14)


@pytest.mark.slow
@given(st.lists(few_words, max_size=8), st.lists(few_words, max_size=8), st.integers(1, 5))
def test_ngram_index_agrees_with_sets_of_tuples(wanted, stream, n):
    index = NgramIndex(wanted, n)
    piece, positions = [], []
    for number, text in enumerate(stream):
        piece += [0, *index.numbered(text)]
        positions += [number] * (len(text) + 1)
    index.meet(np.array(piece, dtype=np.int32), lambda at: np.array(positions, dtype=np.int64)[at])
    met, total, first = index.counts()
    held = [{tuple(text[i : i + m]) for m in range(1, n + 1) for i in range(len(text) - m + 1)} for text in stream]
    for position, text in enumerate(wanted):
        own = grams(text, n)
        where = [number for gram in own for number, known in enumerate(held) if gram in known]
        assert total[position] == len(own)
        assert met[position] == sum(any(gram in known for known in held) for gram in own)
        assert first[position] == min(where, default=NOWHERE)


def test_ngrams_with_colliding_keys_are_rehashed(monkeypatch):
    real = np.random.default_rng

    class Constant:
        def integers(self, low, high, count, dtype):
            return np.full(count, 7, dtype=dtype)

    seeds = []

    def rng(seed):
        seeds.append(seed)
        return Constant() if seed == 0 else real(seed)

    monkeypatch.setattr(module.np.random, "default_rng", rng)
    index = NgramIndex([["a", "b"], ["c", "d"]], 2)
    assert seeds == [0, 1]
    index.meet(np.array(index.numbered(["c", "d"]), dtype=np.int32), lambda at: at)
    assert index.counts()[0].tolist() == [0, 1]


def test_empty_index_finds_nothing():
    index = NgramIndex([[], []], 13)
    index.meet(np.array([0, 0], dtype=np.int32), lambda at: at)
    assert [values.tolist() for values in index.counts()] == [[0, 0], [0, 0], [NOWHERE, NOWHERE]]


pieces = st.lists(st.tuples(st.lists(st.sampled_from(WORDS[:3]), max_size=20), st.booleans()), min_size=1, max_size=12)


@pytest.mark.slow
@given(pieces, st.lists(st.lists(st.sampled_from(WORDS[:3]), min_size=1, max_size=18), min_size=1, max_size=4), st.integers(1, 40))
def test_batch_size_does_not_change_the_result(stream, wanted, batch):
    index = NgramIndex(wanted, 13)
    scan = module._Scan(index)
    read = [Text(" ".join(words), number, joined and number > 1) for number, (words, joined) in enumerate(stream, 1)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BATCH_WORDS", batch)
        assert scan.file(0, iter(read), Path("x"), None) == len(read)
    whole: list[list[tuple[str, int]]] = []
    for text in read:
        if not text.joined or not whole:
            whole.append([])
        whole[-1] += [(word, text.number) for word in text.text.split()]
    met, _, first = index.counts()
    for position, words in enumerate(wanted):
        results = {
            gram: min(
                (
                    run[i][1]
                    for run in whole
                    for i in range(len(run) - len(gram) + 1)
                    if tuple(word for word, _ in run[i : i + len(gram)]) == gram
                ),
                default=None,
            )
            for gram in grams(words, 13)
        }
        assert met[position] == sum(results[gram] is not None for gram in grams(words, 13))
        assert first[position] == min((at for at in results.values() if at is not None), default=NOWHERE)


def test_question_of_sixteen_words_has_four_ngrams_and_reports_the_matched_share(benchmark_of, tmp_path):
    benchmark = benchmark_of((QUESTION_TEXT, ("yes",), PASSAGE))
    train = lines(tmp_path / "t.jsonl", {"a": "nothing of it"}, {"a": {"deep": ["x", " ".join(WORDS[:14])]}})
    (item,) = contamination([benchmark], [train]).overlaps
    assert item.words == 16
    assert not item.whole
    assert (item.result[QUESTION], item.grams[QUESTION]) == (2, 4)
    assert item.share == item.share_of(QUESTION) == 0.5
    assert item.first == f"{train}:2"


def test_case_punctuation_and_articles_are_ignored(benchmark_of, tmp_path):
    benchmark = benchmark_of((QUESTION_TEXT, ("yes",), PASSAGE))
    response = f"The {', '.join(WORDS).upper()}!"
    assert normalize(response) == QUESTION_TEXT
    (item,) = contamination([benchmark], [lines(tmp_path / "t.jsonl", {"a": response})]).overlaps
    assert item.share == 1


def test_short_question_is_matched_as_a_whole_and_short_answer_is_ignored(benchmark_of, tmp_path):
    benchmark = benchmark_of(("Who wrote Emma", ("yes",), PASSAGE))
    train = lines(tmp_path / "t.jsonl", {"a": "yes, who wrote it?"})
    (item,) = contamination([benchmark], [train]).overlaps
    assert item.whole
    assert item.share == 0
    assert item.grams == {QUESTION: 1, ANSWERS: 0}
    (item,) = contamination([benchmark], [lines(train, {"a": "I ask who wrote Emma, again"})]).overlaps
    assert item.share == 1


def test_long_answers_are_searched_and_passages_on_request(benchmark_of, tmp_path):
    benchmark = benchmark_of(("Who wrote Emma", (QUESTION_TEXT,), PASSAGE), ("Who wrote Persuasion", ("x",), PASSAGE))
    train = lines(tmp_path / "t.jsonl", {"a": QUESTION_TEXT, "b": PASSAGE})
    first, second = contamination([benchmark], [train]).overlaps
    assert (first.share_of(ANSWERS), first.share_of(QUESTION), first.share_of(CONTEXTS)) == (1, 0, None)
    assert second.share == 0
    first, second = contamination([benchmark], [train], contexts=True).overlaps
    assert first.result == {QUESTION: 0, ANSWERS: 4, CONTEXTS: 4}
    assert second.share_of(CONTEXTS) == 1
    assert second.share == 4 / 5


def test_question_without_words_has_no_overlap(benchmark_of, tmp_path):
    benchmark = benchmark_of(("?!", ("x",), PASSAGE))
    (item,) = contamination([benchmark], [lines(tmp_path / "t.jsonl", {"a": "?!"})]).overlaps
    assert (item.share, item.share_of(QUESTION), item.first) == (0, None, None)


def test_first_occurrence_is_reported_from_the_first_file(benchmark_of, tmp_path):
    benchmark = benchmark_of((QUESTION_TEXT, ("x",), PASSAGE))
    files = [lines(tmp_path / "1.jsonl", {"a": "none"}), lines(tmp_path / "2.jsonl", {"a": QUESTION_TEXT})]
    report = contamination([benchmark], [*files, lines(tmp_path / "3.jsonl", {"a": QUESTION_TEXT})])
    assert report.overlaps[0].first == f"{files[1]}:1"
    assert list(report.files.values()) == [1, 1, 1]
    assert report.words == 1 + 16 + 16


def write_csv(path, delimiter=","):
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=delimiter).writerows([["id", "text"], ["1", "a\nb"], ["2", QUESTION_TEXT]])


def write_zip(path):
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("in/t.jsonl", json.dumps({"a": "x"}) + "\n" + json.dumps({"a": QUESTION_TEXT}) + "\n")


ROWS = [{"a": "x"}, {"a": QUESTION_TEXT}]
FORMATS = {
    "t.jsonl": (lambda path: lines(path, *ROWS), ":2"),
    "t.json": (lambda path: path.write_text(json.dumps(ROWS, indent=1)), ", record 2"),
    "one.json": (lambda path: path.write_text(json.dumps({"data": ROWS}, indent=1)), ":1"),
    "lines.json": (lambda path: lines(path, *ROWS), ":2"),
    "strings.jsonl": (lambda path: lines(path, "x", QUESTION_TEXT), ":2"),
    "t.csv": (write_csv, ":4"),
    "t.tsv": (lambda path: write_csv(path, "\t"), ":4"),
    "t.txt": (lambda path: path.write_text(f"[x]\n{QUESTION_TEXT}\n"), ":2"),
    "wrapped.md": (lambda path: path.write_text("x y\n" + QUESTION_TEXT.replace(" ", "\n")), ":2"),
    "unnamed": (lambda path: path.write_text(f"x\n{QUESTION_TEXT}\n"), ":2"),
    "t.jsonl.gz": (lambda path: path.write_bytes(gzip.compress(json.dumps(ROWS[1]).encode())), ":1"),
    "t.csv.gz": (lambda path: path.write_bytes(gzip.compress(f"a,b\nx,{QUESTION_TEXT}\n".encode())), ":2"),
    "t.parquet": (lambda path: pq.write_table(pa.Table.from_pylist(ROWS), path), ", row 2"),
    "t.zip!in/t.jsonl": (lambda path: write_zip(path.parent.parent / "t.zip"), ":2"),
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_file_format_is_read_with_positions_in_the_file(name, benchmark_of, tmp_path):
    write, position = FORMATS[name]
    path = tmp_path / name
    write(path)
    (item,) = contamination([benchmark_of((QUESTION_TEXT, ("x",), PASSAGE))], training_files(path)).overlaps
    assert item.share == 1
    assert item.first == f"{path}{position}"


def test_listed_sentences_are_joined_but_fields_are_not(tmp_path):
    path = lines(tmp_path / "t.jsonl", {"a": ["x", "y"], "b": "z", "c": [["u"], ["v"]], "n": 3})
    assert [(text.text, text.joined) for text in texts(path)] == [("x", False), ("y", True), ("z", False), ("u", False), ("v", False)]


def test_bad_record_is_refused_or_skipped_and_counted(benchmark_of, tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text(f'{{"a": \n{{"a": "{QUESTION_TEXT}"}}\n')
    benchmark = benchmark_of((QUESTION_TEXT, ("x",), PASSAGE))
    with raises("bad-record") as caught:
        contamination([benchmark], [path])
    assert f"{path}, line 1" in caught.value.where
    report = contamination([benchmark], [path], skip_bad=True)
    assert report.overlaps[0].first == f"{path}:2"
    assert len(report.skipped) == 1


def test_folder_lists_its_training_files_by_name(tmp_path):
    for name in ("b.jsonl", "a/c.txt.gz", "image.bin"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x")
    assert training_files(tmp_path) == [tmp_path / "a/c.txt.gz", tmp_path / "b.jsonl"]
    (tmp_path / "empty").mkdir()
    with raises("folder-without-training-file"):
        training_files(tmp_path / "empty")
    with raises("missing-file"):
        training_files(tmp_path / "none.jsonl")


def test_position_unit_depends_on_the_file_format(tmp_path):
    assert unit(lines(tmp_path / "a.jsonl", {"a": "x"})) == "line"
    (tmp_path / "b.jsonl").write_text('[{"a": "x"}]')
    assert unit(tmp_path / "b.jsonl") == "record"


def test_real_samples_overlap_fully_with_themselves_and_little_with_others(data_folder):
    own = data_folder / "musique" / "musique_ans_v1.0_train50.jsonl"
    other = data_folder / "nq" / "nq-dev.qa.300.csv"
    if not (own.exists() and other.exists()):
        pytest.skip("the samples of musique and nq are not there")
    benchmark = load("musique:train", {"path": str(own)})
    report = contamination([benchmark], [own], contexts=True)
    assert all(overlap.share == 1 for overlap in report.overlaps)
    # Questions share passages, so the first position may be before a question's own line but never after it.
    firsts = [int(overlap.first.rpartition(":")[2]) for overlap in report.overlaps]
    assert all(first <= own for own, first in enumerate(firsts, 1))
    assert firsts.count(1) >= 1
    assert sum(overlap.share for overlap in contamination([benchmark], [other], contexts=True).overlaps) == 0
