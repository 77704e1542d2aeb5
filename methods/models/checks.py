"""Check encoders and rerankers for faults: non-finite output, missing presets, truncated texts.

None of these faults raises an error by itself: a model would rank NaN vectors, encode without its training prefix, or drop the
end of long passages. They are therefore checked before anything is stored on disk.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import CHECKPOINT_CARD
from methods.models.complete import FETCH
from methods.models.encoder_presets import PRESETS
from methods.models.plain_encoder import passage_prompt
from methods.models.weights import MINILM, SHIPPED, files_of, loaded_folder


def check_output(values: Any, name: str, noun: str, dtype: str, what: str = "vectors") -> None:
    """Refuse output that contains NaN or infinity.

    Args:
        values: An array whose first axis counts the texts or pairs, or a sequence of such arrays, one per text.
        name: Name of the model in the options.
        noun: Noun for the model in errors.
        dtype: The type of its weights.
        what: Noun for the output: vectors, scores.

    Raises:
        UserError: Some output is not finite.
    """
    if isinstance(values, np.ndarray):
        # One pass over all of it, which is what happens.
        bad = 0 if np.isfinite(values).all() else int((~np.isfinite(values)).reshape(len(values), -1).any(axis=1).sum())
    else:
        bad = sum(not np.isfinite(value).all() for value in values)
    if bad:
        narrow = dtype == "float16"
        raise UserError(
            f"{bad:,} of {len(values):,} {what} of the {noun} {name!r} contain NaN or infinity",
            code="weights-not-finite",
            where=f"dtype: {dtype}",
            try_this="set dtype: float32 or bfloat16: float16 overflows" if narrow else f"{FETCH}, or set dtype: float32",
        )


_FAMILIES = (
    (r"multilingual-e5-(small|base|large)", "multilingual-e5-large"),
    (r"e5-large(-v2|-unsupervised)?", "e5-large-v2"),
    (r"e5-(small|base)(-v2|-unsupervised)?", "e5-base-v2"),
    (r"bge-(small|base|large)-en(-v1-5)?", "bge-large-en-v1.5"),
    (r"bge-m3", "bge-m3"),
    (r"qwen3-embedding-8b", "qwen3-embedding-8b"),
    (r"qwen3-embedding-4b", "qwen3-embedding-4b"),
    (r"qwen3-embedding(-.*)?", "qwen3-embedding-0.6b"),
    (r"gte-(small|base|large)", "gte-large"),
    (r"gte-(base|large)-en-v1-5", "gte-large-en-v1.5"),
    (r"gte-multilingual-base", "gte-multilingual-base"),
    (r"stella-en-1-5b-v5", "stella-en-1.5b-v5"),
    (r"stella-en-400m-v5", "stella-en-400m-v5"),
    (r"contriever-msmarco", "contriever-msmarco"),
    (r"m?contriever", "contriever"),
    (r"sfr-embedding-mistral|e5-mistral-7b-instruct", "sfr-embedding-mistral"),
)
"""Name patterns of published encoders, with the preset of each family."""
_TRAINED_WITH = ("query_prompt", "passage_prompt", "pooling", "normalize")
"""Options that must match the model's training."""
_CARD_NAME = re.compile(r"^(?:#[ \t]+(?P<head>\S.*)|base_model:[ \t]*(?P<base>\S+)|[ \t]*-[ \t]+name:[ \t]*(?P<name>\S+))$", re.MULTILINE)
"""Lines of a model card that name the model or its base model."""


