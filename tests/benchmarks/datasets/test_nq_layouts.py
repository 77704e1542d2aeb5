"""Layouts, ids and corpora of Natural Questions, from handwritten records and files with every known fault."""

import csv
import dataclasses
import gzip
import json
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.core.errors import UserError
from benchmarks.corpus_build import build_corpus
from benchmarks.datasets.nq import layout_of
from benchmarks.registry import load
from benchmarks.schema import Passage, passage_id
from benchmarks.settings import apply
from tests.support.errors import raises

ADA = {"title": "Ada", "text": "Ada wrote Quill in 1901."}
ZOLL = {"title": "Zoll", "text": "Zoll lies on the Mere."}
NOISE = {"title": "Noise", "text": "Nothing of note."}
POSITIVE = passage_id("Ada", "Ada wrote Quill in 1901.")


def open_record(**changes):
    return {"question": "who wrote quill", "answer": ["Ada", "Ada L."]} | changes


def reader_record(**changes):
    return {
        "dataset": "nq_dev_psgs_w100",
        "question": "who wrote quill",
        "answers": ["Ada"],
        "positive_ctxs": [{**ADA, "score": 1000, "title_score": 1, "passage_id": "7"}],
        "negative_ctxs": [{**ZOLL, "score": 0, "title_score": 0, "passage_id": "8"}],
        "hard_negative_ctxs": [{**NOISE, "score": 9.1, "title_score": 0, "psg_id": "9"}],
    } | changes


def kilt_record(**changes):
    source = {"wikipedia_id": "1", "title": "Ada", "start_paragraph_id": 1}
    outputs = [{"answer": "Ada", "provenance": [source]}, {"answer": "Ada L."}, {"provenance": [source]}]
    return {"id": "-42", "input": "who wrote quill", "output": outputs} | changes


def contexts_record(**changes):
    return {
        "question": "who wrote quill",
        "answers": ["Ada"],
        "ctxs": [
            {**NOISE, "hasanswer": False, "isgold": False},
            {**ADA, "hasanswer": True, "isgold": True},
            {**ZOLL, "hasanswer": True, "isgold": False},
        ],
    } | changes


MADE = {"open": open_record, "reader": reader_record, "kilt": kilt_record, "contexts": contexts_record}


def write(path, *records):
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), "utf-8")
    return path


def load_records(folder, *records, reference="nq:dev", **options):
    return load(reference, {"path": str(write(folder / "records.jsonl", *records)), **options})


@pytest.mark.parametrize("layout", MADE)
def test_layout_is_detected_from_content(tmp_path, layout):
    path = write(tmp_path / "misleading.csv", MADE[layout]())
    assert layout_of(path) == layout
    (question,) = load("nq:dev", {"path": str(path), "layout": layout}).questions
    assert question.text == "who wrote quill"
    assert question.answers[0] == "Ada"


def test_hub_rows_load_like_json_lines(tmp_path):
    rows = [open_record(), open_record(question="who else")]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    from_rows = load("nq:dev", {"path": str(tmp_path / "rows.parquet")}).questions
    assert from_rows == load_records(tmp_path, *rows).questions


def test_json_array_loads_like_json_lines(tmp_path):
    (tmp_path / "array.json").write_text(json.dumps([reader_record(), reader_record(question="who else")], indent=2))
    from_array = load("nq:dev", {"path": str(tmp_path / "array.json")})
    lines = load_records(tmp_path, reader_record(), reader_record(question="who else"))
    assert from_array.questions == lines.questions
    assert from_array.corpus.ids == lines.corpus.ids


def test_position_in_a_reader_record_does_not_reveal_positives(tmp_path):
    made = [
        reader_record(
            question=f"q{i}",
            positive_ctxs=[{"title": "", "text": f"gold {i}"}],
            hard_negative_ctxs=[{"title": "", "text": f"other {i} {n}"} for n in range(9)],
        )
        for i in range(200)
    ]
    positions = [q.candidates.index(q.evidence[0]) for q in load_records(tmp_path, *made).questions]
    # Eleven candidates each: every position should hold about 18 of 200.
    assert max(positions.count(position) for position in range(11)) < 40


