"""Options that all judges share that ask a language model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from judges.judging import JudgeConfig
from judges.llm import fences
from judges.llm.prompts import Prompt, Shipped, load_prompt, prompt_hash
from methods.models.chat import reach_model
from methods.models.chat_options import ChatConfig


class EndpointJudgeConfig(ChatConfig, JudgeConfig):
    """Options of an endpoint that judges, and of how often it is asked."""

    beside: ClassVar[frozenset[str]] = frozenset(("usd_per_million_prompt_tokens", "usd_per_million_completion_tokens"))

    repetitions: int = Field(1, ge=1, description="replies drawn to each prompt; more than one tells most with a temperature above 0")

    @property
    def label(self) -> str:
        """The model's name in ids."""
        return self.model

    def preflight(self) -> None:
        """Check the key."""
        self.key()

    def reach(self, cache: Path | None) -> None:
        """Make one short call to the endpoint, unless replies of this model are kept."""
        reach_model(self, cache)


class LLMJudgeConfig(EndpointJudgeConfig):
    """Options of a judge whose prompt is a template of ours."""

    beside: ClassVar[frozenset[str]] = EndpointJudgeConfig.beside | {"prompt"}  # its text is hashed: `prompt_identity`

    template: ClassVar[Shipped]
    """The prompt that ships."""

    prompt: str | None = Field(None, description="a template file of one's own; null: the one that ships")
    max_answer_chars: int = Field(8_000, ge=1, description="longest judged text shown, in characters; what is cut is marked")

    def preflight(self) -> None:
        """Check the key and the template."""
        super().preflight()
        self.load()

    def load(self) -> Prompt:
        """The prompt.

        Raises:
            UserError: The template cannot be read or used.
        """
        return load_prompt(self.prompt, self.template)


def prompt_identity(config: LLMJudgeConfig) -> Mapping[str, Any]:
    """What beside its options decides what a judge is shown: the template's text and the rules of fencing."""
    return {"prompt": prompt_hash(config.prompt, config.template), "fences": str(fences.VERSION)}
