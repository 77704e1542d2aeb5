"""Texts by their likeness to a reference and by their fluency: BERTScore, ROUGE, perplexity."""

from __future__ import annotations

import csv
import math
import os
import warnings
from collections.abc import Callable, Sequence
from functools import cache, lru_cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.core.errors import MissingPackage, UserError, unknown_name
from benchmarks.text import common_tokens
from judges.metric import Batch, Parameter, Scores, english, register
from judges.metrics.answer import GOLDS, pairs
from methods.models.complete import check_weights, complete
from methods.models.pretrained import device_of, loading
from methods.models.weights import locate

MODELS = "RAGMETER_MODELS"
"""Environment variable of a folder with models under their names (`bert-base-uncased/`, `BAAI/bge-m3/` …)."""


def path_like(name: str) -> str | None:
    """Return an error message if a model's name cannot be part of a metric id; else None."""
    if not name:
        return "names no model"
    if name.startswith(("/", ".", "~")) or "\\" in name:
        return (
            "is a path, which means something else on every machine: "
            f"write the model's name, and put its folder into the one that {MODELS} names"
        )
    return None


def source_of(model: str) -> str:
    """Resolve a model's name to a folder or hub id.

    Args:
        model: A folder, the name of a folder in `RAGMETER_MODELS`, a model that ships with ragmeter (`pocket`), or a hub id;
            tried in this order.

    Raises:
        UserError: The name is a path that does not exist.
    """
    root = os.environ.get(MODELS)
    if root and not path_like(model) and (Path(root).expanduser() / model).is_dir():
        return str(Path(root).expanduser() / model)
    return locate(model)


_ENCODER = Parameter("model", str, "bert-base-uncased", help="an encoder, by name", check=path_like)
_LAYER = Parameter(
    "layer", int, 12, help="the layer whose vectors are compared", check=lambda layer: None if layer >= 1 else "must be at least 1"
)
_RESCALE = Parameter("rescale", bool, False, (True, False), "by bert-score's English baseline of model and layer")

SLICE = 4096
"""Pairs per call of `bert-score`, which keeps the vectors of all their tokens in memory."""
UNBOUNDED = 100_000
"""Lengths above this are placeholders of tokenizers without a limit."""


