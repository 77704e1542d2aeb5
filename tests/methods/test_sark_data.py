"""Rows of SARK: pairs stay with their question, what was asked for is not asked for again, worlds need no model."""

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
from benchmarks.corpus import Corpus
from benchmarks.errors import UserError
from benchmarks.registry import Benchmark
from benchmarks.schema import Passage, Question, passage_id
from benchmarks.styles.pairs import Rewriting, told_as, write_pairs
from benchmarks.styles.rewriter import RuleRewriter
from benchmarks.styles.sark_layouts import write_sark
from judges.judging import Judge as JudgeRef
from judges.llm.adapters import MatchVerdicts
from methods.api import Services
from methods.models.openai_server import ChatRequest, OpenAIServer, Refused, Written
from methods.sark.data import SarkData, data_of, training_benchmarks
from methods.sark.data_config import PAPER_DATA, WORLDS_DATA, SarkDataConfig
from methods.sark.pairs import formal_of
from methods.sark.rows import Mined, SarkRow, batches, read_rows, rows_of, write_rows


def passage(text: str, title: str = "") -> Passage:
    return Passage(passage_id(title, text), title, text)


def pair(text: str) -> tuple[Passage, Passage]:
    formal = passage(text)
    return formal, told_as(formal, f"{text} Cool!")


# --- rows and pairs -------------------------------------------------------------------------------------------


def world(questions: int, passages: int) -> tuple[list[Mined], dict[tuple[str, str], tuple[Passage, Passage]]]:
    """Questions with labels and lists; a passage that two questions share is told otherwise to each."""
    mined, pairs = [], {}
    for q in range(questions):
        own = [passage(f"Text {n}.") for n in range(passages)]
        for one in own:
            pairs[f"q{q}", one.id] = (one, told_as(one, f"{one.text} So q{q}!"))
        ids = [one.id for one in own]
        mined.append(Mined(f"q{q}", f"Question {q}?", {ids[0]: q % 2, ids[3]: q % 2}, tuple(ids[:6])))
    return mined, pairs


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 6), st.integers(6, 8), st.randoms(use_true_random=False))
def test_pairs_never_cross_questions_however_they_are_shuffled(
    questions: int, passages: int, rng: random.Random
) -> None:
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
        assert [pairs[row.question_id, one][0].full_text for one in row.list_ids] == [formal for formal, _ in row.list]
        assert pairs[row.question_id, row.passage_id][0].full_text == row.formal


def test_a_missing_rewrite_removes_the_passage_from_both_styles() -> None:
    (mined,), pairs = world(1, 6)
    first, fourth = mined.labels
    counts = Counter[str]()
    labelled = {key: both for key, both in pairs.items() if key[1] != fourth}
    (row,) = rows_of([mined], labelled, counts)
    # The passage is also in the list, which is compared as a whole.
    assert (row.passage_id, row.list) == (first, None)
    assert counts["labels_without_rewrite"] == counts["lists_without_rewrite"] == 1
    listed = {key: both for key, both in pairs.items() if key[1] != mined.order[5]}
    rows = rows_of([mined], listed)
    assert [(one.passage_id, one.list) for one in rows] == [(first, None), (fourth, None)]
    assert rows_of([mined], {}) == []


def test_a_list_without_a_label_is_a_row_of_its_own() -> None:
    (mined,), pairs = world(1, 6)
    counts = Counter[str]()
    (row,) = rows_of([replace(mined, labels={})], pairs, counts)
    assert (row.label, row.passage_id, row.formal) == (None, "", "")
    assert row.list is not None
    assert len(row.list) == 6
    assert counts["lists_without_label"] == counts["lists"] == counts["rows"] == 1


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 40), st.integers(1, 9), st.integers(0, 3))
def test_an_epoch_has_every_row_once(rows: int, size: int, epoch: int) -> None:
    made = [SarkRow(f"q{n}", "p", "f", "i", n % 2, None, f"q{n}") for n in range(rows)]
    found = batches(made, size, seed=1, epoch=epoch)
    assert sorted(row.query for batch in found for row in batch) == sorted(row.query for row in made)
    assert all(len(batch) == size for batch in found[:-1])
    assert found == batches(made, size, seed=1, epoch=epoch)
    if rows > 20:
        assert found != batches(made, size, seed=1, epoch=epoch + 1)


