"""Write the README of a trained checkpoint as a model card for the hub; equal trainings give identical cards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PATH = "path/to/this/folder"


@dataclass(frozen=True)
class ModelKind:
    """Type of a checkpoint for the hub, with loading instructions.

    Attributes:
        library: Library that loads it.
        task: The hub's name of the task.
        tags: Further tags.
        usage: Python code that loads it.
    """

    library: str
    task: str
    tags: tuple[str, ...]
    usage: str


RETRIEVER = ModelKind(
    "sentence-transformers",
    "sentence-similarity",
    ("sentence-transformers", "feature-extraction", "retrieval"),
    f"""from sentence_transformers import SentenceTransformer

model = SentenceTransformer("{PATH}")
scores = model.similarity(model.encode_query(["Who founded the town?"]), model.encode_document(["Ada founded it."]))""",
)
RERANKER = ModelKind(
    "sentence-transformers",
    "text-ranking",
    ("sentence-transformers", "cross-encoder", "reranker"),
    f"""from sentence_transformers import CrossEncoder

scores = CrossEncoder("{PATH}").predict([("Who founded the town?", "Ada founded it.")])""",
)


def write_model_card(
    folder: Path,
    kind: ModelKind,
    title: str,
    text: str,
    *,
    base: Sequence[str],
    data: Sequence[str],
    seed: int,
    facts: Mapping[str, object],
    after: str = "",
) -> None:
    """Write the model card of a checkpoint.

    Args:
        folder: Checkpoint folder.
        kind: Type of the checkpoint.
        title: Heading.
        text: What was trained, and how to use it.
        base: Base models.
        data: References of the training data.
        seed: Random seed of the training.
        facts: Options and metrics, without values that differ between equal trainings, such as seconds.
        after: Further Markdown.
    """
    from huggingface_hub import ModelCard, ModelCardData

    adapter = base[0] if kind.library == "peft" else None
    head = ModelCardData(base_model=adapter, library_name=kind.library, pipeline_tag=kind.task, tags=list(kind.tags) or None)
    rows = [f"| {name} | {f'{value:.6g}' if isinstance(value, float) else value} |" for name, value in facts.items()]
    parts = [
        f"---\n{head.to_yaml()}\n---",
        f"# {title}",
        f"Base: {_names(base)}. Training data: {_names(data)}. Seed {seed}.",
        text,
        f"```python\n{kind.usage}\n```",
        "\n".join(["| | |", "|---|---|", *rows]),
        *filter(None, [after]),
    ]
    ModelCard("\n\n".join(parts) + "\n").save(folder / "README.md")


def seen_test_graphs(references: Sequence[str]) -> str:
    """Return the card's warning about test graphs in the training data; "" if there are none."""
    return f" It has seen the test graphs of {', '.join(references)}: no result on them is zero-shot." if references else ""


def _names(items: Sequence[str]) -> str:
    return ", ".join(f"`{item}`" for item in dict.fromkeys(items))