def missing_options(config: Any) -> tuple[str | None, str] | None:
    """Return options that an encoder needs but that are neither set nor applied from its files.

    The family is read from the model's name, its `config.json` and its model card. Without a known family, the model's files may
    state prompts under names that no encoder looks for, or that vectors are compared by their inner product.

    Args:
        config: An `EncoderConfig`.

    Returns:
        The preset of the family (None if it is not known), and the options as YAML; None if nothing is missing.
    """
    model = config.model
    if config.architecture != "sentence-transformer" or model == MINILM or model in SHIPPED:
        return None
    folder = loaded_folder(model, config.revision) or files_of(model, config.revision)
    if folder is not None and (folder / CHECKPOINT_CARD).is_file():
        return None  # trained here: the folder keeps the prompts it was trained with
    preset = next(filter(None, map(_family, _names(model, folder))), None)
    own = _own_options(folder)
    if preset is None:
        lacking = _stated(config, folder, own)
    else:
        lacking = {
            key: PRESETS[preset][key]
            for key in _TRAINED_WITH
            if key in PRESETS[preset] and _unset(config, key) and PRESETS[preset][key] != own.get(key, _DEFAULTS[key])
        }
    if folder is None:
        lacking.pop("pooling", None)  # the hub's own files state it
    if not lacking:
        return None
    return preset, ", ".join(f"{key}: {json.dumps(value)}" for key, value in lacking.items())


def check_similarity(config: Any) -> None:
    """Check that vectors can be compared as the model's files state: by cosine, by inner product, or by distances of equal order.

    Args:
        config: An `EncoderConfig`.

    Raises:
        UserError: The files state another similarity, and `normalize` is not set.
    """
    folder = loaded_folder(config.model, config.revision) or files_of(config.model, config.revision)
    name = _json(folder / "config_sentence_transformers.json").get("similarity_fn_name") if folder is not None else None
    equal = {None, "cosine", "dot", "dot_score", *({"euclidean"} if _own_options(folder).get("normalize") else ())}
    if config.architecture == "sentence-transformer" and name not in equal and "normalize" not in config.model_fields_set:
        raise UserError(
            f"the model's files compare vectors by similarity_fn_name: {name}, but ragmeter ranks by cosine or inner product",
            code="unsupported-similarity",
            where=f"model {config.model!r}",
            try_this="normalize: true ranks by cosine, normalize: false by inner product",
        )


def hint(model: str, preset: str | None, options: str) -> str:
    """Return a sentence on the result of `missing_options`."""
    if preset is None:
        return f"the files of {model!r} state {options}, which is not used; set these options, or others to choose"
    looks = f"{model!r} looks like an encoder of the preset {preset}, and is used without {options}"
    return f"{looks}; set preset: {preset} in addition to model, or set these options"


_SIDES = {"query_prompt": ("query", "question"), "passage_prompt": ("passage", "document", "corpus")}
"""Words in the names of prompts, by the option that sets them."""


