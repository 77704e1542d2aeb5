"""RECOMP: extract the sentences most similar to the question (extractive), or summarize the passages (abstractive).

`pruning.py` shares the base class `SentenceCompressor`.

Source: Xu et al. 2024, RECOMP: Improving Retrieval-Augmented LMs with Compression and Selective Augmentation (arXiv:2310.04408).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from benchmarks.corpus import Corpus
from benchmarks.schema import Passage, Query
from benchmarks.text import sentences
from methods.api import TRUNCATED, Context, Ranking, Services, Usage
from methods.models.counting import TokenCounter
from methods.models.encoder import Encoder
from methods.models.encoder_config import EncoderConfig
from methods.models.seq2seq import Seq2SeqConfig, Seq2SeqModel
from methods.prompts import Shipped
from methods.readers.prompts import longest_prefix
from methods.registry import MethodConfig, ModelMethodConfig, register
from methods.work import Lengths, Work, ask, encode

SUMMARY = Shipped("methods.baselines.compress", "recomp_summary")
"""Input of the summarizers, in the published wording."""
PAPER = "Xu et al. 2024, RECOMP: Improving Retrieval-Augmented LMs with Compression and Selective Augmentation (arXiv:2310.04408)"
Scores = NDArray[np.float64]


class CountingOptions(MethodConfig):
    """Options for counting the tokens of a budget."""

    tokenizer: str | None = Field(None, description="folder of the reader's model, to count its tokens; null: characters / 4")


class ModelOptions(CountingOptions, ModelMethodConfig):
    """Options with a `transformers` model that selects the text to keep."""

    model: str = Field(description="a folder or hub id")
    revision: str | None = Field(None, description="revision of a hub id")
    dtype: Literal["float32", "bfloat16", "float16"] = Field("float32", description="dtype of the weights")


class SentenceCompressor(ABC):
    """Base class of compressors that keep some sentences in their order; a passage keeps its title with its first kept
    sentence.

    Args:
        name: Key in `notes` for the number of kept sentences.
        tokenizer: Tokenizer for the budget (`CountingOptions`).
    """

    def __init__(self, name: str, tokenizer: str | None) -> None:
        self._name, self._counter = name, TokenCounter(tokenizer)

    @abstractmethod
    def scores(self, query: Query, passages: Sequence[Passage], parts: Sequence[Sequence[str]]) -> list[Scores]:
        """Score the relevance of each sentence of each passage to the question."""

    @abstractmethod
    def kept(self, scores: Scores) -> NDArray[np.bool_]:
        """Select the sentences to keep, given all scores."""

    def compress(self, queries: Sequence[Query], rankings: Sequence[Ranking], corpus: Corpus, budget: int | None) -> list[Context]:
        """Return the best sentences of each ranking's passages within the budget."""
        return [self._context(query, ranking, corpus.get(ranking.ids), budget) for query, ranking in zip(queries, rankings, strict=True)]

    def _context(self, query: Query, ranking: Ranking, passages: Sequence[Passage], budget: int | None) -> Context:
        parts = [sentences(passage.text) for passage in passages]
        owned = [(at, text) for at, own in enumerate(parts) for text in own]
        if not owned:
            return Context(ranking.query_id, notes={self._name: {"kept": 0, "of": 0}})

        def write_chosen(chosen: Sequence[int]) -> tuple[Passage, ...]:
            texts: dict[int, list[str]] = {}
            for at, text in (owned[position] for position in sorted(chosen)):
                texts.setdefault(at, []).append(text)
            return tuple(Passage(passages[at].id, passages[at].title, " ".join(own)) for at, own in texts.items())

        def tokens(count: int) -> int:
            return sum(self._counter.counts([item.full_text for item in write_chosen(best[:count])]))

        scores, notes = np.concatenate(self.scores(query, passages, parts)), {}
        stays = np.flatnonzero(self.kept(scores))
        best = stays[np.argsort(-scores[stays], kind="stable")].tolist()
        count = len(best) if budget is None else longest_prefix(len(best), lambda count: tokens(count) <= budget)
        if count < len(best):
            notes = {TRUNCATED: {"unit": "sentences", "kept": count, "of": len(best)}}
        return Context(ranking.query_id, write_chosen(best[:count]), notes={**notes, self._name: {"kept": count, "of": len(owned)}})


class RecompExtractiveConfig(EncoderConfig, CountingOptions, ModelMethodConfig):
    """Options of RECOMP's sentence encoder."""

    model: str = Field("fangyuan/nq_extractive_compressor", description="a folder or hub id of an encoder")
    pooling: Literal["cls", "mean", "lasttoken"] | None = Field("mean", description=EncoderConfig.model_fields["pooling"].description)
    normalize: bool = Field(False, description="published: inner products of mean-pooled vectors")
    max_length: int | None = Field(512, ge=8, description="longest sentence in tokens")
    sentences: int = Field(1, ge=1, description="number of sentences to keep; published 1, for HotpotQA 2")


def _sentences_work(config: Any, lengths: Lengths) -> Work:
    return encode(config, lengths.questions * (1 + lengths.handed), lengths.passage)