def test_rows_survive_their_file(tmp_path: Path) -> None:
    mined, pairs = world(2, 6)
    rows = [*rows_of(mined, pairs), SarkRow("a\u2028b", "", "", "", None, None)]
    path = tmp_path / "rows.jsonl"
    write_rows(path, rows)
    assert read_rows(path) == rows
    lines = path.read_text("utf-8").split("\n")
    broken = json.loads(lines[0])
    broken["list"] = broken["list"][:5]
    path.write_text(f"{lines[1]}\n{json.dumps(broken)}\n", "utf-8")
    with pytest.raises(UserError, match=r"rows\.jsonl:2"):
        read_rows(path)


# --- a language model -----------------------------------------------------------------------------------------


class Everyone:
    """One endpoint that answers, judges, orders and rewrites, and counts what it was asked for.

    It knows the answer to questions whose name begins with K, and is misled by passages that say Bob.
    """

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.refuses: set[str] = set()

    def __call__(self, request: ChatRequest) -> Written:
        text, first = request.prompt, request.messages[0]["content"]
        if len(request.messages) > 2:
            return self._say("order", " > ".join(f"[{n}]" for n in (2, 1, 3, 4, 5, 6)))
        if "<Question>" in text:
            known = re.search(r"Who is K", text)
            context = text.partition("<Context>")[2]
            said = "Bob" if "Bob" in context else "Ann" if known or "Ann" in context else "Lady Ann"
            return self._say("answer" if context else "direct", said)
        if "<gold>" in text:
            return self._say("judge", "Mismatch.")
        source = re.search(r"<passage>\s*(.*?)\s*</passage>", f"{first}\n{text}", re.DOTALL)
        assert source
        return self._say("rewrite", f"So, {source[1][:1].lower()}{source[1][1:]} Cool, huh?")

    def _say(self, what: str, text: str) -> Written:
        self.asked[what] += 1
        if what in self.refuses:
            raise Refused(400, "no")
        return Written(text)

    @contextmanager
    def running(self, **more: Any) -> Iterator[tuple[SarkDataConfig, dict[str, Any]]]:
        with OpenAIServer("scripted", self, any_model=True).running() as url:
            chat = {"model": "qwen", "base_url": url, "key_variable": None, "attempts": 1}
            paper = json.loads(json.dumps(PAPER_DATA))
            paper["candidates"] = {}
            paper["labels"] |= {"chat": chat, "judge_options": chat, "extra": None}
            paper["lists"] |= {"chat": chat}
            paper["styles"] |= {"llm": {**chat, "tries": 1}}
            for part, values in more.items():
                paper[part] = paper[part] | values
            yield SarkDataConfig.model_validate(paper), chat


def people(questions: Sequence[str], candidates: int = 7) -> Benchmark:
    """Questions over candidates of which the first says the answer and the second a wrong one."""
    base = registry.load("worlds/multihop:train", {"questions": 1})
    asked, passages = [], []
    for name in questions:
        own = [passage(f"{name} is called Ann by all who know her well.", name)]
        own.append(passage(f"{name} is called Bob by those who do not.", name))
        own += [passage(f"{name} has seen town number {n} and liked it.", name) for n in range(candidates - 2)]
        passages += own
        ids = tuple(one.id for one in own)
        asked.append(Question(name, f"Who is {name}?", ("Ann",), evidence=ids[:1], candidates=ids))
    reference = replace(base.reference, name="nq", subset=None)
    return replace(base, reference=reference, questions=asked, corpus=Corpus.of(passages), extra={})


def made(
    config: SarkDataConfig, benchmark: Benchmark, chat: dict[str, Any], work: Path, cache: Path | None
) -> SarkData:
    services = Services(cache=cache, device="cpu")
    judge = JudgeRef.of("match", chat).build(services)
    return data_of(config, [benchmark], Services(cache=cache, device="cpu", judge=MatchVerdicts(judge)), work)


