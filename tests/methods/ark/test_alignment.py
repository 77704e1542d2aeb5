"""ARK's alignment scores: the formula of the total, and log-likelihoods against a naive loop."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from benchmarks.schema import Question
from methods.ark.alignment import Terms, aligned, kept_out, normalized, positives
from methods.ark.config import ArkTrainingConfig, ScoreConfig
from methods.ark.data import Document, Piece
from methods.models.causal import CausalConfig, CausalModel

FLOATS = arrays(np.float64, st.integers(2, 12), elements=st.floats(-50, 0, allow_subnormal=False, width=32))


def score(**changes: Any) -> ScoreConfig:
    return ScoreConfig.model_validate(changes)


def totals(config: ScoreConfig, tokens: Sequence[int] | None = None, **raw: Any) -> np.ndarray:
    ids = [f"c{n}" for n in range(len(next(iter(raw.values()))))]
    return np.array([row.total for row in aligned("q", ids, raw, config, tokens)])


def test_negatives_exclude_the_best_chunks_and_the_evidence() -> None:
    config = ArkTrainingConfig.model_validate({"data": ["worlds/documents:train"], "score": {"positives": 1}, "mine": {"keep_out": 3}})
    rows = aligned("q", list("abcdef"), {"f": np.array([5.0, 1, 4, 2, 3, 0])}, score(b={"weight": 0}, v={"weight": 0}))
    assert kept_out(rows, ["f"], config) == ["a", "c", "e", "f"]


@given(FLOATS)
def test_min_max_maps_to_0_to_1_and_equal_scores_to_one_half(scores: np.ndarray) -> None:
    result = normalized(scores, "minmax")
    if np.ptp(scores) == 0:
        assert (result == 0.5).all()
    else:
        assert (result.min(), result.max()) == (0, 1)
    assert (normalized(scores[:1], "minmax") == 0.5).all()
    assert (normalized(np.full(4, -3.0), "minmax") == 0.5).all()


@given(FLOATS, st.floats(0.5, 20), st.floats(-20, 20))
def test_scale_and_shift_of_a_raw_score_do_not_change_totals(scores: np.ndarray, factor: float, shift: float) -> None:
    if 0 < np.ptp(scores) < 1e-3:
        scores = np.round(scores, 2)
    other = np.linspace(0, 1, len(scores))
    for how in ("minmax", "zscore"):
        config = score(normalize=how)
        before = totals(config, f=scores, b=other, v=other)
        assert totals(config, f=scores * factor + shift, b=other, v=other) == pytest.approx(before, abs=1e-6)


def test_total_is_the_weighted_sum_and_ties_keep_chunk_order() -> None:
    raw = {"f": np.array([-4.0, -2.0, -3.0]), "b": np.array([-1.0, -2.0, -3.0]), "v": np.array([0.1, 0.3, 0.2])}
    rows = aligned("q", ["a", "b", "c"], raw, score())
    assert [row.total for row in rows] == pytest.approx([0 + 0.3 + 0, 1 + 0.15 + 1, 0.5 + 0 + 0.5])
    assert [row.rank for row in rows] == [2, 0, 1]
    assert positives(rows, 2) == ["b", "c"]
    assert positives(rows, 10) == ["b", "c", "a"]
    none = aligned("q", ["a", "b"], {name: np.zeros(2) for name in raw}, score(normalize="none"))
    assert [row.rank for row in none] == [0, 1]


@given(FLOATS)
def test_weight_zero_equals_removing_the_term(scores: np.ndarray) -> None:
    other = np.arange(len(scores), dtype=np.float64)
    config = score(b={"weight": 0})
    assert (totals(config, f=scores, b=other, v=other) == totals(config, f=scores, v=other)).all()
    assert aligned("q", ["c0"] * len(scores), {"f": scores, "v": other}, config)[0].n_b is None


def test_totals_of_short_chunks_are_reduced_in_proportion_to_length() -> None:
    raw = {"f": np.array([-1.0, -2.0]), "b": np.array([-1.0, -2.0]), "v": np.array([0.2, 0.2])}
    assert totals(score(), [4, 30], **raw) == pytest.approx([0.4 * (1.3 + 0.5), 0.5])


def test_weights_that_are_all_zero_are_refused() -> None:
    with pytest.raises(ValueError, match="weight 0"):
        score(f={"weight": 0}, b={"weight": 0}, v={"weight": 0})


@pytest.fixture(scope="module", params=["Llama", pytest.param("GPT2", marks=pytest.mark.slow)])
def scorer(request: Any, tiny_models: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A language model with rotary or absolute positions."""
    import torch
    import transformers

    torch.manual_seed(2)
    folder = tmp_path_factory.mktemp(request.param)
    size = len(tiny_models.tokenizer("mistral"))
    if request.param == "GPT2":
        settings = transformers.GPT2Config(vocab_size=size, n_embd=32, n_layer=2, n_head=4, n_positions=80)
        model = transformers.GPT2LMHeadModel(settings)
    else:
        model = transformers.LlamaForCausalLM(tiny_models.config("Llama", size))
    return str(tiny_models.save(folder, "mistral", tiny_models.scaled(model)))


CHUNKS = ["the old stone bridge", "moss grows on the north side of the stone", "a painter"]


