"""Refuse models whose files lack weights, or whose weights are damaged: libraries load both and compute with them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, wraps
from typing import Any

from benchmarks.core.errors import UserError, counted

FETCH = "fetch the model's files again"

_missing: ContextVar[set[str] | None] = ContextVar("missing", default=None)
"""Names of weights that the files of the models being loaded lack; None if nobody checks them."""
_unused: ContextVar[set[str] | None] = ContextVar("unused", default=None)
"""Names of weights of layers beyond those that the models being loaded have; None if nobody checks them."""
_unread: ContextVar[set[str] | None] = ContextVar("unread", default=None)
"""Names of further tensors of layers that the models being loaded have, such as scales and biases; None if nobody checks them."""
_expected: ContextVar[bool] = ContextVar("expected", default=False)
"""True if the caller expects weights to be missing."""


@cache
def _record_missing() -> None:
    """Let every model of `transformers` that is loaded in `complete` report the weights that its files lack.

    `sentence-transformers` loads models itself and drops this report.
    """
    from transformers import PreTrainedModel

    load = PreTrainedModel.from_pretrained.__func__

    @wraps(load)
    def recording(cls: Any, *args: Any, output_loading_info: bool = False, **options: Any) -> Any:
        if _missing.get() is None:
            return load(cls, *args, output_loading_info=output_loading_info, **options)
        model, report = load(cls, *args, output_loading_info=True, **options)
        _record(model, report)
        if getattr(model, "_hf_peft_config_loaded", False):  # the report is the adapter's; the base is read again, without data
            base = next(iter(model.peft_config.values())).base_model_name_or_path
            kept = {key: value for key, value in options.items() if key not in _OF_ADAPTER}
            whole = tuple(f"{path}." for path, part in model.named_modules() if type(part).__name__ == "ModulesToSaveWrapper")
            empty, its = load(cls, base, output_loading_info=True, **{**kept, "device_map": "meta"})
            _record(empty, its, whole)
        return (model, report) if output_loading_info else model

    PreTrainedModel.from_pretrained = classmethod(recording)


_OF_ADAPTER = {"pretrained_model_name_or_path", "revision", "adapter_kwargs", "adapter_name"}
"""Options of loading that name an adapter and not its base."""


def _record(model: Any, report: Mapping[str, Any], provided: tuple[str, ...] = ()) -> None:
    """Record which tensors the files of a loaded model lack, and which are not read; names that begin with `provided` are not lacking."""
    missing, unused, unread = _missing.get(), _unused.get(), _unread.get()
    if missing is not None:
        missing.update(name for name in report["missing_keys"] if not name.startswith(provided))
    # Layers that predict further tokens follow the configured ones, and generation does not need them.
    predicts = getattr(model.config, "num_nextn_predict_layers", None)
    if unused is not None and report["unexpected_keys"] and not predicts:
        kinds, base = set(map(_kind, model.state_dict())), f"{model.base_model_prefix}."
        unused.update(name for name in report["unexpected_keys"] if _kind(name.removeprefix(base)) in kinds or _kind(name) in kinds)
    if unread is not None and getattr(model, "hf_quantizer", None) is None:
        unread.update(_beside_weights(model, report["unexpected_keys"]))


def _beside_weights(model: Any, unexpected: Iterable[str]) -> Iterator[str]:
    """Yield the names of tensors that belong to a layer of the model that has a weight, and that this layer does not read.

    Scales of a layer's inputs are left out: weights that are no longer quantized do not need them.
    """
    owners = {path for path, part in model.named_modules() if getattr(part, "_parameters", {}).get("weight") is not None}
    base = f"{model.base_model_prefix}."
    owners |= {path.removeprefix(base) for path in owners} | {base + path for path in owners}
    for name in unexpected:
        parts = name.split(".")
        around = (".".join(parts[:end]) for end in range(1, len(parts)))
        if not re.search(r"(input|activation)_scale", parts[-1]) and not owners.isdisjoint(around):
            yield name


def _kind(name: str) -> str:
    """Return a weight's name without the numbers of its layers."""
    return re.sub(r"\.\d+(?=\.)", ".*", name)