def test_a_model_labels_orders_and_rewrites_and_a_second_run_calls_nobody(tmp_path: Path) -> None:
    server, benchmark = Everyone(), people(["Kim", "Lou"])
    cache = tmp_path / "replies.sqlite"
    with server.running() as (config, chat):
        config.check_data()
        found = made(config, benchmark, chat, tmp_path / "work", cache)
        kim, lou = ([p.id for p in benchmark.corpus.get(one.candidates or ())] for one in benchmark.questions)
        assert {(row.question_id, row.passage_id): row.label for row in found.rows} == {
            ("Kim", kim[1]): 0, ("Lou", lou[0]): 1,
        }  # fmt: skip
        for row, ids in zip(found.rows, (kim, lou), strict=True):
            ranks = [ids[n] for n in (0, 1, 2, 4, 5, 6)]
            assert row.list_ids == (ranks[1], ranks[0], *ranks[2:])
            assert row.list
            for formal, informal in [(row.formal, row.informal), *row.list]:
                title, text = formal.split("\n")
                assert informal == f"{title}\nSo, {text[:1].lower()}{text[1:]} Cool, huh?"
        # One answer without context and seven with one passage; of Lou's wrong ones the judge sees each wording once.
        expected = {"direct": 2, "answer": 14, "judge": 3, "order": 2, "rewrite": 12}
        assert server.asked == expected
        assert found.counts["verdicts by judge"] == 8
        assert found.counts["verdicts by em"] == 8

        assert made(config, benchmark, chat, tmp_path / "work", cache) == found
        assert server.asked == expected
        # Without the folder of work the cache of replies is enough …
        assert made(config, benchmark, chat, tmp_path / "elsewhere", cache) == found
        assert server.asked == expected
        # … and without the cache what lies in the folder; the rows are put together anew.
        (tmp_path / "work" / "rows.jsonl").unlink()
        assert made(config, benchmark, chat, tmp_path / "work", None) == found
        assert server.asked == expected


def test_what_was_cut_off_goes_on_and_ends_alike(tmp_path: Path) -> None:
    server, benchmark = Everyone(), people(["Kim", "Lou"])
    with server.running() as (config, chat):
        server.refuses = {"rewrite", "judge"}
        # Nothing is rewritten, so there is no row; answers and orders are kept.
        with pytest.raises(UserError, match="no training row"):
            made(config, benchmark, chat, tmp_path / "work", None)
        asked = Counter(server.asked)
        server.refuses = set()
        resumed = made(config, benchmark, chat, tmp_path / "work", None)
        assert server.asked["order"] == asked["order"]
        whole = made(config, benchmark, chat, tmp_path / "other", None)
        assert resumed == whole
        assert len(whole.rows) == 2


def test_a_rewrite_that_is_refused_leaves_the_passage_out(tmp_path: Path) -> None:
    server, benchmark = Everyone(), people(["Kim", "Lou"])
    server.refuses = {"rewrite"}
    with server.running(styles={"by": "rules", "llm": None}) as (config, chat):
        whole = made(config, benchmark, chat, tmp_path / "whole", None)
        assert all(row.list is not None for row in whole.rows)
    kim = benchmark.corpus.get(benchmark.questions[0].candidates or ())[1]
    told = RuleRewriter("train").rewrite(list(benchmark.corpus), "informal")
    rewritings = [
        Rewriting(question.id, formal, "informal", None if formal.id == kim.id else new)
        for question in benchmark.questions
        for formal, new in zip(benchmark.corpus, told, strict=True)
        if formal.id in (question.candidates or ())
    ]
    write_pairs(tmp_path / "pairs.jsonl", rewritings, rewriter="r", made_from="x")
    file = {"by": "file", "file": str(tmp_path / "pairs.jsonl"), "llm": None}
    with server.running(styles=file) as (config, chat):
        found = made(config, benchmark, chat, tmp_path / "part", None)
    assert [row.question_id for row in found.rows] == ["Lou"]
    assert found.rows == [row for row in whole.rows if row.question_id == "Lou"]
    assert found.counts["labels_without_rewrite"] == found.counts["lists_without_rewrite"] == 1
    assert found.counts["passages_without_rewrite"] == 1


def test_further_negatives_come_from_the_corpus_for_questions_that_are_known(tmp_path: Path) -> None:
    server = Everyone()
    few = people(["Kim", "Lou"], candidates=9)
    kim, lou = few.questions
    # The misleading passage is no candidate; BM25 finds it by the name.
    questions = [
        replace(one, candidates=tuple((one.candidates or ())[n] for n in (0, *range(2, 9)))) for one in (kim, lou)
    ]
    benchmark = replace(few, questions=questions)
    with server.running() as (config, chat):
        plain = made(config, benchmark, chat, tmp_path / "plain", None)
    with server.running(labels={"extra": {"n": 100, "most": 1}}) as (config, chat):
        server.asked.clear()
        found = made(config, benchmark, chat, tmp_path / "extra", None)
    # The answer without context is had once, and whoever does not know the answer cannot be misled.
    assert server.asked["direct"] == 2
    assert server.asked["answer"] == 2 * 8 + found.counts["further_passages"]
    misleading = (kim.candidates or ())[1]
    assert {(row.question_id, row.label) for row in plain.rows} == {("Kim", None), ("Lou", 1)}
    assert {(row.question_id, row.passage_id, row.label) for row in found.rows} == {
        ("Kim", misleading, 0), ("Lou", (lou.candidates or ())[0], 1),
    }  # fmt: skip
    assert found.counts["further_negatives"] == 1


