"""The README of a cross-encoder of triples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

_CARD = """---
library_name: sentence-transformers
pipeline_tag: text-ranking
tags:
- sentence-transformers
- cross-encoder
- reranker
---

# A cross-encoder of questions and triples

Base: `{base}`. Training data: {data}. Seed {seed}.

It scores how well a triple of a knowledge graph, written in natural words, answers a question. It takes the place of a
published cross-encoder in a hybrid of BM25 and dense retrieval where none is at hand; a row of a table with it is
called `hybrid[worlds-ce]`.

```python
from sentence_transformers import CrossEncoder

model = CrossEncoder("path/to/this/folder")
scores = model.predict([("what does jamaican people speak?", "Jamaica location country languages spoken English")])
```

| | |
|---|---|
{rows}
"""


def write_card(folder: Path, base: str, seed: int, data: Sequence[str], facts: Mapping[str, object]) -> None:
    """Write the card; it holds nothing that changes between equal trainings."""
    rows = (f"| {name} | {f'{value:.6g}' if isinstance(value, float) else value} |" for name, value in facts.items())
    text = _CARD.format(base=base, seed=seed, data=", ".join(f"`{one}`" for one in data), rows="\n".join(rows))
    (folder / "README.md").write_text(text, "utf-8")
