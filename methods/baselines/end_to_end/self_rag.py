"""Self-RAG: decide whether to retrieve, answer from each passage separately, and select by the model's self-assessment.

    relevance   r = p(Relevant) / (p(Relevant) + p(Irrelevant)), at the first token
    support     s = (p(Fully supported) + ½ p(Partially supported)) / (the three), where the first support tag stands
    usefulness  u = Σ w_i p(Utility:i) / Σ p(Utility:i), w = −1, −½, 0, ½, 1, where the first utility tag stands
    score       [exp(mean log p of the tokens)] + w_r r + w_s s + w_u u

`self_rag` computes these from the tag probabilities of its own model; `self_rag_prompted` asks any model for them in words,
which count as probability 1. Each answer uses a single passage, so evidence is never combined.

Source: Asai et al. 2024, Self-RAG (arXiv:2310.11511), short answers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from benchmarks.core.errors import UserError
from benchmarks.schema import Passage
from methods.api import Services, Usage
from methods.flow import Batcher, together
from methods.models.causal import CausalConfig, CausalModel, Generation
from methods.models.likelihood import Item, ScoringConfig
from methods.models.llm import LLM, defaults
from methods.program import NO_ROOM, UNUSABLE, ProgramConfig, SearchingConfig, Session, register_program
from methods.readers.extract import short_answer
from methods.readers.prompts import longest_prefix
from methods.served import ServedConfig, ServedModel

PAPER = "Asai et al. 2024, Self-RAG (arXiv:2310.11511)"
RETRIEVAL = ("[Retrieval]", "[No Retrieval]")
RELEVANCE = ("[Relevant]", "[Irrelevant]")
SUPPORT = ("[Fully supported]", "[Partially supported]", "[No support / Contradictory]")
UTILITY = tuple(f"[Utility:{number}]" for number in range(1, 6))
OTHERS = ("[Continue to Use Evidence]", "<paragraph>", "</paragraph>")
TAGS = (*RETRIEVAL, *RELEVANCE, *SUPPORT, *UTILITY, *OTHERS)
WORTH = (-1.0, -0.5, 0.0, 0.5, 1.0)
"""Weights of the five degrees of usefulness."""


class WeightsConfig(SearchingConfig):
    """Options shared by both variants."""

    k: int = Field(10, ge=1, le=100, description="number of passages, each read separately")
    mode: Literal["adaptive", "always"] = Field("adaptive", description="retrieve if the model requests it, or always")
    relevance: float = Field(1.0, ge=0, description="weight of relevance")
    support: float = Field(1.0, ge=0, description="weight of support")
    usefulness: float = Field(0.5, ge=0, description="weight of usefulness")


class SelfRagConfig(ServedConfig, WeightsConfig, CausalConfig):
    """Options of Self-RAG."""

    probes = ("write", "score")
    model: str = Field("selfrag/selfrag_llama2_7b", description="a causal language model with Self-RAG's tags")
    max_new_tokens: int = Field(100, ge=1, description="longest answer, tags included")
    threshold: float = Field(0.2, ge=0, le=1, description="retrieve if the share of [Retrieval] is above this")
    share: Literal["probabilities", "log_probabilities"] = Field(
        "probabilities", description="how that share is computed; the released code divides log-probabilities"
    )
    likelihood: bool = Field(True, description="include the likelihood of an answer in its score")


class PromptedConfig(ProgramConfig, WeightsConfig):
    """Options of prompted Self-RAG."""

    llm: Annotated[LLM, defaults(max_tokens=128)] = Field(description="model that reads and judges")


@dataclass(frozen=True)
class Segment:
    """An answer from one passage with its self-assessment.

    Attributes:
        answer: The answer without tags.
        relevance: Probabilities of the tags in `RELEVANCE`.
        support: Probabilities of the tags in `SUPPORT`; () if none was written.
        utility: Probabilities of the tags in `UTILITY`; () if none was written.
        likelihood: Geometric mean of the token probabilities; 0 if unused.
    """

    answer: str
    relevance: Sequence[float]
    support: Sequence[float] = ()
    utility: Sequence[float] = ()
    likelihood: float = 0.0

    def score(self, config: WeightsConfig) -> float:
        """Compute the segment's score (see the module's formula)."""
        relevant = self.relevance[0] / sum(self.relevance)
        supported = (self.support[0] + 0.5 * self.support[1]) / sum(self.support) if self.support else 0.0
        useful = sum(w * p for w, p in zip(WORTH, self.utility, strict=True)) / sum(self.utility) if self.utility else 0.0
        return self.likelihood + config.relevance * relevant + config.support * supported + config.usefulness * useful


def instruction(question: str) -> str:
    """Return the prompt of a question."""
    return f"### Instruction:\n{question}\n\n### Response:\n"


def augmented(head: str, title: str, text: str) -> str:
    """Return the prompt for answering from a passage."""
    return f"{head}[Retrieval]<paragraph>{title}\n{text}</paragraph>"


class TagModel:
    """Model that generates tags with probabilities; prompts of all waiting questions are batched.

    Args:
        config: Options.
        services: Services; device and reply cache are used.

    Raises:
        UserError: The vocabulary lacks a tag.
    """

    def __init__(self, config: SelfRagConfig, services: Services) -> None:
        self.config = config
        self._model: CausalModel | ServedModel
        if config.endpoint is not None:
            self._model = ServedModel(config, services, "self_rag")
        else:
            self._model = CausalModel(config, services.device)
            size, device = 4 * config.batch_size, self._model.device
            self._write: Batcher[str, Generation] = Batcher(self._model.generate, size, device=device, length=len)
            self._score: Batcher[list[Item], list[float]] = Batcher(self._scored, size, device=device)
        # The released prompt is not a conversation.
        self._model.tokenizer.chat_template = None
        unknown = self._model.tokenizer.unk_token_id
        self.ids = {tag: self._model.tokenizer.convert_tokens_to_ids(tag) for tag in TAGS}
        if missing := [tag for tag, number in self.ids.items() if number in (None, unknown)]:
            raise UserError(
                f"the vocabulary has no tag {missing[0]}",
                code="vocabulary-tag-missing",
                where=f"model {config.model!r}",
                try_this="selfrag/selfrag_llama2_7b",
            )

    async def share_of_retrieval(self, q: Session, prompt: str) -> float:
        """Return the probability of [Retrieval] relative to both possible first tags."""
        ids = self._model.encode(prompt)
        scores = await self._scores(q, [(ids, [self.ids[tag]]) for tag in RETRIEVAL], "retrieval")
        if scores is None:
            return 1.0
        yes, no = scores
        if self.config.share == "log_probabilities":
            return yes / (yes + no)
        return 1 / (1 + math.exp(min(700.0, no - yes)))

    async def _scores(self, q: Session, items: list[Item], step: str) -> list[float] | None:
        """Return the log-probabilities of targets, summed over tokens; None (counted) if an endpoint call failed."""
        if not isinstance(self._model, ServedModel):
            return await self._score(items)
        made = await together(*(self._model.score(*item, step=step) for item in items))
        q.usage += sum((item.usage for item in made), Usage())
        if failed := [item.failed for item in made if item.failed is not None]:
            q.no_reply(failed[0])
            return None
        return [math.fsum(item.logprobs) for item in made]

    async def write_text(self, q: Session, prompt: str, step: str) -> Generation | None:
        """Generate text and record it as a call of the question; None (counted) if the endpoint gave no reply."""
        if isinstance(self._model, ServedModel):
            written = await self._model.write(self._model.encode(prompt), step=step)
            q.usage += written.usage
            if written.failed is not None:
                q.no_reply(written.failed)
                return None
            return written.generation
        generation = await self._write(prompt)
        q.wrote(generation, prompt, step)
        return generation

    async def segment(self, q: Session, head: str, passage: Passage) -> Segment | None:
        """Generate an answer from a passage, truncated to fit; None (counted) if nothing fits."""
        words = passage.text.split()

        def show_first(count: int) -> str:
            text = passage.text if count == len(words) else " ".join(words[:count])
            return augmented(head, passage.title, text)

        def fits(count: int) -> bool:
            return self._model.room is None or len(self._model.encode(show_first(count))) <= self._model.room

        count = longest_prefix(len(words), fits)
        if not count:
            q.fallback(NO_ROOM)
            return None
        prompt = show_first(count)
        written = await self.write_text(q, prompt, "segment")
        if written is None:
            return None
        before, tokens = self._model.encode(prompt), list(written.tokens)
        names = {number: tag for tag, number in self.ids.items()}
        marks = [next((n for n, token in enumerate(tokens) if names.get(token) in tags), None) for tags in (SUPPORT, UTILITY)]
        positions = [(0, RELEVANCE), *((place, tags) for place, tags in zip(marks, (SUPPORT, UTILITY), strict=True) if place is not None)]
        items = [([*before, *tokens[:place]], [self.ids[tag]]) for place, tags in positions for tag in tags]
        logprobs = await self._scores(q, [*items, *([(before, tokens)] if tokens else [])], "tags")
        if logprobs is None:
            return None
        shares: dict[tuple[str, ...], list[float]] = {}
        for _, tags in positions:
            own, logprobs = logprobs[: len(tags)], logprobs[len(tags) :]
            # Of shares only ratios count: the largest is 1, so that none is lost to rounding.
            shares[tags] = [math.exp(value - max(own)) for value in own]
        likelihood = math.exp(logprobs[0] / len(tokens)) if tokens and self.config.likelihood else 0.0
        if None in marks:
            q.fallback(UNUSABLE)
        return Segment(plain(written.text), shares[RELEVANCE], shares.get(SUPPORT, ()), shares.get(UTILITY, ()), likelihood)

    def _scored(self, jobs: list[list[Item]]) -> list[list[float]]:
        """Return the log-probabilities of targets, summed over tokens."""
        assert isinstance(self._model, CausalModel)
        sums = iter([math.fsum(own) for own in self._model.logprobs([item for items in jobs for item in items], ScoringConfig())])
        return [[next(sums) for _ in items] for items in jobs]


def plain(text: str) -> str:
    """Remove tags from a text."""
    for tag in TAGS:
        text = text.replace(tag, " ")
    return " ".join(text.split())


def _calls(config: SelfRagConfig) -> int:
    """Return the maximum number of calls per question; an endpoint needs one call per tag and answer."""
    tags = len(RELEVANCE) + len(SUPPORT) + len(UTILITY) + 1 if config.endpoint is not None else 0
    return config.k * (1 + tags) + 1 + (len(RETRIEVAL) if tags else 0)


@register_program(
    "self_rag",
    summary="a model with control tokens decides whether to retrieve, and picks the best of the answers from single passages",
    version=3,
    config=SelfRagConfig,
    calls=_calls,
    searches=lambda config: 1,
    tool=TagModel,
    extra="models",
    paper=PAPER,
    presets={
        "paper": {"model": "selfrag/selfrag_llama2_7b", "dtype": "bfloat16"},
        "paper-13b": {"model": "selfrag/selfrag_llama2_13b", "dtype": "bfloat16"},
        "released": {"dtype": "bfloat16", "share": "log_probabilities"},
    },
)
async def self_rag(q: Session) -> str:
    """Run Self-RAG on a question, and return the best segment's answer, or the model's own answer if it decides not to
    retrieve.
    """
    model: Any = q.tool
    head = instruction(q.text)
    if q.config.mode == "always" or await model.share_of_retrieval(q, head) > q.config.threshold:
        passages = await q.search(q.text)
        segments = [item for item in await together(*(model.segment(q, head, passage) for passage in passages)) if item]
        if segments:
            return max(segments, key=lambda item: item.score(q.config)).answer
    written = await model.write_text(q, f"{head}[No Retrieval]", "answer")
    return plain(written.text) if written is not None else ""


_LINE = re.compile(r"^[^\w\n]*(relevant|answer|supported|useful)\W*:\s*(.*)$", re.IGNORECASE | re.MULTILINE)
_DEGREES = {"yes": (1.0, 0.0), "no": (0.0, 1.0)}
_SUPPORT = {"fully": (1.0, 0.0, 0.0), "partly": (0.0, 1.0, 0.0), "no": (0.0, 0.0, 1.0)}


def judged(reply: str) -> Segment | None:
    """Parse a segment from a model's verbal self-assessment; None if a line is missing or invalid."""
    lines = {name.lower(): text.strip() for name, text in _LINE.findall(reply)}
    relevance, support = (re.sub(r"\W", "", lines.get(name, "").lower()) for name in ("relevant", "supported"))
    useful = re.match(r"[1-5]\b", lines.get("useful", ""))
    if relevance not in _DEGREES or support not in _SUPPORT or not useful or not lines.get("answer"):
        return None
    utility = [float(number == int(useful[0])) for number in range(1, 6)]
    return Segment(short_answer(lines["answer"]), _DEGREES[relevance], _SUPPORT[support], utility)


@register_program(
    "self_rag_prompted",
    summary="any model answers from each passage separately and judges the answers; the best one is used",
    version=2,
    config=PromptedConfig,
    prompts=("self_rag_need", "self_rag_segment"),
    calls=lambda config: config.k + 2,
    searches=lambda config: 1,
    paper=f"after {PAPER}, whose own model is self_rag",
)
async def self_rag_prompted(q: Session) -> str:
    """Run prompted Self-RAG on a question, and return the best segment's answer, else the answer of plain reading."""
    if q.config.mode == "adaptive":
        need = await q.ask("self_rag_need", question=q.text)
        verdict = re.match(r"\W*(yes|no)\b", need, re.IGNORECASE)
        if verdict and verdict[1].lower() == "no":
            return await q.read([])
        if not verdict:
            q.unusable(need)
    passages = await q.search(q.text)
    replies = await together(*(q.ask("self_rag_segment", [passage], question=q.text) for passage in passages))
    segments = [segment for segment in map(judged, replies) if segment]
    for reply in replies:
        if judged(reply) is None:
            q.unusable(reply)
    if not segments:
        return await q.plain()
    return max(segments, key=lambda item: item.score(q.config)).answer
