"""Sentences pruned by a reranker: DSLR scores each one, Provence's encoder marks the tokens of the whole passage.

Both keep sentences in their order, and may keep none.

Source: Hwang et al. 2024, DSLR: Document Refinement with Sentence-Level Re-ranking and Reconstruction (arXiv:2407.03627);
Chirkova et al. 2025, Provence: Efficient and Robust Context Pruning for Retrieval-Augmented Generation (arXiv:2501.16214).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from benchmarks.core.errors import UserError
from benchmarks.schema import Passage, Query
from methods.api import Services
from methods.baselines.compress.recomp import Scores, SentenceCompressor, SentenceOptions
from methods.models.likelihood import by_length, padded
from methods.models.weights import device_of, load_pretrained, loading, locate, weights_hash
from methods.registry import register
from methods.training.released import released
from methods.work import Lengths, Work, encode, needs_of


class _PruningConfig(SentenceOptions):
    revision: str | None = Field(None, description="revision of a hub id")
    dtype: Literal["float32", "bfloat16", "float16"] = Field("float32", description="type of the weights")
    max_length: int = Field(512, ge=32, description="tokens read at once")
    threshold: float = Field(0.1, ge=0, lt=1, description="what a sentence must be above; published 0.1 (cautious) to 0.5")

    def preflight(self) -> None:
        """Check the model's folder."""
        locate(self.model)  # type: ignore[attr-defined]


def _work(config: Any, lengths: Lengths) -> Work:
    return encode(config, lengths.questions * lengths.handed, lengths.question + lengths.passage)


class _Pruner(SentenceCompressor):
    """Keeps what is above the threshold."""

    def __init__(self, name: str, config: Any, services: Services) -> None:
        super().__init__(name, config.tokenizer)
        self.config, self.device = config, device_of(services.device)
        kind = "AutoModelForSequenceClassification"
        self._tokenizer, self._model = load_pretrained("reranker", kind, config.model, config.revision, config.dtype, self.device)

    def kept(self, scores: Scores) -> NDArray[np.bool_]:
        return scores > self.config.threshold

    def _batches(self, rows: Sequence[Sequence[int]]) -> Any:
        """Batches of like length, as positions, ids and masks."""
        import torch

        for batch in by_length([len(row) for row in rows], 1 << 14):
            tensors = (
                torch.tensor(item, device=self.device) for item in padded([rows[at] for at in batch], self._tokenizer.pad_token_id or 0)
            )
            yield batch, *tensors


class DslrConfig(_PruningConfig):
    """Options of DSLR."""

    model: str = Field("BAAI/bge-reranker-v2-m3", description="a classifier with one label: folder or hub id")


@register(
    "dslr",
    kind="compressor",
    summary="sentences that a cross-encoder scores above a threshold, each in one string with question and title",
    config=DslrConfig,
    paper="Hwang et al. 2024, DSLR (arXiv:2407.03627)",
    extra="models",
    checkpoint_hash=lambda config: weights_hash(config.model, config.revision),
    work=_work,
    needs=needs_of,
)
class Dslr(_Pruner):
    """Compressor by sentence scores.

    Args:
        config: Options.
        services: Provides the device.

    Raises:
        UserError: The model gives several scores.
    """

    def __init__(self, config: DslrConfig, services: Services) -> None:
        super().__init__("dslr", config, services)
        if self._model.config.num_labels != 1:
            raise UserError(
                f"{config.model!r} gives {self._model.config.num_labels} scores", where="option model", try_this="a cross-encoder"
            )

    def scores(self, query: Query, passages: Sequence[Passage], parts: Sequence[Sequence[str]]) -> list[Scores]:
        import torch

        texts = [
            " ".join(filter(None, (query.text, passage.title, text))) for passage, own in zip(passages, parts, strict=True) for text in own
        ]
        rows = self._tokenizer(texts, truncation=True, max_length=self.config.max_length)["input_ids"]
        scores = np.empty(len(rows))
        for batch, ids, mask in self._batches(rows):
            with torch.inference_mode():
                scores[batch] = self._model(input_ids=ids, attention_mask=mask).logits[:, 0].double().sigmoid().cpu().numpy()
        return np.split(scores, np.cumsum([len(own) for own in parts])[:-1])


