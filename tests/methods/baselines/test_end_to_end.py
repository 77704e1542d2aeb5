"""End-to-end systems with a model that knows the answers, with corrupt replies, and against hand-computed results."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks import registry as datasets
from benchmarks.corpus import Corpus
from benchmarks.registry import Benchmark
from benchmarks.schema import Passage, Query, Question
from benchmarks.text import em
from methods.api import FAILED, Context, Prediction, Ranking, Services
from methods.baselines.end_to_end.flare import query_of
from methods.baselines.end_to_end.self_ask import Entailment
from methods.baselines.end_to_end.self_rag import RELEVANCE, SUPPORT, TAGS, UTILITY, Segment, SelfRagConfig, TagModel, WeightsConfig
from methods.flow import run
from methods.models.adapters import adapted
from methods.models.causal import Generation
from methods.models.chat import ChatConfig, Reply
from methods.models.nli import Inference
from methods.models.pretrained import load_pretrained
from methods.pipeline import assemble
from methods.program import NO_END, NO_REPLY, UNUSABLE, behind
from methods.readers.end_to_end import chatqa_prompt
from methods.registry import Component
from ragmeter.conformance import check_method
from ragmeter.scripted import CORRUPTIONS, WorldTruth, draw
from tests.support.errors import raises
from tools.tiny_checkpoints import make

REFERENCE, OPTIONS = "worlds/multihop:validation", {"questions": 30, "worlds": 2}
SYSTEMS: dict[str, dict[str, Any]] = {
    "genground": {},
    "retrobust": {},
    "self_ask": {},
    "self_rag_prompted": {},
    "iter_retgen": {"rounds": 3},
    "ircot": {},
    "search_r1": {},
    "search_r1, r1_searcher": {"tags": "r1_searcher"},
}
RECALLS = {"genground", "retrobust", "self_ask"}
"""Systems that first ask the model for an answer without passages."""
TALK = {"ircot"}
"""Systems that accept any sentence as a reply, so that only missing replies are counted as corrupt."""


@pytest.fixture(scope="module")
def benchmark() -> Benchmark:
    return datasets.load(REFERENCE, OPTIONS)


def predicted(benchmark: Benchmark, system: str, corruption: float = 0.0) -> dict[str, tuple[Question, Prediction]]:
    llm = {"scripted": REFERENCE, "options": OPTIONS, "corruption": corruption}
    component = Component.of(system.partition(",")[0], {"llm": llm, "retriever": "bm25", **SYSTEMS[system]})
    method = assemble(component, Services(device="cpu"))
    method.index(benchmark.corpus)
    queries = {question.query().id: question for question in benchmark.questions}
    results = {p.question_id: (queries[p.question_id], p) for p in method.answer([q.query() for q in benchmark.questions])}
    assert results.keys() == queries.keys()
    return results


def right(question: Question, prediction: Prediction) -> bool:
    return em(prediction.answer, [", ".join(question.wanted)] if question.answer_set else list(question.answers)) == 1


@pytest.mark.parametrize("system", [name if name == "search_r1" else pytest.param(name, marks=pytest.mark.slow) for name in SYSTEMS])
def test_scripted_model_answers_if_the_proof_is_shown_and_corrupt_replies_are_counted(benchmark: Benchmark, system: str) -> None:
    name, truth = system.partition(",")[0], WorldTruth([benchmark], config=OPTIONS)
    sound = predicted(benchmark, system)
    assert not any(FAILED in prediction.notes for _, prediction in sound.values())
    scored = [(question, right(question, prediction)) for question, prediction in sound.values()]
    if name in RECALLS:
        assert np.mean([ok for _, ok in scored]) >= 0.9
    elif name == "self_rag_prompted":
        assert np.mean([ok for question, ok in scored if question.type == "single"]) >= 0.9
    else:
        for question, prediction in sound.values():
            evidence = [passage.full_text for passage in benchmark.corpus.get(item.id for item in prediction.evidence)]
            last = re.split(r"\n(?=\[\d+\] )", prediction.calls[-1].prompt)
            shown = last if name == "iter_retgen" else evidence  # the others show all that they ever found
            assert right(question, prediction) == truth.proven_by(question, shown), question.text
    for corruption in (0.2, 1.0):
        spoiling = WorldTruth([benchmark], config=OPTIONS, corruption=corruption)
        for question, prediction in predicted(benchmark, system, corruption).values():
            prompts = [re.split(r"(?:^|\n\n)(?:system|user|assistant): ", call.prompt)[-1] for call in prediction.calls]
            own = [prompt for prompt, call in zip(prompts, prediction.calls, strict=True) if call.step != "read"]
            kinds = [CORRUPTIONS[int(draw(0, "kind", prompt) * len(CORRUPTIONS))] for prompt in own if spoiling.is_corrupted(prompt)]
            plain = {"empty"} if name in TALK else {"empty", "garbage", "refusal"} | ({"truncated"} if name == "genground" else set())
            counted = prediction.notes[name].get("fallbacks", {})
            assert counted.get(UNUSABLE, 0) + counted.get(NO_REPLY, 0) >= sum(kind in plain for kind in kinds), question.text


def test_genground_corrects_wrong_first_answers(benchmark: Benchmark) -> None:
    believed = {
        call.prompt: re.search("<answer>(.*)</answer>", call.reply)
        for _, prediction in predicted(benchmark, "genground").values()
        for call in prediction.calls
        if call.step == "genground_deduce"
    }
    truth = WorldTruth([benchmark], config=OPTIONS)
    first = [(truth.steps[match[1]], belief[1]) for p, belief in believed.items() if belief and (match := asked(p, truth))]
    wrong = [pair for pair in first if pair[0] != pair[1]]
    assert len(wrong) > len(first) / 3  # and yet nine questions of ten are answered rightly, see above


def asked(prompt: str, truth: WorldTruth) -> re.Match[str] | None:
    """Return the question of a first step if it is a single-hop one."""
    match = re.search(r"The question to solve: (.*)\n", prompt)
    return match if match and match[1] in truth.steps else None


class Says:
    """Model that gives replies one after another and then repeats the last one; records its requests."""

    config = ChatConfig(model="says", key_variable=None)
    room: int | None = None

    def __init__(self, *texts: str) -> None:
        self.texts, self.asked = list(texts), list[str]()

    async def ask(self, messages: Any, *, step: str = "", raw: bool = False) -> Reply:
        self.asked.append(messages[-1]["content"])
        return Reply(self.texts.pop(0) if len(self.texts) > 1 else self.texts[0])


CORPUS = Corpus.of([Passage(f"p{number}", f"Title {number}", f"Text <answer>no</answer> of {number}.") for number in range(30)])


def solo(system: str, *replies: str, finds: Callable[[str], Sequence[int]] = lambda text: range(3), **options: Any) -> Any:
    """Run a program with a scripted model and search; return its session's notes, searches and requests."""
    config = {"llm": {"scripted": REFERENCE}, "retriever": "bm25", **options}
    made = Component.of(system, config).build(Services(device="cpu"))
    made.model, made.corpus, searched = Says(*replies), CORPUS, list[str]()

    async def retrieve(query: Query, k: int) -> Ranking:
        searched.append(query.text)
        ids = tuple(f"p{number}" for number in finds(query.text))[:k]
        return Ranking(query.id, ids, tuple(1.0 for _ in ids))

    made.retrieve = retrieve
    prediction = run(made.answer_one(Query("q", "Who did it")))
    return SimpleNamespace(answer=prediction.answer, note=prediction.notes[system], searched=searched, asked=made.model.asked, system=made)


