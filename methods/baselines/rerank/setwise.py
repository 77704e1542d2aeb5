"""Setwise and Rank-R1: a language model chooses the most relevant of a few passages, and sorting by such choices finds the k
best.

Setwise works with any model and parses the generated text (`score: generation`) or uses the most likely label (`likelihood`),
which never fails to parse and takes one local forward pass, or one endpoint call per label. The reply starts after `Passage`
(encoder-decoder models such as Flan-T5) or `Passage:` (causal models). Rank-R1 was trained by reinforcement learning to reason
before naming the best of twenty documents; `reasons: false` is Setwise-SFT, trained to name it directly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from methods.api import Services
from methods.baselines.rerank.asking import FAILED, NO_ROOM, ChoiceConfig, ChoiceReranker, State, choices_work, made_of
from methods.baselines.rerank.replies import LABELS, answer_of, label_of
from methods.models.chat_config import ChatConfig
from methods.models.llm import LLM, defaults, llm_name
from methods.models.local_llm import LabelModel, LocalConfig, LocalLabelModel
from methods.models.pretrained import is_encoder_decoder
from methods.registry import register
from methods.served import ScorerConfig, ServedLabelModel
from methods.work import Lengths, Work, needs_of

NAME = "setwise"
PRESETS: Mapping[str, Mapping[str, Any]] = {
    f"flan-t5-{size}": {"llm": {"local": f"google/flan-t5-{size}"}} for size in ("large", "xl", "xxl")
}


class SetwiseConfig(ChoiceConfig):
    """Options of Setwise."""

    system = NAME
    llm: Annotated[LLM, defaults(max_tokens=4)] = Field(description="the model: an endpoint, or a local model")
    score: Literal["generation", "likelihood"] = Field(
        "generation",
        description="how the best passage is chosen: generation, the label that the model writes, or likelihood, the most likely label",
    )
    query_tokens: int = Field(128, ge=1, description="tokens of the query that are shown")
    passage_tokens: int = Field(128, ge=1, description="tokens shown per passage")

    endpoint: ChatConfig | None = Field(
        None,
        description="for score: likelihood, an endpoint that serves the checkpoint `llm.local` and returns log-probabilities "
        "(vLLM); then only the tokenizer of `llm.local` is loaded. null: load the model locally",
        exclude_if=lambda value: value is None,
    )

    @model_validator(mode="after")
    def _has_likelihoods(self) -> SetwiseConfig:
        if self.score == "likelihood" and not isinstance(self.llm, LocalConfig):
            raise ValueError("score: likelihood needs llm: {local: …}; if an endpoint serves that checkpoint, also set the option endpoint")
        if self.endpoint is not None and self.score != "likelihood":
            raise ValueError("endpoint has an effect only with score: likelihood; for score: generation put the endpoint under llm")
        _ = self.scorer  # checks the options of the endpoint
        return self

    @property
    def scorer(self) -> ScorerConfig | None:
        """Return the options of the endpoint that scores labels; None for local weights or generated replies."""
        if self.endpoint is None or not isinstance(self.llm, LocalConfig):
            return None
        if extra := sorted(self.llm.model_fields_set - {"local", "revision", "max_tokens", "temperature"}):
            raise ValueError(f"llm.{extra[0]} has no effect on an endpoint that scores labels: leave it out")
        return ScorerConfig.of(self.llm.local, self.endpoint, revision=self.llm.revision)

    def preflight(self) -> None:
        """Check the options, and the endpoint's API key."""
        super().preflight()
        if self.scorer is not None:
            self.scorer.preflight()

    def reach(self, cache: Path | None) -> None:
        """Check that the endpoint returns log-probabilities of given tokens."""
        super().reach(cache)
        if self.scorer is not None:
            self.scorer.reach(cache)


def _work(config: SetwiseConfig, lengths: Lengths) -> Work:
    if config.scorer is None:
        return choices_work(config, lengths)
    return choices_work(config, lengths, config.scorer.served, min(len(LABELS), config.children + 1))


