import gzip
import json
from collections import Counter

import pytest

from benchmarks.core.errors import UserError
from benchmarks.registry import load
from benchmarks.schema import sentence_of
from tests.support.errors import raises

CONTEXT = [
    ["Ada", ["Ada was born in Zoll.", " She wrote Quill."]],
    ["Zoll", ["Zoll is a town."]],
    ["Noise", ["Nothing here.", " Nor here."]],
]


def native(identifier="h1", **changes):
    return {
        "_id": identifier,
        "question": "Where was the author of Quill born?",
        "answer": "Zoll",
        "type": "bridge",
        "level": "hard",
        "supporting_facts": [["Ada", 0], ["Ada", 1], ["Zoll", 0]],
        "context": CONTEXT,
    } | changes


def without(record, *names):
    return {name: value for name, value in record.items() if name not in names}


@pytest.fixture
def loaded(tmp_path):
    def load_records(*records, reference="hotpotqa:dev", text=None, **options):
        path = tmp_path / "records.json"
        path.write_text(json.dumps(records) if text is None else text)
        return load(reference, {"path": str(path), **options})

    return load_records


def texts(benchmark, identifiers):
    return [benchmark.corpus.get([identifier])[0].full_text for identifier in identifiers]


def test_real_sample_has_the_counts_and_texts_of_the_file(data_folder):
    path = data_folder / "hotpotqa" / "hotpot_distractor_train50.json"
    records = json.loads(path.read_text())
    benchmark = load("hotpotqa:train", {"path": str(path)})
    assert [q.id for q in benchmark.questions] == [r["_id"] for r in records]
    assert [q.text for q in benchmark.questions] == [r["question"] for r in records]
    assert [q.answers for q in benchmark.questions] == [(r["answer"],) for r in records]
    assert Counter(q.type for q in benchmark.questions) == Counter(r["type"] for r in records)
    assert [q.metadata["level"] for q in benchmark.questions] == [r["level"] for r in records]
    assert len(benchmark.corpus) == len({(t, "".join(s)) for r in records for t, s in r["context"]})
    assert benchmark.skipped == ()
    assert benchmark.extra == {"counts": {}, "notes": ()}
    for question, record in zip(benchmark.questions, records, strict=True):
        passages = benchmark.corpus.get(question.candidates)
        assert [[p.title, list(p.sentences)] for p in passages] == record["context"]
        assert all(p.text == "".join(p.sentences) for p in passages)
        titles = {p.id: p.title for p in passages}
        assert [[titles[p], i] for p, i in map(sentence_of, question.supporting_facts)] == record["supporting_facts"]
        assert [titles[e] for e in question.evidence] == list(dict.fromkeys(t for t, _ in record["supporting_facts"]))


def test_objects_instead_of_pairs_and_numbers_as_ids_have_the_same_gold(loaded):
    context = [{"title": title, "sentences": sentences} for title, sentences in native()["context"]]
    facts = [{"title": title, "sent_id": index} for title, index in native()["supporting_facts"]]
    (question,) = loaded(native("7")).questions
    (same,) = loaded(without(native(context=context, supporting_facts=facts, id=7), "_id")).questions
    assert (same.id, same.evidence, same.supporting_facts, same.candidates) == (
        question.id,
        question.evidence,
        question.supporting_facts,
        question.candidates,
    )


def test_missing_field_error_lists_the_fields_of_the_record(loaded):
    with raises("bad-record") as caught:
        loaded(text=json.dumps({"data": [native()]}))
    assert "data" in caught.value.try_this


def test_data_folder_is_searched_by_dataset_name(data_folder, monkeypatch):
    monkeypatch.setenv("RAGMETER_DATA", str(data_folder))
    assert len(load("hotpotqa:train").questions) == 50
    with raises("not-in-cache"):
        load("hotpotqa:dev")


