"""Load standard sentence encoders with transformers only, because importing sentence-transformers dominates a short run.

A `sentence-transformers` folder is supported if it consists of a BERT-like encoder, pooling by first token, mean or maximum,
and optionally `Normalize`; `layout` returns None for other folders. Vectors differ from those of `sentence-transformers` by
float noise (at most 1e-6 per component in float32).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from methods.models.complete import longest_input

ENCODERS = frozenset({"bert", "distilbert", "mpnet", "roberta", "xlm-roberta"})
"""Values of `model_type` whose token vectors are `last_hidden_state` and whose tokenizers pad on the right."""
POOLING = ("cls", "mean", "max")
_LEGACY = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean", "pooling_mode_max_tokens": "max"}
_USUAL = {
    "transformer_task": "feature-extraction",
    "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
    "module_output_name": "token_embeddings",
    "do_lower_case": False,
}
"""Supported values of a transformer's settings."""
_SAME = {"module_input_name": "sentence_embedding", "module_output_name": "sentence_embedding"}
_PROMPTS = {"prompts", "default_prompt_name", "similarity_fn_name", "model_type", "__version__"}


@dataclass(frozen=True)
class Layout:
    """Settings of an encoder's folder.

    Attributes:
        pooling: One of `POOLING`.
        normalize: Whether vectors are scaled to length 1.
        max_length: Longest input in tokens; None: by tokenizer and positions.
        prompts: Put before queries and documents.
    """

    pooling: str
    normalize: bool
    max_length: int | None
    prompts: Mapping[str, str]


def layout(folder: Path) -> Layout | None:
    """Read the settings of a folder; None if it contains anything unsupported."""
    modules = _read(folder / "modules.json")
    if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
        return None
    kinds = [str(module.get("type")).rpartition(".")[2] for module in modules]
    foreign = any(not str(module.get("type")).startswith("sentence_transformers.") or module.get("kwargs") for module in modules)
    if foreign or kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]) or modules[0].get("path"):
        return None
    config, transformer = _read(folder / "config.json"), _read(folder / "sentence_bert_config.json")
    pooling = _read(folder / str(modules[1].get("path")) / "config.json")
    normalize = _read(folder / str(modules[2].get("path")) / "config.json", {}) if len(modules) == 3 else {}
    prompts, words = (_read(folder / name, {}) for name in ("config_sentence_transformers.json", "tokenizer_config.json"))
    parts = (config, transformer, pooling, normalize, prompts, words)
    if not all(isinstance(part, dict) for part in parts) or (folder / "adapter_config.json").exists():
        return None
    mode = _pooling(pooling)
    length = transformer.pop("max_seq_length", None)
    known = (
        config.get("model_type") in ENCODERS
        and "auto_map" not in config
        and not config.get("is_decoder")
        and all(key in _USUAL and value == _USUAL[key] for key, value in transformer.items())
        and all(_SAME.get(key) == value for key, value in normalize.items())
        and words.get("padding_side", "right") == "right"
        and mode is not None
        and prompts.keys() <= _PROMPTS
        and prompts.get("default_prompt_name") is None
        and prompts.get("model_type", "SentenceTransformer") == "SentenceTransformer"
    )
    by_name = prompts.get("prompts") or {}
    if not known or mode is None or not isinstance(by_name, dict) or not (length is None or isinstance(length, int)):
        return None
    return Layout(mode, len(modules) == 3, length, {"query": by_name.get("query") or "", "document": passage_prompt(by_name)})


def passage_prompt(prompts: Mapping[str, Any]) -> str:
    """Return the prompt of passages among a SentenceTransformer's prompts by name; "" for none.

    `encode_document` also looks for "passage" and "corpus", but finds its own empty "document" first.
    """
    return next((str(prompts[name]) for name in ("document", "passage", "corpus") if prompts.get(name)), "")


def _pooling(config: dict[str, Any]) -> str | None:
    """Return the mode of a pooling module; None if it is unsupported."""
    if not config.pop("include_prompt", True):
        return None
    modes = [key for key, value in config.items() if key.startswith("pooling_mode_") and value]
    mode = _LEGACY.get(modes[0]) if len(modes) == 1 and "pooling_mode" not in config else config.get("pooling_mode")
    return mode if not (modes and "pooling_mode" in config) and mode in POOLING else None


