"""LLMLingua-2: keep the words of each passage that a token classifier selects, independent of the question.

    p(word) = mean over its tokens of softmax(logits)[keep];   words above a percentile of a chunk's tokens stay, in their order

As in the released code, words start where the tokenizer starts one (with XLM-R also at punctuation marks), percentiles are over
the tokens of OpenAI's tokenizer, a chunk is enclosed in `[CLS]` and `[SEP]` (`<unk>` in XLM-R), and the results of chunks are
concatenated without separator.

Source: Pan et al. 2024, LLMLingua-2: Data Distillation for Efficient and Faithful Task-Agnostic Prompt Compression (ACL Findings);
microsoft/LLMLingua at e0e9d99b.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from pydantic import Field

from benchmarks.core.errors import UserError
from benchmarks.corpus import Corpus
from benchmarks.schema import Passage, Query
from methods.api import TRUNCATED, Context, Ranking, Services
from methods.baselines.compress.recomp import ModelOptions
from methods.graphs.chunking import TIKTOKEN, spans_of
from methods.models.counting import TokenCounter
from methods.models.likelihood import UNBOUNDED, batches
from methods.models.pretrained import device_of, load_pretrained
from methods.readers.prompts import longest_prefix
from methods.registry import register
from methods.work import Lengths, Work, encode

_RELEASED = "llmlingua-2-"
_COUNTED_IN = f"{TIKTOKEN}cl100k_base"
_DIGIT, _PARTS = re.compile(r"\d"), re.compile(r"\s*\S+")
_FRAME = ("[CLS]", "[SEP]")
"""Frame tokens of the released code, for every tokenizer."""
_CHUNK_ENDS = frozenset(".\n")
KEEP = 1
"""Class index of kept tokens."""


class LLMLingua2Config(ModelOptions):
    """Options of LLMLingua-2."""

    model: str = Field("microsoft/llmlingua-2-xlm-roberta-large-meetingbank", description="token classifier with two classes")
    tokenizer: str | None = Field(
        None,
        description=f"tokenizer that counts tokens: folder of a model, {_COUNTED_IN} or another of tiktoken's; null: "
        f"{_COUNTED_IN} for models called llmlingua-2-…, as released, else characters / 4",
    )
    rate: float = Field(0.25, gt=0, le=1, description="share of a passage's tokens to keep; CLaRa's tables 0.25")
    keep: tuple[str, ...] = Field((), max_length=100, description="tokens to always keep (force_tokens)")
    digits: bool = Field(False, description="keep all words with digits (force_reserve_digit)")
    drop_consecutive: bool = Field(False, description="keep a repeated token of `keep` only once if nothing between is kept")
    chunk: int = Field(510, ge=8, description="tokens classified at once; a longer passage is split after a period")
    batch_size: int = Field(16, ge=1, description="parts of a question's passages classified at once")

    @property
    def counted_in(self) -> str | None:
        """Return the tokenizer for counting the budget; None for characters / 4."""
        return self.tokenizer or (_COUNTED_IN if _RELEASED in self.model.lower() else None)

    def preflight(self) -> None:
        """Check that the model and the tokenizer exist."""
        super().preflight()
        _counting(self.counted_in)


def _counting(tokenizer: str | None) -> Callable[[Sequence[str]], list[int]]:
    """Return a function that counts the tokens of texts."""
    if tokenizer is None or not tokenizer.startswith(TIKTOKEN):
        return TokenCounter(tokenizer).counts
    spans = spans_of(tokenizer)
    return lambda texts: [len(spans(text)) for text in texts]


def _work(config: LLMLingua2Config, lengths: Lengths) -> Work:
    return encode(config, lengths.questions * lengths.handed, lengths.passage)


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a chunk: its text, the probability of keeping it, and its length in budget tokens."""

    text: str
    likely: Any
    tokens: int


