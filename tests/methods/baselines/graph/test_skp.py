"""SKP: masking, and its loss against naive loops."""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from methods.baselines.graph.skp import NOT_A_TARGET, SEPARATOR, SkpObjective, Tokenized, contrastive, hidden_words, masked, tokenized

torch = pytest.importorskip("torch")
WORDS = ["moss", "old", "river_stone", "unused", "m.0abc", "the", "bridge,", "x1y2", "Ünü"]
TEXTS = ["old bridge moss", "river_stone unused the", "moss", "the  bridge,\tof  m.0abc stone", "x1y2 Ünü old old"]


@pytest.fixture(scope="module")
def tokenizer(tiny_models: ModuleType) -> Any:
    return tiny_models.tokenizer("bert")


def laid_out(texts: list[str], tokenizer: Any, length: int = 64, seed: int = 0) -> tuple[Tokenized, Any]:
    result = tokenized(texts, tokenizer, length)
    return result, masked(result, np.arange(len(texts)), hidden_words(result, seed))


@pytest.mark.slow
@given(
    texts=st.lists(st.lists(st.sampled_from([*WORDS, SEPARATOR]), max_size=9), min_size=1, max_size=6),
    seed=st.integers(0, 50),
    length=st.integers(8, 40),
)
def test_exactly_one_whole_word_is_masked(tokenizer: Any, texts: list[list[str]], seed: int, length: int) -> None:
    result, batch = laid_out([" ".join(words) for words in texts], tokenizer, length, seed)
    for row, words in enumerate(texts):
        # Naively: the pieces of one word after another, between [CLS] and [SEP], as far as they fit.
        pieces = [(number, piece) for number, word in enumerate(words) for piece in tokenizer.tokenize(word)]
        pieces = pieces[: length - 2]
        plain = tokenizer.convert_tokens_to_ids(["[CLS]", *(piece for _, piece in pieces), "[SEP]"])
        size = int(batch.attention[row].sum())
        assert batch.attention[row].tolist() == [1] * size + [0] * (batch.ids.shape[1] - size)
        assert batch.ids[row, :size].tolist() == plain
        assert set(batch.ids[row, size:].tolist()) <= {tokenizer.pad_token_id}
        positions = np.flatnonzero(batch.labels[row] != NOT_A_TARGET)
        candidates = {number for number, _ in pieces if words[number] != SEPARATOR}
        assert result.counts[row] == len(candidates)
        if not candidates:
            assert not len(positions)
            assert (batch.copies[row] == batch.ids[row]).all()
            continue
        chosen = pieces[positions[0] - 1][0]
        assert chosen in candidates
        assert positions.tolist() == [1 + at for at, (number, _) in enumerate(pieces) if number == chosen]
        assert (batch.copies[row, positions] == tokenizer.mask_token_id).all()
        assert (batch.labels[row, positions] == batch.ids[row, positions]).all()
        rest = np.delete(np.arange(batch.ids.shape[1]), positions)
        assert (batch.copies[row, rest] == batch.ids[row, rest]).all()


@pytest.mark.slow
def test_words_are_masked_with_equal_frequency(tokenizer: Any) -> None:
    result = tokenized(["old moss bridge river"] * 8000, tokenizer, 64)
    counts = np.bincount(hidden_words(result, 3), minlength=4)
    expected = 2000
    assert float(((counts - expected) ** 2 / expected).sum()) < 16.3  # chi-square, 3 degrees of freedom, p = 0.001


def test_masked_word_depends_on_the_key(tokenizer: Any) -> None:
    result = tokenized(["old moss bridge river"] * 50, tokenizer, 64)
    assert (hidden_words(result, 1, "epoch", 0) == hidden_words(result, 1, "epoch", 0)).all()
    assert (hidden_words(result, 1, "epoch", 0) != hidden_words(result, 1, "epoch", 1)).any()


def test_parts_of_a_batch_equal_its_rows(tokenizer: Any) -> None:
    _, batch = laid_out(TEXTS, tokenizer)
    part = batch.take_rows(slice(1, 3))
    width = part.ids.shape[1]
    assert width == int(batch.attention[1:3].sum(axis=1).max())
    assert (part.ids == batch.ids[1:3, :width]).all()
    assert (part.labels == batch.labels[1:3, :width]).all()
    assert sum(batch.take_rows(slice(n, n + 1)).targets for n in range(len(batch))) == batch.targets


def cosine(item: Any, other: Any) -> float:
    return float(item @ other / (np.linalg.norm(item) * np.linalg.norm(other)))


