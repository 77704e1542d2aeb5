"""Qwen3-Reranker and mxbai-rerank-v2: a causal model scores each passage by the log-odds of yes over no.

Both use the published prompt, whose parts are tokenized separately; long passages are truncated, so that the relevance question
is always complete. Scores are log-odds in nats; a sigmoid would not change an order.

Source: Zhang et al. 2025, Qwen3 Embedding (arXiv:2506.05176); mixedbread.ai 2025, mxbai-rerank-v2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import fingerprint
from benchmarks.schema import Passage
from methods.api import Services
from methods.baselines.rerank.pairs import PairConfig, PairReranker, pairs_work, token_log_odds
from methods.models.pretrained import device_of, load_pretrained
from methods.models.weights import weights_hash
from methods.prompts import Prompt, shipped
from methods.registry import register

if TYPE_CHECKING:
    from torch import Tensor

NAMES = ("qwen3_reranker", "mxbai_reranker", "rank1")
PROMPTS = shipped(__package__, *NAMES, released=NAMES, optional=("instruction",), follows=("bos",))
OUR_INSTRUCTION = "Find the passages that answer the question"
"""Instruction in ragmeter's templates."""
QUERY_SHARE = 0.75
"""Maximum fraction of the prompt's tokens for the query."""


class LogOddsConfig(PairConfig):
    """Options shared by both rerankers."""

    template: ClassVar[str]
    yes: ClassVar[str]
    no: ClassVar[str]
    families: ClassVar[tuple[str, ...]]
    """Values of `model_type` of the released checkpoints."""

    model: str = Field(description="a folder or hub id")
    revision: str | None = Field(None, description="revision of a hub id")
    max_length: int = Field(8192, ge=64, description="longest prompt in tokens; only the passage is cut")
    instruction: str | None = Field(None, description="definition of relevance for the prompt; null: the prompt's default")
    prompt: str | None = Field(
        None,
        description="null or `published`: the prompt of the released checkpoints; `ours`; or a template file whose parts are named `text`",
    )

    @property
    def is_published(self) -> bool:
        """Return whether the prompt is the published one."""
        return PROMPTS[self.template].is_published(self.prompt)

    @property
    def shown(self) -> frozenset[str]:
        """Return the names of placeholders that have values."""
        return frozenset() if self.instruction is None else frozenset({"instruction"})

    def text_of(self, passage: Passage) -> str:
        """Format a passage for the prompt; the published prompt has title and text on one line."""
        return f"{passage.title} {passage.text}".strip() if self.is_published else passage.full_text

    def preflight(self) -> None:
        """Check the model and the template; download a published template."""
        super().preflight()
        prompt_of(self)


class Qwen3Config(LogOddsConfig):
    """Options of Qwen3-Reranker."""

    template = "qwen3_reranker"
    yes, no = "yes", "no"
    families = ("qwen3",)
    model: str = Field("Qwen/Qwen3-Reranker-0.6B", description="a folder or hub id")


class MxbaiConfig(LogOddsConfig):
    """Options of mxbai-rerank-v2."""

    template = "mxbai_reranker"
    yes, no = "1", "0"
    families = ("qwen2",)
    model: str = Field("mixedbread-ai/mxbai-rerank-base-v2", description="a folder or hub id")

    @property
    def shown(self) -> frozenset[str]:
        """Return the names of placeholders that have values; an empty instruction is omitted, as in the released code."""
        return super().shown if self.instruction else frozenset()


def prompt_of(config: LogOddsConfig) -> Prompt:
    """Load the prompt.

    Raises:
        UserError: A user's template lacks query, passage or a given instruction, or has unsupported parts; or the published one
            cannot be downloaded.
    """
    prompt = PROMPTS[config.template].load(config.prompt, config.shown)
    if unseen := config.shown - prompt.placeholders:
        raise UserError(
            f"the prompt does not show the {min(unseen)}",
            code="instruction-not-shown",
            where=f"{config.template}, option instruction",
            try_this="leave the option out, or give a prompt with $instruction",
        )
    return prompt


