"""Perplexity of texts under a local causal language model: how fluent they are to it, whatever they say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from judges.api import Batch, Parameter, Scores
from judges.metrics.model_names import path_like, source_of
from judges.registry import register
from methods.models.weights import device_of

_MODEL = Parameter("model", str, "gpt2", help="a causal language model, by name", check=path_like)

Item = tuple[list[int], list[int]]
"""Token ids of what is given, and of what is scored after it."""


@register(
    "perplexity",
    source="evaluate's perplexity, add_start_token; SARK's fluency (GPT-2)",
    group="text",
    needs=("answer", "model"),
    parameters=(_MODEL,),
    low=1.0,
    high=None,
    higher_is_better=False,
    missing="unscorable",
    exact=False,
    unit="number",
)
def perplexity(batch: Batch, model: str) -> Scores:
    """exp of the mean negative log-likelihood per token of the answer; reported is the mean of these over questions.

    The text starts after the model's begin token where it has one (else its first token is not scored). Texts longer
    than the model's context are read in windows that overlap by half of it, each token scored once. A text without a
    token to score, a missing answer among them, has no perplexity: unscorable, so read it beside the number scored.
    """
    return batch.once(("perplexity", model), lambda: perplexity_of_texts(batch.answers, model))


def perplexity_of_texts(texts: Sequence[str], model: str = "gpt2", *, device: str | None = None) -> Scores:
    """exp of the mean negative log-likelihood per token, text by text.

    Args:
        texts: Any texts.
        model: A name as `source_of` takes it, or a folder.
        device: Where to compute; None chooses.

    Returns:
        Shape (texts,); NaN where a text has no token to score.

    Raises:
        UserError: The model cannot be loaded.
    """
    from methods.models.scoring import ScoringConfig

    loaded = _load(source_of(model), device_of(device))
    begin = loaded.tokenizer.bos_token_id
    owners: list[int] = []
    items: list[Item] = []
    ids = loaded.tokenizer(list(texts), add_special_tokens=False)["input_ids"] if texts else []
    for number, row in enumerate(ids):
        found = windows(list(row), begin, loaded.length)
        items += found
        owners += [number] * len(found)
    totals, counts = np.zeros(len(texts)), np.zeros(len(texts))
    for number, values in zip(owners, loaded.logprobs(items, ScoringConfig()), strict=True):
        totals[number] -= math.fsum(values)
        counts[number] += len(values)
    with np.errstate(invalid="ignore"):
        return np.exp(np.where(counts > 0, totals / np.where(counts > 0, counts, 1), np.nan))


def windows(ids: list[int], begin: int | None, length: int) -> list[Item]:
    """Cut a text into what a model reads at once, so that each token is scored once.

    Args:
        ids: The text's token ids.
        begin: The model's begin token, None where it has none.
        length: Tokens that the model takes in all.

    Returns:
        What is given and what is scored, window by window; later windows are given half a context.
    """
    given, rest = ([begin], ids) if begin is not None else (ids[:1], ids[1:])
    found: list[Item] = []
    # The last token scored is no input, so one more fits.
    room = length
    while rest:
        found.append((given, rest[:room]))
        given, rest = (given + rest[:room])[-(length // 2) :], rest[room:]
        room = length - len(given) + 1
    return found


@lru_cache(maxsize=2)
def _load(source: str, device: str) -> Any:
    from methods.models.causal import CausalConfig, CausalModel

    return CausalModel(CausalConfig.model_validate({"model": source, "max_new_tokens": 1}), device)
