"""Style-shifted version of any dataset with candidates: `styled:test` over `base`, with some candidates rewritten in another
style.

It makes `styles.mix.styled` available in experiment files and on the command line.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from benchmarks import registry
from benchmarks.core.errors import UserError
from benchmarks.datasets.sark import CITATION
from benchmarks.registry import Benchmark, DataReference, DatasetCard, DatasetConfig, register
from benchmarks.styles import mix
from benchmarks.styles.mix import Draw, Restyled, Source
from benchmarks.styles.pairs import StylePairs, load_pairs

CARD = DatasetCard(
    title="Styled",
    task="question answering over passages of mixed style",
    description="The questions of another dataset, with a given share of their candidates rewritten in another style: "
    "informal, humor, romance. Every question keeps the number and order of its candidates.",
    hub_id=None,
    revision=None,
    license="that of the base",
    citation=CITATION,
    languages=("en",),
    splits=dict.fromkeys(("train", "validation", "dev", "test")),
    metrics=("em", "f1", "has_answer@5"),
    settings=("distractor", "oracle", "gold_only"),
    notes="Exactly round(r × N) of N candidates stay formal. They are sampled by seed and question id, so all methods see the "
    "same texts. Texts come from a file of style pairs (written with a language model, or imported), from the base dataset "
    "itself, or from rules. Rules work offline and do not show how a language model would rewrite.",
)


class StyledConfig(DatasetConfig):
    """Options of mixed styles."""

    base: str = Field("worlds/multihop", description="the dataset; the split that you ask for is a split of this dataset")
    base_config: dict[str, Any] = Field(default={}, description="options of the base dataset")
    pairs: str | None = Field(None, description="file of style pairs; null: restyle as the option rewriter says")
    rewriter: Literal["rule", "own"] | None = Field(
        None,
        description="rule (the default without pairs): use the rule-based rewriter, with its training rules in train and "
        "validation and its test rules elsewhere; own: use the parallel texts of the base dataset",
    )
    mix: dict[str, float] = Field(default={"informal": 0.5}, description="share of candidates in each style; the rest stays formal")
    restyled: Restyled = Field(
        "all",
        description="candidates to restyle: all; only the evidence, among formal distractors; or only the distractors, "
        "around formal evidence. Report both variants: a style-biased method gains on one what it loses on the"
        " other",
    )
    seed: int = Field(0, description="random seed for the candidates that are rewritten")
    draw: Draw = Field("exact", description="exact: counts by question; coin: each candidate by itself")


@register("styled", card=CARD, version=mix.VERSION, config=StyledConfig, default_split="test")
def load(reference: DataReference, config: StyledConfig) -> Benchmark:
    """Load the base dataset and rewrite a share of its candidates.

    Raises:
        UserError: The base, the pairs or the mix are invalid.
    """
    if config.path is not None or config.revision is not None:
        raise UserError(
            "styled does not read a file", code="styled-with-file", where="path", try_this="base_config: {path: …} for the file of the base"
        )
    base, _ = registry.resolve(_base(reference, config), where="base")
    loaded = registry.load(base, {"skip_bad": config.skip_bad, **config.base_config})
    return mix.styled(loaded, _source(loaded, config), config.mix, seed=config.seed, draw=config.draw, restyled=config.restyled)


def _base(reference: DataReference, config: StyledConfig) -> DataReference:
    named = DataReference.parse(config.base)
    if named.name == reference.name:
        raise UserError(
            "styled cannot be the base of styled", code="styled-over-styled", where="base", try_this="one mix with all the styles"
        )
    if named.split not in (None, reference.split):
        raise UserError(
            f"{reference} has the base {named}: these are different splits",
            code="base-split-mismatch",
            where="base",
            try_this=f"ask for styled:{named.split}" if named.split in CARD.splits else f"base: {named.name}",
        )
    return DataReference(named.name, named.subset, reference.split)


def _source(loaded: Benchmark, config: StyledConfig) -> Source | None:
    if config.pairs is not None:
        if config.rewriter is not None:
            raise UserError(
                "pairs and rewriter exclude each other", code="pairs-and-rewriter", where="rewriter", try_this="leave one of them out"
            )
        return load_pairs(Path(config.pairs))
    if config.rewriter != "own":
        return None
    pairs = loaded.extra.get("pairs")
    if not pairs:
        raise UserError(
            f"{loaded.reference} has no parallel texts", code="no-parallel-texts", where="rewriter: own", try_this="pairs: FILE, or rule"
        )
    return StylePairs(pairs)
