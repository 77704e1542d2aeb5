"""FLARE: draft the next sentence; if the model is unsure of a token, search with the draft and rewrite the sentence.

Source: Jiang et al. 2023, Active Retrieval Augmented Generation (arXiv:2305.06983), FLARE direct with the settings of its code
for 2WikiMultihopQA. An endpoint must continue token ids and return the log-probability of each token (`methods/served.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from pydantic import Field

from benchmarks.schema import Passage
from benchmarks.text import sentences
from methods.api import Services
from methods.flow import Batcher
from methods.models.causal import CausalConfig, CausalModel, Generation
from methods.models.formats import own_format
from methods.models.likelihood import ScoringConfig
from methods.program import NO_END, NO_ROOM, SearchingConfig, Session, behind, register_program
from methods.readers.extract import short_answer
from methods.readers.prompts import longest_prefix, numbered
from methods.served import ServedConfig, ServedModel

NAME = "flare"
ANSWER_IS = "answer is"


class FlareConfig(ServedConfig, SearchingConfig, CausalConfig):
    """Options of FLARE."""

    k: int = Field(2, ge=1, le=100, description="passages per search; they replace those of the previous search")
    max_new_tokens: int = Field(64, ge=1, description="longest draft")
    sentences: int = Field(4, ge=1, description="maximum sentences per answer (256 tokens)")
    unsure: float = Field(0.8, ge=0, le=1, description="search if a token of the draft has at most this probability")
    left_out: float = Field(
        0.4, ge=0, le=1, description="remove tokens of a draft from the search query if their probability is at most this"
    )


class Writer:
    """Model that generates one sentence with token probabilities.

    Args:
        config: Options.
        services: Services; the device is used.
    """

    def __init__(self, config: FlareConfig, services: Services) -> None:
        self.config = config
        self.own_format = own_format(config.model)
        self._model: CausalModel | ServedModel
        if config.endpoint is not None:
            self._model = ServedModel(config, services, NAME)
        else:
            self._model = CausalModel(config, services.device)
            self._write: Batcher[str, tuple[Generation, list[float]]] = Batcher(
                self._write_drafts, 4 * config.batch_size, device=self._model.device, length=len
            )

    async def sentence(self, q: Session, passages: Sequence[Passage], before: Sequence[str], step: str) -> list[tuple[str, float]]:
        """Generate the next sentence, as tokens with probabilities; [] if even the question does not fit."""

        def prompt(count: int) -> str:
            if self.own_format is not None:
                return self._model.render("", self.own_format.answer_prompt(q.text, passages[:count]))
            (message,) = q.prompts["flare"].messages(question=q.text, passages=numbered(passages[:count]) or "(none)")
            return " ".join([self._model.render("", message["content"]), *before])

        def fits(count: int) -> bool:
            return self._model.room is None or len(self._model.encode(prompt(count))) <= self._model.room

        count = longest_prefix(len(passages), fits)
        if not count and not fits(0):
            q.fallback(NO_ROOM)
            return []
        if isinstance(self._model, ServedModel):
            written = await self._model.write(self._model.encode(prompt(count)), step=step)
            q.usage += written.usage
            if written.failed is not None:
                q.no_reply(written.failed)
                return []
            generation, shares = written.generation, [math.exp(value) for value in written.logprobs]
            text = generation.text
        else:
            generation, shares = await self._write(prompt(count))
            text = q.wrote(generation, prompt(count), step)
        first = next(iter(sentences(text)), "")
        end = text.find(first) + len(first)
        # What each token adds to the text, as far as the sentence goes.
        decoded = [self._model.tokenizer.decode(generation.tokens[:n], skip_special_tokens=True) for n in range(len(shares) + 1)]
        return [
            (after[len(earlier) :], share)
            for earlier, after, share in zip(decoded, decoded[1:], shares, strict=False)
            if len(earlier) < min(end, len(after))
        ]

    def _write_drafts(self, prompts: list[str]) -> list[tuple[Generation, list[float]]]:
        assert isinstance(self._model, CausalModel)
        made = self._model.generate(prompts)
        items = [(self._model.encode(prompt), list(own.tokens)) for prompt, own in zip(prompts, made, strict=True) if own.tokens]
        shares = iter(self._model.logprobs(items, ScoringConfig()))
        return [(own, [math.exp(value) for value in next(shares)] if own.tokens else []) for own in made]


def query_of(draft: Sequence[tuple[str, float]], unsure: float, left_out: float) -> str | None:
    """Build a search query from a draft by removing its least likely tokens; None if all tokens are likely."""
    if all(share > unsure for _, share in draft):
        return None
    return " ".join("".join(token if share > left_out else " " for token, share in draft).split())


@register_program(
    "flare",
    summary="writes sentence by sentence; if the model is unsure, it searches with the draft and rewrites the sentence",
    version=2,
    config=FlareConfig,
    prompts=("flare",),
    calls=lambda config: 2 * config.sentences,
    searches=lambda config: config.sentences + 1,
    tool=Writer,
    extra="models",
    paper="Jiang et al. 2023, Active Retrieval Augmented Generation (arXiv:2305.06983)",
)
async def flare(q: Session) -> str:
    """Run FLARE on a question, and return the concluded answer, else the last sentence."""
    writer: Any = q.tool
    passages = await q.search(q.text)
    written: list[str] = []
    for _ in range(q.config.sentences):
        draft = await writer.sentence(q, passages, written, "draft")
        query = query_of(draft, q.config.unsure, q.config.left_out)
        if query is not None:
            passages = await q.search(query or q.text)
            draft = await writer.sentence(q, passages, written, "sentence")
        sentence = "".join(token for token, _ in draft).strip()
        if not sentence:
            break
        written.append(sentence)
        if behind(sentence, ANSWER_IS) or writer.own_format is not None:  # A reply of its format is an answer.
            break
    else:
        q.fallback(NO_END)
    return behind(" ".join(written), ANSWER_IS) or short_answer(written[-1] if written else "")