@register(
    "bertscore",
    source="bert-score 0.3.13; Zhang et al. 2020; SARK (bert-base-uncased, layer 12)",
    group="text",
    needs=("answer", "model"),
    parameters=(_ENCODER, _LAYER, _RESCALE, GOLDS),
    low=None,
    missing="empty",
    exact=False,
)
def bertscore(batch: Batch, model: str, layer: int, rescale: bool, golds: str) -> Scores:
    """Compute BERTScore F1 of the answer against the gold answer, the maximum over the gold answers.

    Without idf weights; model, layer and rescaling are part of the id, as values under others are not comparable with these.
    An empty or missing answer has the raw value 0, which rescaling makes negative. If
    precision and recall differ in sign (possible for untrained models), the raw value is 0. A set of answers is one
    text with one line per answer. Unanswerable questions and golds without visible characters are unscorable.
    """
    result = pairs(batch, golds, _visible)
    raw = batch.once(("bertscore", model, layer, golds), lambda: bertscore_of_pairs(result.answers, result.references, model, layer=layer))
    return result.best(_rescaled(raw, model, layer) if rescale else raw)


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
    """Compute BERTScore F1 of each prediction against its reference.

    Args:
        predictions, references: One text per pair.
        model: A folder, or a name that `source_of` resolves.
        layer: The layer whose vectors are compared.
        rescale: Whether to rescale values by bert-score's English baseline, which exists for some models.
        device: Device of the model; None chooses automatically.
        batch_size: Number of texts per batch.

    Returns:
        Shape (pairs,), at most 1; raw values are at least -1, and 0 if one side is empty.

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
        result = _scorer(model, layer, device_of(device)).score(*sides, batch_size=batch_size)
        scores[rows] = _f1(*(part.double().numpy() for part in result[:2]))
    return _rescaled(scores, model, layer) if rescale else scores


def _f1(precision: Scores, recall: Scores) -> Scores:
    """Return the harmonic mean; 0 if the signs differ. float32 cosines exceed 1 by rounding, F1 does not."""
    same_sign = precision * recall > 0
    f1 = 2 * precision * recall / np.where(same_sign, precision + recall, 1)
    return np.clip(np.where(same_sign, f1, 0.0), -1.0, 1.0)


def _visible(text: str) -> bool:
    return bool(text.strip())


def _rescaled(raw: Scores, model: str, layer: int) -> Scores:
    baseline = _baseline(model, layer)
    return (raw - baseline) / (1 - baseline)


@lru_cache
def _baseline(model: str, layer: int) -> float:
    """Return the F1 of unrelated sentences that `bert-score` measured."""
    bert_score = _package()
    folder = Path(bert_score.__file__).parent / "rescale_baseline" / "en"
    path = folder / f"{model}.tsv"
    rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines())) if path.is_file() else []
    results = [float(row["F"]) for row in rows if row["LAYER"] == str(layer)]
    if not results:
        known = sorted(p.relative_to(folder).with_suffix("").as_posix() for p in folder.rglob("*.tsv"))
        raise UserError(
            f"bert-score has no baseline for layer {layer} of {model!r}",
            code="missing-bert-score-baseline",
            try_this=f"rescale=false, or a model that has one: {', '.join(known[:8])}, …",
        )
    return results[0]


@lru_cache(maxsize=2)
def _scorer(model: str, layer: int, device: str) -> Any:
    bert_score = _package()
    with loading("encoder", model), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with complete("encoder", model, pooler=False):
                scorer = bert_score.BERTScorer(model_type=_Source(source_of(model)), num_layers=layer, device=device, nthreads=0)
        except AssertionError as error:  # its way of saying that there are fewer layers
            raise UserError(str(error), code="scorer-failed", where=f"bertscore of {model!r}", try_this="a smaller layer=") from None
    check_weights(scorer._model, model, "encoder", scorer._tokenizer)
    _limit(scorer._tokenizer, scorer._model.config)
    return scorer


class _Source(str):
    """Path of a model. `bert-score` treats a path that contains "t5" as a T5 model, so this class hides the folder's name."""

    __slots__ = ()

    def __contains__(self, part: object) -> bool:
        return str(part) in Path(str(self)).name


def _limit(tokenizer: Any, config: Any) -> None:
    """Set the model's maximum length if its tokenizer has none, because bert-score truncates texts by it."""
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


_LANGUAGE_MODEL = Parameter("model", str, "gpt2", help="a causal language model, by name", check=path_like)

Item = tuple[list[int], list[int]]
"""Token ids of the context, and of the scored text after it."""


@register(
    "perplexity",
    source="evaluate's perplexity, add_start_token; SARK's fluency (GPT-2)",
    group="text",
    needs=("answer", "model"),
    parameters=(_LANGUAGE_MODEL,),
    low=1.0,
    high=None,
    higher_is_better=False,
    missing="unscorable",
    exact=False,
    unit="number",
)
def perplexity(batch: Batch, model: str) -> Scores:
    """Compute the perplexity of the answer: exp of the mean negative log-likelihood per token; the reported value is the mean
    over questions.

    The text starts after the model's begin token; without one, its first token is not scored. Texts longer than the model's
    context are read in windows that overlap by half, and each token is scored once. A text without a scored token, such as a
    missing answer, is unscorable, so report the number of scored questions, too.
    """
    return batch.once(("perplexity", model), lambda: perplexity_of_texts(batch.answers, model))


