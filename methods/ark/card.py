"""The README of a tuned retriever."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from methods.ark.config import ArkTrainingConfig

_CARD = """---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
tags:
- sentence-transformers
- feature-extraction
- retrieval
---

# A retriever tuned with ARK ({stage})

Base: `{base}`. Training data: {data}. Seed {seed}.

ARK (answer-centric retriever tuning with a knowledge-graph curriculum) takes as positives the chunks of a document
that make the answer most likely, and as negatives what queries built from the neighbourhood of the answer in the
document's knowledge graph retrieve. Each stage goes on from the weights of the one before.

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("path/to/this/folder")
questions = model.encode_query(["Who founded the town?"])
chunks = model.encode_document(["The town was founded by ..."])
scores = model.similarity(questions, chunks)
```

| | |
|---|---|
{rows}

Vectors have length 1. Queries are preceded by {query}, documents by {passage}.
"""


def write_card(folder: Path, stage: str, config: ArkTrainingConfig, figures: Mapping[str, float], prompts: tuple[str, str]) -> None:
    """Write the card; it holds nothing that changes between equal trainings."""
    train = config.train
    facts: dict[str, object] = {
        "temperature": config.loss.temperature,
        "rows per batch": train.batch_size,
        "positives per question": config.score.positives,
        "scorer": f"`{config.score.scorer}`",
        "weights of forward, backward and vector score": ", ".join(
            f"{part.weight:g}" for part in (config.score.f, config.score.b, config.score.v)
        ),
        **{name: f"{value:.6g}" for name, value in figures.items()},
    }
    text = _CARD.format(
        stage=stage,
        base=config.base,
        data=", ".join(f"`{one}`" for one in config.data),
        seed=config.seed,
        rows="\n".join(f"| {name} | {value} |" for name, value in facts.items()),
        query=f"`{prompts[0]!r}`" if prompts[0] else "nothing",
        passage=f"`{prompts[1]!r}`" if prompts[1] else "nothing",
    )
    (folder / "README.md").write_text(text, "utf-8")