# --- without a model ------------------------------------------------------------------------------------------

WORLDS = {"questions": 12, "mix": {"single": 1.0}}


def offline(**labels: Any) -> SarkDataConfig:
    """The options for worlds with a reader that takes no time."""
    data = json.loads(json.dumps(WORLDS_DATA))
    data["labels"] |= {"reader": "extractive", **labels}
    return SarkDataConfig.model_validate(data)


def test_worlds_give_rows_without_any_model_and_the_same_ones_again(tmp_path: Path) -> None:
    benchmarks = training_benchmarks(["worlds/multihop:train"], {"worlds": WORLDS})
    config = offline(known=0.5)
    config.check_data()
    found = data_of(config, benchmarks, Services(device="cpu"), tmp_path / "work")
    labels = [row.label for row in found.rows]
    assert {0, 1} <= set(labels)
    assert found.counts["positives"] == labels.count(1)
    assert found.counts["negatives"] == labels.count(0)
    questions = {one.id: one for one in benchmarks[0].questions}
    for row in found.rows:
        assert row.list is not None
        assert set(questions[row.question_id].evidence) & set(row.list_ids)
        assert row.list_ids[0] in questions[row.question_id].evidence
        assert row.label is None or row.formal != row.informal
    # Known or not, all labels of a question are alike; no more negatives than asked for.
    by_question: dict[str, list[int | None]] = {}
    for row in found.rows:
        by_question.setdefault(row.question_id, []).append(row.label)
    assert all(len(set(some)) == 1 for some in by_question.values())
    assert all(len(some) <= 2 for some in by_question.values() if some[0] == 0)
    assert data_of(config, benchmarks, Services(device="cpu"), tmp_path / "work") == found
    assert data_of(config, benchmarks, Services(device="cpu"), tmp_path / "again") == found


def test_the_pocket_model_labels_the_evidence_of_a_question_that_one_passage_answers(tmp_path: Path) -> None:
    options = {"questions": 1, "mix": {"single": 1.0}, "candidates": 6}
    benchmarks = training_benchmarks(["worlds/multihop:train"], {"worlds": options})
    config = SarkDataConfig.model_validate({**WORLDS_DATA, "labels": {**WORLDS_DATA["labels"], "known": 0.0}})
    found = data_of(config, benchmarks, Services(device="cpu"), tmp_path)
    positives = [(row.question_id, row.passage_id) for row in found.rows if row.label == 1]
    evidence = {(one.id, passage) for one in benchmarks[0].questions for passage in one.evidence}
    assert set(positives) <= evidence
    assert positives
    assert found.counts["negatives"] == 0


def test_candidates_of_mixed_styles_are_mined_in_the_formal_one() -> None:
    options = {"questions": 8}
    plain = registry.load("worlds/multihop:train", options)
    back, own = formal_of(registry.load("worlds/style:train", options))
    assert [(q.id, q.candidates, q.evidence, q.supporting_facts) for q in back.questions] == [
        (q.id, q.candidates, q.evidence, q.supporting_facts) for q in plain.questions
    ]
    assert set(back.corpus.ids) == set(plain.corpus.ids)
    assert own is not None
    rewriter = RuleRewriter("train")
    for question in back.questions:
        formal = back.corpus.get(question.candidates or ())
        for one, told in zip(formal, rewriter.rewrite(formal, "informal"), strict=True):
            assert own.get(question.id, one.id, "informal") == told