@contextmanager
def complete(noun: str, model: str, *, pooler: bool = True, layers: bool = True) -> Iterator[None]:
    """Refuse models that are loaded in the block if their files lack weights, which would be random, or hold further layers or
    tensors of their layers that are not read.

    Args:
        noun: Name of the model's role in errors.
        model: As `locate` takes it.
        pooler: Whether the model computes with the layer behind BERT's first token, which many encoders come without.
        layers: Whether to refuse further layers; false if the user's options may leave layers out.

    Raises:
        UserError: The files lack weights, hold layers that the configuration does not state, or tensors such as the scales of an
            unknown quantization; not within `without_load_report`.
    """
    _record_missing()
    missing, unused, unread = set[str](), set[str](), set[str]()
    checked = not _expected.get()
    mark, further = _missing.set(missing if checked else None), _unused.set(unused if checked and layers else None)
    beside = _unread.set(unread if checked else None)
    try:
        yield
    finally:
        _unread.reset(beside)
        _missing.reset(mark)
        _unused.reset(further)
    names = sorted(name for name in missing if pooler or not re.search(r"(^|\.)pooler\.", name))
    if names:
        raise UserError(
            f"the files of the {noun} {model!r} lack {_first_of(names)}, which would be random",
            code="random-weights",
            where=f"model {model!r}",
            try_this=f"{FETCH}; if they are complete, save them under the names that transformers uses",
        )
    if unused:
        raise UserError(
            f"the files of the {noun} {model!r} hold {_first_of(unused)}, for layers that its config.json does not state",
            code="layers-beyond-config",
            where=f"model {model!r}",
            try_this="correct the number of layers in config.json; to leave layers out, save the model without them",
        )
    if unread:
        raise UserError(
            f"the files of the {noun} {model!r} hold {_first_of(unread)}, which transformers does not read with this config.json",
            code="tensors-not-read",
            where=f"model {model!r}",
            try_this="unquantized weights, or a server that reads this quantization; correct config.json if it lacks a setting; "
            "merge an adapter before",
        )


def _first_of(names: Collection[str]) -> str:
    """Return the first of some tensors' names, and the number of others."""
    return min(names) + (f" and {counted(len(names) - 1, 'more tensor')}" if len(names) > 1 else "")


@contextmanager
def without_load_report() -> Iterator[None]:
    """Suppress library warnings about missing weights, because the callers expect or check them."""
    import logging

    from transformers.utils import logging as reports

    converting = logging.getLogger("sentence_transformers")
    levels = reports.get_verbosity(), converting.level
    reports.set_verbosity_error()
    converting.setLevel(logging.ERROR)
    mark = _expected.set(True)
    try:
        yield
    finally:
        _expected.reset(mark)
        reports.set_verbosity(levels[0])
        converting.setLevel(levels[1])


def check_weights(model: Any, name: str, noun: str, tokenizer: Any = None) -> None:
    """Refuse a loaded model with weights that are NaN or infinite or a tokenizer without words, and later inputs with tokens
    that it has no vectors for.

    Args:
        model: A torch module.
        name: What the options call the model.
        noun: What errors call its kind.
        tokenizer: Its tokenizer; None for that of `model`, if it has one.

    Raises:
        UserError: Some weights are not finite, or the tokenizer has no words.
    """
    tokenizer = getattr(model, "tokenizer", None) if tokenizer is None else tokenizer
    if callable(tokenizer):
        require_words(tokenizer, name, noun)
    _guard_vocabulary(model, name, noun, tokenizer)
    check_finite(model, name, noun)