def document(chunks: Sequence[str] = CHUNKS) -> Document:
    questions = (Question("q0", "where was the painter born ?", ("by the river", "stone")), Question("q1", "who ?", ("a",)))
    pieces = tuple(Piece(f"c{n}", n, text, 0, len(text)) for n, text in enumerate(chunks))
    return Document("d", (), pieces, questions)


def config(scorer: str, **changes: Any) -> ArkTrainingConfig:
    likelihoods = {
        "scorer": scorer,
        "v": {"weight": 0},
        "forward_prompt": "passage : $chunk query : $question answer :",
        "backward_prompt": "passage : $chunk answer : $answer query :",
        **changes,
    }
    return ArkTrainingConfig.model_validate({"data": ["worlds/long:train"], "base": "minilm", "score": likelihoods})


def raw(scorer: str, shelf: Path | None = None, **changes: Any) -> list[Any]:
    there = document()
    return Terms(config(scorer, **changes), "cpu", shelf, None).raw(there, there.questions)


def naive(scorer: str, prompt: str, target: str) -> tuple[float, int]:
    """Sum log-probabilities token by token without a cache; return the sum and the number of tokens."""
    import torch

    model = CausalModel(CausalConfig(model=scorer, max_new_tokens=1), "cpu")
    head, tail = model.text_encoder.prompts([prompt])[0], model.text_encoder.target(target)
    assert head[: len(model.text_encoder.before)] == model.text_encoder.before
    assert head.count(model.text_encoder.before[0]) == 1 if model.text_encoder.before else True
    total = 0.0
    for position, token in enumerate(tail):
        with torch.no_grad():
            logits = model.model(torch.tensor([head + tail[:position]])).logits[0, -1].double()
        total += float(logits.log_softmax(dim=0)[token])
    return total, len(tail)


def test_scores_are_mean_log_likelihoods_of_the_target_as_in_a_naive_loop(scorer: str) -> None:
    results = raw(scorer)
    for question, scores in zip(document().questions, results, strict=True):
        for position, chunk in enumerate(CHUNKS):
            total, count = naive(scorer, f"passage : {chunk} query : {question.text} answer :", f" {question.answers[0]}")
            assert scores["f"][position] == pytest.approx(total / count, abs=1e-4)
            total, count = naive(scorer, f"passage : {chunk} answer : {question.answers[0]} query :", f" {question.text}")
            assert scores["b"][position] == pytest.approx(total / count, abs=1e-4)


def test_scores_do_not_depend_on_other_questions_or_chunks_in_the_batch(scorer: str) -> None:
    together = raw(scorer)
    item = document([CHUNKS[1]])
    alone = Terms(config(scorer), "cpu", None, None).raw(item, item.questions[1:])
    for name in ("f", "b"):
        assert alone[0][name][0] == pytest.approx(together[1][name][1], abs=1e-4)


def test_long_chunk_is_truncated_and_the_prompt_around_it_is_kept(scorer: str) -> None:
    long = " ".join(["stone"] * 200)
    there = document([long])
    terms = Terms(config(scorer), "cpu", None, None)
    (result, _) = terms.raw(there, there.questions)
    limit = terms.scorer.model.prompt_room(3)
    question = there.questions[0]
    for cut in range(1, 80):
        prompt = f"passage : {' '.join(['stone'] * cut)} query : {question.text} answer :"
        if len(terms.scorer.model.text_encoder.prompts([prompt])[0]) == limit:
            break
    total, count = naive(scorer, prompt, f" {question.answers[0]}")
    assert count == 3
    assert result["f"][0] == pytest.approx(total / count, abs=1e-4)


def test_stored_scores_are_not_recomputed(scorer: str, tmp_path: Path) -> None:
    there = document()
    first = Terms(config(scorer), "cpu", tmp_path, None)
    before = first.raw(there, there.questions[:1])
    second = Terms(config(scorer), "cpu", tmp_path, None)
    after = second.raw(there, there.questions)
    assert (first.computed, second.computed) == (2 * 3, 2 * 3)
    assert all((before[0][name] == after[0][name]).all() for name in "fb")
    other = Terms(config(scorer, forward_prompt="$chunk $question :"), "cpu", tmp_path, None)
    other.raw(there, there.questions)
    assert other.computed == 2 * 3


def test_trained_scorer_ranks_the_chunk_with_the_answer_first() -> None:
    """The shipped model copies answers from its context."""
    texts = [
        "Bruno Varn was born in 1702. Bruno Varn lived in Hulme.",
        "Ada Lorn was born in Jorvik. Ada Lorn's profession was that of a baker.",
        "Kestle has a population of 400. The mayor of Kestle is Tom Arle.",
    ]
    pieces = tuple(Piece(f"c{n}", n, text, 0, len(text)) for n, text in enumerate(texts))
    there = Document("d", (), pieces, (Question("q", "Where was Ada Lorn born?", ("Jorvik",)),))
    options = ArkTrainingConfig.model_validate(
        {"data": ["worlds/long:train"], "base": "minilm", "score": {"scorer": "pocket", "v": {"weight": 0}}}
    )
    (result,) = Terms(options, "cpu", None, None).raw(there, there.questions)
    rows = aligned("q", [piece.id for piece in pieces], result, options.score)
    assert positives(rows, 1) == ["c1"]