@register(
    "recomp_extractive",
    kind="compressor",
    summary="the sentence nearest to the question among all passages, by a dual encoder; two sentences for HotpotQA",
    paper=PAPER,
    presets={
        "triviaqa": {"model": "fangyuan/tqa_extractive_compressor"},
        "hotpotqa": {"model": "fangyuan/hotpotqa_extractive_compressor", "sentences": 2},
        "minilm": {"model": "minilm", "pooling": None, "normalize": True, "max_length": None},
    },
    training_data=("nq",),
    work=_sentences_work,
)
class RecompExtractive(SentenceCompressor):
    """Compressor role: keeps the sentences most similar to the question."""

    def __init__(self, config: RecompExtractiveConfig, services: Services) -> None:
        super().__init__("recomp_extractive", config.tokenizer)
        self._encoder, self._number = Encoder(config, services.device), config.sentences
        self.device = self._encoder.device

    def scores(self, query: Query, passages: Sequence[Passage], parts: Sequence[Sequence[str]]) -> list[Scores]:
        question = self._encoder.queries([query.text])[0].astype(np.float64)
        return [self._encoder.passages(own).astype(np.float64) @ question if own else np.empty(0) for own in parts]

    def kept(self, scores: Scores) -> NDArray[np.bool_]:
        return np.isin(np.arange(len(scores)), np.argsort(-scores, kind="stable")[: self._number])


class RecompAbstractiveConfig(Seq2SeqConfig, ModelMethodConfig):
    """Options of RECOMP's summarizer."""

    model: str = Field("fangyuan/nq_abstractive_compressor", description="a folder or hub id of an encoder-decoder model")
    max_prompt_tokens: int | None = Field(1024, ge=16, description="longest input; the end of longer passages is cut")
    max_new_tokens: int = Field(512, ge=1, description="longest summary")
    prompt: str | None = Field(
        None, description="your own template file; null: the published input", exclude_if=lambda value: value is None
    )

    def checkpoint_hash(self) -> str:
        """Return a hash of the weights, and of a user's template."""
        return super().checkpoint_hash() + (f"-{SUMMARY.hash(self.prompt)}" if self.prompt else "")

    def preflight(self) -> None:
        """Check the model and the template."""
        super().preflight()
        SUMMARY.load(self.prompt)


def _summary_work(config: RecompAbstractiveConfig, lengths: Lengths) -> Work:
    prompt = lengths.question + lengths.handed * lengths.passage
    return ask(config, lengths.questions, min(prompt, config.max_prompt_tokens or prompt), longest=min(config.max_new_tokens, prompt))


@register(
    "recomp_abstractive",
    kind="compressor",
    summary="a T5's summary of the passages for the question; empty if the passages do not help",
    paper=PAPER,
    presets={"triviaqa": {"model": "fangyuan/tqa_abstractive_compressor"}, "hotpotqa": {"model": "fangyuan/hotpotqa_abstractive"}},
    training_data=("nq",),
    work=_summary_work,
)
class RecompAbstractive:
    """Compressor role: summarizes passages; after an empty summary, the reader only gets the question."""

    def __init__(self, config: RecompAbstractiveConfig, services: Services) -> None:
        self._model, self._template = Seq2SeqModel(config, services.device), SUMMARY.load(config.prompt)
        self.device = self._model.device

    def compress(self, queries: Sequence[Query], rankings: Sequence[Ranking], corpus: Corpus, budget: int | None) -> list[Context]:
        """Return a summary of each ranking's passages, under the id of the first; a budget truncates it."""
        fitted = [self._prompt(query.text, corpus.get(ranking.ids)) for query, ranking in zip(queries, rankings, strict=True)]
        written = iter(self._model.generate([prompt for prompt, _ in fitted if prompt]))
        return [
            self._context(ranking, next(written), notes, budget) if prompt else Context(ranking.query_id)
            for ranking, (prompt, notes) in zip(rankings, fitted, strict=True)
        ]

    def _prompt(self, question: str, passages: Sequence[Passage]) -> tuple[str, dict[str, Any]]:
        """Build the prompt with as many words of the passages as fit, and notes; "" if there is nothing to summarize."""
        words = " ".join(passage.full_text for passage in passages).split()

        def prompt(count: int) -> str:
            return self._template.pair(question=question, passages=" ".join(words[:count]))[1]

        def fits(count: int) -> bool:
            return len(self._model.encode(prompt(count))) <= self._model.room

        count = longest_prefix(len(words), fits)
        if not count:
            return "", {}
        return prompt(count), {"recomp_abstractive": {"words_read": count, "of": len(words)}} if count < len(words) else {}

    def _context(self, ranking: Ranking, written: Any, notes: dict[str, Any], budget: int | None) -> Context:
        text, usage = written.text.strip(), Usage(written.prompt_tokens, written.completion_tokens, model_calls=1)
        if budget is not None and written.completion_tokens > budget:
            words = text.split()
            count = longest_prefix(len(words), lambda some: len(self._model.text_encoder.target(" ".join(words[:some]) or "a")) <= budget)
            notes = {**notes, TRUNCATED: {"unit": "words", "kept": count, "of": len(words)}}
            text = " ".join(words[:count])
        return Context(ranking.query_id, (Passage(ranking.ids[0], "", text),) if text else (), usage=usage, notes=notes)
