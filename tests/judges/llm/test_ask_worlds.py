"""LLM judges on worlds with known gold: correct verdicts, and calls under faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise as pairwise_of
from pathlib import Path
from types import ModuleType

import pytest

from benchmarks import registry as datasets
from benchmarks.schema import Passage, Question
from benchmarks.text import em
from judges.judge import FIRST, SECOND, Item, Judge, JudgeCall, Pair, counting
from judges.llm.ask import NO_REPLY
from judges.llm.match import MatchVerdicts
from judges.style import text_item
from methods.api import Prediction, Services
from methods.flow import each
from methods.models.reply_cache import ResponseCache
from ragmeter.scripted import NAME
from tests.support.faults import Faults
from tests.support.scripted import WorldTruth

REFERENCE = "worlds/multihop:test"


@pytest.fixture(scope="session")
def llm(module_at: Callable[[Path], ModuleType]) -> ModuleType:
    return module_at(Path(__file__).with_name("llm_judging.py"))


def is_plain(question: Question) -> bool:
    """Return whether one name or number answers the question."""
    return question.answerable and not question.answer_set and question.golds[0] not in ("yes", "no")


@pytest.fixture(scope="module")
def questions() -> list[Question]:
    return list(datasets.load(REFERENCE).questions)


def shifted(llm: ModuleType, questions: list[Question]) -> list[Item]:
    """Return items of which one third are right, one third have the next question's answer, and one third are right in a sentence."""
    items = []
    for row, question in enumerate(questions):
        gold = ", ".join(question.answers) if question.answer_set else question.answers[0]
        wrong = questions[(row + 1) % len(questions)].answers[0]
        items.append(llm.item(question, [gold, wrong, f"As stated, it is {gold}."][row % 3]))
    return items


@pytest.mark.slow
def test_match_agrees_with_exact_match_on_worlds(llm: ModuleType, questions: list[Question]) -> None:
    truth = WorldTruth.of(REFERENCE)
    items = [item for row, item in enumerate(shifted(llm, questions)) if row % 3 < 2 and not item.question.answer_set][:90]
    with truth.server().running() as url:
        queries = each(llm.build("match", url, exact="none"), "ask", items)
        short = each(llm.build("match", url), "ask", items)
    assert truth.unrecognized == 0
    exact = [em(item.prediction.answer, item.question.golds) == 1 for item in items]
    assert [llm.verdict_of(calls) == "Match" for calls in queries] == exact
    assert [llm.verdict_of(calls) == "Match" for calls in short] == exact
    assert 30 < sum(exact) < len(items) - 30
    assert {calls[0].model for calls in queries} == {NAME}


@pytest.mark.slow
def test_match_judge_accepts_rewordings_that_exact_match_rejects(llm: ModuleType, questions: list[Question]) -> None:
    items = [item for row, item in enumerate(shifted(llm, questions)) if row % 3 == 2 and is_plain(item.question)][:40]
    with WorldTruth.of(REFERENCE).server().running() as url:
        verdicts = MatchVerdicts(llm.build("match", url))
        result = each(verdicts, "verdicts", [item.question for item in items], [item.prediction.answer for item in items])
    assert set(result) == {"Match"}


@pytest.mark.slow
def test_scripted_llm_is_asked_for_json_like_an_endpoint(llm: ModuleType, questions: list[Question]) -> None:
    right = [item for row, item in enumerate(shifted(llm, questions)) if row % 3 == 0 and is_plain(item.question)][:20]
    pairs = [Pair(item.question, item.prediction, Prediction(item.question.id, "a red boat")) for item in right]
    judge = Judge.of("pairwise", {"llm": {"scripted": REFERENCE}, "repetitions": 1}).build(Services())
    verdicts = [[judge.verdicts(call)["overall"] for call in calls] for calls in each(judge, "ask", pairs)]
    assert verdicts == [[FIRST, SECOND]] * 20


@pytest.mark.slow
def test_style_and_content_judges_are_correct_on_worlds(llm: ModuleType) -> None:
    reference = "worlds/style:test"
    results = datasets.load(reference).extra["styles"].values()
    pairs = [item for styled in results for item in styled if item.style == "informal"][:20]
    with WorldTruth.of(reference).server().running() as url:
        texts = [p.formal.text for p in pairs] + [p.styled.text for p in pairs] + [" "]
        style = each(llm.build("style", url), "ask", [text_item(text) for text in texts])
        rewritings = (
            [(p.formal.text, p.styled.text) for p in pairs]
            + [(p.formal.text, "Nothing of it.") for p in pairs]
            + [(p.formal.text, p.styled.text + " It ended in 987654.") for p in pairs]
            + [("x y", " x\ny"), ("x", ""), (" ", "x")]
        )
        content = each(llm.build("content", url), "ask", [text_item(text, source) for source, text in rewritings])
    verdicts = [llm.verdict_of(calls) for calls in style]
    assert verdicts[:20] == ["Formal"] * 20
    assert verdicts[20:40].count("Informal") >= 19  # restyling may find nothing to change
    assert verdicts[40] is None
    kept, lost, altered = (Counter(map(llm.verdict_of, content[n : n + 20])) for n in (0, 20, 40))
    assert kept["Kept"] == 20
    assert lost["Lost"] >= 19
    assert altered["Altered"] == 20
    assert [llm.verdict_of(calls) for calls in content[60:]] == ["Kept", "Lost", None]
    assert [calls[0].key for calls in content[60:62]] == [None, None]


