"""Options of CLaRa's data: which rows of pretraining, and which documents stand beside a question."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from methods.clara.rows import CANDIDATES
from methods.registry import METHODS, Component

Mix = Literal["none", "simple", "paraphrase", "simple+complex", "all"]
Type = Literal["simple", "complex", "paraphrase"]
TYPES: tuple[Type, ...] = ("simple", "complex", "paraphrase")
MIXES: dict[Mix, tuple[Type, ...]] = {
    "none": (),
    "simple": ("simple",),
    "paraphrase": ("paraphrase",),
    "simple+complex": ("simple", "complex"),
    "all": TYPES,
}
"""The types of rows in each mix of the paper's Tables 4 and 20."""


class ScpDataConfig(BaseModel):
    """What pretraining reads of its data."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mix: Mix = Field(default="all", description="types of rows; none: no pretraining; paper: all, the others in Table 4")
    documents: int | None = Field(
        default=None,
        ge=1,
        description="so many documents, drawn by the seed, larger draws holding the smaller; null: all; paper: "
        "2,000,000, in Table 12 also 500,000 and 1,000,000",
    )
    seed: int = Field(default=0, ge=0, description="of what is drawn")

    @property
    def types(self) -> tuple[Type, ...]:
        """The types of rows that are wanted."""
        return MIXES[self.mix]


class PoolConfig(BaseModel):
    """The documents beside a question, where its dataset is no file of rows."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: Literal["record", "retriever", "both"] = Field(
        default="record", description="the dataset's own candidates; retriever: the best of its corpus; both: those, then these"
    )
    retriever: str = Field(default="bm25", description="of source retriever: its name; paper: dense, BAAI/bge-large-en-v1.5")
    options: dict[str, Any] = Field(default_factory=dict, description="of that retriever")
    depth: int = Field(default=CANDIDATES, ge=1, description="documents of a question; paper: 20 for joint training, 5 before")
    oracle: bool = Field(
        default=True, description="put the positives first, then others until there are enough, and shuffle; off: as retrieved"
    )
    seed: int = Field(default=0, ge=0, description="of the order")

    @property
    def component(self) -> Component:
        """The retriever with its options.

        Raises:
            UserError: There is no such retriever, or it is none.
        """
        METHODS.get(self.retriever, where="retriever")
        return Component.of(self.retriever, self.options, where="retriever")