def test_sentences_are_joined_without_adding_a_space(loaded):
    assert texts(loaded(native()), loaded(native()).questions[0].candidates) == [
        "Ada\nAda was born in Zoll. She wrote Quill.",
        "Zoll\nZoll is a town.",
        "Noise\nNothing here. Nor here.",
    ]


def test_equal_content_in_every_file_format_has_equal_fingerprints(tmp_path):
    records = [native(f"h{i}", question=f"Who {i}\u2028?") for i in range(4)]
    lines = "".join(json.dumps(r, ensure_ascii=False) + "\r\n" for r in records)
    wrappings = {
        "a.json": json.dumps(records).encode(),
        "b.json": b"\xef\xbb\xbf" + json.dumps(records, indent=1).encode(),
        "c.jsonl": lines.encode(),
        "d.gz": gzip.compress(lines.encode()),
    }
    prints = set()
    for name, content in wrappings.items():
        (tmp_path / name).write_bytes(content)
        prints.add(load("hotpotqa:dev", {"path": str(tmp_path / name)}).fingerprint)
    assert len(prints) == 1


def test_fact_past_the_last_sentence_stays_in_the_gold_and_is_counted(loaded):
    benchmark = loaded(native(supporting_facts=[["Ada", 0], ["Ada", 9], ["Zoll", -1]]))
    (question,) = benchmark.questions
    ada, zoll, _ = question.candidates
    assert question.evidence == (ada, zoll)
    assert question.supporting_facts == (f"{ada}#0", f"{ada}#9", f"{zoll}#-1")
    assert question.metadata["unreachable_facts"] == [["Ada", 9], ["Zoll", -1]]
    assert benchmark.extra["counts"] == {"facts_past_last_sentence": 2}
    assert "past the last sentence" in benchmark.extra["notes"][0]


def test_fact_without_its_paragraph_stays_in_the_gold_but_not_in_the_corpus(loaded):
    benchmark = loaded(native(supporting_facts=[["Ada", 0], ["Elsewhere", 0], ["Elsewhere", 1]]))
    (question,) = benchmark.questions
    assert len(question.evidence) == 2
    assert len(question.supporting_facts) == 3
    assert question.evidence[1] not in benchmark.corpus
    assert benchmark.extra["counts"] == {"facts_without_paragraph": 2, "positives_absent": 1, "questions_with_absent_positives": 1}


def test_fullwiki_finds_a_missing_gold_paragraph_in_another_record(loaded):
    lacking = native("h1", context=CONTEXT[:1] + CONTEXT[2:])
    benchmark = loaded(lacking, native("h2"), reference="hotpotqa/fullwiki:dev")
    first, second = benchmark.questions
    assert set(first.evidence) == set(second.evidence)
    assert first.supporting_facts == second.supporting_facts
    assert first.evidence[1] not in first.candidates
    assert benchmark.extra["counts"] == {"facts_without_paragraph": 1, "positives_found_by_title": 1}


def test_missing_gold_paragraph_is_not_guessed_if_two_share_its_title(loaded):
    other = [["Zoll", ["Zoll is a river."]], *CONTEXT[:1]]
    benchmark = loaded(native("h1", context=CONTEXT[:1]), native("h2"), native("h3", context=other))
    assert benchmark.extra["counts"]["positives_absent"] == 1
    assert benchmark.questions[0].evidence[1] not in benchmark.corpus


def test_paragraph_repeated_with_equal_text_is_one_candidate(loaded):
    benchmark = loaded(native(context=[*CONTEXT, CONTEXT[1]]))
    assert len(benchmark.questions[0].candidates) == 3
    assert len(benchmark.questions[0].evidence) == 2
    assert benchmark.extra["counts"] == {"repeated_titles": 1, "repeated_passages": 1}


def test_fact_of_an_ambiguous_title_uses_the_first_text_with_the_sentence(loaded):
    context = [["Ada", ["Short."]], ["Ada", ["Ada is long.", " It has two."]], CONTEXT[1]]
    benchmark = loaded(native(context=context))
    short, long, zoll = benchmark.questions[0].candidates
    assert benchmark.questions[0].supporting_facts == (f"{short}#0", f"{long}#1", f"{zoll}#0")
    assert benchmark.extra["counts"] == {"repeated_titles": 1, "ambiguous_facts": 2}


