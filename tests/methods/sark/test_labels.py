"""Labels of passages: the table of four verdicts, exact match before the judge, and no repeated calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.schema import Passage, Question, passage_id
from methods.flow import ordered
from methods.sark.answers import AnswerRequest, verifier_of
from methods.sark.config import LabelsConfig
from methods.sark.labels import Attempt, Labeler, Request, label_of
from methods.training.journal import Journal
from methods.training.verdicts import BLANK, EM, JUDGE, Verdict, Verifier, exact_match
from tests.support.errors import raises

MATCH, PARTIAL, MISMATCH = "Match", "Partial", "Mismatch"


def passage(text: str) -> Passage:
    return Passage(passage_id("", text), "", text)


def question(identifier: str = "q", *answers: str, **more: object) -> Question:
    return Question(identifier, f"Who is {identifier}?", answers or ("Ann",), **more)  # type: ignore[arg-type]


class CountingJudge:
    """Judge that looks verdicts up in a table and records its calls."""

    fingerprint = "counting"

    def __init__(self, **verdicts: str | None) -> None:
        self.verdicts_of = verdicts
        self.requested: list[tuple[str, str]] = []

    def verdicts(self, questions: Sequence[Question], answers: Sequence[str]) -> list[str | None]:
        self.requested += [(item.id, answer) for item, answer in zip(questions, answers, strict=True)]
        return [self.verdicts_of.get(answer, MISMATCH) for answer in answers]


class Scripted:
    """Reader that answers by a function of question and passage text ("" for none) and counts its calls."""

    def __init__(self, answer: Callable[[str, str], str | None], fingerprint: str = "scripted") -> None:
        self._answer = answer
        self.fingerprint = fingerprint
        self.requested: Counter[tuple[str, str]] = Counter()

    def answers(self, queries: Sequence[AnswerRequest]) -> list[str | None]:
        keys = [(item.question.id, item.passage.text if item.passage else "") for item in queries]
        self.requested.update(keys)
        return [self._answer(*key) for key in keys]


def verdicts(verifier: Verifier, questions: Sequence[Question], answers: Sequence[str]) -> list[Verdict]:
    return ordered(lambda pair: verifier.verdict(*pair), zip(questions, answers, strict=True), 1)


@pytest.mark.parametrize(
    ("direct", "augmented", "label"), [(MISMATCH, MATCH, 1), (MATCH, MISMATCH, 0), (MATCH, MATCH, None), (MISMATCH, MISMATCH, None)]
)
def test_passage_has_a_label_exactly_if_it_changes_correctness(direct: str, augmented: str, label: int | None) -> None:
    assert label_of(direct, augmented) == label


@pytest.mark.parametrize("verdict", [MATCH, MISMATCH])
def test_partial_match_counts_as_wrong(verdict: str) -> None:
    assert label_of(PARTIAL, verdict) == label_of(MISMATCH, verdict)
    assert label_of(verdict, PARTIAL) == label_of(verdict, MISMATCH)
    assert label_of(PARTIAL, PARTIAL) is None


@given(st.sampled_from([MATCH, PARTIAL, MISMATCH, None]), st.sampled_from([MATCH, PARTIAL, MISMATCH, None]))
def test_swapping_the_two_answers_swaps_the_labels(direct: str | None, augmented: str | None) -> None:
    item, other = label_of(direct, augmented), label_of(augmented, direct)
    assert (item is None) == (other is None)
    assert item is None or item == 1 - (other or 0)
    assert not (None in (direct, augmented) and item is not None)


def test_exact_match_skips_the_judge() -> None:
    judge = CountingJudge(annie=MATCH, half=PARTIAL, odd=None)
    query = question("q", "Ann", aliases={"Ann": ("A. Lee",)})
    answers = ["The ann.", "A. Lee", "annie", "half", "odd", "Bob", " "]
    results = verdicts(Verifier(judge), [query] * len(answers), answers)
    assert [answer for _, answer in judge.requested] == ["annie", "half", "odd", "Bob"]
    assert [item.verdict for item in results] == [MATCH, MATCH, MATCH, PARTIAL, None, MISMATCH, MISMATCH]
    assert [item.by for item in results] == [EM, EM, JUDGE, JUDGE, JUDGE, JUDGE, BLANK]


def test_judge_gets_each_answer_to_a_question_once() -> None:
    judge = CountingJudge(annie=MATCH)
    answers = {"": "Bob", HELPS.text: "annie", MISLEADS.text: "annie", IDLE.text: "Bob"}
    work = labeler(Scripted(lambda item, text: answers[text]), None, judge)
    tried = work.tried([Request(question(name), (HELPS, MISLEADS, IDLE)) for name in "qr"])
    assert sorted(judge.requested) == [("q", "Bob"), ("q", "annie"), ("r", "Bob"), ("r", "annie")]
    assert [[attempt.verdict for attempt in item.attempts] for item in tried] == [[MATCH, MATCH, MISMATCH]] * 2


def test_answers_without_exact_match_are_wrong_if_there_is_no_judge() -> None:
    (result,) = verdicts(Verifier(None), [question()], ["annie"])
    assert result.verdict == MISMATCH


def test_unknown_verdict_of_the_judge_is_an_error() -> None:
    with pytest.raises(ValueError, match="Perhaps"):
        verdicts(Verifier(CountingJudge(annie="Perhaps")), [question()], ["annie"])


def test_missing_judge_is_refused() -> None:
    config = LabelsConfig.model_validate({"judge": "match"})
    with raises("judge-for-mismatches-needed"):
        verifier_of(config, None)
    judge = CountingJudge()
    verdicts(verifier_of(config, judge), [question()], ["annie"])
    assert judge.requested
    idle = CountingJudge()
    verdicts(verifier_of(LabelsConfig.model_validate({}), idle), [question()], ["annie"])
    assert not idle.requested


def test_strict_rule_of_the_released_code_requires_the_first_gold_verbatim() -> None:
    query = question("q", "Ann", "Bea")
    assert exact_match(query, "ann.")
    assert exact_match(query, "bea")
    assert [exact_match(query, item, "strict") for item in ("Ann", "ann", "Ann.", "Bea")] == [True, False, False, False]


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("Ann, Bea and New York", True),
        ("New York; B.; Ann", True),
        ("Ann and Bea", False),
        ("Ann", False),
        ("Ann, Bea, Cid and New York", False),
        ("Ann Bea York", False),
        ("", False),
    ],
)
def test_answer_set_requires_all_answers(answer: str, right: bool) -> None:
    query = question("q", "Ann", "Bea", "New York", answer_set=True, aliases={"Bea": ("B.",)})
    assert exact_match(query, answer) is right


def test_gold_of_only_punctuation_matches_no_answer() -> None:
    assert not exact_match(question("q", "?"), "the")


HELPS, MISLEADS, IDLE = passage("Ann did it."), passage("Bob did it."), passage("It rained.")
READS = {HELPS.text: "Ann", MISLEADS.text: "Bob"}


def reads(question_id: str, text: str) -> str | None:
    """Answer questions whose id begins with k without reading."""
    return READS.get(text) or ("Ann" if question_id.startswith("k") else "no idea")


def labeler(answerer: Scripted, path: Path | None = None, judge: CountingJudge | None = None, **options: object) -> Labeler:
    config = LabelsConfig.model_validate(options)
    return Labeler(answerer, Verifier(judge), config, 0, path)


def request(identifier: str) -> Request:
    return Request(question(identifier), (HELPS, MISLEADS, IDLE))


def test_known_questions_label_misleading_and_unknown_ones_helpful_passages() -> None:
    work = labeler(Scripted(reads))
    known, unknown = work.tried([request("known"), request("unknown")])
    assert work.labels(known) == {MISLEADS.id: 0}
    assert work.labels(unknown) == {HELPS.id: 1}
    assert work.answers_right(known)
    assert not work.answers_right(unknown)
    assert work.labels(known, evidence=(MISLEADS.id,)) == {}
    assert work.counts["evidence_that_would_mislead"] == 1
    work.labels(known)
    work.counts.clear()
    work.labels(known)
    work.labels(unknown)
    assert work.counts["Match, then Match"] == 2
    assert work.counts["Match, then Mismatch"] == work.counts["Mismatch, then Match"] == 1
    assert work.counts["Mismatch, then Mismatch"] == 2
    assert work.counts["direct: Match"] == work.counts["direct: Mismatch"] == 1


def test_each_question_is_answered_without_context_once() -> None:
    answerer = Scripted(reads)
    labeler(answerer).tried([request("a"), request("b")])
    assert answerer.requested == Counter({(item, text): 1 for item in "ab" for text in ("", HELPS.text, MISLEADS.text, IDLE.text)})


def test_closed_book_answers_are_reused() -> None:
    answerer = Scripted(reads)
    (tried,) = labeler(answerer).tried([request("a")], direct={"a": Attempt("", "Ann", MATCH, EM)})
    assert ("a", "") not in answerer.requested
    assert tried.direct.answer == "Ann"


def test_number_of_negatives_can_be_limited() -> None:
    many = tuple(passage(f"Bob {n}") for n in range(20))
    query = Request(question("known"), (*many, HELPS))
    wrong = Scripted(lambda _, text: "Bob" if text.startswith("Bob") else "Ann")
    work = labeler(wrong, most_negatives=3)
    every = work.labels(*work.tried([query]))
    assert len(every) == 20
    results = work.few_negatives("known", every)
    assert len(results) == 3
    assert set(results) <= {item.id for item in many}
    assert work.counts["negatives_left_out"] == 17
    again = labeler(wrong, most_negatives=3)
    assert again.few_negatives("known", again.labels(*again.tried([query]))) == results
    # A label 1 is never left out.
    assert work.few_negatives("known", {**every, HELPS.id: 1})[HELPS.id] == 1


def test_counts_do_not_include_an_answer_twice() -> None:
    work = labeler(Scripted(reads))
    (tried,) = work.tried([request("known")])
    work.labels(tried, direct=False)
    assert not [name for name in work.counts if name.startswith("direct")]
    assert sum(n for name, n in work.taken_counts().items() if name.startswith("verdicts")) == len(tried.attempts)
    assert not work.counts
    work.labels(tried)
    assert work.counts["direct: Match"] == 1
    assert sum(n for name, n in work.counts.items() if name.startswith("verdicts")) == len(tried.attempts) + 1


@given(st.lists(st.tuples(st.booleans(), st.lists(st.booleans(), max_size=5)), max_size=6))
def test_labels_equal_a_plain_loop(world: list[tuple[bool, list[bool]]]) -> None:
    """Tests any pattern of right and wrong answers."""
    texts = {(f"q{n}", f"p{n}.{m}"): right for n, (_, some) in enumerate(world) for m, right in enumerate(some)}
    direct = {f"q{n}": right for n, (right, _) in enumerate(world)}

    def answer(identifier: str, text: str) -> str:
        return "Ann" if (texts[identifier, text] if text else direct[identifier]) else "Bob"

    requests = [Request(question(f"q{n}"), tuple(passage(f"p{n}.{m}") for m in range(len(some)))) for n, (_, some) in enumerate(world)]
    work = labeler(Scripted(answer))
    for item, tried in zip(requests, work.tried(requests), strict=True):
        expected = {}
        for each in item.passages:
            before, after = direct[item.question.id], texts[item.question.id, each.text]
            if before != after:
                expected[each.id] = 1 if after else 0
        assert work.labels(tried) == expected


def test_second_run_makes_no_call(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    first = labeler(Scripted(reads), path, judge := CountingJudge())
    tried = first.tried([request("known"), request("unknown")])
    query = len(judge.requested)
    assert query
    answerer = Scripted(reads)
    second = labeler(answerer, path, judge)
    assert second.tried([request("known"), request("unknown")]) == tried
    assert not answerer.requested
    assert len(judge.requested) == query


def test_changed_passages_or_reader_repeat_calls(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    labeler(Scripted(reads), path).tried([request("known")])
    answerer = Scripted(reads)
    labeler(answerer, path).tried([Request(question("known"), (HELPS,))])
    assert answerer.requested
    other = Scripted(reads, "another")
    labeler(other, path).tried([request("known")])
    assert other.requested


def test_changed_judge_repeats_judgments(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    labeler(Scripted(reads), path, CountingJudge()).tried([request("known"), request("unknown")])
    other = CountingJudge()
    other.fingerprint = "with another prompt"
    labeler(Scripted(reads), path, other).tried([request("known"), request("unknown")])
    assert other.requested
    assert len({Verifier(judge).fingerprint for judge in (None, CountingJudge(), other)}) == 3


def test_missing_answer_is_requested_again(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    broken = Scripted(lambda item, text: None if text == HELPS.text else reads(item, text))
    work = labeler(broken, path)
    _, unknown = work.tried([request("known"), request("unknown")])
    assert work.labels(unknown) == {}
    assert work.counts["Mismatch, then no answer"] == 1
    assert not unknown.lasting
    mended = Scripted(reads)
    again = labeler(mended, path)
    assert [again.labels(item) for item in again.tried([request("known"), request("unknown")])] == [{MISLEADS.id: 0}, {HELPS.id: 1}]
    assert mended.requested


def test_unreadable_verdict_is_requested_again(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    judge = CountingJudge(Bob=None)
    work = labeler(Scripted(reads), path, judge)
    (tried,) = work.tried([request("known")])
    assert work.labels(tried) == {}
    assert work.counts["Match, then unscored"] == 1
    judge.verdicts_of["Bob"] = MISMATCH
    again = labeler(Scripted(reads), path, judge)
    assert again.labels(*again.tried([request("known")])) == {MISLEADS.id: 0}


def test_run_stops_if_no_call_is_answered() -> None:
    with raises("all-calls-failed"):
        labeler(Scripted(lambda item, text: None)).tried([request("known")])


def test_truncated_line_is_recomputed(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal(path) as journal:
        journal.add("a", "x", [1])
        journal.add("b", "x", {"text": "line\u2028break \ud800"})
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    journal = Journal(path)
    assert journal.get("a", "x") == [1]
    assert journal.get("b", "x") is None
    with journal:
        journal.add("b", "x", {"text": "line\u2028break \ud800"})
    assert path.read_bytes() == whole
    assert Journal(path).get("b", "x") == {"text": "line\u2028break \ud800"}
    assert Journal(path).get("b", "y") is None


def test_damaged_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text('{"id": "a"}\n', "utf-8")
    with raises("unreadable-earlier-line"):
        Journal(path)