@pytest.mark.parametrize("layout", ["reader", "contexts"])
def test_gold_flags_and_order_are_removed_from_queries(tmp_path, layout):
    (question,) = load_records(tmp_path, MADE[layout]()).questions
    shown = json.dumps(dataclasses.asdict(question.query()))
    for name in ("isgold", "hasanswer", "has_answer", "positive", "Ada", question.id):
        assert name not in shown
    assert set(question.candidates) == {POSITIVE, passage_id(**ZOLL), passage_id(**NOISE)}
    assert question.evidence == (POSITIVE,)


def test_settings_apply_to_flagged_contexts(tmp_path):
    benchmark = load_records(tmp_path, contexts_record())
    (own,) = apply("distractor", benchmark, 0).questions
    assert own.candidates == tuple(passage_id(**item) for item in (NOISE, ADA, ZOLL))
    (oracle,) = apply("oracle(n=2)", benchmark, 0).questions
    assert len(oracle.candidates) == 2
    assert POSITIVE in oracle.candidates
    (closed,) = apply("closed_book", benchmark, 0).questions
    assert closed.candidates == ()


def test_ids_are_stable_and_depend_only_on_the_text(tmp_path):
    first = load_records(tmp_path, open_record(), open_record(question="who else")).questions
    (again,) = load_records(tmp_path, contexts_record()).questions
    assert first[0].id == again.id
    assert first[0].id != first[1].id
    assert re.fullmatch(r"n[0-9a-f]{16}", first[0].id)


def test_repeated_question_is_kept_and_counted(tmp_path):
    benchmark = load_records(tmp_path, open_record(), open_record(answer=["B"]), open_record(answer=["C"]))
    item, two, three = benchmark.questions
    assert (two.id, three.id) == (f"{item.id}~2", f"{item.id}~3")
    assert benchmark.extra["counts"]["repeated_questions"] == 2


def test_repeated_native_id_error_names_both_positions(tmp_path):
    with raises("duplicate-question") as caught:
        load_records(tmp_path, kilt_record(), kilt_record(id="7"), kilt_record(), reference="nq/kilt:dev")
    assert "line 1 and line 3" in caught.value.where


def psgs(folder, *rows):
    with (folder / "psgs.tsv").open("w", newline="") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(("id", "text", "title"))
        writer.writerows(rows)
    return str(folder / "psgs.tsv")


def test_positives_match_a_dump_by_content_then_by_id(tmp_path):
    path = psgs(tmp_path, ("7", "Ada wrote Quill, in 1901, or so.", "Ada"), ("8", ZOLL["text"], "Zoll"))
    other = {**ZOLL, "passage_id": "12345"}
    absent = {"title": "Ada", "text": "Ada slept.", "passage_id": "8"}
    record = reader_record(positive_ctxs=[{**ADA, "psg_id": 7}, other, absent])
    benchmark = load_records(tmp_path, record, corpus=path)
    (question,) = benchmark.questions
    result, same, lost = question.evidence
    assert (result, same) == benchmark.corpus.ids
    # Number 8 is a passage with another title: a number alone does not match.
    assert lost not in benchmark.corpus
    counts = benchmark.extra["counts"]
    assert counts["positives_found_by_native_id"] == 1
    assert counts["positives_absent"] == counts["questions_with_absent_positives"] == 1
    assert question.candidates is None


def test_built_corpus_opens_from_its_folder_and_is_shared_by_both_splits(tmp_path):
    psgs(tmp_path, ("1", "a", "A"))
    build_corpus(tmp_path / "psgs.tsv", tmp_path / "wiki")
    (tmp_path / "nq").mkdir()
    write(tmp_path / "nq" / "biencoder-nq-train.json", reader_record(dataset="nq_train_psgs_w100", question="other"))
    write(tmp_path / "nq" / "biencoder-nq-dev.json", reader_record())
    options = {"path": str(tmp_path / "nq"), "corpus": str(tmp_path / "wiki")}
    both = load("nq:train+dev", options)
    assert len(both.questions) == 2
    assert list(both.corpus) == [Passage(passage_id("A", "a"), "A", "a")]
    assert both.corpus.by_native_id("1") == passage_id("A", "a")