def check_finite(model: Any, name: str, noun: str) -> None:
    """Refuse a loaded model whose weights contain NaN or infinity; arguments as in `check_weights`.

    Raises:
        UserError: Some weights are not finite.
    """
    import torch

    # A sum is finite exactly if its terms are: float32 holds the sum of any real model's weights.
    suspects = [key for key, value in model.named_parameters() if not value.detach().sum(dtype=torch.float32).isfinite()]
    weights = dict(model.named_parameters())
    damaged = {key: count for key in suspects if (count := int((~weights[key].detach().isfinite()).sum()))}
    if damaged:
        first = next(iter(damaged))
        raise UserError(
            f"{counted(sum(damaged.values()), 'weight')} of the {noun} {name!r} are NaN or infinite",
            code="vectors-not-finite",
            where=f"{first}" + (f" and {counted(len(damaged) - 1, 'more tensor')}" if len(damaged) > 1 else ""),
            try_this=f"{FETCH}: they are damaged",
        )


def _guard_vocabulary(model: Any, name: str, noun: str, tokenizer: Any) -> None:
    """Refuse inputs with unknown token ids, if the tokenizer has more tokens than the model: CUDA would end the process."""
    from transformers import PreTrainedModel

    inner = next((module for module in model.modules() if isinstance(module, PreTrainedModel)), None)
    rows = getattr(inner.get_input_embeddings(), "num_embeddings", None) if inner is not None and tokenizer is not None else None
    if inner is None or rows is None or len(tokenizer) <= rows:
        return

    def require_known(embedding: Any, inputs: Any) -> None:
        # An adapter with further tokens may have added rows since.
        if inputs and inputs[0].numel() and (token := int(inputs[0].max())) >= embedding.num_embeddings:
            raise UserError(
                f"the {noun} {name!r} has vectors for {embedding.num_embeddings:,} tokens, but its tokenizer gives the id {token:,}",
                code="tokenizer-of-other-model",
                where=f"model {name!r}",
                try_this="fetch tokenizer and weights from one revision of the model",
            )

    inner.get_input_embeddings().register_forward_pre_hook(require_known)


def require_words(tokenizer: Any, name: str, noun: str) -> None:
    """Refuse a tokenizer that has only special tokens, as `transformers` makes for a folder without tokenizer files, or that
    fails on an unknown character.

    Args:
        tokenizer: A tokenizer of `transformers`.
        name: What the options call the model.
        noun: What errors call its kind.

    Raises:
        UserError: The tokenizer knows no letter and no digit, or has no token for unknown characters.
    """
    try:
        tokenizer(_UNKNOWN)
    except Exception as error:
        if type(error) is not Exception:  # the class that the library `tokenizers` raises
            raise
        raise UserError(
            f"the tokenizer of the {noun} {name!r} cannot read every text: {error}",
            code="no-unknown-token",
            where=f"model {name!r}",
            try_this="fetch all of the model's tokenizer files, also tokenizer_config.json and special_tokens_map.json",
        ) from None
    special = set(tokenizer.all_special_ids)
    if len(tokenizer) > len(special) + _FEW:
        return
    ids = tokenizer(" ".join("abcdefghijklmnopqrstuvwxyz0123456789"), add_special_tokens=False)["input_ids"]
    # SentencePiece has a token for white space, which every tokenizer knows.
    if all(position in special or not tokenizer.decode([position]).strip() for position in ids):
        raise UserError(
            f"the tokenizer of the {noun} {name!r} has no words: {counted(len(tokenizer), 'token')}, all of them special",
            code="no-vocabulary",
            where=f"model {name!r}",
            try_this="fetch the model's tokenizer files too: tokenizer.json, or the vocabulary and tokenizer_config.json",
        )


_UNKNOWN = "a \u2603 \U0001d54f"
"""Text with characters that few vocabularies have."""
_FEW = 8
"""Number of tokens, besides the special ones, that an empty vocabulary may have, for example for white space."""


def position_table(model: Any) -> Any:
    """Return the module that holds a torch module's positions; None if its positions are not a table."""
    tables = (part for path, part in model.named_modules() if path.endswith(("position_embeddings", "wpe")))
    return next((part for part in tables if hasattr(part, "num_embeddings")), None)


def longest_input(model: Any) -> int | None:
    """Return the tokens that a torch module has positions for; None if its positions are not a table."""
    table = position_table(model)
    if table is None:
        return None
    return int(table.num_embeddings) - (0 if table.padding_idx is None else int(table.padding_idx) + 1)
