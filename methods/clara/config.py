"""What a CLaRa model is: its base, how much it compresses, its adapters, its prompts."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from methods.clara.adapters import LoraOptions
from methods.clara.selector import Variant

Adapter = Literal["compressor", "generator", "reasoner"]
Part = Literal["compressor", "generator", "reasoner", "memory"]
"""What training may change."""
ADAPTERS: tuple[Adapter, ...] = ("compressor", "generator", "reasoner")
MEMORY: Literal["memory"] = "memory"


class ClaraConfig(BaseModel):
    """Options of a CLaRa model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    base: str = Field(
        "mistralai/Mistral-7B-Instruct-v0.2", description="causal language model: a folder or hub id, or `pocket`, the model that ships"
    )
    revision: str | None = Field(None, description="revision of a hub id")
    dtype: Literal["float32", "bfloat16", "float16", "auto"] | None = Field(
        None, description="of the base's weights; null: float32 on CPU, the checkpoint's own elsewhere"
    )
    max_length: int = Field(256, ge=1, description="longest document in tokens (L); the rest is cut")
    rate: int = Field(16, ge=1, description="compression ratio: tokens of the longest document per memory token")
    lora: LoraOptions = LoraOptions.model_validate({})
    memory_init: Literal["mean", "spread"] = Field(
        "mean",
        description="where memory tokens begin: all at the mean of the base's embeddings (released), or drawn with "
        "their mean and covariance (ours)",
    )
    positions: Literal["after", "spread"] = Field(
        "after",
        description="where memory tokens stand for attention: behind the text (the paper), or each at the end of its "
        "share of the text (ours, after Zhao et al. 2024, Position IDs Matter)",
    )
    memory_length: Literal["state", "embedding"] = Field(
        "state",
        description="length of memory vectors in a prompt: as the compressor made them (the paper), or the mean length "
        "of the base's embeddings (ours)",
    )
    template: Literal["auto", "chat", "plain", "pocket"] = Field(
        "auto",
        description="prompts in the base's chat template, as plain text, or as the pocket model was trained; auto: "
        "what the base is made for",
    )
    max_prompt: int = Field(2048, ge=16, description="longest prompt with its answer in tokens; a longer one is refused")
    tau: float = Field(0.02, gt=0, description="temperature of the selector; released 0.02")
    mask: Variant = Field(
        "minus_infinity",
        description="how documents already taken are masked in the soft weights; equation and algorithm are the "
        "paper's two, which disagree; released algorithm",
    )
    k: int = Field(5, ge=1, description="documents that are answered from")

    @model_validator(mode="after")
    def _compresses(self) -> Self:
        if self.rate > self.max_length:
            raise ValueError(f"rate {self.rate} leaves no memory token of {self.max_length} document tokens: lower rate")
        return self

    @property
    def memory_tokens(self) -> int:
        """Memory tokens per document (M)."""
        return self.max_length // self.rate