def test_worlds_bring_pairs_of_their_own(tmp_path: Path) -> None:
    benchmarks = training_benchmarks(["worlds/style:train"], {"worlds": WORLDS})
    by_rules = data_of(offline(known=0.5), benchmarks, Services(device="cpu"), tmp_path / "rules")
    config = offline(known=0.5).model_dump(mode="json") | {"styles": {"by": "own"}}
    found = data_of(SarkDataConfig.model_validate(config), benchmarks, Services(device="cpu"), tmp_path / "own")
    assert found.rows == by_rules.rows
    assert not list((tmp_path / "own").rglob("pairs-*"))
    plain = training_benchmarks(["worlds/multihop:train"], {"worlds": WORLDS})
    with pytest.raises(UserError, match="no passages in two styles"):
        data_of(SarkDataConfig.model_validate(config), plain, Services(device="cpu"), tmp_path / "plain")


def test_candidates_can_come_from_a_retriever(tmp_path: Path) -> None:
    benchmarks = training_benchmarks(["worlds/multihop:train"], {"worlds": WORLDS})
    config = offline(known=0.5).model_dump(mode="json") | {
        "candidates": {"source": "retriever", "retriever": "bm25", "depth": 20}
    }
    found = data_of(SarkDataConfig.model_validate(config), benchmarks, Services(device="cpu"), tmp_path)
    own = {one.id: set(one.candidates or ()) for one in benchmarks[0].questions}
    assert any(set(row.list_ids) - own[row.question_id] for row in found.rows)
    bare = replace(benchmarks[0], questions=[replace(one, candidates=None) for one in benchmarks[0].questions])
    assert data_of(SarkDataConfig.model_validate(config), [bare], Services(device="cpu"), tmp_path / "bare").rows
    with pytest.raises(UserError, match=r"candidates\.source"):
        data_of(offline(), [bare], Services(device="cpu"), tmp_path / "none")


def test_too_few_candidates_for_a_list_still_have_labels(tmp_path: Path) -> None:
    options = {**WORLDS, "candidates": 4}
    benchmarks = training_benchmarks(["worlds/multihop:train"], {"worlds": options})
    found = data_of(offline(known=0.5), benchmarks, Services(device="cpu"), tmp_path)
    assert found.counts["lists"] == 0
    assert found.counts["lists_too_short"] == 12
    assert found.rows
    assert all(row.label is not None and row.list is None for row in found.rows)


def test_fewer_questions_are_drawn_by_the_seed(tmp_path: Path) -> None:
    benchmarks = training_benchmarks(["worlds/multihop:train"], {"worlds": WORLDS})
    chosen = set()
    for seed in (0, 1, 2):
        config = offline(known=0.5).model_copy(update={"questions": 3, "seed": seed})
        found = data_of(config, benchmarks, Services(device="cpu"), tmp_path / str(seed))
        assert found.counts["questions"] == 3
        chosen.add(tuple(dict.fromkeys(row.question_id for row in found.rows)))
    assert len(chosen) > 1


def test_changed_rows_are_not_taken_for_those_that_were_made(tmp_path: Path) -> None:
    benchmarks = training_benchmarks(["worlds/multihop:train"], {"worlds": WORLDS})
    data_of(offline(), benchmarks, Services(device="cpu"), tmp_path)
    path = tmp_path / "rows.jsonl"
    path.write_text(path.read_text("utf-8").replace('"label": 1', '"label": 0'), "utf-8")
    with pytest.raises(UserError, match="not those that were made"):
        data_of(offline(), benchmarks, Services(device="cpu"), tmp_path)
    # Other options are other rows.
    more = data_of(offline(known=1.0), benchmarks, Services(device="cpu"), tmp_path)
    assert more.counts["negatives"] > 0


def test_questions_without_a_right_answer_are_left_out(tmp_path: Path) -> None:
    (benchmark,) = training_benchmarks(["worlds/multihop:train"], {"worlds": WORLDS})
    first, second, *rest = benchmark.questions
    odd = replace(benchmark, questions=[replace(first, answers=()), replace(second, answerable=False), *rest])
    found = data_of(offline(known=0.5), [odd], Services(device="cpu"), tmp_path)
    assert found.counts["questions_without_answer"] == 2
    assert not {first.id, second.id} & {row.question_id for row in found.rows}
    none = replace(benchmark, questions=[replace(first, answers=())])
    with pytest.raises(UserError, match=r"no training row.*questions_without_answer: 1"):
        data_of(offline(), [none], Services(device="cpu"), tmp_path / "none")


# --- SARK's own files -----------------------------------------------------------------------------------------