def test_paragraph_without_sentences_is_kept(loaded):
    benchmark = loaded(native(context=[*CONTEXT, ["Empty", []]]))
    passage = benchmark.corpus[3]
    assert (passage.title, passage.text, passage.sentences) == ("Empty", "", ())


def test_test_split_loads_without_gold_and_is_counted(loaded):
    bare = without(native(), "answer", "supporting_facts", "type", "level")
    benchmark = loaded(bare, reference="hotpotqa/fullwiki:test")
    (question,) = benchmark.questions
    assert (question.answers, question.evidence, question.supporting_facts, question.golds) == ((), (), (), ())
    assert len(question.candidates) == 3
    assert benchmark.extra["counts"] == {"questions_without_gold": 1, "questions_without_positives": 1}


@pytest.mark.parametrize("record", [without(native(), "answer"), native(answer="")])
def test_a_record_of_a_test_file_in_another_split_is_an_error(loaded, record):
    with raises("bad-record"):
        loaded(record)


@pytest.mark.parametrize(
    ("changes", "field", "says"),
    [
        ({"question": 7}, "question", "must be a string"),
        ({"question": None}, "question", "null"),
        ({"answer": 7}, "answer", "a string or a list of strings"),
        ({"context": "text"}, "context", "must be a list"),
        ({"context": [["Ada"]]}, "context[0]", "a list [title, [sentences]]"),
        ({"context": [["Ada", "text"]]}, "context[0][1]", "must be a list"),
        ({"context": [["Ada", ["fine", None]]]}, "context[0][1][1]", "must be a string"),
        ({"supporting_facts": [["Ada", "0"]]}, "supporting_facts[0][1]", "must be an integer"),
        ({"supporting_facts": [["Ada"]]}, "supporting_facts[0]", "a list [title, sentence number]"),
        ({"supporting_facts": {"title": []}}, "supporting_facts", "must be a list"),
        ({"_id": 1.5}, "_id", "must be a string"),
    ],
)
def test_faulty_field_error_names_file_record_and_field_and_can_be_skipped(loaded, changes, field, says):
    with pytest.raises(UserError) as caught:
        loaded(native("h1"), native("h2") | changes)
    assert says in caught.value.what
    assert caught.value.where.endswith(f"records.json, line 1, record 2, field {field}")
    benchmark = loaded(native("h1"), native("h2") | changes, skip_bad=True)
    assert [q.id for q in benchmark.questions] == ["h1"]
    assert [skip.where for skip in benchmark.skipped] == [caught.value.where]


def test_skipped_record_adds_no_passages_to_the_corpus(loaded):
    bad = native("h2", context=[*CONTEXT, ["Stray", ["Stray text."]]], supporting_facts=[["Ada", "x"]])
    assert "Stray" not in [p.title for p in loaded(native(), bad, skip_bad=True).corpus]


def test_truncated_last_line_is_reported_with_its_number_even_if_skipped(loaded):
    text = "".join(json.dumps(native(f"h{i}")) + "\n" for i in range(3))[:-30]
    with pytest.raises(UserError) as caught:
        loaded(text=text)
    assert "line 3" in caught.value.where
    benchmark = loaded(text=text, skip_bad=True)
    assert len(benchmark.questions) == 2
    assert "line 3" in benchmark.skipped[0].where


def test_empty_last_line_is_reported_with_its_number_even_if_skipped(loaded):
    text = json.dumps(native()) + "\n\n"
    with raises("bad-record") as caught:
        loaded(text=text)
    assert "line 2" in caught.value.where
    assert len(loaded(text=text, skip_bad=True).skipped) == 1