class LogOddsReranker(PairReranker):
    """Base class of rerankers by the log-odds of two tokens.

    Args:
        config: Options.
        services: Services; the device is used.
        loaded: Tokenizer and model, if they are already loaded.

    Raises:
        UserError: The model cannot be loaded, or its vocabulary lacks one of the two tokens.
    """

    def __init__(self, config: LogOddsConfig, services: Services, loaded: tuple[Any, Any] | None = None) -> None:
        device, source = device_of(services.device), (config.model, config.revision, config.dtype)
        super().__init__(config, *(loaded or load_pretrained("reranker", "AutoModelForCausalLM", *source, device)), device)
        family = getattr(getattr(self.model, "config", None), "model_type", None)
        if config.is_published and family is not None and family not in config.families:
            raise UserError(
                f"{config.model!r} is a {family} model; checkpoints of {config.template} are {' or '.join(config.families)}",
                code="another-model-family",
                where=f"{config.template}, option model",
                try_this="a checkpoint of this system, or prompt: ours for another model",
            )
        self._prompt = prompt_of(config)
        self._frame = len(self._prompt.frame_ids(self.tokenizer))
        self._yes, self._no = (self._token(token) for token in (config.yes, config.no))

    def _token(self, token: str) -> int:
        (ids,) = self.tokens([token])
        if len(ids) != 1:
            raise UserError(
                f"the vocabulary has no token {token!r}",
                code="vocabulary-token-missing",
                where=f"model {self.config.model!r}",
                try_this="a reranker of this family",
            )
        return ids[0]

    def shown(self, passage: Passage) -> str:
        return str(self.config.text_of(passage))

    def encoded(self, query: str, passages: Sequence[str]) -> list[list[int]]:
        room = self.config.max_length - self._frame
        (ids,) = self.tokens([query])
        if not self.config.is_published and len(ids) > QUERY_SHARE * room:
            query = str(self.tokenizer.decode(ids[: int(QUERY_SHARE * room)]))
        return self._prompt.token_ids(self.tokenizer, self.rows(query, passages), self.config.max_length)

    def rows(self, query: str, passages: Sequence[str]) -> list[dict[str, str]]:
        """Return the placeholder values of each passage's prompt."""
        fields = {"instruction": OUR_INSTRUCTION if self.config.instruction is None else self.config.instruction, "query": query}
        return [{**fields, "passage": passage} for passage in passages]

    def read(self, ids: Tensor, mask: Tensor) -> Tensor:
        return token_log_odds(self.model, ids, mask, self._yes, self._no)


def made_of(config: LogOddsConfig) -> str:
    """Return a hash of weights and template."""
    return fingerprint(weights_hash(config.model, config.revision), PROMPTS[config.template].hash(config.prompt, config.shown))


@register(
    "qwen3_reranker",
    kind="reranker",
    summary="Qwen3-Reranker: log-odds of yes over no as the next token after query and passage",
    config=Qwen3Config,
    version=3,
    paper="Zhang et al. 2025, Qwen3 Embedding (arXiv:2506.05176)",
    presets={size.lower(): {"model": f"Qwen/Qwen3-Reranker-{size}"} for size in ("0.6B", "4B", "8B")},
    checkpoint_hash=made_of,
    work=pairs_work,
)
class Qwen3Reranker(LogOddsReranker):
    """Reranker role with a Qwen3-Reranker checkpoint."""


@register(
    "mxbai_reranker",
    kind="reranker",
    summary="mxbai-rerank-v2: log-odds of 1 over 0 as the next token after query and passage",
    config=MxbaiConfig,
    version=3,
    paper="mixedbread.ai 2025, mxbai-rerank-v2",
    presets={size: {"model": f"mixedbread-ai/mxbai-rerank-{size}-v2"} for size in ("base", "large")},
    checkpoint_hash=made_of,
    work=pairs_work,
)
class MxbaiReranker(LogOddsReranker):
    """Reranker role with an mxbai-rerank-v2 checkpoint.

    With the published prompt, `max_length` limits only query and passage, and query with instruction may take three quarters of
    it.
    """

    def encoded(self, query: str, passages: Sequence[str]) -> list[list[int]]:
        if not self.config.is_published:
            return super().encoded(query, passages)
        positions = int(getattr(self.model.config, "max_position_embeddings", None) or self.config.max_length)
        inner = self._frame - len(self.tokens(["\n"])[0])  # a line break between query and passage counts as theirs
        length = min(self.config.max_length, positions - inner)
        most = {"query": int(QUERY_SHARE * length)}
        return self._prompt.token_ids(self.tokenizer, self.rows(query, passages), length + inner, most=most)
