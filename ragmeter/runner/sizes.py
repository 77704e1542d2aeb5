"""Determine the size of a model without loading its weights: from its files, a published table, or its name; else unknown."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, NamedTuple

from methods.models.delta import is_delta
from methods.models.llm import hosted
from methods.models.weights import commit_of, files_of
from methods.registry import Component
from methods.work import Needs


class Published(NamedTuple):
    """Published size of a model.

    Attributes:
        millions: Parameters in millions.
        width: Hidden size; for encoders also the length of vectors.
        layers: Number of layers of the encoder or decoder.
        kv_width: Width of the keys of all heads together; for encoders the hidden size.
        embedding: Embedding parameters in millions, which are looked up and need no multiplication.
    """

    millions: float
    width: int
    layers: int
    kv_width: int
    embedding: float = 0.0


def _published() -> Iterator[tuple[str, Published]]:
    for row in csv.DictReader(files("ragmeter.runner").joinpath("model_sizes.csv").read_text("utf-8").splitlines()):
        width, layers, kv_width = (int(row[name]) for name in ("width", "layers", "kv_width"))
        yield row["model"], Published(float(row["millions"]), width, layers, kv_width, float(row["embedding"]))


PUBLISHED: Mapping[str, Published] = dict(_published())
"""Sizes of models in presets and shipped experiments, rounded to at least three digits, from the models' cards and `config.json` files
on the hub; used if a model's own `config.json` is missing.
"""


Source = Literal["header", "config", "table", "name", "unknown"]
SAYS: Mapping[Source, str] = {
    "header": "counted in the weights' header",
    "config": "computed from config.json",
    "table": "published",
    "name": "from the model's name",
    "unknown": "unknown",
}
_NAMED = re.compile(r"(\d+(?:\.\d+)?)([bm])", re.IGNORECASE)
_SCALE = {"b": 1e9, "m": 1e6}


@dataclass(frozen=True, slots=True)
class ModelSize:
    """A model's size, as far as it is known.

    Attributes:
        model: Its name.
        parameters: Number of parameters; None if unknown.
        source: How the size is known.
        width, layers, kv_width: Hidden size, layers, and width of keys with all heads together; None: unknown.
        embedding: Number of embedding parameters, which are only looked up.
    """

    model: str
    parameters: float | None = None
    source: Source = "unknown"
    width: int | None = None
    layers: int | None = None
    kv_width: int | None = None
    embedding: float = 0.0

    @property
    def known(self) -> bool:
        return self.parameters is not None

    @property
    def computing(self) -> float:
        """Return the number of parameters that each token is multiplied with.

        Raises:
            ValueError: The size is unknown.
        """
        if self.parameters is None:
            raise ValueError(f"the size of {self.model} is unknown")
        return self.parameters - self.embedding

    def adapters(self, rank: int) -> float | None:
        """Estimate the parameters of one LoRA adapter on all linear layers, rank × (inputs + outputs) each; None if the shape is unknown.

        The width of the feed-forward layer is inferred from the remaining parameters, including embeddings, so the result is an
        upper bound.
        """
        width, layers, keys = self.width, self.layers, self.kv_width
        if self.parameters is None or width is None or layers is None or keys is None:
            return None
        gated = 3
        inner = max(0.0, self.parameters / layers - 2 * width * width - 2 * width * keys) / (gated * width)
        return layers * rank * (2 * (width + width) + 2 * (width + keys) + gated * (width + inner))

    def __str__(self) -> str:
        if self.parameters is None:
            return f"{self.model}: size unknown"
        return f"{self.model}: {format_parameters(self.parameters)} parameters, {SAYS[self.source]}"


def format_parameters(parameters: float) -> str:
    """Format a number of parameters: 7.24B, 568M."""
    return f"{parameters / 1e9:.3g}B" if parameters >= 1e9 else f"{parameters / 1e6:.3g}M"


def size_of(model: str, revision: str | None = None) -> ModelSize:
    """Determine the size of a model without loading it.

    Sources, in this order: its folder or the hub's cache (`config.json`, and the header of `*.safetensors`), the table of
    published sizes, and its name (`7b`, `0.6B`).
    """
    folder = files_of(model, revision)
    return _size_at(model, folder, None if folder is None else folder.stat().st_mtime_ns)


@lru_cache(maxsize=512)
def _size_at(model: str, folder: Path | None, changed: int | None) -> ModelSize:
    """Return the size of a folder's model; `changed` makes the cache notice a checkpoint that was created later."""
    result = None if folder is None else _of_files(model, folder)
    if result is not None:
        return result
    published = PUBLISHED.get(model)
    if published is not None:
        return ModelSize(
            model, published.millions * 1e6, "table", published.width, published.layers, published.kv_width, published.embedding * 1e6
        )
    named = named_parameters(model)
    return ModelSize(model) if named is None else ModelSize(model, named, "name")