class ProvenceConfig(_PruningConfig):
    """Options of Provence."""

    model: str = Field("naver/provence-reranker-debertav3-v1", description="a DeBERTa with a `token_classifier`: folder or hub id")
    rule: Literal["majority", "mean"] = Field(
        "majority",
        description="majority: more than half of a sentence's tokens are above the threshold (paper); mean: their mean is (OpenProvence)",
    )


@register(
    "provence",
    kind="compressor",
    summary="sentences whose tokens an encoder of question and passage would keep",
    config=ProvenceConfig,
    paper="Chirkova et al. 2025, Provence (arXiv:2501.16214)",
    training_data=("msmarco",),
    extra="models",
    checkpoint_hash=lambda config: weights_hash(config.model, config.revision),
    work=_work,
    needs=needs_of,
)
class Provence(_Pruner):
    """Compressor by token labels; a passage longer than the encoder reads is read in windows of whole sentences.

    Args:
        config: Options.
        services: Provides the device.

    Raises:
        UserError: The model has no classifier of tokens, or its code is asked for and not here.
    """

    def __init__(self, config: ProvenceConfig, services: Services) -> None:
        super().__init__("provence", config, services)
        from torch import nn

        head = released(config.model, config.revision).tensors(lambda name: name.startswith("token_classifier."))
        with loading("token classifier", config.model):
            weight, bias = head["token_classifier.weight"], head["token_classifier.bias"]
        self._head = nn.Linear(weight.shape[1], len(weight)).requires_grad_(False).to(self.device, self._model.dtype)
        self._head.load_state_dict({"weight": weight, "bias": bias})

    def scores(self, query: Query, passages: Sequence[Passage], parts: Sequence[Sequence[str]]) -> list[Scores]:
        import torch

        words = self._tokenizer
        question = list(words(query.text, add_special_tokens=False)["input_ids"])[: self.config.max_length // 2]
        before = [words.cls_token_id, *question, words.sep_token_id]
        room = self.config.max_length - len(before) - 1
        rows: list[list[int]] = []  # windows, each with the passage's title, and of each the sentences in it with their places
        windows: list[list[tuple[int, int, int, int]]] = []
        inside: list[tuple[int, int, int, int]]
        for at, own in enumerate(parts):
            title = list(words(passages[at].title, add_special_tokens=False)["input_ids"])[: room // 4]
            ids, inside = [*before, *title], []
            for n, text in enumerate(own):
                tokens = list(words(text, add_special_tokens=False)["input_ids"])[: room - len(title)]
                if len(ids) - len(before) + len(tokens) > room:
                    rows.append([*ids, words.sep_token_id])
                    windows.append(inside)
                    ids, inside = [*before, *title], []
                inside.append((at, n, len(ids), len(ids) + len(tokens)))
                ids += tokens
            if inside:
                rows.append([*ids, words.sep_token_id])
                windows.append(inside)
        results = [np.zeros(len(own)) for own in parts]
        for batch, ids, mask in self._batches(rows):
            with torch.inference_mode():
                states = self._model.base_model(input_ids=ids, attention_mask=mask).last_hidden_state
                likely = self._head(states).float().softmax(-1)[..., 1].cpu().double().numpy()
            for row, at in enumerate(batch):
                for passage, n, start, end in windows[at]:
                    results[passage][n] = self._of_sentence(likely[row, start:end])
        return results

    def _of_sentence(self, likely: NDArray[np.float64]) -> float:
        if not len(likely):
            return 0.0
        return float(likely.mean() if self.config.rule == "mean" else (likely > self.config.threshold).mean())

    def kept(self, scores: Scores) -> NDArray[np.bool_]:
        return scores > (self.config.threshold if self.config.rule == "mean" else 0.5)