def _stated(config: Any, folder: Path | None, own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that a SentenceTransformer's files state and that are not applied."""
    settings = _json(folder / "config_sentence_transformers.json") if folder is not None else {}
    prompts = own_prompts(folder)
    results: dict[str, Any] = {}
    for key, words in _SIDES.items():
        named = [prompt for name, prompt in prompts.items() if prompt and any(word in name.casefold() for word in words)]
        # `encode_query` does not fall back to the default prompt either.
        named += [prompt for prompt in [prompts.get(str(settings.get("default_prompt_name")))] if prompt and key == "query_prompt"]
        if named and not own.get(key) and _unset(config, key) and config.query_task is None and config.passage_task is None:
            results[key] = named[0]
    if settings.get("similarity_fn_name") in ("dot", "dot_score") and not own.get("normalize") and _unset(config, "normalize"):
        results["normalize"] = False
    return results


def missing_prompts(model: str, stated: Collection[str]) -> tuple[str, str] | None:
    """Return the preset of a served encoder, and the prompts of it that the options do not state, as YAML; None if there are none.

    Args:
        model: Its name at the endpoint.
        stated: Names of the options that are set.
    """
    options = PRESETS[preset] if (preset := _family(model)) else {}
    prompts = {name: str(options.get(name) or "") for name in ("query_prompt", "passage_prompt") if name not in stated}
    lacking = {name: text.replace("{instruction}", str(options.get("instruction"))) for name, text in prompts.items() if text}
    return (preset, ", ".join(f"{name}: {json.dumps(text)}" for name, text in lacking.items())) if preset and lacking else None


_DEFAULTS: Mapping[str, Any] = {"query_prompt": "", "passage_prompt": "", "pooling": "mean", "normalize": True}
"""Defaults that apply if neither the options nor the model's files set a value."""


def _unset(config: Any, key: str) -> bool:
    return config.normalize and key not in config.model_fields_set if key == "normalize" else getattr(config, key) is None


def _family(name: str) -> str | None:
    plain = re.sub(r"[^a-z0-9]+", "-", name.rstrip("/").rpartition("/")[2].lower()).strip("-")
    return next((preset for pattern, preset in _FAMILIES if re.fullmatch(pattern, plain)), None)


def _names(model: str, folder: Path | None) -> Iterable[str]:
    """Yield possible names of a model, the most specific first."""
    yield model
    if folder is None:
        return
    yield folder.resolve().name
    for key in ("_name_or_path", "name_or_path"):
        name = _json(folder / "config.json").get(key)
        if isinstance(name, str):
            yield name
    try:
        card = (folder / "README.md").read_text("utf-8", errors="replace")[:20_000]
    except OSError:
        return
    for line in _CARD_NAME.finditer(card):
        yield line["head"] or line["base"] or line["name"]


def own_prompts(folder: Path | None) -> dict[str, Any]:
    """Return the prompts by name in a SentenceTransformer's folder."""
    prompts = _json(folder / "config_sentence_transformers.json").get("prompts") if folder is not None else None
    return prompts if isinstance(prompts, dict) else {}


def _own_options(folder: Path | None) -> dict[str, Any]:
    """Return the prompts and pooling in a SentenceTransformer's folder; `normalize` if a module of it scales vectors."""
    if folder is None:
        return {}
    prompts = own_prompts(folder)
    own: dict[str, Any] = {"query_prompt": prompts.get("query") or "", "passage_prompt": passage_prompt(prompts)}
    pooling = _json(folder / "1_Pooling" / "config.json")
    kinds = {"cls": "cls_token", "mean": "mean_tokens", "lasttoken": "lasttoken"}
    modes = [name for name, key in kinds.items() if pooling.get(f"pooling_mode_{key}")] or [str(pooling.get("pooling_mode"))]
    own |= {"normalize": True} if next(folder.glob("*_Normalize"), None) else {}
    return own | ({"pooling": modes[0]} if modes[0] in kinds else {})


def _json(path: Path) -> dict[str, Any]:
    try:
        result = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return result if isinstance(result, dict) else {}


def truncation(tokenizer: Any, limit: int | None, texts: Sequence[str], prefix: str = "") -> dict[str, Any]:
    """Measure how much of the passages a model does not read because of its length limit.

    Args:
        tokenizer: Tokenizer of `transformers`.
        limit: Maximum tokens per text, including special tokens; None for no limit.
        texts: The passages.
        prefix: Text before each passage.

    Returns:
        `limit`, `passages` (number of passages), `truncated` (number of truncated ones) and `share` (fraction of all characters
        that is not read); empty if the model has no limit or no tokenizer.
    """
    if not limit or not callable(tokenizer) or not len(texts):
        return {}
    room = limit - int(tokenizer.num_special_tokens_to_add())
    # A token covers at least one byte, so most short texts need no tokenizer.
    long = [text for text in texts if len(f"{prefix}{text}".encode("utf-8", "replace")) > room]
    cut = [lost for text in long if (lost := _cut_characters(tokenizer, prefix + text, room)) > 0]
    share = sum(cut) / max(1, sum(map(len, texts)))
    return {"limit": int(limit), "passages": len(texts), "truncated": len(cut), "share": round(share, 6)}


def cut_texts(model: Any, texts: Iterable[str], prompt: str = "") -> int:
    """Return how many distinct texts are longer than a `SentenceTransformer` reads."""
    return int(truncation(model.tokenizer, model.max_seq_length, [*set(texts)], prompt).get("truncated", 0))


def _cut_characters(tokenizer: Any, text: str, room: int) -> float:
    """Return the number of characters after a text's first `room` tokens."""
    encoded = tokenizer(text, add_special_tokens=False, truncation=False, return_offsets_mapping=tokenizer.is_fast, verbose=False)
    count = len(encoded["input_ids"])
    if count <= room:
        return 0
    if not tokenizer.is_fast:
        return len(text) * (1 - room / count)
    return len(text) - int(encoded["offset_mapping"][room - 1][1]) if room > 0 else len(text)