@pytest.mark.parametrize(
    "reply", ["我不知道。", "<question>Who is it?</question", '{"answer": [', "<search>again</search> Follow up: again?"]
)
def test_programs_end_for_any_reply_and_count_fallbacks(reply: str) -> None:
    for name in dict.fromkeys(system.partition(",")[0] for system in SYSTEMS):
        for finds in (lambda text: range(3), lambda text: ()):
            done = solo(name, reply, finds=finds)
            assert done.note["fallbacks"]
            assert done.answer or done.note["ended"] == "stopped"
            assert len(done.asked) <= 12


def test_question_without_an_answer_fails_with_the_reason_of_its_last_call() -> None:
    class Refuses(Says):
        async def ask(self, messages: Any, **options: Any) -> Reply:
            return Reply("", failed="Error code: 400 - content_filter")

    for name in dict.fromkeys(system.partition(",")[0] for system in SYSTEMS):
        made = Component.of(name, {"llm": {"scripted": REFERENCE}, "retriever": "bm25"}).build(Services(device="cpu"))
        made.index(CORPUS)
        made.model = Refuses()
        prediction = run(made.answer_one(Query("q", "Who did it")))
        assert (prediction.answer, prediction.notes[FAILED]) == ("", "Error code: 400 - content_filter")


def test_search_r1_stops_at_its_tags_and_at_its_limit() -> None:
    done = solo("search_r1", "<think>no</think><search> one </search> <answer>never</answer>", "what?", "<answer> Ann </answer>")
    assert (done.answer, done.searched) == ("Ann", ["one"])
    assert done.note["fallbacks"] == {UNUSABLE: 1}
    assert "never" not in done.asked[1]
    assert "<answer>no</answer>" in done.asked[1]  # of a passage, and no answer
    endless = solo("search_r1", "<search>again</search>", turns=4)
    assert endless.searched == ["again"] * 4 + ["Who did it"]
    assert (endless.note["ended"], endless.note["fallbacks"]) == ("plain", {NO_END: 1})


