"""Compressors into text: the words and sentences that they keep, their order, and the contract of all compressors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.corpus import Corpus
from benchmarks.schema import Passage, Query, passage_id
from benchmarks.text import sentences
from methods.api import TRUNCATED, Context, Ranking, Services
from methods.baselines.compress.recomp import SentenceCompressor
from methods.baselines.compress.rows import CompressionRow
from methods.baselines.compress.text_training import Labeled, labeled
from methods.models.causal import Generation
from methods.models.pretrained import load_tokenizer
from methods.models.weights import weights_hash
from methods.registry import Component
from methods.training import TRAININGS, TrainingContext

TEXT = "The old bridge stands by a river. Moss grows on its north side! Who built it? A painter of the town built it, long ago."
TEXTS = [TEXT, "Cold.", "", f"{TEXT} {TEXT.lower()} " * 6]
QUERY = Query("q", "Who built the old bridge?")


def corpus() -> Corpus:
    return Corpus.of([Passage(passage_id("A bridge", text), "A bridge", text) for text in TEXTS])


def ranking(*which: int) -> Ranking:
    ids = tuple(passage_id("A bridge", TEXTS[at]) for at in which)
    return Ranking("q", ids, tuple(float(-at) for at in range(len(ids))))


def context(compressor: Any, *which: int, budget: int | None = None) -> Context:
    (made,) = compressor.compress([QUERY], [ranking(*which)], corpus(), budget)
    return made


@pytest.mark.slow
def test_llmlingua2_keeps_words_in_order_and_stays_within_a_budget(checkpoints: Path) -> None:
    model = str(checkpoints / "llmlingua2")
    options = {"model": model, "chunk": 100, "tokenizer": model}
    before: set[str] = set()
    for rate in (0.1, 0.5, 1.0):
        made = Component.of("llmlingua2", {**options, "rate": rate}).build(Services(device="cpu"))
        chunks = made.chunks(TEXTS[3])
        kept = made.compressed([TEXTS[3]], rate)[0].replace(" ", "")
        every = iter("".join(chunks).replace(" ", ""))
        assert all(letter in every for letter in kept)  # a subsequence: order is kept
        assert rate < 1 or kept == "".join(chunks).replace(" ", "")
        assert len(chunks) > 1
        assert all(chunk.endswith(".") for chunk in chunks[:-1])
        together = {passage.text for passage in context(made, 0, 3, 1).passages}
        assert {passage.text for passage in context(made, 3).passages} <= together
        assert together != before
        before = together
    short = context(made, 0, 3, budget=20)
    assert sum(made._counts([item.text for item in short.passages])) <= 20
    assert short.notes[TRUNCATED]["of"] == sum(made._counts([item.full_text for item in corpus().get(ranking(0, 3).ids)]))


@pytest.mark.parametrize(("budget", "kept"), [(None, [1, 3, 0]), (10_000, [1, 3, 0]), (60, [1, 0]), (2, [])])
def test_whole_passages_keeps_the_first_passages_that_fit_uncut(budget: int | None, kept: list[int]) -> None:
    made = Component.of("whole_passages", {"model": "pocket"}).build(Services(device="cpu"))
    short = context(made, 1, 3, 0, budget=budget)
    assert [item.text for item in short.passages] == [TEXTS[at] for at in kept]
    assert (short.notes.get(TRUNCATED) or {"kept": 3})["kept"] == len(kept)
    counts = [len(load_tokenizer("pocket").encode(item.full_text, add_special_tokens=False)) for item in short.passages]
    assert sum(counts) <= (budget or sum(counts))


class Scored(SentenceCompressor):
    """Scores by a table."""

    def __init__(self, table: Sequence[Sequence[float]], threshold: float) -> None:
        super().__init__("scored", None)
        self._table, self._threshold = table, threshold

    def scores(self, query: Query, passages: Sequence[Passage], parts: Sequence[Sequence[str]]) -> list[Any]:
        return [np.array(own) for own in self._table]

    def kept(self, scores: Any) -> Any:
        return scores > self._threshold


def test_best_sentences_fill_the_budget_in_text_order_with_their_title() -> None:
    table = [[0.9, 0.1, 0.5, 0.7], [0.2]]
    parts = sentences(TEXT)
    (first,) = context(Scored(table, 0.3), 0, 1).passages
    assert (first.title, first.text) == ("A bridge", " ".join([parts[0], parts[2], parts[3]]))
    assert context(Scored(table, 0.95), 0, 1).passages == ()  # none may stay
    assert context(Scored(table, 0.95), 0, 1).notes == {"scored": {"kept": 0, "of": 5}}
    room = len(f"A bridge\n{parts[0]} {parts[3]}") // 4 + 1
    short = context(Scored(table, 0.3), 0, 1, budget=room)
    assert [item.text for item in short.passages] == [f"{parts[0]} {parts[3]}"]
    assert short.notes[TRUNCATED] == {"unit": "sentences", "kept": 2, "of": 3}
    assert context(Scored(table, 0.3), 0, 1, budget=1).passages == ()
    assert context(Scored([], 0.3), 2).passages == ()


@pytest.mark.slow
def test_recomp_keeps_the_nearest_sentence_and_drops_empty_summaries(checkpoints: Path) -> None:
    options = {"model": str(checkpoints / "encoder"), "sentences": 2}
    compressor = Component.of("recomp_extractive", options).build(Services(device="cpu"))
    parts = [part for at in (0, 1) for part in sentences(TEXTS[at])]
    encoder = compressor._encoder
    products = [float(encoder.passages([part])[0] @ encoder.queries([QUERY.text])[0]) for part in parts]
    best = sorted(sorted(range(len(parts)), key=lambda at: -products[at])[:2])
    kept = [part for item in context(compressor, 0, 1).passages for part in sentences(item.text)]
    assert kept == [parts[at] for at in best]
    summarizer = Component.of("recomp_abstractive", {"model": str(checkpoints / "flan-t5"), "max_new_tokens": 8}).build(
        Services(device="cpu")
    )
    made = context(summarizer, 0, 1)
    assert made.usage.model_calls == 1
    assert made.usage.completion_tokens <= 8
    summarizer._model.generate = lambda prompts: [Generation(" ", 9, 1, 0.1) for _ in prompts]
    empty = context(summarizer, 0, 1)
    assert (empty.passages, empty.usage.model_calls) == ((), 1)
    summarizer._model.generate = lambda prompts: [Generation("a painter built it", 9, 9, 0.1) for _ in prompts]
    assert len(summarizer._model.text_encoder.target(context(summarizer, 0, budget=4).passages[0].text)) <= 4
    assert context(summarizer, 2).usage.model_calls == 1  # a title alone is something to sum up
    (nothing,) = summarizer.compress([QUERY], [Ranking("q", (), ())], corpus(), None)
    assert (nothing.passages, nothing.usage.model_calls) == ((), 0)


@pytest.mark.slow
def test_dslr_scores_single_sentences_and_provence_tokens_of_windows(checkpoints: Path) -> None:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    compressor = Component.of("dslr", {"model": str(checkpoints / "dslr"), "threshold": 0.5}).build(Services(device="cpu"))
    words, model = (
        AutoTokenizer.from_pretrained(checkpoints / "dslr"),
        AutoModelForSequenceClassification.from_pretrained(checkpoints / "dslr").eval(),
    )
    (scores,) = compressor.scores(QUERY, corpus().get(ranking(0).ids), [sentences(TEXT)])
    with torch.inference_mode():
        expected = [
            float(model(**words(f"{QUERY.text} A bridge {part}", return_tensors="pt")).logits[0, 0].sigmoid()) for part in sentences(TEXT)
        ]
    assert scores == pytest.approx(expected, abs=1e-5)
    provence = {
        rule: Component.of("provence", {"model": str(checkpoints / "provence"), "max_length": 96, "rule": rule}).build(
            Services(device="cpu")
        )
        for rule in ("majority", "mean")
    }
    # Two of three tokens are just above the threshold, or one is far above it: the rules disagree.
    for likely, majority, mean in (([0.11, 0.11, 0.0], True, False), ([0.9, 0.0, 0.0], False, True), ([0.1, 0.1], False, False)):
        stays = [bool(item.kept(np.array([item._of_sentence(np.array(likely))]))[0]) for item in provence.values()]
        assert stays == [majority, mean]
    parts = [sentences(TEXTS[3])]
    (some,) = provence["mean"].scores(QUERY, corpus().get(ranking(3).ids), parts)
    assert len(some) == len(parts[0])
    assert (some > 0).all()  # every sentence stood in a window


SOFT = ("autocompressor", "cocom", "oscar", "pcc", "pisco", "xrag")
TEXTUAL = {
    "llmlingua2": "llmlingua2",
    "recomp_extractive": "encoder",
    "recomp_abstractive": "flan-t5",
    "dslr": "dslr",
    "provence": "provence",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SOFT, *TEXTUAL, "memory_reader"])
def test_every_compressor_fulfills_the_contract(
    name: str, folders: dict[str, str], checkpoints: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ragmeter import conformance

    monkeypatch.setattr(conformance, "QUESTIONS", 5)
    monkeypatch.setattr(conformance, "ALONE", 2)
    if name in SOFT:
        short = Component.of("memory_reader", {"model": folders[name], "max_new_tokens": 2})
        monkeypatch.setattr(conformance, "_reader_of", lambda component: short)

    options: dict[str, Any] = {"model": folders.get("pisco" if name == "memory_reader" else name) or str(checkpoints / TEXTUAL[name])}
    if name in ("recomp_abstractive", "memory_reader"):
        options["max_new_tokens"] = 2
    failed = {check.name: check.detail for check in conformance.check_method(Component.of(name, options)) if not check.passed}
    assert failed == {}


def test_label_is_the_sentence_that_makes_the_answer_most_likely() -> None:
    rows = [
        CompressionRow("answer", ("A\nIt is old. Ana built it.", "Moss grows. It is green."), "who?", "Ana"),
        CompressionRow("answer", ("Moss.",), "what?", "x"),
    ]

    def likelihoods(asking: Sequence[tuple[str, tuple[Passage, ...], str]]) -> list[float]:
        return [float(any(answer in item.text for item in passages)) - 2 for _, passages, answer in asking]

    one, two = labeled(rows, likelihoods)
    assert one.sentences == (("It is old.", "Ana built it."), ("Moss grows.", "It is green."))
    assert (one.best, two.best) == ((0, 1), None)


def test_recomp_loss_contrasts_the_positive_sentence_with_all_of_the_batch(checkpoints: Path) -> None:
    entry = TRAININGS.get("recomp_extractive")
    training: Any = entry.factory(entry.validate({"data": ["worlds/multihop:train"], "base": str(checkpoints / "encoder")}))
    training.open("cpu")
    training.module.eval()
    first, *others = sentences(TEXT)
    rows = [
        Labeled("Who built it?", ((first, *others), ("Cold.",)), (0, 3)),
        Labeled("What stands there?", (("A stone.", first),), (0, 1)),
        Labeled("What is it?", (("It is a long way to the town of the painter, and cold.",), ("Cold.",)), (1, 0)),
    ]
    texts = {text for row in rows for own in row.sentences for text in own}
    # Each text by itself.
    vectors = {text: training.module.encode(text).astype(float) for text in {*texts, *(row.question for row in rows)}}
    terms = [
        math.log(sum(math.exp(vectors[row.question] @ vectors[text]) for text in texts)) - vectors[row.question] @ vectors[str(row.text)]
        for row in rows
    ]
    assert float(training.loss(rows)) == pytest.approx(float(np.mean(terms)), rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "base"), [("recomp_extractive", "encoder"), ("recomp_abstractive", "flan-t5"), ("llmlingua2", "encoder")])
def test_trained_text_compressor_checkpoint_compresses(name: str, base: str, checkpoints: Path, tiny_llama: str, tmp_path: Path) -> None:
    entry = TRAININGS.get(name)
    world = {"worlds": {"worlds": 1, "questions": 6, "mix": {"single": 1.0}}}
    options = {"data": ["worlds/multihop:train"], "data_options": world, "documents": 2, "max_length": 64, "reader": tiny_llama}
    small = {"epochs": 2, "batch_size": 3, "micro_batch": 2, "learning_rate": 1e-2, "save_every": 1}
    training = entry.factory(entry.validate({**options, "base": str(checkpoints / base), "train": small}))
    folders = TrainingContext(tmp_path / "work", tmp_path / "checkpoints", Services(device="cpu"))
    (stage,) = training.run(folders)
    assert stage.figures["rows"] >= 1
    assert [item.fresh for item in training.run(folders)] == [False]
    trained = Component.of(name, {"model": str(stage.folder), **({"max_new_tokens": 4} if "abstractive" in name else {})})
    assert len(context(trained.build(Services(device="cpu")), 0, 1).passages) <= 2
    assert weights_hash(str(stage.folder)) != weights_hash(str(checkpoints / base))