def test_missing_corpus_is_reported_by_path(tmp_path):
    with raises("no-corpus") as caught:
        load_records(tmp_path, open_record(), corpus=str(tmp_path / "none"))
    assert "none" in caught.value.where


def dpr_lines(folder, raw, **options):
    (folder / "lines.csv").write_bytes(raw)
    return load("nq:dev", {"path": str(folder / "lines.csv"), **options}).questions


def test_dpr_lines_with_quotes_escapes_and_line_ends_are_read(tmp_path):
    lines = [
        ("rock 'n' roll", ["rock 'n' roll", 'the "king"']),
        ('who said "no"', ["l'État", "a\tb", "c\nd", "é \u2028 \x00"]),
        ("plain", ["x"]),
    ]
    with (tmp_path / "csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter="\t", lineterminator="\r\n").writerows((q, repr(a)) for q, a in lines)
    raw = (tmp_path / "csv").read_bytes()
    for variant in (raw, raw.replace(b"\r\n", b"\n"), b"\xef\xbb\xbf" + raw, gzip.compress(raw), raw.rstrip(b"\r\n")):
        assert [(q.text, list(q.answers)) for q in dpr_lines(tmp_path, variant)] == lines


def test_answers_are_parsed_and_never_evaluated(tmp_path):
    marker = tmp_path / "evaluated"
    calls = f"[open({str(marker)!r}, 'w').write('x')]"
    for answers in (calls, "__import__('os').getcwd()", "['a' * 3]", "[1]", "'text'", "{'a'}", "['a', None]", "[[", ""):
        with pytest.raises(UserError) as caught:
            dpr_lines(tmp_path, f"question\t{answers}\n".encode())
        assert "lines.csv, line 1" in caught.value.where
    with raises("bad-record"):
        dpr_lines(tmp_path, b"question\t" + b"[" * 100_000 + b"\n")
    assert not marker.exists()


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (b"no tab here\n", "1 tab-separated fields, not 2"),
        (b"a\tb\tc\n", "3 tab-separated fields, not 2"),
        (b"\n", "empty"),
        (b"caf\xe9\t['x']\n", "byte 0xe9"),
        (b"\"open\t['x']\n", "does not close"),
        (b" \t['x']\n", "field 'question' holds no word"),
        (b"q\t[]\n", "no answer"),
    ],
)
def test_bad_dpr_line_is_refused_or_skipped_and_listed(tmp_path, line, what):
    raw = b"first\t['x']\n" + line + b"last\t['y']\n"
    with pytest.raises(UserError, match=re.escape(what)) as caught:
        dpr_lines(tmp_path, raw)
    assert "lines.csv, line 2" in caught.value.where
    (tmp_path / "lines.csv").write_bytes(raw)
    benchmark = load("nq:dev", {"path": str(tmp_path / "lines.csv"), "skip_bad": True})
    assert [q.text for q in benchmark.questions] == ["first", "last"]
    assert what in benchmark.skipped[0].reason
    assert "line 2" in benchmark.skipped[0].where


def test_truncated_last_line_is_reported(tmp_path):
    with raises("bad-record"):
        dpr_lines(tmp_path, b"first\t['x']\nlast")
    (tmp_path / "records.jsonl").write_text(json.dumps(open_record()) + '\n{"question": "who')
    with raises("bad-record"):
        load("nq:dev", {"path": str(tmp_path / "records.jsonl")})


