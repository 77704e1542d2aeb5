"""Final module of a cross-encoder that adds a token-matching score (as in late interaction) to the head's score z.

    z + w · mean over tokens i of the query of max over tokens j of the passage of cos(h_i, h_j)

With it, a cross-encoder initialized from an embedding model starts at about that model's quality, whereas a new head starts at
chance. A cross-encoder's folder refers to this class; `sentence-transformers` loads it with `trust_remote_code=True` if this
package is installed, and `load_cross_encoder` without that.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from sentence_transformers.base.modules import Module, Transformer
from sentence_transformers.util import import_from_string
from torch.nn.functional import normalize

from methods.models.remote_code import TOKEN_MATCH

if TYPE_CHECKING:
    from torch import Tensor


class TokenMatch(Module):
    """The token-matching module; token types tell query and passage apart, special tokens included.

    Args:
        weight: Initial value of w.
    """

    def __init__(self, weight: float = 10.0) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor(weight))

    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Add the matching score to `scores` [pairs, 1 or 2]; the last column is the ranking score."""
        states: Tensor = normalize(features["token_embeddings"].float(), dim=-1)
        read, kinds = features["attention_mask"].bool(), features["token_type_ids"]
        query, passage = read & (kinds == 0), read & (kinds == 1)
        nearest = (states @ states.transpose(1, 2)).masked_fill(~passage[:, None], -1.0).amax(-1)
        match = (nearest * query).sum(1) / query.sum(1)
        scores = features["scores"].float()
        features["scores"] = torch.cat([scores[:, :-1], scores[:, -1:] + self.weight * match[:, None]], 1)
        return features

    def save(self, output_path: str, *_: Any, safe_serialization: bool = True, **__: Any) -> None:
        """Write the module to a folder."""
        self.save_config(output_path)
        self.save_torch_weights(output_path, safe_serialization=safe_serialization)

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **options: Any) -> TokenMatch:
        """Load a module that `save` wrote."""
        model = cls()
        known = {name: options[name] for name in ("token", "cache_folder", "revision", "local_files_only") if name in options}
        cls.load_torch_weights(model_name_or_path, subfolder=subfolder, model=model, **known)
        return model


def load_cross_encoder(folder: str, **options: Any) -> Any:
    """Load a `CrossEncoder` from a folder or hub id, including folders with a `TokenMatch` module.

    Args:
        folder: Model folder, as returned by `locate`.
        options: Options of `CrossEncoder`.
    """
    from sentence_transformers import CrossEncoder

    path = Path(folder) / "modules.json"
    parts = json.loads(path.read_text("utf-8")) if path.is_file() else []
    if not any(part["type"] == TOKEN_MATCH for part in parts):
        return CrossEncoder(folder, **options)
    modules = []
    for part in parts:
        kind = TokenMatch if part["type"] == TOKEN_MATCH else import_from_string(part["type"])
        more = {"model_kwargs": options.get("model_kwargs", {})} if issubclass(kind, Transformer) else {}
        modules.append(kind.load(folder, subfolder=part["path"], **more))
    return CrossEncoder(modules=modules, device=options.get("device"))
