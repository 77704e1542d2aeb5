"""LLMLingua-2: of each passage the words that a token classifier would keep, whatever is asked.

    p(word) = mean over its tokens of softmax(logits)[keep];   the likeliest words stay, in their order, at most rate · tokens

Source: Pan et al. 2024, LLMLingua-2: Data Distillation for Efficient and Faithful Task-Agnostic Prompt Compression (ACL Findings).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from benchmarks.core.errors import UserError
from benchmarks.corpus import Corpus
from benchmarks.schema import Passage, Query
from methods.api import TRUNCATED, Context, Ranking, Services
from methods.baselines.compress.recomp import ModelOptions
from methods.models.endpoint import TokenCounter
from methods.models.likelihood import UNBOUNDED, TextEncoder, batches
from methods.models.weights import device_of, load_pretrained
from methods.registry import register
from methods.work import Lengths, Work, encode

_WORD = re.compile(r"\S+")
_ENDS = (".", "!", "?", "\n")
KEEP = 1
"""The class of what is kept."""


class LLMLingua2Config(ModelOptions):
    """Options of LLMLingua-2."""

    model: str = Field("microsoft/llmlingua-2-xlm-roberta-large-meetingbank", description="a classifier of tokens with two classes")
    rate: float = Field(0.25, gt=0, le=1, description="share of a passage's tokens that stays; CLaRa's tables 0.25")
    keep: tuple[str, ...] = Field((), description="words that always stay")
    chunk: int = Field(510, ge=8, description="tokens read at once; a longer passage is cut behind a sentence")
    batch_size: int = Field(16, ge=1, description="parts of a question's passages read at once")


def _work(config: LLMLingua2Config, lengths: Lengths) -> Work:
    return encode(config, lengths.questions * lengths.handed, lengths.passage)


@register(
    "llmlingua2",
    kind="compressor",
    summary="the words of each passage that a token classifier keeps, a quarter of its tokens",
    paper="Pan et al. 2024, LLMLingua-2 (arXiv:2403.12968)",
    presets={"small": {"model": "microsoft/llmlingua-2-bert-base-multilingual-cased-meetingbank"}},
    training_data=("meetingbank",),
    work=_work,
)
class LLMLingua2:
    """Compressor by a token classifier.

    Raises:
        UserError: The model cannot be loaded, has not two classes, or a tokenizer without offsets.
    """

    def __init__(self, config: LLMLingua2Config, services: Services) -> None:
        self.config, self.device = config, device_of(services.device)
        kind = "AutoModelForTokenClassification"
        self._tokenizer, self._model = load_pretrained("token classifier", kind, config.model, config.revision, config.dtype, self.device)
        if self._model.config.num_labels != 2 or not self._tokenizer.is_fast:
            raise UserError(
                f"{config.model!r} does not tell two classes of tokens",
                code="not-two-classes",
                where="option model",
                try_this="a model of LLMLingua-2",
            )
        self._words, self._counter = TextEncoder(self._tokenizer, continues=False), TokenCounter(config.tokenizer)

    def compress(self, queries: Sequence[Query], rankings: Sequence[Ranking], corpus: Corpus, budget: int | None) -> list[Context]:
        """Each ranking's passages in fewer words; one of which nothing stays is left out."""
        return [self._context(ranking, corpus.get(ranking.ids), budget) for ranking in rankings]

    def _context(self, ranking: Ranking, passages: Sequence[Passage], budget: int | None) -> Context:
        texts = [passage.full_text for passage in passages]
        words = [_WORD.findall(text) for text in texts]
        counts = [np.array(self._counter.counts(own), dtype=np.int64) for own in words]
        of = int(sum(own.sum() for own in counts))
        bound = budget is not None and budget < self.config.rate * of
        rate = budget / of if bound and budget is not None else self.config.rate
        kept = []
        for passage, own, number, likely in zip(passages, words, counts, self.probabilities(texts), strict=True):
            limit = math.floor(rate * number.sum()) if bound else math.ceil(rate * number.sum())
            chosen = likeliest(likely, number, limit, [word in self.config.keep for word in own])
            text = " ".join(word for word, stays in zip(own, chosen, strict=True) if stays)
            kept += [(Passage(passage.id, "", text), int(number[chosen].sum()))] if text else []
        left = sum(number for _, number in kept)
        notes = {TRUNCATED: {"unit": "tokens", "kept": left, "of": of}} if bound else {}
        return Context(ranking.query_id, tuple(item for item, _ in kept), notes={**notes, "llmlingua2": {"kept": left, "of": of}})

    def probabilities(self, texts: Sequence[str]) -> list[NDArray[np.float64]]:
        """Return the probability of keeping each word (divided by white space): the mean over its tokens."""
        import torch

        parts = [(at, ids, spans) for at, text in enumerate(texts) for ids, spans in self._parts(text)]
        first, fill = len(self._words.before), self._tokenizer.pad_token_id or 0
        rows = [[*self._words.before, *ids, *self._words.after] for _, ids, _ in parts]
        tokens: list[list[tuple[int, float]]] = [[] for _ in texts]
        for batch, ids, mask in batches(rows, UNBOUNDED, self.device, fill, self.config.batch_size):
            with torch.inference_mode():
                likely = self._model(input_ids=ids, attention_mask=mask).logits.float().softmax(-1)[..., KEEP].cpu().double()
            for row, at in enumerate(batch):
                owner, _, spans = parts[at]
                tokens[owner] += [(start, float(likely[row, first + n])) for n, (start, _) in enumerate(spans)]
        results = []
        for text, own in zip(texts, tokens, strict=True):
            ends = [match.end() for match in _WORD.finditer(text)]
            # White space that a token begins with belongs to the word behind it.
            words = np.searchsorted(ends, [start for start, _ in own], side="right")
            inside, values = words < len(ends), np.array([value for _, value in own])
            sums, numbers = (np.bincount(words[inside], weights, len(ends)) for weights in (values[inside], None))
            results.append(sums / np.maximum(numbers, 1))
        return results

    def _parts(self, text: str) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """Token ids and their characters, cut behind the last sentence that ends within a chunk."""
        encoded = self._tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        ids, spans, parts = list(encoded["input_ids"]), list(encoded["offset_mapping"]), []
        while ids:
            end = min(len(ids), self.config.chunk)
            if end < len(ids):
                end = next((at for at in range(end, 0, -1) if text[: spans[at - 1][1]].endswith(_ENDS)), end)
            parts.append((ids[:end], spans[:end]))
            ids, spans = ids[end:], spans[end:]
        return parts


def likeliest(likely: NDArray[np.float64], counts: NDArray[np.int64], limit: int, always: Sequence[bool]) -> NDArray[np.bool_]:
    """Which words stay: the likeliest, of equal ones the first, until the next would go beyond the limit.

    Args:
        likely: Of each word.
        counts: Its tokens.
        limit: Tokens that may stay.
        always: Words that stay whatever they take, before all others.
    """
    order = np.lexsort((np.arange(len(likely)), -likely, ~np.array(always, dtype=bool)))
    total = np.cumsum(counts[order])
    stays = np.zeros(len(likely), dtype=bool)
    stays[order[(total <= limit) | np.array(always, dtype=bool)[order]]] = True
    return stays