def test_ircot_keeps_one_sentence_as_next_query_until_it_concludes() -> None:
    replies = ["Ann knew Bob. Bob left. So the answer is: Celia.", "Thus it was late.", "So the answer is: Robert.", "Dan"]
    done = solo("ircot", *replies, finds=lambda text: range(10) if text == "Who did it" else range(10, 25), k=20, pool=15)
    assert done.answer == "Dan"
    assert done.searched == ["Who did it", "Ann knew Bob.", "Who did it"]
    assert "[15]" in done.asked[-1]
    assert "[16]" not in done.asked[-1]


def test_released_genground_reads_every_batch_and_revises_once_with_cited_text() -> None:
    deduced, end = "<question>Who?</question><answer>Ann</answer>", "<finish>Bob</finish>"
    empty, cited = "<ref>Empty</ref>", f"<ref>{CORPUS.get(['p4'])[0].text}</ref>"
    done = solo("genground", deduced, empty, cited, '{"answer": "Bob"}', end, finds=lambda text: range(8), preset="released", k=8)
    batches = done.asked[1:4]  # p0–p2 (nothing), p3–p5 (p4), then p6, p7 and p4
    assert [[number for number in range(8) if f"Title {number}" in prompt] for prompt in batches] == [[0, 1, 2], [3, 4, 5], [4, 6, 7]]
    assert "Answer 1: Bob" in done.asked[4]
    unreadable = solo("genground", deduced, "no JSON", end, finds=lambda text: range(3), preset="released")
    assert "Answer 1: Ann" in unreadable.asked[2]


@pytest.mark.parametrize(
    ("sentence", "searched"),
    [("2 + 1,900 = 1,902 years.", False), ("It ran 1914-1918.", True), ("Half is 1/2 of it.", True), ("It scored 3 - 1.", True)],
)
def test_ircot_searches_with_ranges_and_fractions_but_not_with_calculations(sentence: str, searched: bool) -> None:
    done = solo("ircot", sentence, "So the answer is: Robert.", "Dan", finds=lambda text: [1])
    assert done.searched[1:] == [sentence if searched else "Who did it"]


def test_iter_retgen_queries_with_its_last_reply_and_reads_only_those_results() -> None:
    replies = ["Ann. So the answer is: Robert.", "So the answer is: Celia."]
    done = solo("iter_retgen", *replies, finds=lambda text: [1] if text == "Who did it" else [2])
    assert (done.answer, len(done.asked)) == ("Celia", 2)
    assert done.searched[1] == "Ann. So the answer is: Robert. Who did it"
    assert "Title 2" in done.asked[1]
    assert "Title 1" not in done.asked[1]


def test_self_ask_shows_only_the_newest_passages_and_retrobust_all() -> None:
    replies = ["Follow up: one?", "Intermediate answer: Ann\nFollow up: two?", "Bob\nSo the final answer is: Celia."]
    for system, earlier in (("self_ask", False), ("retrobust", True)):
        done = solo(system, *replies, finds=lambda text: [{"one?": 1, "two?": 2}.get(text, 3)])
        assert done.answer == "Celia"
        assert "Follow up: one?\nIntermediate answer: Ann\nFollow up: two?" in done.asked[2]
        assert "Title 2" in done.asked[2]
        assert ("Title 1" in done.asked[2]) is earlier


