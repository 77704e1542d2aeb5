"""The README of a reranker that SARK trained."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from methods.sark.config import SarkTrainingConfig

_CARD = """---
library_name: sentence-transformers
pipeline_tag: text-ranking
tags:
- sentence-transformers
- cross-encoder
- reranker
---

# A reranker trained with SARK{without}

Base: `{base}`. Training data: {data}. Seed {seed}.

SARK (style-adaptive reranker) learns which passages help a model to answer: from labels of passages (with this one a
wrong answer turns right, or a right one wrong) and from lists ordered from best to worst. Every passage is learnt from
in two styles, {style}, so that its content counts and not how it is told. Both losses are weighed in every batch so
that a step lowers both.

```python
from sentence_transformers import CrossEncoder

model = CrossEncoder("path/to/this/folder")
scores = model.predict([("Who built the old bridge?", "The bridge was built by a painter.")])
```

| | |
|---|---|
{rows}

Pairs are cut after {length} tokens, from the passage's end. `predict` gives σ(z); rankings are by z, in the same order.
`curve.jsonl` tells of every step both losses, the weights `lambda` and `1-lambda`, the norms of both gradients over the
encoder, and the cosine between them.
"""


def write_card(folder: Path, config: SarkTrainingConfig, figures: Mapping[str, float]) -> None:
    """Write the card; it holds nothing that changes between equal trainings."""
    loss, train = config.loss, config.train
    on = {"style-augmented training": loss.styles, "passage labels": loss.passage, "lists": loss.listwise}
    left_out = [name for name, kept in on.items() if not kept]
    facts: dict[str, object] = {
        "head": config.model.head,
        "λ": "from both gradients" if loss.lambda_mode == "mgda" else f"fixed at {loss.lambda_value:g}",
        "gradients that decide λ": loss.lambda_params,
        "rows per batch": train.batch_size,
        "batches per step": train.accumulation,
        "epochs at most": train.epochs,
        "weights of": {"f1": "the best validation F1", "order": "the best validation order"}.get(config.keep, "the last step"),
        **{name: f"{value:.6g}" for name, value in figures.items()},
    }
    text = _CARD.format(
        without=f", without {' and '.join(left_out)}" if left_out else "",
        base=config.base,
        data=", ".join(f"`{one}`" for one in config.data),
        seed=config.seed,
        style=f"formal and {config.styles.style}" if loss.styles else "of which this one has seen the formal alone",
        rows="\n".join(f"| {name} | {value} |" for name, value in facts.items()),
        length=config.model.max_length,
    )
    (folder / "README.md").write_text(text, "utf-8")
