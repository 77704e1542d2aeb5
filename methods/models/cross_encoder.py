"""Score pairs with cross-encoders: one model reads query and passage together and gives one score.

Pairs are batched by length under a budget of tokens. A batch only has pairs of one query, in an order that depends on
their content, so that a query's scores do not depend on other queries, to the last bit, and equal passages have equal
scores.

Source: bge-reranker (arXiv:2309.07597), ms-marco-MiniLM (arXiv:2002.10957), mGTE (arXiv:2407.19669).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from benchmarks.core.errors import UserError
from benchmarks.core.models import FrozenModel
from methods.models.checks import check_output, truncation
from methods.models.complete import check_weights, complete, longest_input
from methods.models.delta import load_whole
from methods.models.likelihood import FILL, by_length
from methods.models.loaded import KEPT
from methods.models.padding import fit_padding
from methods.models.pretrained import device_of, loading, require_kind
from methods.models.remote_code import check_models, remote_code_refused
from methods.models.weights import has_chat_template, locate, weights_hash

if TYPE_CHECKING:
    from torch import Tensor


SMALLEST_PASSAGE = 8
"""Minimum tokens reserved for the passage."""
USUAL_QUERY = 24
"""Approximate tokens of a question."""
Features = dict[str, list[int]]
"""Token ids of a pair and the other inputs of the model."""


class PairTokens:
    """Tokenizer of (query, passage) pairs for a cross-encoder.

    Args:
        tokenizer: Tokenizer of `transformers`.
        length: Longest pair in tokens.
        query_share: Maximum fraction of the pair's tokens for the query.
    """

    def __init__(self, tokenizer: Any, length: int, query_share: float) -> None:
        self.tokenizer, self.length = tokenizer, length
        self.around = int(tokenizer.num_special_tokens_to_add(pair=True))
        self.query_length = min(int(query_share * length), length - self.around - SMALLEST_PASSAGE)

    def cut(self, query: str) -> str:
        """Cut a query to its maximum length."""
        return self._first(query, self.query_length)

    def _first(self, text: str, tokens: int) -> str:
        """Return the beginning of a text with at most a number of tokens."""
        tokenizer = self.tokenizer
        encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=tokenizer.is_fast)
        if len(encoded["input_ids"]) <= tokens:
            return text
        if tokenizer.is_fast:
            return text[: encoded["offset_mapping"][tokens - 1][1]]
        return str(tokenizer.decode(encoded["input_ids"][:tokens]))

    def encoded(self, query: str, passages: Sequence[str]) -> list[Features]:
        """Tokenize a (cut) query with each passage."""
        if not passages:
            return []
        encoded = self.tokenizer([query] * len(passages), list(passages), truncation="only_second", max_length=self.length)
        return [{name: encoded[name][row] for name in encoded} for row in range(len(passages))]

    def cut_passages(self, query: str, passages: Sequence[str]) -> int:
        """Return how many passages are not read to their end next to a query."""
        tokenizer = self.tokenizer
        taken = len(tokenizer(self.cut(query), add_special_tokens=False)["input_ids"])
        room = self.length - self.around - taken + int(tokenizer.num_special_tokens_to_add())
        return int(truncation(tokenizer, room, passages).get("truncated", 0))

    def padded(self, pairs: Sequence[Features], device: Any) -> dict[str, Tensor]:
        """Pad tokenized pairs to a batch of tensors."""
        return dict(self.tokenizer.pad(list(pairs), return_tensors="pt").to(device))


class RenderedPairs(PairTokens):
    """Tokenizer of pairs for a cross-encoder with a chat template or a prompt, as `CrossEncoder` renders them (Qwen3-Reranker).

    Args:
        model: A `CrossEncoder`.
        length, query_share: As in `PairTokens`.

    Raises:
        UserError: Template and prompt leave no room for a pair.
    """

    def __init__(self, model: Any, length: int, query_share: float) -> None:
        super().__init__(model.tokenizer, length, query_share)
        self._model = model
        self._prompt = model.prompts.get(model.default_prompt_name)
        rendered = self.rendered("", "")
        # How the transformer reads its input is not a tensor.
        self._constants = {name: value for name, value in rendered.items() if not hasattr(value, "tolist")}
        self.around = rendered["input_ids"].shape[1]
        self.query_length = min(int(query_share * (length - self.around)), length - self.around - SMALLEST_PASSAGE)
        if self.query_length < 1:
            raise UserError(
                f"the template and prompt of the cross-encoder have {self.around} tokens, which leave no room in {length}",
                code="no-room-for-pair",
                where="max_length",
                try_this="raise max_length",
            )

    def rendered(self, query: str, passage: str) -> dict[str, Any]:
        """Return the inputs of the model for one pair, as tensors of one row."""
        return dict(self._model.preprocess([(query, passage)], prompt=self._prompt))

    def encoded(self, query: str, passages: Sequence[str]) -> list[Features]:
        """Tokenize a (cut) query with each passage."""
        room = self.length - self.rendered(query, "")["input_ids"].shape[1]
        rows = [self.rendered(query, self._first(passage, room)) for passage in passages]
        return [{name: row[name][0].tolist() for name in row if name not in self._constants} for row in rows]

    def padded(self, pairs: Sequence[Features], device: Any) -> dict[str, Any]:
        """Pad tokenized pairs to a batch of tensors."""
        return super().padded(pairs, device) | self._constants


def pair_tokens(model: Any, length: int, query_share: float) -> PairTokens:
    """Return the tokenizer of pairs for a loaded `CrossEncoder`; arguments as in `RenderedPairs`."""
    plain = PairTokens(model.tokenizer, length, query_share)
    probe = "Query", "Passage"
    own = model.preprocess([probe], prompt=model.prompts.get(model.default_prompt_name))["input_ids"][0].tolist()
    return plain if own == plain.encoded(probe[0], [probe[1]])[0]["input_ids"] else RenderedPairs(model, length, query_share)


PRESETS: Mapping[str, Mapping[str, Any]] = {
    "bge-reranker-base": {"model": "BAAI/bge-reranker-base"},
    "bge-reranker-large": {"model": "BAAI/bge-reranker-large"},
    # Its makers advise 1,024 tokens, with which it was tuned; it takes 8,192.
    "bge-reranker-v2-m3": {"model": "BAAI/bge-reranker-v2-m3", "max_length": 1024},
    "minilm-l6": {"model": "cross-encoder/ms-marco-MiniLM-L6-v2"},
    "minilm-l12": {"model": "cross-encoder/ms-marco-MiniLM-L12-v2"},
    # Needs trust_remote_code; as an embedding model it is the encoder preset gte-multilingual-base.
    "mgte": {"model": "Alibaba-NLP/gte-multilingual-reranker-base"},
}
"""Options of published cross-encoders."""


class CrossEncoderConfig(FrozenModel):
    """Options of a cross-encoder."""

    model: str = Field(
        default=PRESETS["minilm-l6"]["model"], description="a folder or hub id of a CrossEncoder or a classifier with one label"
    )
    revision: str | None = Field(default=None, description="revision of a hub id")
    dtype: Literal["float32", "bfloat16", "float16"] = Field(default="float32", description="dtype of the weights")
    max_length: int = Field(default=512, ge=32, description="longest pair in tokens; the passage is cut, not the query")
    query_share: float = Field(default=0.75, gt=0, le=1, description="maximum share of max_length for the query, which is cut first")
    token_budget: int = Field(default=16384, ge=32, description="tokens per batch, including padding; limits memory")
    activation: Literal["identity", "sigmoid"] = Field(
        default="identity", description="activation applied to the raw score; keeps the order. sentence-transformers applies a sigmoid"
    )
    trust_remote_code: bool = Field(default=False, description="run code contained in the model's repository")

    def checkpoint_hash(self) -> str:
        """Return a hash of the weights; it has a suffix for models that may have a template or prompt, which were ignored before."""
        folder = Path(locate(self.model))
        known = any(self.model == preset["model"] for preset in PRESETS.values())
        rendered = not known if not folder.is_dir() else has_chat_template(self.model) or _default_prompt(folder)
        return weights_hash(self.model, self.revision) + ("-r" if rendered else "")


def _default_prompt(folder: Path) -> bool:
    try:
        return bool(json.loads((folder / "config_sentence_transformers.json").read_text("utf-8")).get("default_prompt_name"))
    except (OSError, ValueError, AttributeError):
        return False


class CrossEncoderModel:
    """A loaded cross-encoder.

    Args:
        config: Options.
        device: "cpu", "cuda" …; None chooses.
        labels: Allowed numbers of labels; with two, the score is the log-odds of the second, in nats.

    Raises:
        UserError: The model cannot be loaded, contains untrusted code, or has another number of labels.
    """

    def __init__(self, config: CrossEncoderConfig, device: str | None = None, labels: Sequence[int] = (1,)) -> None:
        self.config = config
        check_models(config)
        self._model: Any = self.load(device_of(device))
        self._pairs = self.pairs()
        if self._model.num_labels not in labels:
            raise UserError(
                f"{config.model!r} gives {self._model.num_labels} scores per pair, but a reranker must give one",
                code="wrong-score-count",
                try_this="name a cross-encoder that was trained for ranking",
            )

    def load(self, device: str) -> Any:
        """Load the cross-encoder; calls with equal weights share one model.

        Raises:
            UserError: The model cannot be loaded, or contains untrusted code.
        """
        config = self.config
        with remote_code_refused(config.model), loading("cross-encoder", config.model, config.revision):
            import torch

            from methods.models.token_match import load_cross_encoder

            require_kind("cross-encoder", config.model, config.revision, "cross-encoder")
            dtype = getattr(torch, config.dtype)
            options: dict[str, Any] = {"revision": config.revision, "trust_remote_code": config.trust_remote_code}
            options |= {"device": device, "model_kwargs": {"dtype": dtype}}

            def load() -> Any:
                with complete("cross-encoder", config.model):
                    model = load_whole(locate(config.model), lambda folder: load_cross_encoder(folder, **options))
                check_weights(model, config.model, "cross-encoder")
                fit_padding(model, config.model, "cross-encoder")
                # Layers next to the transformer (a head of its own) are loaded in float32.
                return model.to(dtype).eval()

            key = "cross-encoder", weights_hash(config.model, config.revision), device, config.dtype, config.trust_remote_code
            return KEPT.get(key, device, load)

    def pairs(self) -> PairTokens:
        """Return the tokenizer of pairs, with the model's own template, prompt and limits."""
        limits = (self.config.max_length, self._model.max_seq_length, longest_input(self._model))
        return pair_tokens(self._model, min(int(limit) for limit in limits if limit), self.config.query_share)

    @property
    def device(self) -> str:
        """Return the device of the model."""
        return str(self._model.device)

    def truncation(self, texts: Sequence[str]) -> dict[str, Any]:
        """Measure truncated passage text next to a query of typical length; see `checks.truncation`."""
        pairs = self._pairs
        more = pairs.around - int(pairs.tokenizer.num_special_tokens_to_add(pair=True))
        cut = truncation(pairs.tokenizer, pairs.length - USUAL_QUERY - more, texts)
        return cut | {"limit": self._pairs.length} if cut else {}

    def scores(self, query: str, passages: Sequence[str]) -> NDArray[np.float64]:
        """Return the relevance of each passage to the query, shape (passages,); see `many` for errors."""
        return self.many([(query, passages)])[0]

    def many(self, requests: Sequence[tuple[str, Sequence[str]]]) -> list[NDArray[np.float64]]:
        """Compute relevance scores for several queries at once: per query an array of shape (its passages,).

        Pairs of all queries are batched by length; the composition of a batch changes a score by less than 1e-5 in float32.

        Raises:
            UserError: A score is NaN or infinite, for example because float16 overflowed.
        """
        keys: list[list[tuple[int, ...]]] = []
        pairs: dict[tuple[int, ...], dict[str, list[int]]] = {}
        for query, passages in requests:
            # Pairs that are equal after truncation are scored once, so that both passages get the same score.
            encoded = self._pairs.encoded(self._pairs.cut(query), passages)
            keys.append([tuple(pair["input_ids"]) for pair in encoded])
            pairs.update(zip(keys[-1], encoded, strict=True))
        order = sorted(pairs)  # which pair is in which batch must not depend on the order of the requests
        results: dict[tuple[int, ...], float] = {}
        for batch in by_length([len(key) for key in order], self.config.token_budget, fill=FILL):
            results.update(zip((order[n] for n in batch), self._logits([pairs[order[n]] for n in batch]).tolist(), strict=True))
        return [self._checked(np.array([results[key] for key in own], dtype=np.float64)) for own in keys]

    def _checked(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        check_output(scores, self.config.model, "cross-encoder", self.config.dtype, "scores")
        if self.config.activation == "sigmoid":
            return np.exp(-np.logaddexp(0.0, -scores))
        return scores

    def _logits(self, batch: Sequence[dict[str, list[int]]]) -> NDArray[np.float32]:
        import torch

        features = self._pairs.padded(batch, self._model.device)
        with torch.inference_mode():
            scores = self._model(features)["scores"].float().reshape(len(batch), -1)
            return (scores[:, -1] - (scores[:, 0] if scores.shape[1] > 1 else 0.0)).cpu().numpy()