def test_self_ask_reads_transcripts_with_markdown_numbers_and_other_labels() -> None:
    first, second = "Yes.\n**Follow-up question 1:** one?", "- **Intermediate answer:** Ann\n- Follow up: “two?”"
    for end in ("Bob\n**So the final answer is:** Celia", "Bob\nFinal answer: Celia", "Bob\nFollow up: none\nSo the answer is: **Celia**."):
        done = solo("self_ask", first, second, end)
        assert (done.answer, done.searched) == ("Celia", ["one?", "two?"])
        assert "Follow up: one?\nIntermediate answer: Ann\nFollow up: two?" in done.asked[2]


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("**So the answer is:** Celia", "Celia"),
        ("So the answer is: **Celia**", "Celia"),
        ("So the **answer is** Celia.", "Celia"),
        ("Ann knew her.\n\n**Answer**: Celia", "Celia"),
        ("So the answer would be Celia.", "Celia"),
        ("So the answer is:\n\n- Celia", "Celia"),
        ("So the answer is Celia.\n\nQ: Who else?\nA: So the answer is Daniel.", "Celia"),
        ("The answer is Ann? So the answer is Celia.\nThus the answer is: Celia", "Celia"),
        ("So the answer isn't clear.", None),
        ("She was born there.\nSo the answer is:", None),
        ("So the answer is: **", None),
        ("The answers are many: Celia", None),
    ],
)
def test_text_behind_a_mark_is_the_answer(reply: str, answer: str | None) -> None:
    assert behind(reply, "answer is") == answer


def test_released_retrobust_continues_one_text_with_the_oldest_context_first() -> None:
    replies = [
        "\nFollow up: one?\nIntermediate answer: never read",
        "\nIntermediate answer: Ann\nFollow up: two?\nIntermediate answer: not yet",
        "\nIntermediate answer: Bob\nSo the final answer is: Celia\n\n#\nSo the final answer is: Daniel",
    ]
    done = solo("retrobust", *replies, finds=lambda text: [{"one?": 1, "two?": 2}.get(text, 0)], layout="released", k=1)
    assert done.answer == "Celia"
    assert done.searched == ["Who did it", "one?", "two?"]
    head, _, tail = done.asked[2].partition("\nQuestion: Who did it\nAre follow up questions needed here: Yes.")
    assert [line.partition(": ")[2].partition(":")[0] for line in head.splitlines()[1:]] == ["Title 0", "Title 1", "Title 2"]
    assert tail == "\nFollow up: one?\nIntermediate answer: Ann\nFollow up: two?"


def test_released_retrobust_for_nq_concludes_without_follow_ups() -> None:
    done = solo("retrobust", "\nSo the final answer is: Celia", layout="released", follow_ups=False, k=1)
    assert done.answer == "Celia"
    assert done.asked[0].endswith("Are follow up questions needed here: No.")
    assert len(done.asked) == 1


def test_retrobust_backs_off_if_entailment_is_at_most_the_threshold() -> None:
    shares = {"one? The answer is: Ann": (0.2, 0.2), "Who did it The answer is: Celia": (0.3, 0.1)}

    def infer(premises: Sequence[str], hypotheses: Sequence[str]) -> Inference:
        judged = np.array([shares[claim] for claim in hypotheses])
        return Inference(judged[:, 0], 1 - judged.sum(1), judged[:, 1])

    judge = Entailment(SimpleNamespace(device="cpu", infer=infer))  # type: ignore[arg-type]
    assert run(judge.least([], [("one?", "Ann"), ("Who did it", "Celia")])) == 0.5
    replies = ["Follow up: one?", "Intermediate answer: Ann\nSo the final answer is: Celia.", "So the final answer is: Daniel."]
    for threshold, answer in ((0.5, "Daniel"), (0.49, "Celia")):
        made = solo("retrobust", *replies, threshold=threshold).system
        made.tool, made.model = judge, Says(*replies)
        assert run(made.answer_one(Query("q", "Who did it"))).answer == answer


def test_flare_queries_with_the_likelier_tokens_of_a_low_confidence_draft() -> None:
    assert query_of([("Ann ", 0.9), ("was ", 0.95)], 0.8, 0.4) is None
    assert query_of([("Ann ", 0.9), ("Lee ", 0.4), ("left", 0.41)], 0.8, 0.4) == "Ann left"