def named_parameters(model: str) -> float | None:
    """Read the number of parameters from a model's name: 7e9 for `Mistral-7B`; None if the name has none or several."""
    parts = re.split(r"[-_/ ]", model.rpartition("/")[2])
    results = {match for match in map(_NAMED.fullmatch, parts) if match}
    if len(results) != 1:
        return None
    number, unit = next(iter(results)).groups()
    return float(number) * _SCALE[unit.lower()]


def _of_files(model: str, folder: Path) -> ModelSize | None:
    try:
        config = json.loads((folder / "config.json").read_text("utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(config, Mapping):
        return None
    text = config.get("text_config", config)
    counted = _header_parameters(folder)
    computed = counted if counted is not None else config_parameters(text)
    width, layers = _width(text), _first(text, "num_hidden_layers", "n_layers", "num_layers")
    if computed is None or width is None or layers is None:
        return None
    heads = _first(text, "num_attention_heads", "n_heads", "num_heads") or 1
    head = _first(text, "head_dim", "d_kv") or width // heads
    kv = (_first(text, "num_key_value_heads") or heads) * head
    # A decoder multiplies with its output layer, whether or not that is also its table of embeddings.
    embedding = 0.0 if _decodes(config) else float(_first(text, "vocab_size") or 0) * width
    return ModelSize(model, computed, "header" if counted is not None else "config", width, layers, kv, embedding)


def _header_parameters(folder: Path) -> float | None:
    """Count parameters from the headers of `*.safetensors`, without reading weights."""
    # What a difference to a base holds is added to the base's, which are as many as `config.json` tells.
    paths = [] if is_delta(str(folder)) else sorted(folder.glob("*.safetensors"))
    total = 0
    for path in paths:
        try:
            with path.open("rb") as file:
                header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        except (OSError, ValueError):
            return None
        total += sum(math.prod(tensor["shape"]) for name, tensor in header.items() if name != "__metadata__")
    return float(total) if paths else None


def config_parameters(config: Mapping[str, Any]) -> float | None:
    """Compute the number of parameters of a transformer from its `config.json`; None if that is not sufficient.

    It counts embeddings (including learned positions), attention with grouped keys, and the two (if gated, three) matrices of
    the feed-forward layer. Biases and norms, less than 1 %, are left out.
    """
    width = _width(config) or 0
    layers, vocabulary = (_first(config, *names) or 0 for names in (("num_hidden_layers", "n_layers"), ("vocab_size",)))
    inner, heads = (_first(config, *names) or 0 for names in (("intermediate_size", "hidden_dim"), ("num_attention_heads", "n_heads")))
    if 0 in (width, layers, vocabulary, inner, heads) or config.get("is_encoder_decoder"):
        return None
    head = _first(config, "head_dim") or width // heads
    keys = (_first(config, "num_key_value_heads") or heads) * head
    decodes = _decodes(config)
    # Models of the family of BERT have plain feed-forward layers and learned positions.
    matrices = 3 if decodes else 2
    layer = 2 * width * heads * head + 2 * width * keys + matrices * width * inner
    tables = 2 if decodes and not config.get("tie_word_embeddings", False) else 1
    positions = 0 if decodes else (_first(config, "max_position_embeddings") or 0) * width
    return float(layers * layer + tables * vocabulary * width + positions)


def _decodes(config: Mapping[str, Any]) -> bool:
    names = config.get("architectures") or ()
    return any("CausalLM" in name or "ConditionalGeneration" in name for name in names)


def _width(config: Mapping[str, Any]) -> int | None:
    return _first(config, "hidden_size", "dim", "d_model")


def _first(config: Mapping[str, Any], *names: str) -> int | None:
    results = (config.get(name) for name in names)
    return next((item for item in results if isinstance(item, int)), None)


def models_of(components: Iterable[Component]) -> dict[str, Any]:
    """Describe the models of a method as JSON, from what its parts declare.

    Args:
        components: The method and all its parts.

    Returns:
        `parameters`: the sum over all models, each counted once (adapters count as their base model); None if a model is
            unknown or behind an endpoint, or if a part does not declare its needs. `weights_here`: True if no part calls an
            endpoint; None if a part does not declare its needs. `counted`: name, number of parameters and source of each model, and
            the commit of a hub id whose files are in the hub's cache.
    """
    components = list(components)
    needs = [part.needs for part in components]
    known = sum((item for item in needs if item is not None), Needs())
    commits = {size_of(item.model, item.revision): commit_of(item.model, item.revision) for item in known.checkpoints if item.own}
    sizes = list(commits)
    away, clear = bool(known.endpoints) or any(hosted(part.config) for part in components), None not in needs
    counts = [size.parameters for size in sizes]
    whole = None if away or not clear or None in counts else round(sum(filter(None, counts)))
    return {
        "parameters": whole,
        "weights_here": False if away else True if clear else None,
        "counted": [
            {"name": _name(size.model), "known": size.source, "parameters": None if size.parameters is None else round(size.parameters)}
            | ({"commit": commits[size]} if commits[size] else {})
            for size in sizes
        ],
    }


def _name(model: str) -> str:
    """Return a model's name without its parent folders."""
    return Path(model).name if model.startswith(("/", ".", "~")) else model