@register(
    "llmlingua2",
    kind="compressor",
    version=2,
    summary="the words of each passage that a token classifier keeps, a quarter of its tokens",
    paper="Pan et al. 2024, LLMLingua-2 (arXiv:2403.12968)",
    presets={"small": {"model": "microsoft/llmlingua-2-bert-base-multilingual-cased-meetingbank"}},
    training_data=("meetingbank",),
    work=_work,
)
class LLMLingua2:
    """Compressor role: LLMLingua-2.

    Raises:
        UserError: The model cannot be loaded, does not have two classes, or its tokenizer does not mark word starts.
    """

    def __init__(self, config: LLMLingua2Config, services: Services) -> None:
        self.config, self.device = config, device_of(services.device)
        kind = "AutoModelForTokenClassification"
        self._tokenizer, self._model = load_pretrained(
            "token classifier", kind, config.model, config.revision, config.dtype, self.device, own=bool(config.keep)
        )
        words = self._tokenizer
        if self._model.config.num_labels != 2 or not words.is_fast:
            raise UserError(
                f"{config.model!r} does not distinguish two classes of tokens",
                code="not-two-classes",
                where="option model",
                try_this="a model of LLMLingua-2",
            )
        model = words.backend_tokenizer.model
        self._continuing = "##" if type(model).__name__ == "WordPiece" else ""
        if not self._continuing and "▁" not in "".join(words.tokenize("a b")):
            raise UserError(
                f"the tokenizer of {config.model!r} marks neither word starts (▁) nor continuations (##)",
                code="tokenizer-without-words",
                where="option model",
                try_this="a model of LLMLingua-2, over BERT or XLM-R",
            )
        self._special = set(words.all_special_tokens)
        self._stand_ins = self._added(config.keep)

    @cached_property
    def _counts(self) -> Callable[[Sequence[str]], list[int]]:
        return _counting(self.config.counted_in)

    def _added(self, keep: Sequence[str]) -> dict[str, str]:
        """Add tokens to the model for protected texts that are not single tokens, and return them by text."""
        words = self._tokenizer
        stand_ins = {text: f"[NEW{number}]" for number, text in enumerate(keep) if len(words.tokenize(text)) != 1}
        if stand_ins:
            import torch

            words.add_tokens(list(stand_ins.values()), special_tokens=True)
            with torch.no_grad():
                mean = self._model.get_input_embeddings().weight.mean(0)
                before = len(self._model.get_input_embeddings().weight)
                self._model.resize_token_embeddings(max(before, len(words)), mean_resizing=False)
                self._model.get_input_embeddings().weight[words.convert_tokens_to_ids(list(stand_ins.values()))] = mean
        return stand_ins

    def compress(self, queries: Sequence[Query], rankings: Sequence[Ranking], corpus: Corpus, budget: int | None) -> list[Context]:
        """Return each ranking's passages with the kept words; passages without any are dropped."""
        return [self._context(ranking, corpus.get(ranking.ids), budget) for ranking in rankings]

    def _context(self, ranking: Ranking, passages: Sequence[Passage], budget: int | None) -> Context:
        texts = [passage.full_text for passage in passages]
        of = sum(self._counts(texts))
        bound = budget is not None and budget < self.config.rate * of
        rate = budget / of if bound and budget is not None else self.config.rate
        kept, left = [], 0
        for passage, text in zip(passages, self.compressed(texts, rate), strict=True):
            (count,) = self._counts([text])
            if budget is not None and left + count > budget:
                text, count = self._within(text, budget - left)
            if text.strip():
                kept.append(Passage(passage.id, "", text))
                left += count
        notes = {TRUNCATED: {"unit": "tokens", "kept": left, "of": of}} if bound else {}
        return Context(ranking.query_id, tuple(kept), notes={**notes, "llmlingua2": {"kept": left, "of": of}})

    def _within(self, text: str, room: int) -> tuple[str, int]:
        """Return the first words of a text that fit a token budget, and their tokens."""
        parts = _PARTS.findall(text)
        most = longest_prefix(len(parts), lambda number: self._counts(["".join(parts[:number])])[0] <= room)
        return (shown := "".join(parts[:most])), self._counts([shown])[0]

    def compressed(self, texts: Sequence[str], rate: float) -> list[str]:
        """Compress texts to the kept words at a given rate."""
        chunks = [self.chunks(text) for text in texts]
        if rate >= 1:
            return [self._written("".join(own)) for own in chunks]
        made = iter(self.words([chunk for own in chunks for chunk in own]))
        return ["".join(self._kept(next(made), 1 - rate) for _ in own) for own in chunks]

    def _written(self, text: str) -> str:
        for kept, stand_in in self._stand_ins.items():
            text = text.replace(stand_in, kept)
        return text

    def chunks(self, text: str) -> list[str]:
        """Split a text into parts that fit the model, each ending at the last possible period."""
        for kept, stand_in in self._stand_ins.items():
            text = text.replace(kept, stand_in)
        tokens, chunks, start, most = self._tokenizer.tokenize(text, verbose=False), [], 0, self.config.chunk
        ends = _CHUNK_ENDS | {self._stand_ins[end] for end in _CHUNK_ENDS & self._stand_ins.keys()}
        while start < len(tokens):
            end = start + most
            if end < len(tokens):
                end = next((at for at in range(end, start, -1) if tokens[at] in ends), end)
            chunks.append(self._tokenizer.convert_tokens_to_string(tokens[start : end + 1]))
            start = end + 1
        return chunks

    def words(self, chunks: Sequence[str]) -> list[list[Word]]:
        """Return the words of chunks with their mean keep probability over tokens."""
        import torch

        rows = [[_FRAME[0], *self._tokenizer.tokenize(chunk), _FRAME[1]][: self.config.chunk + 2] for chunk in chunks]
        ids = [self._tokenizer.convert_tokens_to_ids(row) for row in rows]
        results: list[list[Word]] = [[] for _ in rows]
        fill = self._tokenizer.pad_token_id or 0
        for batch, inputs, mask in batches(ids, UNBOUNDED, self.device, fill, self.config.batch_size):
            with torch.inference_mode():
                likely = self._model(input_ids=inputs, attention_mask=mask).logits.float().softmax(-1)[..., KEEP].cpu().numpy()
            for row, at in enumerate(batch):
                tokens = self._tokenizer.convert_ids_to_tokens(ids[at])
                results[at] = self._merged(tokens, likely[row, : len(tokens)])
        return results

    def _merged(self, tokens: Sequence[str], likely: Sequence[Any]) -> list[Word]:
        """Merge tokens into words; special and unknown tokens belong to none."""
        texts: list[str] = []
        values: list[list[Any]] = []
        stand_ins = self._stand_ins.values()
        for token, value in zip(tokens, likely, strict=True):
            if token in self._special:
                continue
            pure = token.lstrip("##" if self._continuing else "▁")
            always = pure in self.config.keep or pure in stand_ins
            begins = self._begins(token, always) or not texts
            text = self._written(token) if begins else pure
            certain = (always and begins) or (self.config.digits and _DIGIT.search(token))
            if begins:
                texts.append(text)
                values.append([])
            else:
                texts[-1] += text
            values[-1].append(1.0 if certain else value)
        counts = self._counts(texts) if texts else []
        return [Word(text, sum(own) / len(own), count) for text, own, count in zip(texts, values, counts, strict=True)]

    def _begins(self, token: str, always: bool) -> bool:
        if self._continuing:
            return always or not token.startswith("##")
        return token.startswith("▁") or token in string.punctuation or token in self.config.keep or token in self._stand_ins.values()

    def _kept(self, words: Sequence[Word], dropped: float) -> str:
        """Return the words of a chunk above the percentile, as text."""
        if not words:
            return ""
        keep = self.config.keep
        likely = [word.likely for word in words]
        if self.config.drop_consecutive:
            threshold, between, before = np.percentile(likely, int(100 * dropped)), False, None
            for at, word in enumerate(words):
                if word.text not in keep:
                    between |= bool(likely[at] > threshold)
                    continue
                if between:
                    between = False
                elif word.text == before:
                    likely[at] = 0.0
                before = word.text
        tokens = [value for value, word in zip(likely, words, strict=True) for _ in range(word.tokens)]
        threshold = np.percentile(tokens, int(100 * dropped + 1)) if tokens else 1.0
        stay: list[str] = []
        for word, value in zip(words, likely, strict=True):
            again = self.config.drop_consecutive and word.text in keep and stay[-1:] == [word.text]
            if (value > threshold or value == threshold == 1.0) and not again:
                stay.append(word.text)
        return str(self._tokenizer.convert_tokens_to_string(stay)) if stay else ""
