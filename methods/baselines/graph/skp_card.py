"""The README of an encoder pretrained as SKP does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

_CARD = """---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
tags:
- sentence-transformers
- feature-extraction
- retrieval
---

# An encoder of triples pretrained as SKP does

Base: `{base}`. Graph: {graph}. Seed {seed}.{test}

SKP (structured knowledge-aware pre-training) predicts a hidden word of a text, and tells a text from others by its
copy with the word hidden. No question was read. One encoder serves questions and triples.

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("path/to/this/folder")
questions = model.encode_query(["what does jamaican people speak?"])
triples = model.encode_document(["Jamaica languages_spoken Jamaican English"])
scores = model.similarity(questions, triples)
```

| | |
|---|---|
{rows}
"""


def write_card(folder: Path, base: str, seed: int, graph: tuple[str, ...], test: tuple[str, ...], facts: Mapping[str, object]) -> None:
    """Write the card; it holds nothing that changes between equal trainings.

    Args:
        folder: Of the checkpoint.
        base: What was trained.
        seed: Of the training.
        graph: References of the graph.
        test: Those of them that are test graphs.
        facts: Options and figures.
    """
    text = _CARD.format(
        base=base,
        seed=seed,
        graph=", ".join(f"`{one}`" for one in graph),
        test=f" It has seen the test graphs of {', '.join(test)}: no result on them is zero-shot." if test else "",
        rows="\n".join(f"| {name} | {_shown(value)} |" for name, value in facts.items()),
    )
    (folder / "README.md").write_text(text, "utf-8")


def _shown(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
