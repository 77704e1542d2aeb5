"""DPA-RAG's reranker: a cross-encoder trained on which passages help the reader.

It has two labels, the second for passages that are aligned with the reader; the score is its log-odds in nats. No
checkpoint is published: `model` is your own classifier, an ordinary cross-encoder with one label, or the encoder for
`weights`, the file that the authors' training writes (a linear layer on the first token's state).

Source: Dong et al. 2025, DPA-RAG (arXiv:2406.18676).
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import fingerprint
from methods.api import Services
from methods.models.cross_encoder import CrossEncoderModel, PairTokens
from methods.models.pretrained import load_pretrained
from methods.models.weights import file_hash, weights_hash
from methods.registry import register
from methods.retrieval.cross_encoder import CrossEncoderReranker, CrossEncoderRerankerConfig, pairs_work
from methods.retrieval.ranking import ModelReranker
from methods.work import Checkpoint, Needs

ENCODER, HEAD = "bge.", "classifier."
"""Prefixes of weight names in the authors' file."""
WEIGHTS_FILE = "model_weights.bin"
"""File of weights in a folder of `ragmeter train dpa_rag`."""


class DpaRagConfig(CrossEncoderRerankerConfig):
    """Options of the reranker."""

    model: str = Field(
        "BAAI/bge-reranker-large",
        description="a folder or hub id of a classifier with one or two labels; or the encoder that `weights` are loaded into",
    )
    weights: str | None = Field(
        None,
        description="file of the authors' training (epoch_…_model_weights.bin), or a folder of `ragmeter train dpa_rag`, loaded "
        "into the encoder `model`; null: `model` is the classifier",
    )

    def preflight(self) -> None:
        """Check the model and the file of weights."""
        super().preflight()
        if self.weights is not None and not _file(self.weights).is_file():
            raise UserError("the file of weights does not exist", code="missing-file", where=f"dpa_rag, option weights: {self.weights}")

    def needed_models(self) -> Needs | None:
        """Return the model, and the training folder if one is named."""
        own = super().needed_models()
        named = own is not None and self.weights is not None and not Path(self.weights).expanduser().is_file()
        return own + Needs((Checkpoint(str(self.weights), adapter=True),)) if own and named else own


def _made_of(config: DpaRagConfig) -> str:
    base = weights_hash(config.model, config.revision)
    return base if config.weights is None else fingerprint(base, file_hash(_file(config.weights)))


@register(
    "dpa_rag",
    kind="reranker",
    summary="DPA-RAG's reranker: the log-odds that a passage helps the reader",
    config=DpaRagConfig,
    paper="Dong et al. 2025, DPA-RAG (arXiv:2406.18676)",
    checkpoint_hash=_made_of,
    work=pairs_work,
)
class DpaRag(CrossEncoderReranker):
    """Reranker role: a classifier with one or two labels.

    Args:
        config: Options.
        services: Services; the device is used.
    """

    labels = (1, 2)

    def __init__(self, config: DpaRagConfig, services: Services) -> None:
        if config.weights is None:
            super().__init__(config, services)
        else:
            ModelReranker.__init__(self, config, JoinedModel(config, services.device, self.labels))


class JoinedModel(CrossEncoderModel):
    """Encoder with a linear layer on the first token's state, both loaded from the file of the authors' training."""

    config: DpaRagConfig

    def load(self, device: str) -> Any:
        """Load the module.

        Raises:
            UserError: The file is damaged, or its weights do not fit the encoder.
        """
        import torch

        path = _file(str(self.config.weights))
        source = ("encoder", "AutoModel", self.config.model, self.config.revision, self.config.dtype, device)
        tokenizer, encoder = load_pretrained(*source, own=True)
        try:
            state: Mapping[str, Any] = torch.load(path, map_location=device, weights_only=True)
        except (pickle.UnpicklingError, OSError, RuntimeError, EOFError) as error:
            raise _unfit(path, (str(error).splitlines() or [type(error).__name__])[0]) from None
        own = {name.removeprefix(ENCODER): weight for name, weight in state.items() if name.startswith(ENCODER)}
        head = {name.removeprefix(HEAD): weight for name, weight in state.items() if name.startswith(HEAD)}
        missing, shapes = sorted({"weight", "bias"} - head.keys()), {}
        if not missing:
            kept = {name: weight for name, weight in encoder.state_dict().items() if not name.startswith("pooler.")}
            missing = sorted(kept.keys() - own.keys())
            shapes = {name: own[name].shape for name in kept.keys() & own.keys() if own[name].shape != kept[name].shape}
        if missing or shapes:
            raise _unfit(path, f"{missing[0]} is missing" if missing else f"{min(shapes)} is {tuple(shapes[min(shapes)])}")
        encoder.load_state_dict(own, strict=False)
        linear = torch.nn.Linear(head["weight"].shape[1], head["weight"].shape[0], device=device)
        linear.load_state_dict(head)
        return Joined(tokenizer, encoder, linear.to(encoder.dtype).eval(), device)

    def pairs(self) -> PairTokens:
        """Return the tokenizer of pairs; the file has no template and no prompt."""
        length = min(self.config.max_length, int(self._model.max_seq_length))
        return PairTokens(self._model.tokenizer, length, self.config.query_share)


class Joined:
    """Module of encoder and linear layer, with the interface of a sentence-transformers cross-encoder."""

    def __init__(self, tokenizer: Any, encoder: Any, linear: Any, device: str) -> None:
        self.tokenizer, self.device = tokenizer, device
        self.num_labels = linear.out_features
        positions = encoder.config.max_position_embeddings - (encoder.config.pad_token_id or 0) - 1
        self.max_seq_length = min(positions, tokenizer.model_max_length)
        self._encoder, self._linear = encoder, linear

    def __call__(self, features: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"scores": self._linear(self._encoder(**features).last_hidden_state[:, 0])}


def _file(weights: str) -> Path:
    path = Path(weights).expanduser()
    return path / WEIGHTS_FILE if path.is_dir() else path


def _unfit(path: Path, why: str) -> UserError:
    return UserError(
        f"the file does not contain DPA-RAG's reranker for this encoder: {why}",
        code="unfit-weights",
        where=str(path),
        try_this="name the encoder that it was trained on as `model`",
    )
