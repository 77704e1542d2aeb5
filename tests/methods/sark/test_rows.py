"""Rows of SARK: pairs stay with their question, and no call to a language model is repeated."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import registry
from benchmarks.core.fingerprint import fingerprint
from benchmarks.corpus import Corpus
from benchmarks.registry import Benchmark
from benchmarks.schema import Passage, Question, passage_id
from benchmarks.styles.pairs import Rewriting, restyled, write_pairs
from benchmarks.styles.rules import RuleRewriter
from judges.judge import Judge as JudgeRef
from judges.llm.match import MatchVerdicts
from methods.api import Services
from methods.sark.config import PRESETS, SarkDataConfig
from methods.sark.data import SarkData, data_of
from methods.sark.rows import Mined, SarkRow, batches, read_rows, rows_of, write_rows
from tests.support.errors import raises
from tests.support.server import ChatRequest, OpenAIServer, Refused, Written


def passage(text: str, title: str = "") -> Passage:
    return Passage(passage_id(title, text), title, text)


def world(questions: int, passages: int) -> tuple[list[Mined], dict[tuple[str, str], tuple[Passage, Passage]]]:
    """Make questions with labels and lists; a passage that two questions share is restyled differently for each."""
    mined, pairs = [], {}
    for q in range(questions):
        own = [passage(f"Text {n}.") for n in range(passages)]
        for item in own:
            pairs[f"q{q}", item.id] = (item, restyled(item, f"{item.text} So q{q}!"))
        ids = [item.id for item in own]
        mined.append(Mined(f"q{q}", f"Question {q}?", {ids[0]: q % 2, ids[3]: q % 2}, tuple(ids[:6])))
    return mined, pairs


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 6), st.integers(6, 8), st.randoms(use_true_random=False))
def test_pairs_never_mix_questions_in_any_order(questions: int, passages: int, rng: random.Random) -> None:
    mined, pairs = world(questions, passages)
    rng.shuffle(mined)
    items = list(pairs.items())
    rng.shuffle(items)
    rows = [row for batch in batches(rows_of(mined, dict(items)), 3, epoch=rng.randrange(9)) for row in batch]
    assert len(rows) == 2 * questions
    for row in rows:
        number = int(row.question_id[1:])
        assert row.query == f"Question {number}?"
        assert row.label == number % 2
        assert row.list
        for formal, informal in [(row.formal, row.informal), *row.list]:
            assert informal == f"{formal} So q{number}!"
        assert [pairs[row.question_id, identifier][0].full_text for identifier in row.list_ids] == [formal for formal, _ in row.list]
        assert pairs[row.question_id, row.passage_id][0].full_text == row.formal


def test_missing_rewrite_removes_the_passage_from_both_styles() -> None:
    (mined,), pairs = world(1, 6)
    first, fourth = mined.labels
    counts = Counter[str]()
    labeled = {key: both for key, both in pairs.items() if key[1] != fourth}
    (row,) = rows_of([mined], labeled, counts)
    # The passage is also in the list, which is compared as a whole.
    assert (row.passage_id, row.list) == (first, None)
    assert counts["labels_without_rewrite"] == counts["lists_without_rewrite"] == 1
    listed = {key: both for key, both in pairs.items() if key[1] != mined.order[5]}
    rows = rows_of([mined], listed)
    assert [(row.passage_id, row.list) for row in rows] == [(first, None), (fourth, None)]
    assert rows_of([mined], {}) == []


def test_list_without_a_label_is_a_separate_row() -> None:
    (mined,), pairs = world(1, 6)
    counts = Counter[str]()
    (row,) = rows_of([replace(mined, labels={})], pairs, counts)
    assert (row.label, row.passage_id, row.formal) == (None, "", "")
    assert row.list is not None
    assert len(row.list) == 6
    assert counts["lists_without_label"] == counts["lists"] == counts["rows"] == 1


@given(st.integers(0, 40), st.integers(1, 9), st.integers(0, 3))
def test_an_epoch_has_every_row_once(rows: int, size: int, epoch: int) -> None:
    made = [SarkRow(f"q{n}", "p", "f", "i", n % 2, None, f"q{n}") for n in range(rows)]
    results = batches(made, size, seed=1, epoch=epoch)
    assert sorted(row.query for batch in results for row in batch) == sorted(row.query for row in made)
    assert all(len(batch) == size for batch in results[:-1])
    assert results == batches(made, size, seed=1, epoch=epoch)
    if rows > 20:
        assert results != batches(made, size, seed=1, epoch=epoch + 1)


def test_rows_round_trip_through_their_file(tmp_path: Path) -> None:
    mined, pairs = world(2, 6)
    rows = [*rows_of(mined, pairs), SarkRow("a\u2028b", "", "", "", None, None)]
    path = tmp_path / "rows.jsonl"
    write_rows(path, rows)
    assert read_rows(path) == rows
    lines = path.read_text("utf-8").split("\n")
    broken = json.loads(lines[0])
    broken["list"] = broken["list"][:5]
    path.write_text(f"{lines[1]}\n{json.dumps(broken)}\n", "utf-8")
    with raises("not-training-row"):
        read_rows(path)


class Everyone:
    """Endpoint that answers, judges, orders and rewrites, and counts its calls. It knows the answer to questions whose
    name begins with K, and is misled by passages that say Bob.
    """

    def __init__(self) -> None:
        self.requested: Counter[str] = Counter()
        self.refuses: set[str] = set()

    def __call__(self, request: ChatRequest) -> Written:
        text, first = request.prompt, request.messages[0]["content"]
        if len(request.messages) > 2:
            return self._say("order", " > ".join(f"[{n}]" for n in (2, 1, 3, 4, 5, 6)))
        if "<Question>" in text:
            known = re.search(r"Who is K", text)
            context = text.partition("<Context>")[2]
            response = "Bob" if "Bob" in context else "Ann" if known or "Ann" in context else "Lady Ann"
            return self._say("answer" if context else "direct", response)
        if "<gold>" in text:
            return self._say("judge", "Mismatch.")
        source = re.search(r"<passage>\s*(.*?)\s*</passage>", f"{first}\n{text}", re.DOTALL)
        assert source
        return self._say("rewrite", f"So, {source[1][:1].lower()}{source[1][1:]} Cool, huh?")

    def _say(self, what: str, text: str) -> Written:
        self.requested[what] += 1
        if what in self.refuses:
            raise Refused(400, "no")
        return Written(text)

    @contextmanager
    def running(self, **more: Any) -> Iterator[tuple[SarkDataConfig, dict[str, Any]]]:
        with OpenAIServer("scripted", self, any_model=True).running() as url:
            chat = {"model": "qwen", "base_url": url, "key_variable": None, "attempts": 1}
            paper = json.loads(
                json.dumps({name: PRESETS["paper"][name] for name in PRESETS["paper"] if name in SarkDataConfig.model_fields})
            )
            paper["candidates"] = {}
            paper["labels"] |= {"llm": chat, "judge_options": {"llm": chat}, "extra": None}
            paper["lists"] |= {"llm": chat}
            paper["styles"] |= {"llm": chat, "rewriting": {"tries": 1}}
            for part, values in more.items():
                paper[part] = paper[part] | values
            yield SarkDataConfig.model_validate(paper), {"llm": chat}


def people(questions: Sequence[str], candidates: int = 7) -> Benchmark:
    """Make questions over candidates of which the first has the correct answer and the second a wrong one."""
    base = registry.load("worlds/multihop:train", {"questions": 1})
    query, passages = [], []
    for name in questions:
        own = [passage(f"{name} is called Ann by all who know her well.", name)]
        own.append(passage(f"{name} is called Bob by those who do not.", name))
        own += [passage(f"{name} has seen town number {n} and liked it.", name) for n in range(candidates - 2)]
        passages += own
        ids = tuple(item.id for item in own)
        query.append(Question(name, f"Who is {name}?", ("Ann",), evidence=ids[:1], candidates=ids))
    reference = replace(base.reference, name="nq", subset=None)
    return replace(base, reference=reference, questions=query, corpus=Corpus.of(passages), extra={})


def made(config: SarkDataConfig, benchmark: Benchmark, options: dict[str, Any], work: Path, cache: Path | None) -> SarkData:
    judge = JudgeRef.of("match", options)
    provided = MatchVerdicts(judge.build(Services(cache=cache, device="cpu")), fingerprint(judge.identity))
    return data_of(config, [benchmark], Services(cache=cache, device="cpu", judge=provided), work)


@pytest.mark.slow
def test_model_gives_labels_orders_and_rewrites_and_a_second_run_makes_no_call(tmp_path: Path) -> None:
    server, benchmark = Everyone(), people(["Kim", "Lou"])
    cache = tmp_path / "replies.sqlite"
    with server.running() as (config, judge):
        config.check_data()
        result = made(config, benchmark, judge, tmp_path / "work", cache)
        kim, lou = ([p.id for p in benchmark.corpus.get(question.candidates or ())] for question in benchmark.questions)
        assert {(row.question_id, row.passage_id): row.label for row in result.rows} == {("Kim", kim[1]): 0, ("Lou", lou[0]): 1}
        for row, ids in zip(result.rows, (kim, lou), strict=True):
            ranks = [ids[n] for n in (0, 1, 2, 4, 5, 6)]
            assert row.list_ids == (ranks[1], ranks[0], *ranks[2:])
            assert row.list
            for formal, informal in [(row.formal, row.informal), *row.list]:
                title, text = formal.split("\n")
                assert informal == f"{title}\nSo, {text[:1].lower()}{text[1:]} Cool, huh?"
        # One answer without context and seven with one passage; of Lou's wrong ones the judge sees each wording once.
        expected = {"direct": 2, "answer": 14, "judge": 3, "order": 2, "rewrite": 12}
        assert server.requested == expected
        assert result.counts["verdicts by judge"] == 8
        assert result.counts["verdicts by em"] == 8

        assert made(config, benchmark, judge, tmp_path / "work", cache) == result
        assert server.requested == expected
        # Without the folder of work the cache of replies is enough …
        assert made(config, benchmark, judge, tmp_path / "elsewhere", cache) == result
        assert server.requested == expected
        # … and without the cache what lies in the folder; the rows are put together anew.
        (tmp_path / "work" / "rows.jsonl").unlink()
        assert made(config, benchmark, judge, tmp_path / "work", None) == result
        assert server.requested == expected


@pytest.mark.slow
def test_interrupted_run_resumes_with_equal_rows(tmp_path: Path) -> None:
    server, benchmark = Everyone(), people(["Kim", "Lou"])
    with server.running() as (config, judge):
        server.refuses = {"rewrite", "judge"}
        # Nothing is rewritten, so there is no row; answers and orders are kept.
        with raises("no-training-row"):
            made(config, benchmark, judge, tmp_path / "work", None)
        queries = Counter(server.requested)
        server.refuses = set()
        resumed = made(config, benchmark, judge, tmp_path / "work", None)
        assert server.requested["order"] == queries["order"]
        whole = made(config, benchmark, judge, tmp_path / "other", None)
        assert resumed == whole
        assert len(whole.rows) == 2


@pytest.mark.slow
def test_passage_with_a_rejected_rewrite_is_dropped(tmp_path: Path) -> None:
    server, benchmark = Everyone(), people(["Kim", "Lou"])
    server.refuses = {"rewrite"}
    with server.running(styles={"by": "rules", "llm": None}) as (config, judge):
        whole = made(config, benchmark, judge, tmp_path / "whole", None)
        assert all(row.list is not None for row in whole.rows)
    kim = benchmark.corpus.get(benchmark.questions[0].candidates or ())[1]
    styled = RuleRewriter("train").rewrite(list(benchmark.corpus), "informal")
    rewritings = [
        Rewriting(question.id, formal, "informal", None if formal.id == kim.id else new)
        for question in benchmark.questions
        for formal, new in zip(benchmark.corpus, styled, strict=True)
        if formal.id in (question.candidates or ())
    ]
    write_pairs(tmp_path / "pairs.jsonl", rewritings, rewriter="r", made_from="x")
    file = {"by": "file", "file": str(tmp_path / "pairs.jsonl"), "llm": None}
    with server.running(styles=file) as (config, judge):
        result = made(config, benchmark, judge, tmp_path / "part", None)
    assert [row.question_id for row in result.rows] == ["Lou"]
    assert result.rows == [row for row in whole.rows if row.question_id == "Lou"]
    assert result.counts["labels_without_rewrite"] == result.counts["lists_without_rewrite"] == 1
    assert result.counts["passages_without_rewrite"] == 1


@pytest.mark.slow
def test_extra_negatives_come_from_the_corpus_for_known_questions(tmp_path: Path) -> None:
    server = Everyone()
    few = people(["Kim", "Lou"], candidates=9)
    kim, lou = few.questions
    # The misleading passage is no candidate; BM25 finds it by the name.
    questions = [replace(item, candidates=tuple((item.candidates or ())[n] for n in (0, *range(2, 9)))) for item in (kim, lou)]
    benchmark = replace(few, questions=questions)
    with server.running() as (config, judge):
        plain = made(config, benchmark, judge, tmp_path / "plain", None)
    with server.running(labels={"extra": {"n": 100}}) as (config, judge):
        server.requested.clear()
        result = made(config, benchmark, judge, tmp_path / "extra", None)
    # The answer without context is had once, and whoever does not know the answer cannot be misled.
    assert server.requested["direct"] == 2
    assert server.requested["answer"] == 2 * 8 + result.counts["further_passages"]
    misleading = (kim.candidates or ())[1]
    assert {(row.question_id, row.label) for row in plain.rows} == {("Kim", None), ("Lou", 1)}
    made_rows = {(row.question_id, row.passage_id, row.label) for row in result.rows}
    assert {("Kim", misleading, 0), ("Lou", (lou.candidates or ())[0], 1)} < made_rows
    assert {(row[0], row[2]) for row in made_rows} == {("Kim", 0), ("Lou", 1)}
    assert result.counts["further_negatives"] == 2
    # The answer without context is counted once.
    assert sum(n for name, n in result.counts.items() if name.startswith("direct: ")) == 2
    assert result.counts["further: questions_tried"] == 1
    assert result.counts["further: Match, then Mismatch"] == result.counts["further: verdicts by judge"] == 2
    assert result.counts["further: verdicts by em"] == result.counts["further_passages"] - 2
    assert not [name for name in result.counts if name.startswith("further: direct")]


@pytest.mark.slow
def test_most_negatives_limits_negatives_from_all_sources(tmp_path: Path) -> None:
    server, few = Everyone(), people(["Kim"], candidates=9)
    (kim,) = few.questions
    more = [passage(f"Kim is called Bob in town {n}.", "Kim") for n in range(4)]
    benchmark = replace(few, corpus=Corpus.of([*few.corpus, *more]))
    results = {}
    for most in (None, 2):
        with server.running(labels={"extra": {"n": 100}, "most_negatives": most}) as (config, judge):
            results[most] = made(config, benchmark, judge, tmp_path / str(most), None)
    every = {row.passage_id for row in results[None].rows}
    assert every == {(kim.candidates or ())[1], *(item.id for item in more)}
    assert len(results[2].rows) == 2
    assert {row.passage_id for row in results[2].rows} < every
    assert results[2].counts["negatives_left_out"] == 3
    assert results[None].counts["further_negatives"] == results[2].counts["further_negatives"] == 4


@pytest.mark.slow
def test_changed_judge_prompt_repeats_judgments(tmp_path: Path) -> None:
    server, benchmark = Everyone(), people(["Kim", "Lou"])
    prompt = tmp_path / "judge.txt"
    prompt.write_text("$question <gold>$gold</gold> $answer", "utf-8")
    with server.running() as (config, judge):
        asks = {**judge, "prompt": str(prompt)}
        made(config, benchmark, asks, tmp_path / "work", None)
        made(config, benchmark, asks, tmp_path / "work", None)
        assert server.requested["judge"] == 3
        prompt.write_text("Strictly. $question <gold>$gold</gold> $answer", "utf-8")
        made(config, benchmark, asks, tmp_path / "work", None)
        assert server.requested["judge"] == 6
        assert server.requested["order"] == 2


@pytest.mark.slow
def test_mining_stops_calling_when_enough_rows_exist(tmp_path: Path) -> None:
    server, benchmark = Everyone(), people([f"{first}{n}" for n in range(20) for first in ("Kim", "Lou")])
    with server.running() as (config, judge):
        whole = made(config.model_copy(update={"rows": None}), benchmark, judge, tmp_path / "whole", None)
        assert len(whole.rows) == 40
        server.requested.clear()
        cut = config.model_copy(update={"rows": 10})
        result = made(cut, benchmark, judge, tmp_path / "work", None)
        # One row a question: of ten nobody else was asked for.
        assert server.requested["direct"] == server.requested["order"] == 10
        assert server.requested["rewrite"] == 10 * 6
        assert (result.counts["rows"], result.counts["questions_not_needed"]) == (10, 30)
        queries = Counter(server.requested)
        (tmp_path / "work" / "rows.jsonl").unlink()
        assert made(cut, benchmark, judge, tmp_path / "work", None) == result
        assert server.requested == queries
        # More rows are the same ones and others, and what is kept is not asked for again.
        more = made(config.model_copy(update={"rows": 13}), benchmark, judge, tmp_path / "work", None)
        assert server.requested["direct"] == queries["direct"] + 3
        assert [row for row in more.rows if row in result.rows] == result.rows
        assert len(more.rows) == 13
    # All are rows of the whole, in the order of the questions.
    assert [row for row in whole.rows if row in result.rows] == result.rows
    assert {row.question_id for row in result.rows} != {row.question_id for row in whole.rows[:10]}


@pytest.mark.slow
def test_row_limit_is_exact_within_a_question_and_after_questions_without_rows(tmp_path: Path) -> None:
    names = [f"Kim{n}" for n in range(12)]
    few = people(names)
    more = {name: passage(f"{name} is called Bob in town.", name) for name in names}
    questions = [
        replace(item, candidates=((*(item.candidates or ()), more[item.id].id) if n % 2 else None)) for n, item in enumerate(few.questions)
    ]
    benchmark = replace(few, questions=questions, corpus=Corpus.of([*few.corpus, *more.values()]))
    server = Everyone()
    with server.running() as (config, judge):
        whole = made(config, benchmark, judge, tmp_path / "whole", None)
        result = made(config.model_copy(update={"rows": 3}), benchmark, judge, tmp_path / "some", None)
    # Six questions have two misleading passages each, six have no candidates.
    assert len(whole.rows) == 12
    assert len(result.rows) == result.counts["rows"] == result.counts["negatives"] == 3
    assert result.counts["lists"] == 2
    assert result.counts["rows_not_needed"] > 0
    assert all(row in whole.rows for row in result.rows)
