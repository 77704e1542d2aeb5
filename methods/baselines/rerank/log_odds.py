"""Qwen3-Reranker and mxbai-rerank-v2: a causal model judges one passage, and how much likelier yes is than no is the score.

Both read a beginning, a body that holds query and passage, and an end; a passage that is too long loses its own end, so
that the question of relevance always stands behind it. Scores are log-odds in nats; a sigmoid would not change an order.

Source: Zhang et al. 2025, Qwen3 Embedding (arXiv:2506.05176); mixedbread.ai 2025, mxbai-rerank-v2.
"""

from __future__ import annotations

from collections.abc import Sequence
from string import Template
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import content_hash, fingerprint
from methods.api import Services
from methods.baselines.rerank.pairs import PairConfig, PairReranker, pairs_work, token_log_odds
from methods.models import template_text
from methods.models.weights import device_of, load_pretrained, weights_hash
from methods.registry import register

if TYPE_CHECKING:
    from torch import Tensor

QUERY_SHARE = 0.75
"""Largest part of the longest prompt that a query may take."""


class LogOddsConfig(PairConfig):
    """Options of both."""

    template: ClassVar[str]
    yes: ClassVar[str]
    no: ClassVar[str]

    model: str = Field(description="a folder or hub id")
    revision: str | None = Field(None, description="revision of a hub id")
    max_length: int = Field(8192, ge=64, description="longest prompt in tokens; the passage is cut, not what stands around it")
    instruction: str = Field("Find the passages that answer the question", description="what makes a passage relevant")
    prompt: str | None = Field(
        None, description="a template file of one's own: beginning, body and end, with a line --- between them; null: the one that ships"
    )

    def preflight(self) -> None:
        """Check the model's folder and the template."""
        super().preflight()
        parts_of(self)


class Qwen3Config(LogOddsConfig):
    """Options of Qwen3-Reranker."""

    template = "qwen3_reranker"
    yes, no = "yes", "no"
    model: str = Field("Qwen/Qwen3-Reranker-0.6B", description="a folder or hub id")


class MxbaiConfig(LogOddsConfig):
    """Options of mxbai-rerank-v2."""

    template = "mxbai_reranker"
    yes, no = "1", "0"
    model: str = Field("mixedbread-ai/mxbai-rerank-base-v2", description="a folder or hub id")


def parts_of(config: LogOddsConfig) -> tuple[str, str, str]:
    """Beginning, body and end of the prompt.

    Raises:
        UserError: A template of one's own has other parts, or does not show query and passage.
    """
    parts = template_text(__package__, config.template, config.prompt).split("\n---\n")
    if len(parts) != 3 or {"query", "passage"} - set(Template(parts[1]).get_identifiers()):
        raise UserError(
            "the prompt template wants a beginning, a body with $query and $passage, and an end",
            where=config.prompt,
            try_this="a line --- between the three",
        )
    return parts[0], parts[1], parts[2]


class LogOddsReranker(PairReranker):
    """Reranker by the log-odds of two tokens.

    Args:
        config: Options.
        services: Provides the device.
        loaded: Tokenizer and model, where they are loaded.

    Raises:
        UserError: The model cannot be loaded, or its vocabulary lacks one of the two tokens.
    """

    def __init__(self, config: LogOddsConfig, services: Services, loaded: tuple[Any, Any] | None = None) -> None:
        device, source = device_of(services.device), (config.model, config.revision, config.dtype)
        super().__init__(config, *(loaded or load_pretrained("reranker", "AutoModelForCausalLM", *source, device)), device)
        before, self._body, after = parts_of(config)
        self._before, self._after = self.tokens([before, after])
        self._yes, self._no = (self._token(token) for token in (config.yes, config.no))

    def _token(self, token: str) -> int:
        (ids,) = self.tokens([token])
        if len(ids) != 1:
            raise UserError(
                f"the vocabulary has no token {token!r}", where=f"model {self.config.model!r}", try_this="a reranker of this family"
            )
        return ids[0]

    def encoded(self, query: str, passages: Sequence[str]) -> list[list[int]]:
        room = self.config.max_length - len(self._before) - len(self._after)
        (ids,) = self.tokens([query])
        if len(ids) > QUERY_SHARE * room:
            query = str(self.tokenizer.decode(ids[: int(QUERY_SHARE * room)]))
        fields = {"instruction": self.config.instruction, "query": query}
        bodies = [Template(self._body).substitute(fields, passage=passage) for passage in passages]
        return [[*self._before, *body, *self._after] for body in self.tokens(bodies, room)]

    def read(self, ids: Tensor, mask: Tensor) -> Tensor:
        return token_log_odds(self.model, ids, mask, self._yes, self._no)


def made_of(config: LogOddsConfig) -> str:
    """The hash of weights and template."""
    return fingerprint(weights_hash(config.model, config.revision), content_hash(parts_of(config)))


@register(
    "qwen3_reranker",
    kind="reranker",
    summary="Qwen3-Reranker: how much likelier yes is than no behind query and passage",
    config=Qwen3Config,
    paper="Zhang et al. 2025, Qwen3 Embedding (arXiv:2506.05176)",
    presets={size.lower(): {"model": f"Qwen/Qwen3-Reranker-{size}"} for size in ("0.6B", "4B", "8B")},
    checkpoint_hash=made_of,
    work=pairs_work,
)
class Qwen3Reranker(LogOddsReranker):
    """Reranker of a Qwen3-Reranker checkpoint."""


@register(
    "mxbai_reranker",
    kind="reranker",
    summary="mxbai-rerank-v2: how much likelier 1 is than 0 behind query and passage",
    config=MxbaiConfig,
    paper="mixedbread.ai 2025, mxbai-rerank-v2",
    presets={size: {"model": f"mixedbread-ai/mxbai-rerank-{size}-v2"} for size in ("base", "large")},
    checkpoint_hash=made_of,
    work=pairs_work,
)
class MxbaiReranker(LogOddsReranker):
    """Reranker of a mxbai-rerank-v2 checkpoint."""
