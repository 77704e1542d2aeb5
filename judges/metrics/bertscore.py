"""BERTScore by the package `bert-score`: likeness of two texts by the vectors of their tokens."""

from __future__ import annotations

import csv
import warnings
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.errors import MissingPackage, UserError
from judges.api import Batch, Parameter, Scores
from judges.metrics.model_names import path_like, source_of
from judges.metrics.references import GOLDS, pairs
from judges.registry import register
from methods.models.weights import device_of, loading

_MODEL = Parameter("model", str, "bert-base-uncased", help="an encoder, by name", check=path_like)
_LAYER = Parameter(
    "layer", int, 12, help="the layer whose vectors are compared", check=lambda layer: None if layer >= 1 else "must be at least 1"
)
_RESCALE = Parameter("rescale", bool, False, (True, False), "by bert-score's English baseline of model and layer")

SLICE = 4096
"""Pairs handed to `bert-score` at a time: it holds the vectors of all their tokens."""
UNBOUNDED = 100_000
"""Lengths above this are what tokenizers state that know no limit."""


@register(
    "bertscore",
    source="bert-score 0.3.13; Zhang et al. 2020; SARK (bert-base-uncased, layer 12)",
    group="text",
    needs=("answer", "model"),
    parameters=(_MODEL, _LAYER, _RESCALE, GOLDS),
    low=None,
    missing="empty",
    exact=False,
)
def bertscore(batch: Batch, model: str, layer: int, rescale: bool, golds: str) -> Scores:
    """BERTScore F1 of the answer against the gold, the maximum over the golds.

    Without idf weights; model, layer and rescaling are part of the id, as values under others are no likeness of these.
    An empty answer has the raw value 0, which rescaling turns into a negative one; so has a missing answer. Where
    precision and recall differ in sign, which untrained models manage, the raw value is 0. A set of answers is one
    text, a line each. A question without a gold of visible characters, or unanswerable, is unscorable.
    """
    found = pairs(batch, golds, _visible)
    raw = batch.once(("bertscore", model, layer, golds), lambda: bertscore_of_pairs(found.answers, found.references, model, layer=layer))
    return found.best(_rescaled(raw, model, layer) if rescale else raw)


def bertscore_of_pairs(
    predictions: Sequence[str],
    references: Sequence[str],
    model: str = "bert-base-uncased",
    *,
    layer: int = 12,
    rescale: bool = False,
    device: str | None = None,
    batch_size: int = 64,
) -> Scores:
    """BERTScore F1 of each prediction against its reference.

    Args:
        predictions, references: One text a pair each.
        model: A name as `source_of` takes it, or a folder.
        layer: The layer whose vectors are compared.
        rescale: Whether values are rescaled by the package's English baseline, which it has for some models.
        device: Where to compute; None chooses.
        batch_size: Texts read at once.

    Returns:
        Shape (pairs,), at most 1; raw values are at least -1, and 0 where one side is empty.

    Raises:
        MissingPackage: bert-score is not installed.
        UserError: The model cannot be loaded, has fewer layers, or no baseline.
    """
    scores = np.zeros(len(predictions))
    # bert-score itself fails on an empty text; its value for one is 0.
    full = [row for row, pair in enumerate(zip(predictions, references, strict=True)) if all(map(_visible, pair))]
    for start in range(0, len(full), SLICE):
        rows = full[start : start + SLICE]
        sides = ([texts[row] for row in rows] for texts in (predictions, references))
        found = _scorer(model, layer, device_of(device)).score(*sides, batch_size=batch_size)
        scores[rows] = _f1(*(part.double().numpy() for part in found[:2]))
    return _rescaled(scores, model, layer) if rescale else scores


def _f1(precision: Scores, recall: Scores) -> Scores:
    """The harmonic mean, 0 where the two differ in sign; float32 cosines exceed 1 by rounding, F1 does not."""
    alike = precision * recall > 0
    f1 = 2 * precision * recall / np.where(alike, precision + recall, 1)
    return np.clip(np.where(alike, f1, 0.0), -1.0, 1.0)


def _visible(text: str) -> bool:
    return bool(text.strip())


def _rescaled(raw: Scores, model: str, layer: int) -> Scores:
    baseline = _baseline(model, layer)
    return (raw - baseline) / (1 - baseline)


@lru_cache
def _baseline(model: str, layer: int) -> float:
    """The F1 of unrelated sentences, as `bert-score` measured it."""
    bert_score = _package()
    folder = Path(bert_score.__file__).parent / "rescale_baseline" / "en"
    path = folder / f"{model}.tsv"
    rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines())) if path.is_file() else []
    found = [float(row["F"]) for row in rows if row["LAYER"] == str(layer)]
    if not found:
        known = sorted(p.relative_to(folder).with_suffix("").as_posix() for p in folder.rglob("*.tsv"))
        raise UserError(
            f"bert-score has no baseline for layer {layer} of {model!r}",
            try_this=f"rescale=false, or a model that has one: {', '.join(known[:8])}, …",
        )
    return found[0]


@lru_cache(maxsize=2)
def _scorer(model: str, layer: int, device: str) -> Any:
    bert_score = _package()
    with loading("encoder", model), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            scorer = bert_score.BERTScorer(model_type=_Source(source_of(model)), num_layers=layer, device=device, nthreads=0)
        except AssertionError as error:  # its way of saying that there are fewer layers
            raise UserError(str(error), where=f"bertscore of {model!r}", try_this="a smaller layer=") from None
    _limit(scorer._tokenizer, scorer._model.config)
    return scorer


class _Source(str):
    """Where a model is. `bert-score` takes it for a T5 if "t5" is in it, which in a path says nothing of the model."""

    __slots__ = ()

    def __contains__(self, part: object) -> bool:
        return str(part) in Path(str(self)).name


def _limit(tokenizer: Any, config: Any) -> None:
    """State how much the model reads, where its tokenizer does not: bert-score cuts texts by that alone."""
    positions = getattr(config, "max_position_embeddings", None)
    if tokenizer.model_max_length > UNBOUNDED and positions:
        # RoBERTa and its kin count positions from behind the padding id.
        taken = config.pad_token_id + 1 if "roberta" in config.model_type else 0
        tokenizer.model_max_length = positions - taken


def _package() -> Any:
    try:
        import bert_score
    except ImportError as error:
        raise MissingPackage("bert-score", "metrics", "BERTScore") from error
    return bert_score
