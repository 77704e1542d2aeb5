"""Passages found in the texts that a system showed its model, and the record of a prediction from a row to a judge."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import text_index
from benchmarks.corpus import Corpus
from benchmarks.registry import Benchmark, DataReference
from benchmarks.schema import Passage, Query, Question, Turn, turns_of
from benchmarks.text_index import TextIndex
from judges.score import score
from methods.api import Evidence, Prediction
from methods.record import Search, Shown, Statement
from results.boards.health import health
from results.contexts import Matcher, named, outside, reading
from results.formats import exchange
from results.offered import LIMITS
from results.store import answer_queries, queries, records
from results.store.redaction import HIDDEN
from results.store.store import Run, Store
from results.submission import Findings
from results.submission.rows import jsonl_rows
from tests.support.errors import raises
from tests.support.toy import CARD

LYON = "Lyon is the third-largest city of France, where the Saône flows into the Rhône at the foot of two hills."
PARIS = "Paris has been the capital of France since the tenth century, with one interruption that lasted four years."
NILE = "尼罗河是非洲东北部的一条主要河流,全长约六千六百公里。"
PASSAGES = [
    Passage("p1", "Lyon", LYON),
    Passage("p2", "Paris", PARIS),
    Passage("p3", "Nile", NILE),
    Passage("p4", "Motto", "Forward, forward, better!"),
]


@pytest.fixture(scope="module")
def index() -> TextIndex:
    return TextIndex(PASSAGES)


@pytest.mark.parametrize(
    ("text", "matched"),
    [
        (LYON, ["p1"]),
        (f"# Lyon\n\n**{LYON.upper()}**", ["p1"]),  # markup and case
        (LYON.replace("ô", "o\u0302").replace(" ", " \n "), ["p1"]),  # NFD, line breaks
        (f"{PARIS} Then follows what no passage says. {LYON}", ["p2", "p1"]),  # a larger chunk, in its order
        ("the third-largest city of France, where the Saône flows into the Rhône", ["p1"]),  # a smaller chunk
        (LYON.replace("third", "second").replace("foot", "top"), []),  # too many runs of words differ
        (NILE[:20], ["p3"]),
        ("forward forward better", ["p4"]),
        ("Motto: Forward, forward, better", ["p4"]),
        ("Forward, forward!", []),  # part of a short passage
        ("city of France", []),
        ("", []),
    ],
)
def test_passages_are_found_by_content(index: TextIndex, text: str, matched: list[str]) -> None:
    assert list(index.find(text)) == matched


def test_repeated_boilerplate_matches_a_bounded_number_of_passages() -> None:
    footer = "This page was last edited by the documentation team of the company on a Monday"
    index = TextIndex([Passage(f"p{number}", "", f"{footer} number{number}") for number in range(50)])
    assert len(index.find(footer)) == text_index.MOST


def test_corpus_beyond_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_index, "LARGEST", 10)
    with raises("corpus-too-large-to-match"):
        TextIndex(PASSAGES)


def test_unmatched_contexts_keep_their_rank_and_their_text() -> None:
    corpus = Corpus.of(PASSAGES)
    question = Question("q", "Which city?", ("Lyon",), evidence=("p1",))
    shown = (Shown("A text about Lyon that is in no corpus.", url="https://example.com/a"), Shown(f"{LYON} More."), Shown("x", id="p2"))
    placed = Matcher(corpus).place(question, Prediction("q", "Lyon", contexts=shown))
    assert [item.matched for item in placed.contexts or ()] == [(), ("p1",), ("p2",)]
    assert [item.id for item in placed.evidence] == [outside(shown[0]).id, "p1", "p2"]
    values = score([question], [placed], ["mrr@10", "recall@1", "has_answer@1"], passage=reading(corpus, [placed]))
    assert [float(value[0]) for value in values.values()] == [0.5, 0.0, 1.0]
    assert {passage.text for passage in named(corpus, [placed])} == {shown[0].text, LYON, PARIS}


@pytest.mark.parametrize(
    ("name", "matched", "document"),
    [
        ("p1", ["p1"], None),
        ("lyon.md", ["p1"], "docs/lyon.md"),
        ("https://example.com/docs/lyon.md#top", ["p1"], "docs/lyon.md"),
        ("Paris", [], "paris.txt"),
        ("nile", [], None),
        ("", [], None),
    ],
)
@pytest.mark.parametrize("field", ["id", "url"])
def test_context_without_a_text_is_what_its_name_means(field: str, name: str, matched: list[str], document: str | None) -> None:
    if field == "url" and name == "p1":
        return
    passages = [
        Passage("p1", "Lyon", LYON, document_id="docs/lyon.md"),
        *(Passage(f"p{number}", "Paris", f"{PARIS} {number}", document_id="paris.txt") for number in (2, 3)),
    ]
    corpus = Corpus.of(passages)
    question = Question("q", "Which city?", (), evidence=("p3",))
    prediction = Prediction("q", "x", contexts=(Shown("", **{field: name}), Shown("", id="unknown")))
    placed = Matcher(corpus).place(question, prediction)
    assert [list(item.matched or ()) for item in placed.contexts or ()] == [matched, []]
    assert len(placed.evidence) == 2
    ranked = reading(corpus, [placed])(placed.evidence[0].id)
    assert document in (None, ranked.document_id)
    metrics = ["recall@1", "recall@1(level=documents)"]
    values = [float(value[0]) for value in score([question], [placed], metrics, passage=reading(corpus, [placed])).values()]
    assert values == [0.0, float(document == "paris.txt")]
    outside_it = replace(question, candidates=("p9",))
    assert [item.matched for item in Matcher(corpus).place(outside_it, prediction).contexts or ()] == [(), ()]


@pytest.mark.parametrize(
    ("name", "document"),
    [
        ("https://example.com/docs/caf%C3%A9%20lyon.md", "docs/café lyon.md"),
        ("docs/caf%C3%A9%20lyon.md?download=1", "docs/café lyon.md"),
        ("https://example.com/page?id=7", "https://example.com/page?id=7"),
        ("https://example.com/page?id=8", "https://example.com/page?id=8"),
        ("https://example.com/page?id=9", None),
        ("https://www.example.com/home/?utm_source=chat", "https://example.com/home"),
        ("http://example.com/home#top", "https://example.com/home"),
        ("https://elsewhere.org/home", None),
        ("https://example.com/view?file=a/7", None),
        ("C#", "C#.md"),
        ("https://example.com/C%23.md", "C#.md"),
        ("C.md", "C.md"),
        ("7", "7"),
        ("7.0", "7"),
        ("https://[", None),
    ],
)
def test_url_without_a_text_is_decoded_and_its_query_counts_if_pages_differ_in_it(name: str, document: str | None) -> None:
    names = ["docs/café lyon.md", *(f"https://example.com/page?id={n}" for n in (7, 8)), "https://example.com/home", "C#.md", "C.md", "7"]
    corpus = Corpus.of([Passage(f"p{number}", "", f"text {number}", document_id=own) for number, own in enumerate(names)])
    for shown in (Shown("", id=name), Shown("", url=name)):
        placed = Matcher(corpus).place(Question("q", "?", ()), Prediction("q", "x", contexts=(shown,)))
        (item,) = placed.contexts or ()
        assert list(item.matched or ()) == ([] if document is None else [f"p{names.index(document)}"])


def test_candidates_limit_what_contexts_can_match() -> None:
    twice = [Passage("p1", "Lyon", LYON), Passage("p9", "Lyon", LYON, document_id="other")]
    question = Question("q", "?", (), candidates=("p9",))
    placed = Matcher(Corpus.of(twice)).place(question, Prediction("q", "", contexts=(Shown(LYON), Shown(PARIS, id="p1"))))
    assert [item.matched for item in placed.contexts or ()] == [("p9",), ()]


def test_given_evidence_and_missing_contexts_are_left_as_they_are() -> None:
    matcher = Matcher(Corpus.of(PASSAGES))
    question = Question("q", "?", ())
    ranked = Prediction("q", "", (Evidence("p2", 1.0),), contexts=(Shown(LYON),))
    assert matcher.place(question, ranked).evidence == ranked.evidence
    assert matcher.place(question, Prediction("q", "")) == Prediction("q", "")


FULL = Prediction(
    "q1",
    "Lyon",
    contexts=(
        Shown(LYON, "doc-1", "https://example.com/1", 0.5, ("p1",)),
        Shown("the key is sk-proj-Zq7Hostile0Key1Never2Shown3", matched=()),
    ),
    statements=(Statement("Lyon is in France.", ("doc-1", 0)),),
    searches=(Search("city", ("doc-1", "doc-2"), ("doc-1",)),),
    confidence=0.75,
)


def test_rows_carry_the_record_and_never_what_was_matched() -> None:
    rows = list(jsonl_rows(io.BytesIO(json.dumps(FULL.to_json()).encode()), Findings(), LIMITS))
    unmatched = tuple(replace(item, matched=None) for item in FULL.contexts or ())
    assert rows[0].prediction == replace(FULL, contexts=unmatched)
    assert Prediction.from_json(FULL.to_json()) == FULL
    assert Prediction("q", "").to_json().keys() == {"question_id", "answer", "evidence", "usage", "notes"}


@pytest.mark.parametrize(
    ("fields", "code", "detail"),
    [
        ({"contexts": ["text"]}, "wrong_type", "contexts[0]"),
        ({"contexts": [{"text": "a", "page": 1}]}, "wrong_type", "'page'"),
        ({"contexts": [{"text": "a", "score": "high"}]}, "wrong_type", "contexts[0].score"),
        ({"contexts": [{"text": "a" * 600}, {"text": "b" * 600}]}, "contexts_too_long", "1200"),
        ({"contexts": [{"text": "a", "url": "u" * 5000}]}, "bad_id", "5000"),
        ({"contexts": [{"text": ""}] * 1001}, "too_much_evidence", "1001"),
        ({"statements": [{"text": "a", "cites": [True]}]}, "wrong_type", "statements[0].cites"),
        ({"searches": [{"query": "a", "found": "b"}]}, "wrong_type", "searches[0].found"),
        ({"confidence": "high"}, "wrong_type", "confidence"),
    ],
)
def test_malformed_records_of_rows_are_refused(fields: dict[str, object], code: str, detail: str) -> None:
    findings = Findings()
    row = json.dumps({"question_id": "q", "answer": "", **fields}).encode()
    assert not list(jsonl_rows(io.BytesIO(row), findings, replace(LIMITS, contexts_chars=1000)))
    (finding,) = findings.all()
    assert finding.code == code
    assert detail in finding.positions[0].detail


@pytest.mark.slow
def test_store_keeps_the_record_and_judges_read_the_contexts(store: Store, tmp_path: Path) -> None:
    turns = turns_of([{"role": "user", "text": "Hello"}, {"role": "assistant", "text": "Yes?"}])
    questions = [Question("q1", "And which city?", ("Lyon",), evidence=("p1",), turns=turns), Question("q2", "?", ("x",))]
    benchmark = Benchmark(DataReference("toy", None, "dev"), 1, CARD, questions, Corpus.of(PASSAGES))
    store.put_benchmark(benchmark, benchmark.fingerprint)
    store.start(Run("abcd", "m", "m", "method", {}, "toy:dev", benchmark.fingerprint, "corpus", 0, 2, {}))
    ranked = (Evidence("p2", 1.0),)
    store.append(
        "abcd", [replace(FULL, evidence=ranked), Prediction("q2", "", ranked)], {}, named(benchmark.corpus, [Prediction("q2", "", ranked)])
    )
    assert store.predictions("abcd")[0] == replace(FULL, evidence=ranked)
    (run,) = queries.runs(store)
    shown, without = (item.passages for item in records.items(store, run))
    assert [passage.text for passage in shown] == [item.text for item in FULL.contexts or ()]
    assert [passage.id for passage in without] == ["p2"]
    row = answer_queries.questions(store, benchmark.fingerprint)[0]
    assert row.turns == records.gold_questions(store, benchmark.fingerprint)["q1"].turns == turns
    assert questions[0].query().turns == turns
    (answer,) = answer_queries.answers(store, row, ["abcd"])
    assert answer.record["contexts"][1]["text"] == f"the key is {HIDDEN}"
    assert (answer.record["confidence"], answer.record["statements"][0]["cites"]) == (0.75, ["doc-1", 0])
    (line,) = [line for line in health(store, [run]) if line.code == "unmatched_contexts"]
    assert line.values == {"contexts": 2, "unmatched": 1}
    exchange.export(store, tmp_path / "out")
    other = Store(tmp_path / "other")
    exchange.merge(other, tmp_path / "out")
    assert other.predictions("abcd") == store.predictions("abcd")


def test_turns_change_the_fingerprint_of_data_only_if_there_are_some() -> None:
    def benchmark(*turns: Turn) -> Benchmark:
        return Benchmark(DataReference("toy", None, "dev"), 1, CARD, [Question("q", "?", ("x",), turns=turns)], Corpus.of(PASSAGES))

    assert benchmark().fingerprint != benchmark(Turn("user", "Hello")).fingerprint
    assert Query("q", "?").turns == ()


@pytest.mark.parametrize("value", ["Hello", [{"role": "system", "text": "a"}], [{"role": "user"}]])
def test_malformed_turns_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match="turns"):
        turns_of(value)