def perplexity_of_texts(texts: Sequence[str], model: str = "gpt2", *, device: str | None = None) -> Scores:
    """Compute the perplexity of each text: exp of the mean negative log-likelihood per token.

    Args:
        texts: The texts.
        model: A folder, or a name that `source_of` resolves.
        device: Device of the model; None chooses automatically.

    Returns:
        Shape (texts,); NaN if a text has no token to score.

    Raises:
        UserError: The model cannot be loaded.
    """
    from methods.models.likelihood import ScoringConfig

    loaded = _load(source_of(model), device_of(device))
    begin = loaded.tokenizer.bos_token_id
    owners: list[int] = []
    items: list[Item] = []
    ids = loaded.tokenizer(list(texts), add_special_tokens=False)["input_ids"] if texts else []
    for number, row in enumerate(ids):
        results = windows(list(row), begin, loaded.length)
        items += results
        owners += [number] * len(results)
    totals, counts = np.zeros(len(texts)), np.zeros(len(texts))
    for number, values in zip(owners, loaded.logprobs(items, ScoringConfig()), strict=True):
        totals[number] -= math.fsum(values)
        counts[number] += len(values)
    with np.errstate(invalid="ignore"):
        return np.exp(np.where(counts > 0, totals / np.where(counts > 0, counts, 1), np.nan))


