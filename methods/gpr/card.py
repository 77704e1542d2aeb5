"""The README of two pretrained towers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from methods.gpr.config import GprTrainingConfig
from methods.knowledge.linearise import linearise

_CARD = """---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
tags:
- sentence-transformers
- feature-extraction
- retrieval
- knowledge-graph
---

# Two towers pretrained on a graph with GPR

Base: {base}. Graph: {graph}. Seed {seed}.{test}

GPR (graph pretrained retriever) asks a question about every triple of a graph, with one of its entities hidden, and
learns that the triple is nearer to its question than triples that share an entity with it, and those nearer than
triples that share none. Questions were written by `{generator}`; no question of a dataset was read.

```python
from sentence_transformers import SentenceTransformer

questions = SentenceTransformer("path/to/this/folder/question").encode(["what does jamaican people speak?"])
triples = SentenceTransformer("path/to/this/folder/triple")
scores = triples.similarity(questions, triples.encode(["{example}"]))
```

| | |
|---|---|
{rows}

Triples are written as in the example; questions and triples are cut after {length} tokens; similarity is the cosine.
"""
EXAMPLE = ("Jamaica", "location.country.languages_spoken", "Jamaican English")


def write_card(folder: Path, config: GprTrainingConfig, generator: str, test: tuple[str, ...], figures: Mapping[str, float]) -> None:
    """Write the card; it holds nothing that changes between equal trainings.

    Args:
        folder: Of the checkpoint.
        config: All options.
        generator: Who wrote the questions.
        test: References of test graphs that were trained on.
        figures: What the training came to.
    """
    loss, train = config.loss, config.train
    facts: dict[str, object] = {
        "margins": f"{loss.g1:g}, {loss.g2:g}",
        "rows per batch": train.batch_size,
        "pooling": config.pooling,
        **{f"without {name} (ablation)": "yes" for name in ("neighbours", "negatives") if not getattr(loss, name)},
        **{name: f"{value:.6g}" for name, value in figures.items()},
    }
    bases = dict.fromkeys((config.base, config.triple_base or config.base))
    text = _CARD.format(
        base=" and ".join(f"`{one}`" for one in bases),
        graph=", ".join(f"`{one}`" for one in config.graph),
        seed=config.seed,
        test=f" It has seen the test graphs of {', '.join(test)}: no result on them is zero-shot." if test else "",
        generator=generator,
        example=linearise(EXAMPLE, config.linearise.rel, config.linearise.underscores),
        rows="\n".join(f"| {name} | {value} |" for name, value in facts.items()),
        length=config.max_length,
    )
    (folder / "README.md").write_text(text, "utf-8")