@pytest.mark.parametrize(
    ("record", "where"),
    [
        (open_record(question=3), "field question"),
        (open_record(question=" "), "field question"),
        (open_record(answer=[]), "field answer"),
        (open_record(answer=["a", 2]), "field answer[1]"),
        ({"question": "who"}, "field answers"),
        (reader_record(positive_ctxs="x"), "field positive_ctxs"),
        (reader_record(positive_ctxs=["x"]), "field positive_ctxs[0]"),
        (reader_record(hard_negative_ctxs=[{"title": "T"}]), "hard_negative_ctxs[0], field text"),
        (contexts_record(ctxs=[{**ADA, "isgold": "yes"}]), "ctxs[0], field isgold"),
        (kilt_record(output=[{"answer": 1}]), "output 0, field answer"),
        (kilt_record(output=[]), "field output"),
    ],
)
def test_faulty_field_is_reported_and_can_be_skipped(tmp_path, record, where):
    kind = "kilt" if "input" in record else "dpr"
    good = next(made() for made in MADE.values() if set(record) <= set(made()))
    with pytest.raises(UserError) as caught:
        load_records(tmp_path, good, record, reference=f"nq/{kind}:dev")
    assert "line 2" in caught.value.where
    assert caught.value.where.endswith(where)
    benchmark = load_records(tmp_path, good, record, reference=f"nq/{kind}:dev", skip_bad=True)
    assert (len(benchmark.questions), len(benchmark.skipped)) == (1, 1)


def test_answers_may_be_a_string_a_list_or_an_encoded_list(tmp_path):
    made = [open_record(question=str(i), answer=a) for i, a in enumerate(("Ada", ["Ada", "Ada"], '["Ada", "L"]'))]
    assert [q.answers for q in load_records(tmp_path, *made).questions] == [("Ada",), ("Ada", "Ada"), ("Ada", "L")]


def test_test_file_without_answers_is_unscorable_and_counted(tmp_path):
    benchmark = load_records(tmp_path, {"id": "1", "input": "who"}, reference="nq/kilt:test")
    assert benchmark.questions[0].answers == ()
    assert benchmark.extra["counts"]["questions_without_gold"] == 1


def test_unusual_characters_are_preserved_and_repeated_contexts_count_once(tmp_path):
    odd = {"title": "\u2028 \x00", "text": "é \U0001f600 \u2029"}
    benchmark = load_records(tmp_path, contexts_record(ctxs=[odd, odd, {**ADA, "isgold": True}]))
    (question,) = benchmark.questions
    (first,) = benchmark.corpus.get(question.candidates[:1])
    assert (first.title, first.text) == tuple(odd.values())
    assert len(question.candidates) == 2
    assert benchmark.extra["counts"]["repeated_contexts"] == 1


@pytest.mark.parametrize(
    ("record", "what"),
    [
        ({"_id": "1", "question": "?", "answer": "!", "context": [], "supporting_facts": []}, "hotpotqa"),
        ({"id": "2hop__1", "question": "?", "answer": "!", "paragraphs": []}, "musique"),
        ({"input": "?", "context": "", "answers": [], "all_classes": None}, "longbench"),
        ({"id": "W-1", "question": "?", "answer": ["!"], "q_entity": [], "graph": []}, "WebQSP or CWQ"),
        ({"query": "?", "passage": "!"}, "not a record of Natural Questions"),
    ],
)
def test_record_of_another_dataset_is_refused_at_any_position_even_with_skip_bad(tmp_path, record, what):
    with pytest.raises(UserError, match=what):
        load_records(tmp_path, record, skip_bad=True)
    if "query" not in record:
        with pytest.raises(UserError, match=what):
            load_records(tmp_path, open_record(), record, skip_bad=True)


@pytest.mark.parametrize("origin", ["trivia_dev_psgs_w100", "nq_train_psgs_w100"])
def test_reader_record_of_another_dataset_or_split_is_refused(tmp_path, origin):
    with pytest.raises(UserError, match="_".join(origin.split("_")[:2])):
        load_records(tmp_path, reader_record(), reader_record(dataset=origin), skip_bad=True)


def test_mixed_layouts_in_one_file_are_refused(tmp_path):
    with raises("bad-record"):
        load_records(tmp_path, open_record(), contexts_record())
