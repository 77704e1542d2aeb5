"""Language models as rerankers: numbers of comparisons, handling of any reply, and layouts of checkpoints."""

from __future__ import annotations

import asyncio
import json
import random
import re
import shutil
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.core.errors import UserError
from benchmarks.corpus import Corpus
from benchmarks.schema import Passage, Query, passage_id
from methods.api import Ranking, Services
from methods.baselines.rerank.prompts import PROMPTS, Writer
from methods.baselines.rerank.replies import COMPLETED, LABELS, REPAIRED, UNUSABLE, answer_of, label_of, order_of
from methods.baselines.rerank.strategies import bubblesort, bubblesort_calls, heapsort, heapsort_calls, window_calls, windows
from methods.flow import each
from methods.models.adapters import adapted
from methods.models.causal import Generation
from methods.models.chat import Reply
from methods.models.counting import TokenCounter
from methods.registry import Component
from ragmeter.conformance import check_method
from tests.support.errors import raises
from tools.tiny_checkpoints import adapter, make

pytest.importorskip("torch")
SIZES = (0, 1, 2, 19, 20, 21, 25, 50)
QUERY = Query("q", "where was the old painter born ?")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    make(folder)
    return folder


def passages(n: int) -> tuple[Corpus, Ranking]:
    texts = [f"The {n % 7} old bridge, number {n}, is of stone. " * (1 + n % 3) for n in range(n)]
    corpus = Corpus.of(Passage(passage_id("", text, str(n)), "", text, (), str(n)) for n, text in enumerate(texts))
    return corpus, Ranking("q", tuple(corpus.ids), tuple(-float(n) for n in range(len(corpus))))


def reranker(identifier: str, **config: Any) -> Any:
    return Component.of(identifier, config).build(Services(device="cpu"))


def chosen(sort: Callable[..., Awaitable[list[int]]], worth: Sequence[float], children: int, k: int) -> tuple[list[int], int]:
    """Return the order of a perfect comparator, and its comparisons."""
    calls = 0

    async def choose(members: Sequence[int]) -> int:
        nonlocal calls
        calls += 1
        assert 2 <= len(members) <= children + 1
        return max(range(len(members)), key=lambda place: worth[members[place]])

    return asyncio.run(sort(len(worth), choose, children, k)), calls  # type: ignore[arg-type]


@pytest.mark.parametrize(("n", "children", "calls"), [(50, 3, 59), (50, 19, 22), (100, 3, 83), (100, 19, 25)])
def test_heapsort_makes_the_published_number_of_comparisons_for_the_worst_order(n: int, children: int, calls: int) -> None:
    assert chosen(heapsort, range(n), children, 10) == ([*range(n - 1, n - 11, -1), *range(n - 10)], calls)


@given(st.lists(st.integers(), unique=True, max_size=100), st.sampled_from([1, 2, 3, 9, 19]), st.integers(1, 15))
def test_sorting_puts_the_k_best_first_and_keeps_the_order_of_the_rest(worth: list[int], children: int, k: int) -> None:
    best = sorted(range(len(worth)), key=lambda position: -worth[position])[:k]
    for sort, most in ((heapsort, heapsort_calls), (bubblesort, bubblesort_calls)):
        order, calls = chosen(sort, worth, children, k)
        assert order == [*best, *(position for position in range(len(worth)) if position not in best)]
        assert calls <= most(len(worth), children, k)
        assert calls > 0 or len(worth) < 2


