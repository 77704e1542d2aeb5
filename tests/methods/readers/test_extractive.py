"""The reader without a model: types of questions, spans, choices, support."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.corpus import Corpus
from benchmarks.schema import Passage, Query, passage_id
from benchmarks.text import f1
from methods.api import SUPPORT, Context, Services
from methods.readers.extractive import kind_of, options, spans, years
from methods.registry import Component


def passage(title: str, *sentences: str) -> Passage:
    text = " ".join(sentences)
    return Passage(passage_id(title, text), title, text, sentences)


def read(question: str, *passages: Passage, **config: Any) -> Any:
    reader = Component.of("extractive", config).build(Services())
    return reader.read([Query("q", question)], [Context("q", passages)])[0]


FILM = passage("Salt Road", "Salt Road is a film of 1987 by Ann Oder.", "It was shot in Lisbon for 12 million dollars.")
OTHER = passage("Tin Harp", "Tin Harp is a film of 1964 by Ben Uhl.", "It was never shown.")


@pytest.mark.parametrize(
    ("question", "kind"),
    [
        ("When did Ann Oder die?", "date"),
        ("What year was Salt Road made?", "year"),
        ("In which year did it open?", "year"),
        ("How many people live in Lisbon?", "number"),
        ("Who directed Salt Road?", "name"),
        ("Are Salt Road and Tin Harp both films?", "yes_no"),
        ("Which film came out first, Salt Road or Tin Harp?", "choice"),
        ("Was Ann Oder or Ben Uhl born first?", "choice"),
        ("Who wrote about war or peace in it?", "name"),
    ],
)
def test_expected_answer_type_is_read_from_the_question(question: str, kind: str) -> None:
    assert kind_of(question) == kind


@pytest.mark.parametrize(
    ("question", "offered"),
    [
        ("Which film came out first, Salt Road or Tin Harp?", ("Salt Road", "Tin Harp")),
        ("Which band was formed first The Exies or Circus Diablo ?", ("The Exies", "Circus Diablo")),
        ("Was Ann Oder or Ben Uhl born first?", ("Ann Oder", "Ben Uhl")),
        ("Which came first, Love & War (Album) or Don'T Freak Me Out?", ("Love & War (Album)", "Don'T Freak Me Out")),
        ("Did it rain or shine in Rome?", None),
        ("Who directed Salt Road?", None),
    ],
)
def test_options_of_a_choice_question_are_extracted(question: str, offered: tuple[str, str] | None) -> None:
    assert options(question) == offered


def test_spans_of_every_kind_are_found() -> None:
    results = {(s.kind, s.text) for s in spans('On 5 May 1901 The Duke of Arle paid $1,200 for "salt road" in Lisbon.')}
    assert {
        ("date", "5 May 1901"),
        ("year", "1901"),
        ("number", "$1,200 for"),
        ("name", "Duke of Arle"),
        ("name", "salt road"),
        ("name", "Lisbon"),
    } <= results
    assert not any(s.text in {"On", "The", "He"} for s in spans("On The He"))
    assert years("from 1890 to 12345 and 2001") == [1890, 2001]


def test_span_offsets_match_the_text() -> None:
    sentence = "In 1987 the poet Ann Oder left Lisbon on 5 May 1988."
    assert all(sentence[s.start :].startswith(s.text) for s in spans(sentence))


def test_answers_are_spans_of_the_expected_type() -> None:
    assert read("Who made the film Salt Road?", FILM, OTHER).text == "Ann Oder"
    assert read("What year was Salt Road made?", FILM, OTHER).text == "1987"
    assert read("In which city was Salt Road shot?", FILM, OTHER).text == "Lisbon"


def test_time_comparisons_compare_years() -> None:
    assert read("Which film came out first, Salt Road or Tin Harp?", FILM, OTHER).text == "Tin Harp"
    assert read("Which film came out later, Salt Road or Tin Harp?", FILM, OTHER).text == "Salt Road"


def test_second_year_of_a_lifespan_is_its_end() -> None:
    early = passage("Ann Oder", "Ann Oder (1900 – 1990) was a poet.")
    late = passage("Ben Uhl", "Ben Uhl (1910 – 1950) was a poet.")
    assert read("Who died first, Ann Oder or Ben Uhl?", early, late).text == "Ben Uhl"
    assert read("Who was born first, Ann Oder or Ben Uhl?", early, late).text == "Ann Oder"


def test_best_sentence_is_the_answer_if_no_span_matches() -> None:
    assert read("In which city was Salt Road shot?", FILM, OTHER, span=False).text == FILM.sentences[1]


def test_support_names_the_best_sentence_of_each_of_the_best_passages() -> None:
    notes = read("In which city was Salt Road shot?", FILM, OTHER).notes
    assert notes[SUPPORT][0] == [FILM.id, 1]
    assert notes[SUPPORT][1][0] == OTHER.id
    assert SUPPORT not in read("Who?", FILM, support=0).notes


def test_empty_context_gives_an_empty_answer() -> None:
    assert read("Who?").text == ""
    assert read("Who?", Passage("p", "", "  ")).text == ""


def test_text_without_sentence_boundaries_is_split_by_the_reader() -> None:
    whole = Passage("p", "Salt Road", " ".join(FILM.sentences))
    assert read("In which city was Salt Road shot?", whole).notes[SUPPORT] == [["p", 1]]


def test_unusual_texts_never_raise() -> None:
    odd = Passage("p", "\u2028", "\x00 ... !!! \ud83d\ude00 1,,2 “” ( or ) or")
    for question in ("", " or ", "or or or?", "Was or ?", ", or X?", "Which, A or b?"):
        assert isinstance(read(question, odd, FILM).text, str)


@pytest.mark.slow
def test_spans_beat_sentences_on_real_questions(data_folder: Path) -> None:
    """Measures the default on HotpotQA with BM25's five best of each question's ten paragraphs."""
    records = json.loads((data_folder / "hotpotqa" / "hotpot_distractor_train50.json").read_text())
    retriever = Component.of("bm25").build(Services())
    scores: dict[bool, float] = {True: 0.0, False: 0.0}
    for record in records:
        corpus = Corpus.of(Passage(passage_id(title, "".join(s)), title, "".join(s), tuple(s)) for title, s in record["context"])
        query = Query("q", record["question"])
        context = Context("q", tuple(corpus.get(retriever.index(corpus).retrieve([query], 5)[0].ids)))
        for span in scores:
            answer = Component.of("extractive", {"span": span}).build(Services()).read([query], [context])[0]
            scores[span] += f1(answer.text, [record["answer"]], "hotpotqa") / len(records)
    assert scores[True] > 2 * scores[False] > 0