def test_self_rag_segment_score_equals_the_formula() -> None:
    config = WeightsConfig(relevance=1, support=2, usefulness=0.5, retriever="bm25")  # type: ignore[arg-type]
    segment = Segment("Ann", (0.6, 0.2), (0.1, 0.2, 0.2), (0.0, 0.1, 0.1, 0.0, 0.2), 0.25)
    useful = (-0.5 * 0.1 + 0.0 * 0.1 + 1.0 * 0.2) / 0.4
    assert segment.score(config) == pytest.approx(0.25 + 0.75 + 2 * (0.1 + 0.5 * 0.2) / 0.5 + 0.5 * useful)
    assert Segment("Ann", (0.6, 0.2)).score(config) == pytest.approx(0.75)


def test_tag_probabilities_are_the_softmax_at_their_positions(tiny_selfrag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    config = SelfRagConfig(model=tiny_selfrag, retriever="bm25")  # type: ignore[arg-type]
    model = TagModel(config, Services(device="cpu"))
    tokens = [model.ids[tag] for tag in ("[Relevant]", "[Partially supported]", "[Utility:4]")]
    tokens[1:1] = model._model.tokenizer("Ann", add_special_tokens=False)["input_ids"]

    async def write(prompt: str) -> Generation:
        return Generation("[Relevant]Ann[Partially supported][Utility:4]", 1, len(tokens), 0.0, True, tuple(tokens))

    monkeypatch.setattr(model, "_write", write)
    session: Any = SimpleNamespace(wrote=lambda *_: None, fallback=pytest.fail)
    segment = run(model.segment(session, "### Response:\n", Passage("p", "Title", "A text.")))
    assert segment is not None
    assert segment.answer == "Ann"
    before = model._model.encode("### Response:\n[Retrieval]<paragraph>Title\nA text.</paragraph>")
    independent = AutoModelForCausalLM.from_pretrained(tiny_selfrag)

    def shares(ids: Sequence[int]) -> Any:
        with torch.inference_mode():
            return independent(torch.tensor([list(ids)])).logits[0].double().softmax(-1).tolist()

    whole = shares([*before, *tokens])
    at = len(before) - 1
    for computed, tags, place in (
        (segment.relevance, RELEVANCE, at),
        (segment.support, SUPPORT, at + len(tokens) - 2),
        (segment.utility, UTILITY, at + len(tokens) - 1),
    ):
        expected = np.array([whole[place][model.ids[tag]] for tag in tags])
        assert np.array(computed) / sum(computed) == pytest.approx(expected / expected.sum(), rel=1e-3)
    mean = np.mean([math.log(whole[at + n][token]) for n, token in enumerate(tokens)])
    assert segment.likelihood == pytest.approx(math.exp(mean), rel=1e-3)
    share = run(model.share_of_retrieval(session, "### Response:\n"))
    yes, no = (shares(model._model.encode("### Response:\n"))[-1][model.ids[tag]] for tag in TAGS[:2])
    assert share == pytest.approx(yes / (yes + no), rel=1e-3)


def test_model_without_the_tag_tokens_is_refused_before_the_first_question(tiny_llama: str) -> None:
    with raises("vocabulary-tag-missing"):
        Component.of("self_rag", {"model": tiny_llama, "retriever": "bm25"}).build(Services(device="cpu"))


def test_chatqa_prompt_equals_that_of_its_model_card(tiny_llama: str) -> None:
    expected = (
        "System: This is a chat between a user and an artificial intelligence assistant. The assistant gives helpful, detailed, and "
        "polite answers to the user's questions based on the context. The assistant should also indicate when the answer cannot be "
        "found in the context.\n\ntitle: A, source: b c\n\nd\n\nUser: Answer the following question with a short span. The answer "
        "needs to be just in a few words. Who?\n\nAssistant:"
    )
    passages = [Passage("p", "A", "b c"), Passage("q", "", "d")]
    assert chatqa_prompt("Who?", passages) == expected
    reader = Component.of("chatqa", {"model": tiny_llama, "max_new_tokens": 4}).build(Services(device="cpu"))
    (answer,) = reader.read([Query("q", "Who?")], [Context("q", tuple(passages))])
    assert answer.calls[0].prompt == f"<s>{expected}"  # its tokenizer begins nothing by itself


def test_in_context_ralm_continues_a_text_to_the_end_of_the_line(tiny_llama: str, tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_text("options\nwhitespace: keep\n---\nuser\n$passages | $question\n")
    config = {"model": tiny_llama, "max_new_tokens": 4, "prompt": str(tmp_path / "own.txt"), "closed_book_prompt": "ours"}
    component = Component.of("in_context_ralm", config)
    reader = component.build(Services(device="cpu"))
    (answer,) = reader.read([Query("q", "Who is it")], [Context("q", (Passage("p", "A", "b  c"), Passage("q", "", "d")))])
    assert answer.calls[0].prompt == "A\n\nb  c\n\n\n\nd | who is it?\n"
    assert "\n" not in answer.text
    assert component.fingerprint != Component.of("in_context_ralm", {**config, "prompt": "ours"}).fingerprint


def test_demonstrations_come_only_from_training_data(benchmark: Benchmark) -> None:
    options = {"llm": {"scripted": REFERENCE, "options": OPTIONS}, "demonstrations": "worlds/multihop:train", "count": 2}
    with pytest.raises(ValueError, match="must come from training data"):
        Component.of("in_context_rag", {**options, "demonstrations": "worlds/multihop:test"})
    reader = Component.of("in_context_rag", options).build(Services(seed=1, device="cpu"))
    train = {question.text for question in datasets.load("worlds/multihop:train", {}).questions}
    roles = [message["role"] for message in reader._messages("Who?", "[1] x")]
    assert roles == ["system", *["user", "assistant"] * 2, "user"]
    assert all(re.search(r"Question: (.*)\n", turn["content"])[1] in train for turn in reader._turns[::2])  # type: ignore[index]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    make(folder)
    return folder


@pytest.mark.slow
def test_adapter_may_be_in_a_subfolder_of_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub
    import torch

    make(tmp_path, ["ddr/Kr_model_for_Llama3_8b"])
    fetched: list[tuple[str, str]] = []

    def fetch(repository: str, allow_patterns: str) -> str:
        fetched.append((repository, allow_patterns))
        return str(tmp_path / "ddr")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    base = load_pretrained("model", "AutoModelForCausalLM", str(tmp_path / "llama3"), None, "float32", "cpu")[1]
    before = [weight.clone() for weight in base.parameters()]
    merged = adapted(base, "OpenMatch/RAG-DDR/Kr_model_for_Llama3_8b", where="llm.adapter")
    assert fetched == [("OpenMatch/RAG-DDR", "Kr_model_for_Llama3_8b/*")]
    assert not all(map(torch.equal, before, merged.parameters()))


@pytest.mark.parametrize("options", [{"layout": "released"}, {"follow_ups": False}])
def test_retrobust_refuses_options_that_a_chat_endpoint_or_layout_does_not_follow(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="layout: released"):
        Component.of("retrobust", {"retriever": "bm25", "llm": {"model": "m"}, **options})


@pytest.mark.parametrize("layout", ["chat", "released"])
def test_retrobust_refuses_a_chat_template_in_the_released_layout(tiny: Path, layout: str) -> None:
    options = {"retriever": "bm25", "layout": layout}
    Component.of("retrobust", {**options, "llm": {"local": str(tiny / "llama")}}).preflight()
    chats = Component.of("retrobust", {**options, "llm": {"local": str(tiny / "zephyr")}})
    if layout == "chat":
        chats.preflight()
    else:
        with raises("chat-template-unexpected", where="layout"):
            chats.preflight()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["retrobust", "self_rag"])
def test_every_system_fulfills_the_contract_with_a_checkpoint_of_its_layout(tiny: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragmeter.conformance.QUESTIONS", 5)
    monkeypatch.setattr("ragmeter.conformance.ALONE", 2)
    llm = {"local": str(tiny / "llama"), "adapter": str(tiny / "retrobust"), "max_tokens": 8}
    options: dict[str, dict[str, Any]] = {
        "retrobust": {"llm": llm, "nli": {"model": str(tiny / "mnli")}, "k": 1},
        "self_rag": {"model": str(tiny / "selfrag"), "k": 2, "max_new_tokens": 8, "threshold": 0.0},
    }
    component = Component.of(name, {**options[name], "retriever": "bm25"})
    component.preflight()
    assert {check.name: check.detail for check in check_method(component) if not check.passed} == {}