def test_saved_rows_of_sarks_layout_are_read_as_they_are(tmp_path: Path) -> None:
    benchmarks = training_benchmarks(["worlds/multihop:train"], {"worlds": WORLDS})
    mined = data_of(offline(known=0.5), benchmarks, Services(device="cpu"), tmp_path / "mined")
    labels: dict[str, dict[str, int]] = {}
    orders: dict[str, tuple[str, ...]] = {}
    for row in mined.rows:
        orders[row.question_id] = row.list_ids
        if row.label is not None:
            labels.setdefault(row.question_id, {})[row.passage_id] = row.label
    kept = replace(benchmarks[0], questions=[one for one in benchmarks[0].questions if one.id in labels])
    write_sark(kept, tmp_path / "train.json", "labels", labels=labels, orders=orders)
    given = training_benchmarks(["sark:train"], {"sark": {"path": str(tmp_path / "train.json")}})
    # No reader is asked: there is none of this name to be built.
    found = data_of(offline(), given, Services(device="cpu"), tmp_path / "given")
    assert found.counts["questions_with_labels_of_their_own"] == len(kept.questions)

    def told(rows: Sequence[SarkRow]) -> list[tuple[Any, ...]]:
        return sorted((row.query, row.formal, row.label, [formal for formal, _ in row.list or ()]) for row in rows)

    assert told(found.rows) == told([row for row in mined.rows if row.label is not None])


def test_the_sample_of_the_papers_repository_gives_its_six_rows(data_folder: Path, tmp_path: Path) -> None:
    path = data_folder / "sark_style" / "sark_sample.json"
    given = training_benchmarks(["sark:train"], {"sark": {"path": str(path)}})
    found = data_of(offline(), given, Services(device="cpu"), tmp_path)
    records = json.loads(path.read_text("utf-8"))
    assert [(row.query, row.formal, row.label) for row in found.rows] == [
        (one["query"], one["passage"], one["label"]) for one in records
    ]
    for row in found.rows:
        assert [formal for formal, _ in row.list or ()] == records[0]["candidate_passages"]


# --- what may be trained on -----------------------------------------------------------------------------------


def test_test_worlds_and_questions_of_other_sets_are_refused() -> None:
    for reference in ("worlds/multihop:test", "worlds/multihop:validation"):
        with pytest.raises(UserError, match="must not be trained on"):
            training_benchmarks([reference], {"worlds": {"questions": 2}})
    unseen = registry.load("worlds/multihop:train", {"questions": 2})
    with pytest.raises(UserError, match="share the question"):
        training_benchmarks(["worlds/style:train"], {"worlds": {"questions": 2}}, [unseen])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"labels": {"by": "llm"}}, "labels by llm need chat"),
        ({"labels": {"by": "llm", "chat": {"model": "m"}, "known": 0.5}}, "known is for readers"),
        ({"lists": {"by": "llm"}}, "lists by llm need chat"),
        ({"styles": {"by": "llm"}}, "styles by llm need llm"),
        ({"styles": {"by": "file"}}, "styles by file need file"),
    ],
)
def test_options_that_lack_their_source_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        SarkDataConfig.model_validate(options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"labels": {"reader": "bm25"}}, "is a retriever, not a reader"),
        ({"labels": {"reader": "nobody"}}, "nobody"),
        ({"labels": {"reader": "extractive", "reader_options": {"spam": 1}}}, "option 'spam' of extractive"),
        ({"candidates": {"source": "retriever", "retriever": "extractive"}}, "is a reader, not a retriever"),
        ({"labels": {"reader": "extractive"}, "styles": {"style": "epic"}}, "epic"),
        ({"labels": {"reader": "extractive"}, "styles": {"by": "file", "file": "/none.jsonl"}}, "no such file"),
        ({"labels": {"by": "llm", "chat": {"model": "m", "key_variable": "RAGMETER_NO_SUCH_KEY"}}}, "NO_SUCH_KEY"),
    ],
)
def test_what_cannot_be_used_is_said_before_anything_is_loaded(options: dict[str, Any], said: str) -> None:
    config = SarkDataConfig.model_validate(options)
    with pytest.raises(UserError, match=said):
        config.check_data()


def test_the_papers_options_are_valid() -> None:
    config = SarkDataConfig.model_validate(PAPER_DATA)
    assert config.labels.judge == "match"
    assert config.labels.extra is not None
    assert config.labels.extra.n == 100
    assert {chat.model for chat in config.chats} == {"Qwen/Qwen2.5-14B-Instruct"}