def windows(ids: list[int], begin: int | None, length: int) -> list[Item]:
    """Cut a text into overlapping windows for a language model, so that each token is scored once.

    Args:
        ids: The text's token ids.
        begin: The model's begin token, None if it has none.
        length: Context length of the model, in tokens.

    Returns:
        For each window its context and scored tokens; in later windows, the first half is context.
    """
    options, rest = ([begin], ids) if begin is not None else (ids[:1], ids[1:])
    results: list[Item] = []
    # The last token scored is not an input, so one more fits.
    room = length
    while rest:
        results.append((options, rest[:room]))
        options, rest = (options + rest[:room])[-(length // 2) :], rest[room:]
        room = length - len(options) + 1
    return results


@lru_cache(maxsize=2)
def _load(source: str, device: str) -> Any:
    from methods.models.causal import CausalConfig, CausalModel

    return CausalModel(CausalConfig.model_validate({"model": source, "max_new_tokens": 1}), device)


# ROUGE by the definition of the package `rouge-score`, equal to it to the last digit and many times faster.
# Words are cut and stemmed as that package does it, each distinct word stemmed once; the longest common subsequence comes
# from rapidfuzz, which compares many words at a time. Tests hold both against `rouge-score` itself.


TYPES = ("rouge1", "rouge2", "rougeL")

_TYPE = Parameter("type", str, "rougeL", TYPES, "common words, common pairs of words, longest common subsequence")
_STEM = Parameter("stem", bool, True, (True, False), "Porter stems of words longer than three letters")

_LETTERS = bytes(code if chr(code) in "abcdefghijklmnopqrstuvwxyz0123456789" else ord(" ") for code in range(256))
_SHORT = 3
"""Maximum letters of words that are not stemmed."""


@register(
    "rouge", source="rouge-score 0.1.2; Lin 2004", group="text", needs=("answer",), parameters=(_TYPE, _STEM, GOLDS), language=english
)
def rouge(batch: Batch, type: str, stem: bool, golds: str) -> Scores:
    """Compute the ROUGE F-measure of the answer against the gold answer, the maximum over the gold answers.

    Words are lower-cased runs of a-z and digits, Porter-stemmed unless stem=false. rouge1 compares words as multisets, rouge2
    pairs of adjacent words, rougeL the longest common subsequence of words. A set of answers is one text with a line per
    answer. A gold answer without such words (rouge2: with fewer than two) is left out; a question with none left, or an
    unanswerable one, is unscorable.
    """
    result = pairs(batch, golds)
    predictions, wanted = batch.once(("rouge", stem, golds), partial(_both, result.answers, result.references, stem))
    scores = _f_measures(predictions, wanted, type)
    fit = [" " in words if type == "rouge2" else words != "" for words in wanted]
    return result.best(np.where(fit, scores, np.nan))


def rouge_of_pairs(predictions: Sequence[str], references: Sequence[str], type: str = "rougeL", *, stem: bool = True) -> Scores:
    """Compute the ROUGE F-measure of each prediction against its reference, equal to `rouge_score.RougeScorer`.

    Args:
        predictions, references: One text per pair.
        type: `rouge1`, `rouge2` or `rougeL`.
        stem: Whether to stem words; the ROUGE of the package `evaluate` does not by default.

    Returns:
        Shape (pairs,), 0 if one side has no words.

    Raises:
        MissingPackage: rapidfuzz (for rougeL) or nltk (for stems) is not installed.
        UserError: The type is unknown.
    """
    return _f_measures(*_both(predictions, references, stem), type)


def rouge_words(texts: Sequence[str], stem: bool) -> list[str]:
    """Return the words of each text as ROUGE splits them, joined by single spaces.

    They are strings rather than lists, because hundreds of thousands of lists slow down garbage collection.
    """
    kept = lru_cache(maxsize=None)(partial(_words, stem=stem))  # a prediction recurs next to each of its references
    return [kept(text) for text in texts]


def _both(predictions: Sequence[str], references: Sequence[str], stem: bool) -> tuple[list[str], list[str]]:
    return rouge_words(predictions, stem), rouge_words(references, stem)


def _words(text: str, stem: bool) -> str:
    # Lower-casing comes before the cut to ASCII: the Kelvin sign becomes a k. What is not ASCII becomes a question mark
    # and then, as whatever else is not a letter or digit, a space.
    words = text.lower().encode("ascii", "replace").translate(_LETTERS).decode("ascii").split()
    if stem:
        stem_of = _stems()
        words = [stem_of(word) if len(word) > _SHORT else word for word in words]
    return " ".join(words)


@cache
def _stems() -> Callable[[str], str]:
    """Return the stemmer of `rouge-score` with a cache."""
    try:
        from nltk.stem.porter import PorterStemmer
    except ImportError as error:
        raise MissingPackage("rouge-score", "metrics", "ROUGE with stems") from error
    return lru_cache(maxsize=1 << 20)(PorterStemmer().stem)


def _f_measures(predictions: Sequence[str], references: Sequence[str], type: str) -> Scores:
    """Compute F-measures of words with the exact operations of `rouge_score.scoring.fmeasure`."""
    if type not in TYPES:
        raise unknown_name("type of ROUGE", type, TYPES)
    count = _subsequence() if type == "rougeL" else _common_pairs if type == "rouge2" else _common_words
    counts = (count(*map(str.split, pair)) for pair in zip(predictions, references, strict=True))
    common, predicted, wanted = np.fromiter(counts, np.dtype((np.float64, 3)), len(references)).T
    precision, recall = common / np.maximum(predicted, 1), common / np.maximum(wanted, 1)
    total = precision + recall
    return np.where(total > 0, 2 * precision * recall / np.where(total > 0, total, 1), 0.0)


Counts = tuple[int, int, int]
"""Number of common units, of units in the first text, and of units in the second text."""


def _common_words(prediction: list[str], reference: list[str]) -> Counts:
    return common_tokens(prediction, reference), len(prediction), len(reference)


def _common_pairs(prediction: list[str], reference: list[str]) -> Counts:
    responses, wanted = list(pairwise(prediction)), list(pairwise(reference))
    return common_tokens(responses, wanted), len(responses), len(wanted)


def _subsequence() -> Callable[[list[str], list[str]], Counts]:
    try:
        from rapidfuzz.distance.LCSseq import similarity
    except ImportError as error:
        raise MissingPackage("rapidfuzz", "metrics", "ROUGE-L") from error

    def longest(prediction: list[str], reference: list[str]) -> Counts:
        # Numbers in place of words: rapidfuzz compares hashes, and those of small numbers are the numbers themselves.
        # Words that the reference lacks are in no common subsequence.
        numbers = dict(zip(reference, range(len(reference)), strict=True))
        responses = [numbers[word] for word in prediction if word in numbers]
        length = similarity(responses, [numbers[word] for word in reference]) if len(responses) > 1 else len(responses)
        return length, len(prediction), len(reference)

    return longest
