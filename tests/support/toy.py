"""The card of a synthetic dataset."""

from __future__ import annotations

from benchmarks.registry import DatasetCard

CARD = DatasetCard(
    title="Toy",
    task="QA",
    description="d",
    hub_id=None,
    revision=None,
    license="none",
    citation="c",
    languages=("en",),
    splits={"dev": 4},
    metrics=("em",),
    settings=("distractor",),
)
