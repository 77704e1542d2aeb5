"""Perplexity compared with a naive loop over a real model, including windows."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.schema import Question
from judges.metric import parse
from judges.metrics import generation as module
from judges.metrics.generation import perplexity_of_texts, windows
from judges.score import check_invariants, score
from methods.api import Prediction
from tests.support.errors import raises

TEXTS = [
    "Once upon a time there was a little girl named Lily. She loved to play outside.",
    "Lily",
    "Purple seven the of of xylophone, quickly under 1984!",
    "a",
    "",
    "Tom saw a big red ball. He was happy.\nHe ran to his mom.",
]


@pytest.fixture(scope="module")
def stories(data_folder):
    for library in ("torch", "transformers"):
        pytest.importorskip(library)
    folder = data_folder / "models" / "stories260K"
    if not folder.is_dir():
        pytest.skip("the sample model stories260K is not there")
    return folder


@pytest.fixture(scope="module")
def plain(stories):
    """Compute perplexity one token at a time, without batch, padding or cache."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(stories), AutoModelForCausalLM.from_pretrained(stories).eval()

    def perplexity(text, context=512):
        ids = [tokenizer.bos_token_id, *tokenizer(text, add_special_tokens=False)["input_ids"]]
        losses = []
        with torch.no_grad():
            if len(ids) <= context + 1:
                table = model(torch.tensor([ids])).logits[0].double().log_softmax(-1)
                losses = [-table[position - 1, ids[position]].item() for position in range(1, len(ids))]
        assert len(losses) == len(ids) - 1
        return math.exp(sum(losses) / len(losses)) if losses else math.nan

    return perplexity


@pytest.mark.slow
def test_perplexity_equals_a_naive_loop(stories, plain):
    result = perplexity_of_texts(TEXTS, str(stories), device="cpu")
    np.testing.assert_allclose(result, [plain(text) for text in TEXTS], rtol=1e-5)
    assert result[0] < result[2]  # a story is more fluent than random words


@pytest.mark.slow
def test_batch_perplexity_equals_single_texts(stories):
    together = perplexity_of_texts(TEXTS, str(stories), device="cpu")
    alone = [perplexity_of_texts([text], str(stories), device="cpu")[0] for text in TEXTS]
    np.testing.assert_allclose(together, alone, rtol=1e-5)
    assert perplexity_of_texts([], str(stories)).shape == (0,)


@pytest.mark.slow
def test_text_longer_than_the_context_is_scored_to_its_end(stories):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(stories), AutoModelForCausalLM.from_pretrained(stories).eval()
    long = "The dog ran after the cat and the cat ran up a tree. " * 60
    ids = [tokenizer.bos_token_id, *tokenizer(long, add_special_tokens=False)["input_ids"]]
    assert len(ids) > 1024
    losses, start, done = [], 0, 1
    with torch.no_grad():
        while done < len(ids):
            # The first window is full; each later one sees half the context before the tokens that it scores.
            start = 0 if done == 1 else done - 256
            end = min(len(ids), start + 513)
            table = model(torch.tensor([ids[start : end - 1]])).logits[0].double().log_softmax(-1)
            losses += [-table[position - start - 1, ids[position]].item() for position in range(done, end)]
            done = end
    assert len(losses) == len(ids) - 1
    expected = math.exp(sum(losses) / len(losses))
    assert perplexity_of_texts([long], str(stories))[0] == pytest.approx(expected, rel=1e-5)


@given(st.integers(0, 90), st.one_of(st.none(), st.just(-1)), st.integers(4, 20))
def test_windows_score_every_token_once_and_fit_the_context(size, begin, length):
    ids = list(range(size))
    results = windows(ids, begin, length)
    scored = [token for _, target in results for token in target]
    assert scored == (ids if begin is not None else ids[1:])
    whole = [begin, *ids] if begin is not None else ids
    for given_ids, target in results:
        assert given_ids
        assert target
        assert len(given_ids) + len(target) - 1 <= length
        start = whole.index(target[0])
        assert whole[start - len(given_ids) : start] == given_ids
    assert all(len(given_ids) >= length // 2 for given_ids, _ in results[1:])


NAMED = "perplexity(model=stories260K)"


@pytest.fixture
def named(stories, monkeypatch):
    monkeypatch.setenv("RAGMETER_MODELS", str(stories.parent))
    return NAMED


@pytest.mark.slow
def test_metric_scores_answers_and_skips_missing_ones(named, stories):
    queries = [Question(f"q{n}", "?", ("x",)) for n in range(4)]
    responses = [Prediction("q0", TEXTS[0]), Prediction("q1", ""), None, Prediction("q3", TEXTS[2], notes={"failed": "x"})]
    values = score(queries, responses, [named])[f"{named}#v1"]
    assert values[0] == pytest.approx(perplexity_of_texts(TEXTS[:1], str(stories))[0])
    assert np.isnan(values[1:]).all()
    assert check_invariants({parse(named): values}) == []


def test_perplexity_is_lower_is_better_without_an_upper_bound():
    entry = parse("perplexity").entry
    assert (entry.low, entry.high, entry.higher_is_better, entry.exact, entry.unit) == (1, None, False, False, "number")
    assert str(parse("perplexity")) == "perplexity(model=gpt2)#v1"


@pytest.mark.slow
def test_model_is_loaded_once_for_many_batches(named):
    module._load.cache_clear()
    for _ in range(3):
        score([Question("q", "?", ("x",))], [Prediction("q", "Tom ran.")], [named])
    assert module._load.cache_info().misses == 1


@pytest.mark.slow
def test_missing_model_is_reported():
    with raises("load-failed"):
        perplexity_of_texts(["x"], "no-such-model-anywhere")
    with raises("bad-option"):
        parse("perplexity(model=/models/gpt2)")