@register(
    "setwise",
    kind="reranker",
    summary="finds the k best by asking a language model which of a few passages is most relevant",
    version=3,
    paper="Zhuang et al. 2024, A Setwise Approach for Effective and Highly Efficient Zero-shot Ranking (arXiv:2310.09497)",
    presets=PRESETS,
    checkpoint_hash=made_of,
    work=_work,
    needs=lambda config: needs_of(config.llm if config.scorer is None else config.scorer.served),
)
class Setwise(ChoiceReranker):
    """Reranker role: Setwise.

    Args:
        config: Options.
        services: Services; reply cache, device and seed are used.
    """

    def __init__(self, config: SetwiseConfig, services: Services) -> None:
        model: LabelModel | None = None
        if config.scorer is not None:
            model = ServedLabelModel(config.scorer, services, NAME)
        elif config.score == "likelihood":
            assert isinstance(config.llm, LocalConfig)
            model = LocalLabelModel(config.llm, role=NAME, device=services.device)
        limits: dict[str, Any] = {"query_tokens": config.query_tokens, "passage_tokens": config.passage_tokens}
        if isinstance(config.llm, LocalConfig):
            limits["start"] = "Passage" if is_encoder_decoder(config.llm.local, config.llm.revision) else " Passage:"
        super().__init__(config, services, NAME, NAME, LABELS, label_of, model=model, **limits)

    async def chosen(self, state: State, texts: Sequence[str]) -> int | None:
        if not isinstance(self.model, LabelModel):
            return await super().chosen(state, texts)
        messages = self.writer(state.query, texts, LABELS)
        if messages is None:
            state.fallbacks[NO_ROOM] += 1
            return None
        scores, usage = await self.model.choose(messages, [f" {label}" for label in LABELS[: len(texts)]])
        state.calls += usage.model_calls
        state.usage += usage
        if scores is None:
            state.fallbacks[FAILED] += 1
            return None
        return scores.labels.index(scores.best)


R1 = "rank_r1"
SIZES = ("3B", "7B", "14B")


def _local(size: str, adapter: str) -> dict[str, Any]:
    return {"local": f"Qwen/Qwen2.5-{size}-Instruct", "adapter": f"ielabgroup/{adapter}-{size}-v0.1", "dtype": "bfloat16"}


R1_PRESETS: Mapping[str, Mapping[str, Any]] = {
    **{size.lower(): {"llm": _local(size, "Rank-R1")} for size in SIZES},
    **{f"sft-{size.lower()}": {"llm": {**_local(size, "Setwise-SFT"), "max_tokens": 32}, "reasons": False} for size in SIZES},
}
"""Presets for the published adapters of Rank-R1 and Setwise-SFT."""


class RankR1Config(ChoiceConfig):
    """Options of Rank-R1."""

    system = R1
    llm: Annotated[LLM, defaults(max_tokens=2048)] = Field(description="the model: {local: base, adapter: the checkpoint}, or an endpoint")
    children: int = Field(19, ge=1, le=99, description="documents per comparison, minus one; it was trained with 19")
    reasons: bool = Field(True, description="let the model reason before it answers")
    query_tokens: int = Field(32, ge=1, description="tokens of the query that are shown; BRIGHT: 1,024")
    passage_tokens: int = Field(512, ge=1, description="tokens shown per document; BRIGHT: 1,024")

    @property
    def template(self) -> str:
        """Return the prompt's name; checkpoints of version 0.2 have their own prompt."""
        if not self.reasons:
            return f"{R1}_direct"
        checkpoint = getattr(self.llm, "adapter", None) or llm_name(self.llm)
        return f"{R1}_v02" if checkpoint.endswith("v0.2") else R1


@register(
    "rank_r1",
    kind="reranker",
    summary="finds the k best documents with a model that reasons about which of twenty is most relevant",
    version=2,
    paper="Zhuang et al. 2025, Rank-R1 (arXiv:2503.06034)",
    presets=R1_PRESETS,
    training_data=("msmarco",),
    checkpoint_hash=made_of,
    work=choices_work,
)
def rank_r1(config: RankR1Config, services: Services) -> ChoiceReranker:
    """Build the reranker Rank-R1; as in the published code, documents are shuffled in each comparison."""
    labels = [str(number) for number in range(1, config.children + 2)]
    limits: dict[str, Any] = {"query_tokens": config.query_tokens, "passage_tokens": config.passage_tokens, "plain_references": True}
    named = partial(answer_of, thinks=config.reasons)
    return ChoiceReranker(config, services, R1, config.template, labels, named, shuffles=True, raw=True, **limits)