def test_duplicate_id_error_names_both_positions_even_with_skip_bad(loaded):
    for skip_bad in (False, True):
        with raises("duplicate-question") as caught:
            loaded(native(), native("h2"), native(), skip_bad=skip_bad)
        assert "record 1 and line 1, record 3" in caught.value.where


@pytest.mark.parametrize(
    ("record", "looks"),
    [
        ({"id": "2hop__1_2", "question": "?", "paragraphs": []}, "record-of-other-dataset"),
        (native(evidences=[["a", "b", "c"]]), "record-of-other-dataset"),
        (native(context={"title": ["Ada"], "sentences": [["Ada."]]}), "mixed-record-layouts"),
        ({"input": "?", "context": "long", "answers": [], "all_classes": None}, "record-of-other-dataset"),
    ],
)
def test_record_of_another_dataset_is_refused_with_the_likely_dataset(loaded, record, looks):
    with raises(looks):
        loaded(native(), record, skip_bad=True)


def test_pooled_corpus_replaces_the_candidates_of_the_records(data_folder):
    folder = data_folder / "hotpotqa"
    pool = folder / "hippo_hotpotqa_train100_corpus.json"
    options = {"path": str(folder / "hotpot_distractor_train50.json"), "corpus": str(pool)}
    pooled, own = load("hotpotqa:train", options), load("hotpotqa:train", {"path": options["path"]})
    titles = json.loads(pool.read_text())
    assert [p.title for p in pooled.corpus] == list(titles)
    assert [list(p.sentences) for p in pooled.corpus] == list(titles.values())
    assert [q.evidence for q in pooled.questions] == [q.evidence for q in own.questions]
    assert {q.candidates for q in pooled.questions} == {None}
    assert pooled.extra["counts"] == {}
    assert pool.name in pooled.extra["notes"][0]


def test_positive_missing_from_a_pooled_corpus_is_kept_and_counted(loaded, tmp_path):
    pool = tmp_path / "pool.json"
    entries = [{"title": "Ada", "text": "Ada was born in Zoll. She wrote Quill."}, {"title": "X", "text": "Y"}]
    for content in (json.dumps(entries), "".join(json.dumps(e) + "\n" for e in entries)):
        pool.write_text(content)
        benchmark = loaded(native(), corpus=str(pool))
        (question,) = benchmark.questions
        assert len(question.evidence) == 2
        assert [identifier in benchmark.corpus for identifier in question.evidence] == [True, False]
        assert benchmark.corpus.get(question.evidence[:1])[0].sentences == tuple(CONTEXT[0][1])
        assert benchmark.extra["counts"] == {"positives_absent": 1, "questions_with_absent_positives": 1}


def test_positive_with_different_text_in_a_pooled_corpus_is_matched_by_title(loaded, tmp_path):
    pool = tmp_path / "pool.json"
    pool.write_text(json.dumps({"Ada": ["Ada came from Zoll.", " She wrote."], "Zoll": CONTEXT[1][1]}, indent=0))
    benchmark = loaded(native(), corpus=str(pool))
    (question,) = benchmark.questions
    assert question.evidence == benchmark.corpus.ids
    ada, zoll = benchmark.corpus.ids
    assert question.supporting_facts == (f"{ada}#0", f"{ada}#1", f"{zoll}#0")
    assert benchmark.extra["counts"] == {"positives_found_by_title": 1}


def test_faulty_pooled_corpus_is_reported_by_path(loaded, tmp_path):
    pool = tmp_path / "pool.json"
    with raises("missing-file"):
        loaded(native(), corpus=str(pool))
    pool.write_text('{"Ada": ["fine"],\n"Zoll": "not a list"}')
    with raises("bad-record") as caught:
        loaded(native(), corpus=str(pool))
    assert "pool.json" in caught.value.where
    pool.write_text('{"Ada": ["fine"],\n"Zoll" ["x"]}')
    with raises("bad-record") as caught:
        loaded(native(), corpus=str(pool))
    assert "line 2" in caught.value.where
