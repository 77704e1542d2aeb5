"""Final modules of a cross-encoder that add a matching score to the head's score z, which starts at 0.

    TokenMatch:    z + w · mean over tokens i of the query of max over tokens j of the passage of cos(h_i, h_j)
    EmbedderMatch: z + w · cos(e(query), e(passage))

The states h come from the cross-encoder, which reads both texts at once. An embedding model was not trained for that, so training
starts below its ranking. e is the embedding model itself, frozen; with it, training starts at its ranking. A cross-encoder's folder
refers to these classes; `sentence-transformers` loads them with `trust_remote_code=True` if this package is installed, and
`load_cross_encoder` without that.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch
from sentence_transformers.base.modules import Module, Transformer
from sentence_transformers.util import import_from_string
from torch.nn.functional import normalize

from methods.models.remote_code import MATCHES

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


class EmbedderMatch(Module):
    """The matching module of an embedding model that encodes query and passage apart and is not trained.

    Args:
        encoder: A `SentenceTransformer` with the cross-encoder's vocabulary.
        weight: Initial value of w.
    """

    def __init__(self, encoder: Any, weight: float = 20.0) -> None:
        super().__init__()
        self.encoder = encoder.requires_grad_(False).eval()
        self.weight = torch.nn.Parameter(torch.tensor(weight))

    def train(self, mode: bool = True) -> Self:
        """Set the mode of this module; the embedding model stays in evaluation mode."""
        super().train(mode)
        self.encoder.eval()
        return self

    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Add the matching score to `scores` [pairs, 1 or 2]; the last column is the ranking score."""
        ids, read, kinds = features["input_ids"], features["attention_mask"].bool(), features["token_type_ids"]
        queries = [tuple(row[mask].tolist()) for row, mask in zip(ids, read & (kinds == 0), strict=True)]
        # A passage ends with the separator, but only the query begins with the first special token.
        passages = [(int(row[0]), *row[mask].tolist()) for row, mask in zip(ids, read & (kinds == 1), strict=True)]
        rows = {row: number for number, row in enumerate(dict.fromkeys([*queries, *passages]))}
        vectors = self._vectors(list(rows), ids.device)
        pairs = [[rows[row] for row in side] for side in (queries, passages)]
        match = (vectors[pairs[0]] * vectors[pairs[1]]).sum(-1)
        scores = features["scores"].float()
        features["scores"] = torch.cat([scores[:, :-1], scores[:, -1:] + self.weight * match[:, None]], 1)
        return features

    @torch.no_grad()
    def _vectors(self, rows: list[tuple[int, ...]], device: torch.device) -> Tensor:
        """Encode texts, given as token ids, as vectors of length 1: [texts, dimensions]."""
        padded = torch.full((len(rows), max(map(len, rows))), self.encoder.tokenizer.pad_token_id)
        for place, row in zip(padded, rows, strict=True):
            place[: len(row)] = torch.tensor(row)
        read = torch.arange(padded.shape[1])[None] < torch.tensor([len(row) for row in rows])[:, None]
        features = {"input_ids": padded, "attention_mask": read.long(), "token_type_ids": torch.zeros_like(padded)}
        vectors = self.encoder({name: value.to(device) for name, value in features.items()})["sentence_embedding"]
        return normalize(vectors.float(), dim=-1)

    def save(self, output_path: str, *_: Any, **__: Any) -> None:
        """Write the module and its embedding model to a folder."""
        (Path(output_path) / self.config_file_name).write_text(json.dumps({"weight": self.weight.item()}), "utf-8")
        self.encoder.save(str(Path(output_path) / "encoder"), create_model_card=False)

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **options: Any) -> EmbedderMatch:
        """Load a module that `save` wrote."""
        from sentence_transformers import SentenceTransformer

        known = {name: options[name] for name in ("token", "cache_folder", "revision", "local_files_only") if name in options}
        folder = cls.load_dir_path(model_name_or_path, subfolder=subfolder, **known)
        encoder = SentenceTransformer(str(Path(str(folder)) / "encoder"), device="cpu")
        return cls(encoder, cls.load_config(str(folder))["weight"])


def load_cross_encoder(folder: str, **options: Any) -> Any:
    """Load a `CrossEncoder` from a folder or hub id, including folders with a module of this file.

    Args:
        folder: Model folder, as returned by `locate`.
        options: Options of `CrossEncoder`.
    """
    from sentence_transformers import CrossEncoder

    path = Path(folder) / "modules.json"
    parts = json.loads(path.read_text("utf-8")) if path.is_file() else []
    if not any(part["type"] in MATCHES for part in parts):
        return CrossEncoder(folder, **options)
    modules = []
    for part in parts:
        kind = import_from_string(part["type"])
        more = {"model_kwargs": options.get("model_kwargs", {})} if issubclass(kind, Transformer) else {}
        modules.append(kind.load(folder, subfolder=part["path"], **more))
    return CrossEncoder(modules=modules, device=options.get("device"))
