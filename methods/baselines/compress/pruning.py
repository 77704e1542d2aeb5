"""Prune sentences of passages: DSLR scores each sentence with a reranker, Provence labels the tokens of the whole passage.

Both keep the order of sentences, and may remove all of them.

Source: Hwang et al. 2024, DSLR: Document Refinement with Sentence-Level Re-ranking and Reconstruction (arXiv:2407.03627);
Chirkova et al. 2025, Provence: Efficient and Robust Context Pruning for Retrieval-Augmented Generation (arXiv:2501.16214).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from benchmarks.core.errors import UserError
from benchmarks.schema import Passage, Query
from methods.api import Services
from methods.baselines.compress.recomp import ModelOptions, Scores, SentenceCompressor
from methods.models.likelihood import batches
from methods.models.pretrained import device_of, load_pretrained, loading
from methods.registry import register
from methods.training.released import released
from methods.work import Lengths, Work, encode


class _PruningConfig(ModelOptions):
    max_length: int = Field(512, ge=32, description="tokens scored at once")
    threshold: float = Field(0.1, ge=0, lt=1, description="keep a sentence if its score is above this; published 0.1 (cautious) to 0.5")


def _work(config: Any, lengths: Lengths) -> Work:
    return encode(config, lengths.questions * lengths.handed, lengths.question + lengths.passage)


class _Pruner(SentenceCompressor):
    """Base class of compressors that keep sentences above a threshold."""

    def __init__(self, name: str, config: Any, services: Services) -> None:
        super().__init__(name, config.tokenizer)
        self.config, self.device = config, device_of(services.device)
        kind = "AutoModelForSequenceClassification"
        self._tokenizer, self._model = load_pretrained("reranker", kind, config.model, config.revision, config.dtype, self.device)

    def kept(self, scores: Scores) -> NDArray[np.bool_]:
        return scores > self.config.threshold

    def _batches(self, rows: Sequence[Sequence[int]]) -> Iterator[tuple[list[int], Any, Any]]:
        return batches(rows, 1 << 14, self.device, self._tokenizer.pad_token_id or 0)


class DslrConfig(_PruningConfig):
    """Options of DSLR."""

    model: str = Field("BAAI/bge-reranker-v2-m3", description="a classifier with one label: folder or hub id")


@register(
    "dslr",
    kind="compressor",
    summary="sentences that a cross-encoder scores above a threshold, each scored together with question and title",
    paper="Hwang et al. 2024, DSLR (arXiv:2407.03627)",
    work=_work,
)
class Dslr(_Pruner):
    """Compressor role: keeps sentences by a reranker's score.

    Raises:
        UserError: The model has more than one label.
    """

    def __init__(self, config: DslrConfig, services: Services) -> None:
        super().__init__("dslr", config, services)
        if (labels := self._model.config.num_labels) != 1:
            raise UserError(
                f"{config.model!r} gives {labels} scores", code="wrong-score-shape", where="option model", try_this="a cross-encoder"
            )

    def scores(self, query: Query, passages: Sequence[Passage], parts: Sequence[Sequence[str]]) -> list[Scores]:
        import torch

        pairs = [(passage.title, text) for passage, own in zip(passages, parts, strict=True) for text in own]
        texts = [" ".join(filter(None, (query.text, *pair))) for pair in pairs]
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
        description="majority: keep a sentence if more than half of its tokens are above the threshold (paper); mean: if the "
        "tokens' mean is (OpenProvence)",
    )


@register(
    "provence",
    kind="compressor",
    summary="sentences whose tokens an encoder of question and passage predicts to keep",
    paper="Chirkova et al. 2025, Provence (arXiv:2501.16214)",
    training_data=("msmarco",),
    work=_work,
)
class Provence(_Pruner):
    """Compressor role: keeps sentences by token labels; long passages are processed in windows of whole sentences.

    Raises:
        UserError: The model has no token classifier, or needs code that is not available.
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

        def tokens(text: str, most: int) -> list[int]:
            return list(words(text, add_special_tokens=False)["input_ids"])[:most]

        before = [words.cls_token_id, *tokens(query.text, self.config.max_length // 2), words.sep_token_id]
        room = self.config.max_length - len(before) - 1
        rows: list[list[int]] = []  # windows, each with the passage's title, and of each the sentences in it with their places
        windows: list[list[tuple[int, int, int, int]]] = []
        for at, own in enumerate(parts):
            title = tokens(passages[at].title, room // 4)
            for n, text in enumerate(own):
                ids = tokens(text, room - len(title))
                if n == 0 or len(rows[-1]) - len(before) + len(ids) > room:
                    rows.append([*before, *title])
                    windows.append([])
                windows[-1].append((at, n, len(rows[-1]), len(rows[-1]) + len(ids)))
                rows[-1] += ids
        results = [np.zeros(len(own)) for own in parts]
        for batch, inputs, mask in self._batches([[*row, words.sep_token_id] for row in rows]):
            with torch.inference_mode():
                states = self._model.base_model(input_ids=inputs, attention_mask=mask).last_hidden_state
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