@settings(max_examples=40)
@given(st.integers(0, 60), st.sampled_from([1, 2, 3, 9, 19]), st.integers(1, 15), st.integers(0, 99))
def test_concurrent_heap_construction_makes_the_comparisons_of_the_published_loop(n: int, children: int, k: int, seed: int) -> None:
    """Holds for any choices, even inconsistent ones."""
    seen: list[tuple[int, ...]] = []

    def best(members: Sequence[int]) -> int:
        seen.append(tuple(members))
        return random.Random(f"{seed} {seen[-1]}").randrange(len(members))

    async def choose(members: Sequence[int]) -> int:
        return best(members)

    order, made = asyncio.run(heapsort(n, choose, children, k)), sorted(seen)
    seen.clear()
    heap = list(range(n))

    def sift(parent: int, size: int) -> None:
        family = [parent, *range(children * parent + 1, min(children * parent + children + 1, size))]
        if len(family) > 1 and (largest := family[best([heap[place] for place in family])]) != parent:
            heap[parent], heap[largest] = heap[largest], heap[parent]
            sift(largest, size)

    for parent in range(n // children, -1, -1):
        sift(parent, n)
    ranked = []
    for last in range(n - 1, max(-1, n - 1 - k), -1):
        heap[0], heap[last] = heap[last], heap[0]
        ranked.append(heap[last])
        if len(ranked) < k:
            sift(0, last)
    assert order == ranked + sorted(set(range(n)) - set(ranked))
    assert made == sorted(seen)


def test_bubblesort_compares_the_windows_of_the_released_code() -> None:
    windows_: list[tuple[int, ...]] = []

    async def choose(members: Sequence[int]) -> int:
        windows_.append(tuple(members))
        return max(range(len(members)), key=members.__getitem__)

    assert asyncio.run(bubblesort(10, choose, 3, 2)) == [9, 8, *range(8)]
    # As the released code asks.
    assert windows_ == [(6, 7, 8, 9), (3, 4, 5, 9), (0, 1, 2, 9), (3, 7, 8, 6), (0, 4, 5, 8), (1, 2, 8)]


@pytest.mark.parametrize("n", SIZES)
def test_windows_move_the_best_to_the_head_for_any_number_of_passages(n: int) -> None:
    seen: list[tuple[int, ...]] = []

    async def sort(window: Sequence[int]) -> list[int]:
        seen.append(tuple(window))
        return sorted(window, reverse=True)

    order = asyncio.run(windows(n, sort, 20, 10))
    assert sorted(order) == list(range(n))
    assert order[:10] == sorted(range(n), reverse=True)[:10]
    assert len(seen) == window_calls(n, 20, 10) == (0 if n < 2 else -(-max(0, n - 20) // 10) + 1)
    assert window_calls(50, 20, 10) == 4


@settings(max_examples=60)
@given(st.integers(0, 25), st.lists(st.text(max_size=20)), st.sampled_from([1, 3, 19]))
def test_any_reply_gives_a_permutation_of_all_passages(n: int, replies: list[str], children: int) -> None:
    remaining = iter(replies)

    async def sort(window: Sequence[int]) -> list[int]:
        return [window[place] for place in order_of(next(remaining, ""), len(window)).positions]

    async def choose(members: Sequence[int]) -> int:
        text = next(remaining, "")
        return label_of(text, len(members)) or answer_of(text, len(members), thinks=False) or 0

    for order in (windows(n, sort, 6, 3), heapsort(n, choose, children, 5), bubblesort(n, choose, children, 5)):
        assert sorted(asyncio.run(order)) == list(range(n))


@pytest.mark.parametrize(
    ("reply", "positions", "fault"),
    [
        ("[3] > [1] > [2]", (2, 0, 1), ""),
        ("Here are the 3 passages: [2] > [3] > [1]", (1, 2, 0), ""),
        ("2 > 3 > 1", (1, 2, 0), ""),
        ("[②] > [３] > [¹]", (1, 2, 0), ""),
        ("[٢] > [٣] > [١]", (1, 2, 0), ""),
        ("[2] > [2] > [9] > [3] > [1] > [0]", (1, 2, 0), REPAIRED),
        ("[3] > [", (2, 0, 1), COMPLETED),
        ("", (0, 1, 2), UNUSABLE),
        ("the last one", (0, 1, 2), UNUSABLE),
        ("[7] > [99999999999999999999]", (0, 1, 2), UNUSABLE),
        ("Here are the 3 passages by relevance: 2 > 3 > 1", (1, 2, 0), ""),
        ("Here are the 3 passages by relevance: 2, 3, 1", (1, 2, 0), ""),
        ("[1] is about stones and [2] about Rome, so: [2] > [3] > [1]", (1, 2, 0), ""),
        ("[1]: off topic\n[2]: on topic\n\n**[2]** > **[3]** > **[1]**\n\n[1] names 1990.", (1, 2, 0), ""),
        ("[3] > [1]\n\nOn reflection: Passage 2 > Passage 3 > Passage 1", (1, 2, 0), ""),
        ("1. Passage 2\n2. Passage 3\n3. Passage 1", (1, 2, 0), ""),
        ("1) 2 (score 9)\n2) 3 (score 5)\n3) 1", (1, 2, 0), ""),
        ("Rank 1: **Passage 2**\nRank 2: Passage 3", (1, 2, 0), COMPLETED),
        ("| Rank | Passage |\n|---|---|\n| 1 | 2 |\n| 2 | 3 |\n| 3 | 1 |", (1, 2, 0), ""),
        ("[1] < [3] < [2]", (1, 2, 0), ""),
        ("[2-3] > [1]", (1, 2, 0), ""),
        ("[1] > [2] > [0]", (1, 2, 0), REPAIRED),
        ("1.\n2.\n3.", (0, 1, 2), ""),
        ("The passages [1] and [2] are the best. Order: 2, 3, 1", (1, 2, 0), ""),
        ("Step 1: I compare.\nStep 2: I sort.\nAnswer: 2, 3, and 1", (1, 2, 0), ""),
        ("1. Passage 1 is off topic.\n2. Passage 2 names it.\n3. Passage 3 is near.\n\n[2, 3, 1]", (1, 2, 0), ""),
        ('I ranked 3 passages of 2020: {"ranking": ["2", "3", "1"]}', (1, 2, 0), ""),
        ('[{"rank": 1, "passage": 2}, {"rank": 2, "passage": 3}, {"rank": 3, "passage": 1}]', (1, 2, 0), ""),
        ('{"ranking": [{"id": "[1]", "score": 3}, {"id": "[2]", "score": 9.5}, {"id": "[3]", "score": 7}]}', (1, 2, 0), ""),
        ('[{"Passage": "Passage 2"}, {"Passage": "Passage 3"}, {"Passage": "Passage 1"}]', (1, 2, 0), ""),
        ("1. [2] > 2. [3] > 3. [1]", (1, 2, 0), ""),
        ("[2, 3, 1]\n\nI compared passages 1, 2 and 3.", (1, 2, 0), ""),
        ("Passage 1: 4/10\nPassage 2: 9/10\nPassage 3: 7/10", (1, 2, 0), ""),
        ("- **[1]**: 2.5\n- **[2]**: 9\n- **[3]**: Score: 4", (1, 2, 0), ""),
        ('```json\n{"1": 0.1, "2": 0.9,\n "3": 0.7}\n```', (1, 2, 0), ""),
        ('{"Passage 2": 8, "Passage 1": 3, "Passage 3": 3}', (1, 0, 2), ""),
        ("Passage 1: 4\nPassage 2: 9\n\nRanking: [2] > [3] > [1]", (1, 2, 0), ""),
        ('{"1": 3, "2": 1, "3": 2}', (0, 1, 2), UNUSABLE),  # ranks of passages, or passages by rank?
        ("1: 2\n2: 3\n3: 1", (1, 2, 0), ""),
        ("Passages 1 and 2 are good: 3", (0, 1, 2), ""),
        ("I cannot rank these 3 passages.", (0, 1, 2), UNUSABLE),
    ],
)
def test_order_is_parsed_from_typical_replies(reply: str, positions: tuple[int, ...], fault: str) -> None:
    order = order_of(reply, 3)
    assert (order.positions, order.fault) == (positions, fault)


def test_order_is_parsed_after_reasoning_or_inside_an_answer_tag() -> None:
    assert order_of("<think>[3] is best</think> <answer> [2] > [1] > [3] </answer>", 3, tagged=True).positions == (1, 0, 2)
    for released in ("[3] > [2] > [1]", "<think>so [1] <answer>[3] > [2] > [1]</answer>[2]", "<think>[1]</think> <answer>[3] > [2] > [1]"):
        assert order_of(released, 3, tagged=True).positions == (2, 1, 0)


def test_label_or_tagged_number_is_parsed_or_none() -> None:
    named = {"B": 1, " b": 1, "Passage C.": 2, "[A]": 0, "**C**\nbecause": 2, "Ｂ": 1}
    named |= {"A passage on Rome is the most relevant: B": 1, '{"answer": "B"}': 1}
    named |= {"The most relevant passage is B.": 1, "Answer: (C)": 2, "Option B": 1, "<answer>C</answer>": 2, "\\boxed{B}": 1}
    assert {reply: label_of(reply, 3) for reply in named} == named
    for reply in (
        "",
        "D",
        "A passage about stones",
        "None",
        "1",
        "It is A good one",
        "C'est la ville",
        "B-side of a record",
        "The answer is Almond",
    ):
        assert label_of(reply, 3) is None, reply
    assert answer_of("<think>hm</think> <ANSWER> [2] </ANSWER>", 3, thinks=True) == 1
    for reply in ("<answer>[2]</answer>", "<think>x</think><answer>2</answer>", "<think>x</think><answer>[4]</answer>", "<think>x"):
        assert answer_of(reply, 3, thinks=True) is None, reply
    assert answer_of("<answer>[2]</answer>", 3, thinks=False) == 1


@given(st.lists(st.text("ab [1]", max_size=60), min_size=2, max_size=8), st.integers(60, 400))
def test_passages_are_shortened_evenly_and_all_are_kept(texts: list[str], room: int) -> None:
    counter = TokenCounter()
    prompt = PROMPTS["setwise"].load()
    writer = Writer(prompt, counter, room, plain_references=True)
    messages = writer("which?", texts, LABELS)
    plain = [re.sub(r"\[(\d+)\]", r"(\1)", " ".join(text.split())) for text in texts]
    each = [{"label": label, "passage": text} for label, text in zip(LABELS, plain, strict=False)]
    whole = prompt.messages(each, query="which?", count=len(plain))
    if counter.count(whole) <= room:
        assert messages == whole
    elif messages is not None:
        assert counter.count(messages) <= room
        shown = [line.split('"', 1)[1].removesuffix('"') for line in messages[0]["content"].splitlines() if line.startswith("Passage ")]
        assert len(shown) == len(texts)
        most = max(map(len, shown))
        assert all(text.startswith(short) for short, text in zip(shown, plain, strict=True))
        assert all(len(short) >= min(most, len(text)) - 3 for short, text in zip(shown, plain, strict=True))


def test_custom_template_is_validated(tmp_path: Path) -> None:
    path = tmp_path / "own.txt"
    for text, wrong in (
        ("user\n$query", "passage"),
        ("human\n$query", "passage"),
        ("user\n$query $nothing\n---\nuser each\n$passage", "nothing"),
    ):
        path.write_text(text)
        with pytest.raises(UserError, match=wrong):
            PROMPTS["setwise"].load(path)


@pytest.mark.parametrize("n", [0, 1])
def test_no_call_is_made_for_zero_or_one_passage(tiny: Path, n: int) -> None:
    corpus, ranking = passages(n)
    (result,) = each(reranker("setwise", llm={"local": str(tiny / "qwen2.5")}), "rerank", [QUERY], [ranking], corpus)
    assert (result.ids, result.usage.model_calls, result.notes) == (ranking.ids, 0, {"setwise": {"calls": 0}})


@pytest.mark.parametrize("layout", ["qwen2.5", "flan-t5"])
def test_chosen_label_has_the_highest_logit(tiny: Path, layout: str) -> None:
    """Compared with one plain forward pass: the logits after the prompt and the start of the reply."""
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer

    made = reranker("setwise", llm={"local": str(tiny / layout)}, score="likelihood")
    tokens = AutoTokenizer.from_pretrained(tiny / layout)
    kind = AutoModelForSeq2SeqLM if layout == "flan-t5" else AutoModelForCausalLM
    model = kind.from_pretrained(tiny / layout).eval()
    corpus, _ = passages(4)
    for query in ("stone?", "which bridge is old?", "who?"):
        messages = made.writer(query, [passage.text for passage in corpus], LABELS)
        scores, usage = asyncio.run(_awaited(made.model.choose(messages, [f" {label}" for label in "ABCD"])))
        if layout == "flan-t5":
            encoded, start = tokens(messages[0]["content"], return_tensors="pt"), "Passage"
        else:
            encoded, start = {}, tokens.apply_chat_template(messages[:-1], tokenize=False, add_generation_prompt=True) + " Passage:"
        totals = []
        for label in "ABCD":
            before, both = (tokens(text, add_special_tokens=False)["input_ids"] for text in (start, f"{start} {label}"))
            assert both[: len(before)] == before
            read = [0, *both[:-1]] if encoded else both[:-1]
            with torch.no_grad():
                name = "decoder_input_ids" if encoded else "input_ids"
                logits = model(**encoded, **{name: torch.tensor([read])}).logits[0].log_softmax(-1)
            ends = len(both) - len(before)
            totals.append(float(logits[-ends:].gather(1, torch.tensor(both[-ends:])[:, None]).sum()))
        wanted = torch.tensor(totals).softmax(0)
        assert np.allclose(scores.probabilities, wanted, atol=1e-4)
        assert usage.model_calls == 1


async def _awaited(work: Awaitable[Any]) -> Any:
    return await work


def test_prompt_limit_too_small_for_two_passages_is_refused_before_the_first_question(tiny: Path) -> None:
    with raises("prompt-room-too-small") as caught:
        reranker("rankgpt", llm={"local": str(tiny / "zephyr"), "max_prompt_tokens": 64})
    assert caught.value.where == "llm"


def rankllama(tiny: Path, **config: Any) -> Any:
    return reranker("rankllama", **{"base": str(tiny / "llama"), "adapter": str(tiny / "rankllama"), **config})


def test_rankllama_scores_equal_transformers_with_peft_in_any_batch(tiny: Path) -> None:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    corpus, ranking = passages(25)
    made = rankllama(tiny)
    together = made.scores_of([QUERY, Query("r", "stone?")], [ranking.ids, ranking.ids[3:9]], corpus)
    base = AutoModelForSequenceClassification.from_pretrained(tiny / "llama", num_labels=1, pad_token_id=0)
    plain = PeftModel.from_pretrained(base, str(tiny / "rankllama")).eval()
    tokens = AutoTokenizer.from_pretrained(tiny / "llama")
    for passage, score in zip(corpus, together[0], strict=True):
        parts = [tokens(text, add_special_tokens=False)["input_ids"] for text in (f"query: {QUERY.text}", f"document:  {passage.text}")]
        ids = [1, *parts[0][:31], 1, *parts[1][:163]]
        with torch.no_grad():
            wanted = float(plain(torch.tensor([ids])).logits[0, 0])
            padded = torch.tensor([ids + [0] * 7])
            assert abs(float(plain(padded, attention_mask=(padded != 0).long()).logits[0, 0]) - wanted) < 1e-4
        assert abs(score - wanted) < 1e-4
    assert together[0].std() > 1e-3
    alone = np.array([made.scores(QUERY, [identifier], corpus)[0] for identifier in ranking.ids])
    assert np.abs(alone - together[0]).max() < 1e-5


def test_adapter_saved_by_an_older_peft_gives_the_same_scores(tiny: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    for name, mark in (("marked", ".modules_to_save."), ("named", ".default.")):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "adapter_config.json").write_text((tiny / "rankllama" / "adapter_config.json").read_text())
        weights = load_file(tiny / "rankllama" / "adapter_model.safetensors")
        renamed = {key.replace(".score.", f".score{mark}") if ".score." in key else key: value for key, value in weights.items()}
        assert renamed.keys() != weights.keys()
        save_file(renamed, folder / "adapter_model.safetensors")
        corpus, ranking = passages(3)
        assert rankllama(tiny, adapter=str(folder)).scores(QUERY, ranking.ids, corpus).tolist() == (
            rankllama(tiny).scores(QUERY, ranking.ids, corpus).tolist()
        )


def test_mismatched_base_and_adapter_are_refused_naming_the_option(tiny: Path, tmp_path: Path) -> None:
    with raises("adapter-holds-no-weights") as caught:
        rankllama(tiny, base=str(tiny / "qwen2.5"), adapter=str(tiny / "rank-r1"))
    assert "adapter" in str(caught.value.where)
    adapter(tiny / "llama", tmp_path / "three", "SEQ_CLS", labels=3)
    config = json.loads((tiny / "llama" / "config.json").read_text())
    for changed in ({"num_hidden_layers": 1}, {"intermediate_size": 48}):
        from transformers import LlamaConfig, LlamaForSequenceClassification

        other = LlamaForSequenceClassification(LlamaConfig(**{**config, **changed}, num_labels=1))
        with raises("adapter-base-mismatch") as caught:
            adapted(other, str(tiny / "rankllama"), where="adapter", head="score")
        assert "llama" in str(caught.value.try_this)
    with raises("adapter-base-mismatch"):
        rankllama(tiny, adapter=str(tmp_path / "three"))
    with raises("missing-weights") as caught:
        Component.of("rankllama").preflight()
    assert "base" in str(caught.value.where)


def test_generative_reranker_refuses_a_sequence_classifier(tiny: Path, tmp_path: Path) -> None:
    folder = tmp_path / "classifier"
    shutil.copytree(tiny / "qwen3", folder)
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**settings, "architectures": ["Qwen3ForSequenceClassification"]}))
    with raises("not-language-model", where="classifier"):
        reranker("qwen3_reranker", model=str(folder), prompt="ours")


