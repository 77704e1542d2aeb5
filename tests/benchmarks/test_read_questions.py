"""Hashes of the questions that a training read: how they are computed, stored, and compared with test questions."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path

import numpy as np
import pytest

from benchmarks import registry
from benchmarks.read_questions import FILE, ReadQuestions, Recorder, note, read_record, recording, write_record
from tests.support.errors import raises

LONG = "Which of the two towns on the northern shore of the lake that Ada Rin mapped was founded before the other one?"
PREFIX = "Answer the following question as briefly as you can and use only what the given passages say: "


def read(*texts: str, most: int = 3_000_000) -> ReadQuestions:
    recorder = Recorder(most=most)
    recorder.add(texts)
    result = recorder.read()
    assert result is not None
    return result


def touched(record: ReadQuestions, *questions: str) -> list[bool]:
    return record.touched(questions, [[f"answer {n}"] for n in range(len(questions))]).tolist()


def test_hashes_follow_the_documented_rules() -> None:
    text = "which of two towns on northern shore of lake that ada rin mapped was founded before other one"
    words = text.split(" ")

    def number(text: str) -> int:
        return int(struct.unpack("<Q", hashlib.blake2b(text.encode(), digest_size=8).digest())[0])

    head, _, body = read(LONG, "Who?").to_bytes().partition(b"\n")
    values = json.loads(head)
    assert (values["questions"], values["grams"]) == (2, len(words) - 12)
    numbers = struct.unpack(f"<{2 + values['grams']}Q", body)
    assert set(numbers[:2]) == {number(" ".join(words)), number("who")}
    assert set(numbers[2:]) == {number(" ".join(words[start : start + 13])) for start in range(values["grams"])}


def test_rephrased_form_of_a_question_matches_but_another_question_does_not() -> None:
    record = read("Who founded the town of Korv?", LONG)
    assert touched(record, "who founded town of KORV", "Who founded the town of Telir?") == [True, False]
    # A short question within a longer text is not the same question; a long one shares its 13-grams.
    assert touched(record, "Korv?", "founded the town of Korv") == [False, False]
    assert touched(record, f"Tell me: {LONG} Please.", LONG.replace("Ada", "Ida")) == [True, False]


def test_boilerplate_shared_by_many_questions_is_not_a_match() -> None:
    record = read(PREFIX + "who founded Korv?")
    many = [f"{PREFIX}what did {name} write?" for name in ("Ada", "Bo", "Cy", "Di", "Eve")]
    assert not any(touched(record, *many))
    assert touched(record, *many[:2], "x") == [True, True, False]
    # The question itself matches, whatever text precedes it.
    assert touched(record, *many, PREFIX + "Who founded Korv?")[-1]


def test_question_shared_by_many_documents_is_not_a_match() -> None:
    record = read("Summarize the document.")
    texts = ["Summarize the document."] * 5
    assert not record.touched(texts, [[str(n)] for n in range(5)]).any()
    assert record.touched(texts, [["same"]] * 5).all()


def test_sampled_record_states_its_rate_and_keeps_its_limit() -> None:
    texts = [f"question {n} about the town {n * 7} and the lake {n * 13} with many words in it as well" for n in range(64)]
    record = read(*texts, most=40)
    assert len(record.questions) <= 40
    assert len(record.grams) <= 40
    assert record.every_question == 2
    assert record.every_gram > 1
    assert not (record.grams % np.uint64(record.every_gram)).any()
    assert f"1 in {record.every_gram} 13-grams" in record.rate
    hits = touched(record, *texts)
    assert 64 > sum(hits) >= len(record.questions)
    # Adding to a sampled record keeps its rate.
    more = Recorder(record, most=40)
    more.add(["Who founded Korv?"])
    again = more.read()
    assert again is not None
    assert again.every_gram == record.every_gram
    assert set(record.questions.tolist()) <= set(again.questions.tolist())


def test_record_round_trips_and_a_damaged_record_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    assert read_record(folder) is None
    record = read(LONG)
    write_record(folder, record)
    again = read_record(folder)
    assert again is not None
    assert again.to_bytes() == record.to_bytes() == (folder / FILE).read_bytes()
    assert [item.name for item in tmp_path.iterdir()] == ["model"]
    for content in (
        b"",
        b"{}\n",
        record.to_bytes()[:-1],
        record.to_bytes() + b"x",
        b'{"format": 2}\n',
        record.to_bytes().replace(b"1,", b"-,"),
    ):
        with raises("read-questions-damaged", FILE):
            ReadQuestions.from_bytes(content, str(folder / FILE))


def test_unsorted_lists_are_sorted_on_reading() -> None:
    record = read("who?", "what?", "why?")
    shuffled = ReadQuestions(record.questions[::-1], record.grams)
    assert touched(ReadQuestions.from_bytes(shuffled.to_bytes(), "x"), "who?", "what?", "why?", "how?") == [True, True, True, False]


def test_datasets_loaded_while_recording_are_recorded() -> None:
    recorder = Recorder()
    with recording(recorder):
        with recording(None):
            registry.load("worlds/graph:validation", {"worlds": 1})
        assert recorder.read() is None
        benchmark = registry.load("worlds/multihop:train", {"worlds": 1})
        note(["Who founded Korv?"])
    note(["Who founded Telir?"])
    record = recorder.read()
    assert record is not None
    assert record.touched([question.text for question in benchmark.questions], [question.golds for question in benchmark.questions]).all()
    assert touched(record, "Who founded Korv?", "Who founded Telir?") == [True, False]


@pytest.mark.parametrize("text", ["", "!?", "the"])
def test_text_without_words_is_not_recorded_or_matched(text: str) -> None:
    assert len(read(text, "who").questions) == 1
    assert touched(read("who"), text) == [False]
