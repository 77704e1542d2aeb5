"""A dataset: a dozen questions about streams, over the passages that the package ships beside this file."""

from __future__ import annotations

import importlib.resources
import json

from benchmarks.corpus import Corpus
from benchmarks.registry import Benchmark, DataReference, DatasetCard, DatasetConfig, register
from benchmarks.schema import Passage, Question, passage_id

VERSION = 1
FILE = "rivers.jsonl"

CARD = DatasetCard(
    title="Rivers",
    task="single-hop QA",
    description="Short questions about streams, one passage for each; small enough to read.",
    hub_id=None,
    revision=None,
    license="CC0 1.0",
    citation="written for this example",
    languages=("en",),
    splits={"test": 12},
    metrics=("em", "f1"),
    settings=("corpus", "gold_only", "closed_book"),
)


@register("rivers", card=CARD, version=VERSION, default_split="test")
def load(reference: DataReference, config: DatasetConfig) -> Benchmark:
    """Read the package's file: one passage with one question in each line.

    What a method is handed later is only `question.query()`: neither the answer nor the evidence.
    """
    text = importlib.resources.files(__package__).joinpath(FILE).read_text("utf-8")
    passages, questions = [], []
    for number, line in enumerate(text.splitlines()):
        record = json.loads(line)
        passage = Passage(passage_id(record["title"], record["text"]), record["title"], record["text"])
        passages.append(passage)
        questions.append(
            Question(
                id=f"river-{number:02}", text=record["question"], answers=(record["answer"],), evidence=(passage.id,), type=record["type"]
            )
        )
    return Benchmark(reference, VERSION, CARD, questions, Corpus.of(passages))