def _read(path: Path, missing: Any = None) -> Any:
    try:
        return json.loads(path.read_text("utf-8")) if path.exists() else missing
    except ValueError:
        return None


@dataclass(frozen=True, eq=False)
class PlainEncoder:
    """Encoder with the subset of `SentenceTransformer`'s methods that this package uses.

    Args:
        model: A transformer of `ENCODERS`.
        tokenizer: Its tokenizer, with the maximum length set.
        layout: Settings.
    """

    model: Any
    tokenizer: Any
    layout: Layout

    @classmethod
    def load(cls, folder: str, settings: Layout, device: str, dtype: str) -> PlainEncoder:
        """Load a folder; the maximum length is the stated one, else the tokenizer's, and at most the model's positions."""
        import torch
        from transformers import AutoModel, AutoTokenizer

        model = AutoModel.from_pretrained(folder, dtype=getattr(torch, dtype)).to(device).eval()
        lengths = {} if settings.max_length is None else {"model_max_length": settings.max_length}
        tokenizer = AutoTokenizer.from_pretrained(folder, **lengths)
        tokenizer.model_max_length = min(tokenizer.model_max_length, longest_input(model) or tokenizer.model_max_length)
        return cls(model, tokenizer, settings)

    @property
    def device(self) -> Any:
        """Return the device of the weights."""
        return self.model.device

    @property
    def prompts(self) -> Mapping[str, str]:
        """Return the model's own prompts by name."""
        return self.layout.prompts

    @property
    def max_seq_length(self) -> int:
        """Return the maximum input length in tokens."""
        return int(self.tokenizer.model_max_length)

    def __iter__(self) -> Iterator[Any]:
        return iter((self.model,))

    def parameters(self) -> Iterator[Any]:
        """Return the weights."""
        return iter(self.model.parameters())

    def get_embedding_dimension(self) -> int:
        """Return the length of a vector."""
        return int(self.model.config.hidden_size)

    def unscaled(self) -> PlainEncoder:
        """Return a view of the model without normalization to length 1."""
        return replace(self, layout=replace(self.layout, normalize=False))

    def preprocess(self, texts: Sequence[str]) -> Any:
        """Tokenize texts to the model's inputs."""
        return self.tokenizer(list(texts), padding=True, truncation="longest_first", return_tensors="pt")

    def encode_query(self, texts: Sequence[str], *, prompt: str | None, batch_size: int, **_: Any) -> Any:
        """Encode queries, shape (texts, dimension); `prompt` None for the model's own."""
        return self._encode(texts, self.layout.prompts["query"] if prompt is None else prompt, batch_size)

    def encode_document(self, texts: Sequence[str], *, prompt: str | None, batch_size: int, **_: Any) -> Any:
        """Encode passages, shape (texts, dimension); `prompt` None for the model's own."""
        return self._encode(texts, self.layout.prompts["document"] if prompt is None else prompt, batch_size)

    def _encode(self, texts: Sequence[str], prompt: str, batch_size: int) -> Any:
        import torch

        order = sorted(range(len(texts)), key=lambda position: -len(texts[position]))
        vectors = torch.empty(len(texts), self.get_embedding_dimension(), dtype=self.model.dtype, device=self.device)
        with torch.inference_mode():
            for start in range(0, len(order), batch_size):
                positions = order[start : start + batch_size]
                features = self.preprocess([prompt + texts[position] for position in positions]).to(self.device)
                vectors[positions] = self._pooled(self.model(**features).last_hidden_state, features["attention_mask"])
        return vectors

    def _pooled(self, states: Any, mask: Any) -> Any:
        import torch

        if self.layout.pooling == "cls":
            pooled = states[:, 0]
        elif self.layout.pooling == "max":
            pooled = states.masked_fill(mask[..., None] == 0, float("-inf")).max(dim=1).values
        else:
            weights = mask[..., None].to(states.dtype)
            # Sums of half-precision numbers are made in float32.
            summed = (states * weights).sum(dim=1, dtype=torch.float32)
            pooled = (summed / weights.sum(dim=1, dtype=torch.float32).clamp(min=1e-9)).to(states.dtype)
        return torch.nn.functional.normalize(pooled, dim=-1) if self.layout.normalize else pooled
