"""Labels of passages: the table of four verdicts, exact match before the judge, and nothing asked twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.errors import Broke, UserError
from benchmarks.schema import Passage, Query, Question, passage_id
from judges.judging import Judge as JudgeRef
from judges.llm.adapters import MatchScores, MatchVerdicts
from methods.api import FAILED, Answer, Context, Services
from methods.models.chat import ChatModel
from methods.models.openai_server import ChatRequest, OpenAIServer, Written
from methods.sark.answers import Asked, LLMAnswerer, ReaderAnswerer
from methods.sark.data_config import AnswerChat, LabelsConfig
from methods.sark.journal import Journal
from methods.sark.labels import Attempt, Labeller, Request, Tried, label_of
from methods.sark.prompts import load_prompt
from methods.sark.verify import BLANK, EM, JUDGE, Verifier, exact_match, verifier_of

MATCH, PARTIAL, MISMATCH = "Match", "Partial", "Mismatch"


def passage(text: str) -> Passage:
    return Passage(passage_id("", text), "", text)


def question(identifier: str = "q", *answers: str, **more: object) -> Question:
    return Question(identifier, f"Who is {identifier}?", answers or ("Ann",), **more)  # type: ignore[arg-type]


class CountingJudge:
    """Says what a table says, and remembers whom it was asked about."""

    def __init__(self, **verdicts: str | None) -> None:
        self.verdicts_of = verdicts
        self.asked: list[tuple[str, str]] = []

    def verdicts(self, questions: Sequence[Question], answers: Sequence[str]) -> list[str | None]:
        self.asked += [(one.id, answer) for one, answer in zip(questions, answers, strict=True)]
        return [self.verdicts_of.get(answer, MISMATCH) for answer in answers]


class Scripted:
    """Answers by a function of question and passage text ("" for none), and counts what it was asked."""

    def __init__(self, answer: Callable[[str, str], str | None], fingerprint: str = "scripted") -> None:
        self._answer = answer
        self.fingerprint = fingerprint
        self.asked: Counter[tuple[str, str]] = Counter()

    def answers(self, asked: Sequence[Asked]) -> list[str | None]:
        keys = [(one.question.id, one.passage.text if one.passage else "") for one in asked]
        self.asked.update(keys)
        return [self._answer(*key) for key in keys]


# --- the table ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("direct", "augmented", "label"),
    [(MISMATCH, MATCH, 1), (MATCH, MISMATCH, 0), (MATCH, MATCH, None), (MISMATCH, MISMATCH, None)],
)
def test_a_passage_has_a_label_where_it_changes_the_outcome(direct: str, augmented: str, label: int | None) -> None:
    assert label_of(direct, augmented) == label
    assert label_of(direct, augmented, "drop") == label


@pytest.mark.parametrize("verdict", [MATCH, MISMATCH])
def test_partial_is_wrong_or_left_out(verdict: str) -> None:
    assert label_of(PARTIAL, verdict) == label_of(MISMATCH, verdict)
    assert label_of(verdict, PARTIAL) == label_of(verdict, MISMATCH)
    assert label_of(PARTIAL, verdict, "drop") is label_of(verdict, PARTIAL, "drop") is None
    assert label_of(PARTIAL, PARTIAL) is None


@given(st.sampled_from([MATCH, PARTIAL, MISMATCH, None]), st.sampled_from([MATCH, PARTIAL, MISMATCH, None]))
def test_swapping_the_two_answers_swaps_the_labels(direct: str | None, augmented: str | None) -> None:
    one, other = label_of(direct, augmented), label_of(augmented, direct)
    assert (one is None) == (other is None)
    assert one is None or one == 1 - (other or 0)
    assert not (None in (direct, augmented) and one is not None)


# --- is an answer right ---------------------------------------------------------------------------------------


def test_an_exact_match_is_not_shown_to_the_judge() -> None:
    judge = CountingJudge(annie=MATCH, half=PARTIAL, odd=None)
    asked = question("q", "Ann", aliases={"Ann": ("A. Lee",)})
    answers = ["The ann.", "A. Lee", "annie", "half", "odd", "Bob", " "]
    found = Verifier(judge).verdicts([asked] * len(answers), answers)
    assert [answer for _, answer in judge.asked] == ["annie", "half", "odd", "Bob"]
    assert [one.verdict for one in found] == [MATCH, MATCH, MATCH, PARTIAL, None, MISMATCH, MISMATCH]
    assert [one.by for one in found] == [EM, EM, JUDGE, JUDGE, JUDGE, JUDGE, BLANK]


def test_the_judge_sees_an_answer_to_a_question_once() -> None:
    judge = CountingJudge(annie=MATCH)
    one, other = question("q"), question("r")
    found = Verifier(judge).verdicts([one, one, other, one], ["annie", "Bob", "annie", "annie"])
    assert judge.asked == [("q", "annie"), ("q", "Bob"), ("r", "annie")]
    assert [verdict.verdict for verdict in found] == [MATCH, MISMATCH, MATCH, MATCH]


def test_without_a_judge_what_is_no_exact_match_is_wrong() -> None:
    (found,) = Verifier(None).verdicts([question()], ["annie"])
    assert found.verdict == MISMATCH


def test_a_verdict_of_the_judges_own_making_is_an_error() -> None:
    with pytest.raises(ValueError, match="Perhaps"):
        Verifier(CountingJudge(annie="Perhaps")).verdicts([question()], ["annie"])


def test_a_judge_that_is_wanted_must_be_lent() -> None:
    config = LabelsConfig.model_validate({"judge": "match"})
    with pytest.raises(UserError, match=r"labels\.judge"):
        verifier_of(config, None)
    judge = CountingJudge()
    verifier_of(config, judge).verdicts([question()], ["annie"])
    assert judge.asked
    idle = CountingJudge()
    verifier_of(LabelsConfig.model_validate({}), idle).verdicts([question()], ["annie"])
    assert not idle.asked


def test_the_released_rule_wants_the_first_gold_as_it_is_written() -> None:
    asked = question("q", "Ann", "Bea")
    assert exact_match(asked, "ann.")
    assert exact_match(asked, "bea")
    assert [exact_match(asked, one, "strict") for one in ("Ann", "ann", "Ann.", "Bea")] == [True, False, False, False]


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
def test_a_set_of_answers_must_be_named_wholly(answer: str, right: bool) -> None:
    asked = question("q", "Ann", "Bea", "New York", answer_set=True, aliases={"Bea": ("B.",)})
    assert exact_match(asked, answer) is right


def test_a_gold_that_is_nothing_but_punctuation_matches_no_answer() -> None:
    assert not exact_match(question("q", "?"), "the")


# --- trying passages ------------------------------------------------------------------------------------------

HELPS, MISLEADS, IDLE = passage("Ann did it."), passage("Bob did it."), passage("It rained.")
READS = {HELPS.text: "Ann", MISLEADS.text: "Bob"}


def reads(question_id: str, text: str) -> str | None:
    """A reader that knows the questions whose id begins with k."""
    return READS.get(text) or ("Ann" if question_id.startswith("k") else "no idea")


def labeller(
    answerer: Scripted, path: Path | None = None, judge: CountingJudge | None = None, **options: object
) -> Labeller:
    config = LabelsConfig.model_validate(options)
    return Labeller(answerer, Verifier(judge), config, 0, path)


def request(identifier: str) -> Request:
    return Request(question(identifier), (HELPS, MISLEADS, IDLE))


def test_who_knows_finds_what_misleads_and_who_does_not_what_helps() -> None:
    work = labeller(Scripted(reads))
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


def test_a_question_is_answered_without_context_once() -> None:
    answerer = Scripted(reads)
    labeller(answerer).tried([request("a"), request("b")])
    assert answerer.asked == Counter(
        {(one, text): 1 for one in "ab" for text in ("", HELPS.text, MISLEADS.text, IDLE.text)}
    )


def test_what_is_known_without_context_is_not_asked_again() -> None:
    answerer = Scripted(reads)
    (tried,) = labeller(answerer).tried([request("a")], direct={"a": Attempt("", "Ann", MATCH, EM)})
    assert ("a", "") not in answerer.asked
    assert tried.direct.answer == "Ann"


def test_partial_can_leave_a_whole_question_out() -> None:
    judge = CountingJudge(**{"no idea": PARTIAL})
    answerer = Scripted(reads)
    work = labeller(answerer, judge=judge, partial="drop")
    (tried,) = work.tried([request("unknown")])
    assert work.labels(tried) == {}
    # No label can come of it, so no passage is tried.
    assert set(answerer.asked) == {("unknown", "")}
    lenient = labeller(Scripted(reads), judge=judge)
    assert lenient.labels(*lenient.tried([request("unknown")])) == {HELPS.id: 1}


def test_the_number_of_negatives_can_be_bounded() -> None:
    many = tuple(passage(f"Bob {n}") for n in range(20))
    asked = Request(question("known"), (*many, HELPS))
    wrong = Scripted(lambda _, text: "Bob" if text.startswith("Bob") else "Ann")
    work = labeller(wrong, most_negatives=3)
    found = work.labels(*work.tried([asked]))
    assert len(found) == 3
    assert set(found) <= {one.id for one in many}
    assert work.counts["negatives_left_out"] == 17
    again = labeller(wrong, most_negatives=3)
    assert again.labels(*again.tried([asked])) == found


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.lists(st.booleans(), max_size=5)), max_size=6))
def test_labels_equal_a_plain_loop(world: list[tuple[bool, list[bool]]]) -> None:
    """Any pattern of right and wrong answers."""
    texts = {(f"q{n}", f"p{n}.{m}"): right for n, (_, some) in enumerate(world) for m, right in enumerate(some)}
    direct = {f"q{n}": right for n, (right, _) in enumerate(world)}

    def answer(identifier: str, text: str) -> str:
        return "Ann" if (texts[identifier, text] if text else direct[identifier]) else "Bob"

    requests = [
        Request(question(f"q{n}"), tuple(passage(f"p{n}.{m}") for m in range(len(some))))
        for n, (_, some) in enumerate(world)
    ]
    work = labeller(Scripted(answer))
    for one, tried in zip(requests, work.tried(requests), strict=True):
        expected = {}
        for each in one.passages:
            before, after = direct[one.question.id], texts[one.question.id, each.text]
            if before != after:
                expected[each.id] = 1 if after else 0
        assert work.labels(tried) == expected


# --- kept -----------------------------------------------------------------------------------------------------


def test_a_second_run_asks_nothing(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    first = labeller(Scripted(reads), path, judge := CountingJudge())
    tried = first.tried([request("known"), request("unknown")])
    asked = len(judge.asked)
    assert asked
    answerer = Scripted(reads)
    second = labeller(answerer, path, judge)
    assert second.tried([request("known"), request("unknown")]) == tried
    assert not answerer.asked
    assert len(judge.asked) == asked


def test_other_passages_or_another_answerer_are_asked_again(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    labeller(Scripted(reads), path).tried([request("known")])
    answerer = Scripted(reads)
    labeller(answerer, path).tried([Request(question("known"), (HELPS,))])
    assert answerer.asked
    other = Scripted(reads, "another")
    labeller(other, path).tried([request("known")])
    assert other.asked


def test_an_answer_that_did_not_come_is_asked_for_again(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    broken = Scripted(lambda one, text: None if text == HELPS.text else reads(one, text))
    work = labeller(broken, path)
    _, unknown = work.tried([request("known"), request("unknown")])
    assert work.labels(unknown) == {}
    assert work.counts["Mismatch, then no answer"] == 1
    assert not unknown.complete
    mended = Scripted(reads)
    again = labeller(mended, path)
    assert [again.labels(one) for one in again.tried([request("known"), request("unknown")])] == [
        {MISLEADS.id: 0},
        {HELPS.id: 1},
    ]
    assert mended.asked


def test_a_verdict_that_could_not_be_read_is_asked_for_again(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    judge = CountingJudge(Bob=None)
    work = labeller(Scripted(reads), path, judge)
    (tried,) = work.tried([request("known")])
    assert work.labels(tried) == {}
    assert work.counts["Match, then unscored"] == 1
    judge.verdicts_of["Bob"] = MISMATCH
    again = labeller(Scripted(reads), path, judge)
    assert again.labels(*again.tried([request("known")])) == {MISLEADS.id: 0}


def test_where_no_call_is_answered_the_work_stops() -> None:
    with pytest.raises(Broke, match="not one of"):
        labeller(Scripted(lambda one, text: None)).tried([request("known")])


def test_a_line_that_was_cut_off_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    Journal(path).add([("a", "x", [1]), ("b", "x", {"text": "line\u2028break"})])
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    journal = Journal(path)
    assert journal.get("a", "x") == [1]
    assert journal.get("b", "x") is None
    journal.add([("b", "x", {"text": "line\u2028break"})])
    assert path.read_bytes() == whole
    assert Journal(path).get("b", "x") == {"text": "line\u2028break"}
    assert Journal(path).get("b", "y") is None


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text('{"id": "a"}\n', "utf-8")
    with pytest.raises(UserError, match=r"journal\.jsonl:1"):
        Journal(path)


def test_what_was_tried_survives_its_json() -> None:
    from dataclasses import asdict

    tried = Tried("q", Attempt("", "Ann", MATCH, EM), (Attempt("p", None, None, ""),))
    assert Tried.from_json(asdict(tried)) == tried


# --- a chat model ---------------------------------------------------------------------------------------------


class Server:
    """A chat model that answers by a function of the conversation, and keeps every conversation."""

    def __init__(self, answer: Callable[[str], str]) -> None:
        self._answer = answer
        self.conversations: list[tuple[dict[str, str], ...]] = []

    def __call__(self, request: ChatRequest) -> Written:
        self.conversations.append(request.messages)
        return Written(self._answer(request.prompt))

    @contextmanager
    def running(self) -> Iterator[dict[str, object]]:
        with OpenAIServer("scripted", self, any_model=True).running() as url:
            yield {"model": "qwen", "base_url": url, "key_variable": None, "attempts": 1}


def test_a_model_is_shown_question_and_passage_but_no_gold_and_nothing_twice(tmp_path: Path) -> None:
    server = Server(lambda prompt: "<think>Hm.</think>\nAnswer: Ann" if "did it" in prompt else "no idea")
    with server.running() as chat:

        def work(name: str) -> Labeller:
            model = ChatModel(AnswerChat.model_validate(chat), cache=tmp_path / "replies.sqlite")
            return Labeller(
                LLMAnswerer(model), Verifier(None), LabelsConfig.model_validate({}), 0, tmp_path / f"{name}.jsonl"
            )

        first = work("first")
        asked = Request(question("q", "Zoe"), (Passage("p1", "Deeds", "Bea\ndid it."), IDLE))
        (tried,) = first.tried([asked])
        assert [one.answer for one in (tried.direct, *tried.attempts)] == ["no idea", "Ann", "no idea"]
        assert len(server.conversations) == 3
        shown = [conversation[-1]["content"] for conversation in server.conversations]
        assert sorted("Context" in one for one in shown) == [False, True, True]
        assert any('<Context> "Deeds" Bea did it.\n' in one for one in shown)
        assert all("<Question> Who is q?" in one and "Zoe" not in one for one in shown)
        assert all(conversation[0]["role"] == "system" for conversation in server.conversations)
        # The file of answers is another, the cache of replies is the same.
        assert work("second").tried([asked]) == [tried]
        assert len(server.conversations) == 3


@pytest.mark.parametrize(
    "reply", ["Mismatch.", "**Mismatch**", "mismatch", "Mismatch, though it would match another gold"]
)
def test_a_lent_judge_that_says_mismatch_with_a_full_stop_does_not_say_match(reply: str, tmp_path: Path) -> None:
    server = Server(lambda prompt: reply)
    with server.running() as chat:
        judge = JudgeRef.of("match", chat).build(Services(cache=tmp_path / "replies.sqlite"))
        verifier = Verifier(MatchVerdicts(judge))
        found = verifier.verdicts([question()] * 2, ["Ann", "Bob"])
        assert [(one.verdict, one.by) for one in found] == [(MATCH, EM), (MISMATCH, JUDGE)]
        assert len(server.conversations) == 1


def test_partial_counts_in_the_denominator_of_accuracy(tmp_path: Path) -> None:
    replies = {"half": "Partial", "annie": "Match", "Bob": "Mismatch"}
    server = Server(lambda prompt: next(said for answer, said in replies.items() if f"\n{answer}\n" in prompt))
    with server.running() as chat:
        judge = JudgeRef.of("match", chat).build(Services(cache=tmp_path / "replies.sqlite"))
        scores = MatchScores(judge).scores([question()] * 4, ["half", "annie", "Bob", "Ann"])
    assert scores == [0.0, 1.0, 0.0, 1.0]
    assert sum(scores) / len(scores) == 0.5


# --- a reader -------------------------------------------------------------------------------------------------


class Reader:
    """Answers with the texts that it is given; fails without any for questions that say so."""

    batch_size = 2

    def __init__(self) -> None:
        self.batches: list[int] = []

    def read(self, queries: Sequence[Query], contexts: Sequence[Context]) -> list[Answer]:
        self.batches.append(len(queries))
        return [
            Answer("", notes={FAILED: "too long"}) if "fail" in query.text
            else Answer(" ".join(one.text for one in context.passages))
            for query, context in zip(queries, contexts, strict=True)
        ]  # fmt: skip


def test_a_reader_knows_by_heart_a_share_of_the_questions_and_reads_the_rest() -> None:
    reader = Reader()
    half = ReaderAnswerer(reader, "r", known=0.5)
    one = [replace(question(f"q{n}"), evidence=(HELPS.id,)) for n in range(200)]
    asked = [Asked(each, None, (HELPS,)) for each in one]
    answers = half.answers(asked)
    knows = [half.knows(one.question) for one in asked]
    assert [answer == HELPS.text for answer in answers] == knows
    assert 70 <= sum(knows) <= 130
    assert set(answers) == {HELPS.text, ""}
    assert max(reader.batches) == 2
    assert half.answers([Asked(question("q0"), IDLE, (HELPS,))]) == [IDLE.text]
    assert set(ReaderAnswerer(reader, "r").answers(asked)) == {""}
    whole = ReaderAnswerer(reader, "r", known=1.0)
    assert set(whole.answers(asked)) == {HELPS.text}
    # What takes two passages nobody knows: its labels would all be 0.
    assert not whole.knows(replace(one[0], evidence=(HELPS.id, IDLE.id)))
    assert not whole.knows(question("q0"))
    assert half.fingerprint != ReaderAnswerer(reader, "r").fingerprint


def test_what_a_reader_could_not_read_has_no_answer() -> None:
    assert ReaderAnswerer(Reader(), "r").answers([Asked(question("fail"), IDLE)]) == [None]


# --- templates ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("answer", "one part", "2"),
        ("answer", "sys\n---\n$question", r"\$context, \$question"),
        ("answer", "sys\n---\n$question $context $gold", r"\$context, \$question"),
        ("answer", "cost: $ 5\n---\n$question $context", "lone dollar"),
        ("order", "$question $answer\n---\nok\n---\n$number\n---\nok\n---\ngo", r"\$passage"),
    ],
)
def test_a_template_that_cannot_be_filled_is_refused(name: str, text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "own.txt"
    path.write_text(text, "utf-8")
    with pytest.raises(UserError, match=said):
        load_prompt(name, str(path))


def test_a_template_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.txt"):
        load_prompt("order", str(tmp_path / "none.txt"))


def test_what_is_put_into_a_prompt_is_not_searched_for_placeholders() -> None:
    from methods.sark.prompts import asking

    messages = asking(load_prompt("answer"), "Who has $context?", "Costs $5 and $question.")
    assert "<Question> Who has $context?\n<Context> Costs $5 and $question.\n<Answer>" in messages[-1]["content"]