def test_published_prompt_refuses_a_checkpoint_of_another_system(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("methods.baselines.rerank.log_odds.prompt_of", lambda config: pytest.fail("its prompt is not needed"))
    with raises("another-model-family", where="mxbai_reranker"):
        reranker("mxbai_reranker", model=str(tiny / "qwen3"))


@pytest.mark.parametrize(
    ("identifier", "architecture", "code"),
    [
        ("cross_encoder", "BertModel", "not-cross-encoder"),
        ("cross_encoder", "Qwen3ForCausalLM", "not-cross-encoder"),
        ("dpa_rag", "XLMRobertaForMaskedLM", "not-cross-encoder"),
        ("qwen3_reranker", "Qwen3Model", "not-language-model"),
        ("dense", "XLMRobertaForSequenceClassification", "not-encoder"),
    ],
)
def test_folder_with_another_kind_of_model_is_refused(tiny: Path, tmp_path: Path, identifier: str, architecture: str, code: str) -> None:
    folder = tmp_path / "other"
    shutil.copytree(tiny / "qwen3", folder)
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**settings, "architectures": [architecture]}))
    with raises(code, where="other"):
        Component.of(identifier, {"model": str(folder)}).build(Services(device="cpu"))


def test_dpa_rag_weights_that_do_not_match_the_encoder_are_refused(tiny: Path, tmp_path: Path) -> None:
    import torch

    for content in ({"classifier.weight": torch.zeros(2, 3), "classifier.bias": torch.zeros(2)}, {"bge.x": torch.zeros(1)}, {}):
        torch.save(content, tmp_path / "weights.bin")
        with raises("unfit-weights", where="weights.bin"):
            reranker("dpa_rag", model=str(tiny / "qwen3"), weights=str(tmp_path / "weights.bin"))
    (tmp_path / "weights.bin").write_bytes(b"no weights")
    with raises("unfit-weights", where="weights.bin"):
        reranker("dpa_rag", model=str(tiny / "qwen3"), weights=str(tmp_path / "weights.bin"))
    with raises("missing-file", where="absent.bin"):
        Component.of("dpa_rag", {"model": str(tiny / "qwen3"), "weights": str(tmp_path / "absent.bin")}).preflight()