@pytest.mark.slow
def test_content_judge_compares_the_answer_with_its_passages(llm: ModuleType) -> None:
    with WorldTruth.of("worlds/style:test").server().running() as url:
        judge = llm.build("content", url)
        judged = Item(llm.PARIS, Prediction("1", "built in 1900"), (Passage("p", "", "It was built in 1900."),))
        (calls,) = each(judge, "ask", [judged])
        assert judge.score(judged, calls)["kept"].value == 1.0
        assert judge.score(llm.item(llm.PARIS, "x"), each(judge, "ask", [llm.item(llm.PARIS, "x")])[0])["kept"].value is None


KINDS = ("429", "429_after", "500", "cut_connection", "invalid_json", "empty_choices", "wrong_content_type")


@pytest.mark.slow
def test_every_call_is_accounted_for_under_corruption_and_faults(llm: ModuleType, questions: list[Question], tmp_path: Path) -> None:
    truth = WorldTruth.of(REFERENCE, corruption=0.2, faults=Faults(passing=0.2, kinds=KINDS))
    items = [item for item in shifted(llm, questions) if is_plain(item.question)][:120]
    pairs = [Pair(a.question, a.prediction, Prediction(a.question.id, b.prediction.answer)) for a, b in pairwise_of(items)]
    server = truth.server()
    with server.running() as url:
        match = llm.build("match", url, tmp_path / "c.sqlite", exact="none")
        pairwise = llm.build("pairwise", url, tmp_path / "c.sqlite", repetitions=1)
        judged, battles = each(match, "ask", items), each(pairwise, "ask", pairs)
        sent, corrupted = server.calls, Counter(truth.corrupted)
        again = each(match, "ask", items), each(pairwise, "ask", pairs)
        retried = server.calls - sent
    assert sum(truth.faults.played.values()) > 20
    # Every call is read or has a reason, never both.
    calls = [call for made in (*judged, *battles) for call in made]
    assert sum(len(counting(made)) for made in (*judged, *battles)) == len(items) + 2 * len(pairs)
    assert len(calls) > len(items) + 2 * len(pairs)  # some are requested once more
    assert all((call.parsed.value is None) != (call.parsed.unscored is None) for call in calls)
    unscored = [call for call in calls if call.parsed.value is None]
    assert all(call.parsed.unscored for call in unscored)
    # What was corrupted is what is unscored, to the call, but for objects in a wrapping, which can be read.
    wrapped = {c.key for made in (*judged, *battles) for c in made if c.parsed.value and _wrapped(tmp_path, c)}
    assert {call.key for call in unscored}.isdisjoint(wrapped)
    assert len({call.key for call in unscored}) + len(wrapped) == sum(corrupted.values())
    assert len(wrapped) > 0
    assert 0.1 * len(calls) < len(unscored) < 0.3 * len(calls)
    empty = {call.key for call in unscored if (call.parsed.unscored or "").startswith(NO_REPLY)}
    assert len(empty) == corrupted["empty"] > 0
    # An empty reply is not cached, so only it is requested again.
    assert len(empty) <= retried <= 4 * len(empty)  # each may meet three faults first
    assert [[c.parsed for c in made] for half in again for made in half] == [
        [c.parsed for c in made] for half in (judged, battles) for made in half
    ]
    # What was read is right.
    for item, made in zip(items, judged, strict=True):
        if (verdict := llm.verdict_of(counting(made))) is not None:
            gold = [g.casefold() for g in item.question.golds]
            right = any(g in item.prediction.answer.casefold() for g in gold)
            assert (verdict == "Match") == right
    scored = sum(match.score(item, made)["accuracy"].value is not None for item, made in zip(items, judged, strict=True))
    assert scored + sum(llm.verdict_of(counting(made)) is None for made in judged) == len(items)
    assert corrupted["refusal"] > 0
    assert any((call.parsed.unscored or "").startswith("refusal") for call in unscored)


def _wrapped(folder: Path, call: JudgeCall) -> bool:
    if call.key is None:
        return False
    kept = ResponseCache(folder / "c.sqlite").get([call.key])
    return "I hope this helps" in kept[call.key].reply["text"]