@given(seed=st.integers(0, 10_000), count=st.integers(1, 7), temperature=st.floats(0.05, 2))
def test_contrastive_loss_equals_a_naive_loop(seed: int, count: int, temperature: float) -> None:
    texts, copies = np.random.default_rng(seed).normal(size=(2, count, 5))
    losses = []
    for i in range(count):
        scores = [math.exp(cosine(texts[i], copies[j]) / temperature) for j in range(count)]
        losses.append(-math.log(scores[i] / sum(scores)))
    result = contrastive(torch.from_numpy(texts), torch.from_numpy(copies), temperature)
    assert float(result) == pytest.approx(sum(losses) / count, rel=1e-4, abs=1e-5)
    scaled = contrastive(torch.from_numpy(texts * 7), torch.from_numpy(copies * 0.3), temperature)
    assert float(scaled) == pytest.approx(float(result), rel=1e-4, abs=1e-5)


def test_contrastive_loss_of_a_single_text_is_zero() -> None:
    assert float(contrastive(torch.ones(1, 3), torch.rand(1, 3), 0.5)) == 0


KINDS = ["Bert", "DistilBert"]


def gradients(model: Any) -> Any:
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("vector", ["first", "flatten"])
def test_loss_and_gradient_equal_a_naive_loop(tiny_models: ModuleType, tokenizer: Any, kind: str, vector: Any) -> None:
    model = tiny_models.masked_language_model(kind).train()
    _, batch = laid_out(TEXTS, tokenizer)
    figures = SkpObjective(model, vector, 0.2, 0.5, part=64).backward(batch, ("seed", 0))
    result = gradients(model)
    # Naively: text by text, the plain forward pass, every logit.
    model.zero_grad()
    hidden, vectors = [], [[], []]
    width = batch.ids.shape[1]
    for row in range(len(batch)):
        size = int(batch.attention[row].sum())
        text, copy = (model(torch.from_numpy(ids[row : row + 1, :size]), output_hidden_states=True) for ids in (batch.ids, batch.copies))
        for position in np.flatnonzero(batch.labels[row] != NOT_A_TARGET):
            hidden.append(-copy.logits[0, position].log_softmax(0)[batch.labels[row, position]])
        for side, output in enumerate((text, copy)):
            states = output.hidden_states[-1][0]
            empty = torch.zeros(width - size, states.shape[1])
            vectors[side].append(states[0] if vector == "first" else torch.cat([states, empty]).flatten())
    apart = []
    for i, text in enumerate(vectors[0]):
        scores = torch.stack([torch.cosine_similarity(text, copy, dim=0) for copy in vectors[1]]) / 0.5
        apart.append(-scores.log_softmax(0)[i])
    expected = torch.stack(hidden).mean() + 0.2 * torch.stack(apart).mean()
    expected.backward()
    assert figures["loss"] == pytest.approx(float(expected.detach()), rel=1e-5)
    assert figures["masked"] == pytest.approx(float(torch.stack(hidden).mean().detach()), rel=1e-5)
    assert figures["contrastive"] == pytest.approx(float(torch.stack(apart).mean().detach()), rel=1e-4)
    assert torch.allclose(result, gradients(model), atol=2e-5)


@pytest.mark.parametrize("vector", ["first", "flatten"])
def test_gradient_of_a_split_batch_equals_that_of_the_whole(tiny_models: ModuleType, tokenizer: Any, vector: Any) -> None:
    model = tiny_models.masked_language_model().train()
    _, batch = laid_out(TEXTS, tokenizer)
    results = []
    for part in (64, 2, 1):
        model.zero_grad()
        figures = SkpObjective(model, vector, 0.2, 0.5, part).backward(batch, ("seed", 0))
        results.append((figures["loss"], gradients(model)))
    for loss, gradient in results[1:]:
        assert loss == pytest.approx(results[0][0], rel=1e-5)
        assert torch.allclose(gradient, results[0][1], atol=2e-5)


def test_both_passes_use_the_dropout_of_the_steps_seed(tiny_models: ModuleType, tokenizer: Any) -> None:
    model = tiny_models.masked_language_model(dropout=0.3).train()
    _, batch = laid_out(TEXTS, tokenizer)
    results = []
    for seed in (0, 0, 1):
        model.zero_grad()
        torch.rand(seed + 1)
        figures = SkpObjective(model, "first", 0.2, 0.5, part=2).backward(batch, ("seed", seed))
        results.append((figures["loss"], gradients(model)))
    assert results[0][0] == results[1][0]
    assert torch.equal(results[0][1], results[1][1])
    assert results[0][0] != results[2][0]