def test_generative_reranker_refuses_an_embedding_model(tiny: Path, tmp_path: Path) -> None:
    folder = tmp_path / "embedding"
    shutil.copytree(tiny / "qwen3", folder)
    (folder / "modules.json").write_text(json.dumps([{"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]))
    with raises("not-language-model", where="embedding"):
        reranker("qwen3_reranker", model=str(folder), prompt="ours")


@pytest.mark.parametrize(("identifier", "yes", "no"), [("qwen3_reranker", "yes", "no"), ("mxbai_reranker", "1", "0")])
def test_log_odds_are_read_after_the_whole_prompt_with_any_padding(tiny: Path, identifier: str, yes: str, no: str) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    made = reranker(identifier, model=str(tiny / "qwen3"), max_length=256, prompt="ours")
    tokens = AutoTokenizer.from_pretrained(tiny / "qwen3")
    model = AutoModelForCausalLM.from_pretrained(tiny / "qwen3").eval()
    corpus, ranking = passages(9)
    scores = made.scores(QUERY, ranking.ids, corpus)
    rows = made.encoded(QUERY.text, [passage.text for passage in corpus])
    width = max(map(len, rows))
    left = torch.tensor([[0] * (width - len(row)) + row for row in rows])
    with torch.no_grad():
        logits = model(left, attention_mask=(left != 0).long()).logits[:, -1]
    odds = logits[:, tokens.convert_tokens_to_ids(yes)] - logits[:, tokens.convert_tokens_to_ids(no)]
    assert np.allclose(scores, odds, atol=1e-3)
    assert scores.std() > 1e-3
    made._yes, made._no = made._no, made._yes
    assert np.allclose(made.scores(QUERY, ranking.ids, corpus), -scores)
    (short,), (long,) = (made.encoded("which?", [text]) for text in ("old", "stone " * 500))
    assert len(long) == 256 > len(short)
    for row in (short, long):
        text = tokens.decode(row)
        assert text.count("which?") == 1
        assert text.startswith("<|im_start|>system\n")
        assert text.endswith("</think>\n\n" if yes == "yes" else "<|im_start|>assistant\n")


def test_rank1_scores_after_the_reasoning_and_closes_unfinished_reasoning(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    made = reranker("rank1", model=str(tiny / "qwen3"), max_length=256, prompt="ours")
    corpus, ranking = passages(3)
    rows = sorted(tuple(row) for row in made.encoded(QUERY.text, [passage.full_text for passage in corpus]))

    def ids(text: str) -> list[int]:
        return list(made.tokenizer(text, add_special_tokens=False)["input_ids"])

    verdict = (*ids("It says so.</think>"), made._yes)
    replies = [
        Generation("It says so.", 9, 5, 0.0, True, verdict),
        Generation("It may be. Perhaps it", 9, 5, 0.0, False, (1,)),
        Generation("no end", 9, 5, 0.0, True, (1,)),
    ]
    monkeypatch.setattr(made._writer, "generate", lambda wanted, stop: replies[: len(wanted)])
    (result,) = each(made, "rerank", [QUERY], [ranking], corpus)
    scores = {}
    texts = [made.tokenizer.decode(row) for row in rows]
    judged = [[*rows[0], *verdict[:-1]], ids(f"{texts[1]}\nIt may be.\n</think>"), ids(f"{texts[2]}\nno end\n</think>")]
    for text, row in zip(texts, judged, strict=True):
        with torch.no_grad():
            logits = made.model(torch.tensor([row])).logits[0, -1]
        scores[text] = float(logits[made._yes] - logits[made._no])
    prompts = [made.tokenizer.decode(row) for row in made.encoded(QUERY.text, [passage.full_text for passage in corpus.get(result.ids)])]
    assert list(result.scores) == pytest.approx([scores[prompt] for prompt in prompts], abs=1e-4)
    assert all(prompt.endswith("<think>") for prompt in prompts)
    assert list(result.scores) == sorted(result.scores, reverse=True)
    assert result.notes == {"rank1": {"calls": 3, "fallbacks": {"unfinished": 2}}}
    assert (result.usage.model_calls, result.usage.prompt_tokens, result.usage.completion_tokens) == (3, 27, 15)
    assert each(made, "rerank", [QUERY], [ranking.top(1)], corpus)[0].usage.model_calls == 0


@pytest.mark.parametrize(
    ("published", "replies", "order", "selected"),
    [
        (False, ["NO", "YES", "unsure", "**yes**", "NO, yes"], [1, 3, 0, 2, 4], [1, 3]),
        (True, ["NO", "YES", "unsure", "**yes**", "NO, yes"], [1, 3, 4, 0, 2], [1, 3, 4]),
        (True, ["YES"] * 5, range(5), [0, 1, 2]),
        (True, ["NO"] * 5, range(5), None),
    ],
)
def test_ddr_selects_only_the_passages_that_it_keeps(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, published: bool, replies: list[str], order: Sequence[int], selected: list[int] | None
) -> None:
    corpus, ranking = passages(5)
    made = reranker("ddr_refiner", llm={"local": str(tiny / "llama3")}, prompt="ours", keep=3)
    made._published = published

    async def reply(state: object, messages: list[dict[str, str]], step: str) -> Reply:
        (text,) = (text for number, text in enumerate(replies) if f"number {number}," in messages[-1]["content"])
        return Reply(text)

    monkeypatch.setattr(made, "reply", reply)
    result = asyncio.run(made.rerank_one(QUERY, ranking, corpus))
    assert list(result.ids) == [ranking.ids[position] for position in order]
    assert result.selected == (None if selected is None else {ranking.ids[position] for position in selected})


ROWS = {
    "rankgpt": {"window": 4, "step": 2, "llm": {"local": "zephyr", "max_tokens": 4}},
    "setwise": {"llm": {"local": "flan-t5", "max_tokens": 1}, "k": 1},
    "setwise, likelihood": {"llm": {"local": "qwen2.5"}, "score": "likelihood", "k": 3, "sort": "bubblesort"},
    "rank_r1": {"prompt": "ours", "llm": {"local": "qwen2.5", "adapter": "rank-r1", "max_tokens": 4}, "children": 9, "k": 1},
    "rankllama": {"base": "llama", "adapter": "rankllama"},
    "qwen3_reranker": {"model": "qwen3", "prompt": "ours"},
    "rank1": {"model": "qwen2.5", "max_new_tokens": 2, "prompt": "ours"},
    "ddr_refiner": {"prompt": "ours", "llm": {"local": "llama3", "adapter": "ddr/Kr_model_for_Llama3_8b", "max_tokens": 4}},
    "dro": {"llm": {"local": "zephyr", "max_tokens": 4}},
    "dpa_rag": {"model": "dpa-rag"},
}
"""Options of each system with a checkpoint of its layout."""


def placed(options: Any, tiny: Path) -> Any:
    """Replace names of checkpoints in options by their folders."""
    if isinstance(options, dict):
        return {key: placed(value, tiny) for key, value in options.items()}
    return str(tiny / options) if isinstance(options, str) and (tiny / options).is_dir() else options


@pytest.mark.slow
@pytest.mark.parametrize("name", ROWS)
def test_every_system_fulfills_the_contract_with_a_checkpoint_of_its_layout(tiny: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragmeter.conformance.QUESTIONS", 5)
    monkeypatch.setattr("ragmeter.conformance.ALONE", 2)
    component = Component.of(name.partition(",")[0], placed(ROWS[name], tiny))
    component.preflight()
    assert {check.name: check.detail for check in check_method(component) if not check.passed} == {}
