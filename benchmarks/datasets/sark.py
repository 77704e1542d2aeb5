"""SARK's own data: questions with passages that were labeled, ordered or retrieved for a reranker.

Source: the paper's repository, https://github.com/lambdarw/SARK. The layouts are described in `styles/sark_files.py`.
"""

from __future__ import annotations

from collections import Counter

from pydantic import Field

from benchmarks.core.random import Draws
from benchmarks.corpus import CorpusBuilder
from benchmarks.datasets import count_notes
from benchmarks.registry import Benchmark, DataReference, DatasetCard, DatasetConfig, SkippedRecord, register
from benchmarks.schema import Question
from benchmarks.sources import find_file
from benchmarks.styles.sark_files import LABELS, Layout, StyleRow, layout_of, read_sark

VERSION = 1

CITATION = (
    "@misc{zhang_sark, title={Don't Be Misled by Style: A Style-Adaptive Reranker for Capturing Effective Knowledge in "
    "Retrieval-Augmented Generation}, author={Zhang, Ruwen and Liu, Bo and Zhang, Shengxiang and Chen, Yida and Zhao, "
    "Hantao and Ding, Ding and Jin, Jiahui and Cao, Jiuxin}, howpublished={https://github.com/lambdarw/SARK}}"
)

CARD = DatasetCard(
    title="SARK",
    task="reranking",
    description="Natural Questions with Wikipedia passages that DPR retrieved. Training lists have labels (does the passage "
    "turn a wrong answer into a right one) and an order from best to worst; test lists are in retrieval order.",
    hub_id=None,
    revision=None,
    license="not stated",
    citation=CITATION,
    languages=("en",),
    splits={"train": None, "dev": None, "test": None},
    metrics=("em", "f1", "has_answer@5"),
    cluster="question",
    settings=("distractor", "oracle"),
    notes="The repository contains one placeholder sample and no data. Rows with labels have no gold answer; their positives are "
    "the passages labeled 1. The order from best to worst is only in the metadata: the candidates are shuffled with the "
    "question's id as seed.",
)

FOLDERS = ("sark", "sark_style")
FILES = {
    ":train": ("train*.json", "train*.jsonl", "sark_sample.json"),
    ":dev": ("valid*.json", "valid*.jsonl", "dev*.json", "dev*.jsonl"),
    ":test": ("test*.jsonl", "test*.json"),
}

NOTES = {
    "repeated_passages": "{n} passages occur twice in one list; each counts once as a candidate",
    "labeled_beside_list": "{n} labeled passages are not in the list of their question; they became candidates",
    "questions_without_answers": "{n} questions have no gold answer: only ranking metrics are scored",
    "questions_without_positives": "{n} questions have no passage labeled 1: recall leaves them out",
}


class SARKConfig(DatasetConfig):
    """Options of SARK's files."""

    layout: Layout | None = Field(None, description="labels or ranked; null: detected from the first record")
    titled: bool = Field(True, description='remove the quoted title before a passage\'s text, `"title" text`')


@register("sark", card=CARD, version=VERSION, config=SARKConfig, default_split="train")
def load(reference: DataReference, config: SARKConfig) -> Benchmark:
    """Load a file in either layout (labels or ranked lists).

    For rows with labels, `metadata` has `labels` (1 or 0 by passage id) and `order` (passage ids, best first).

    Raises:
        UserError: The file is missing, or belongs to another dataset or split.
    """
    path = find_file(reference, config, folders=FOLDERS, patterns=FILES)
    layout = config.layout or layout_of(path)
    skipped: list[SkippedRecord] = []
    builder, counts, questions = CorpusBuilder(), Counter[str](), list[Question]()
    for query in read_sark(path, layout, titled=config.titled, skip_bad=config.skip_bad, skipped=skipped):
        builder.add((*query.passages, *query.labels))
        questions.append(_question(query, layout, counts))
    extra = {**count_notes(counts, NOTES), "layout": layout}
    return Benchmark(reference, VERSION, CARD, questions, builder.build(), tuple(skipped), extra)


def _question(query: StyleRow, layout: Layout, counts: Counter[str]) -> Question:
    order = tuple(dict.fromkeys(passage.id for passage in query.passages))
    labels = {passage.id: label for passage, label in query.labels.items()}
    candidates = list(dict.fromkeys((*order, *labels)))
    counts["repeated_passages"] += len(query.passages) - len(order)
    counts["labeled_beside_list"] += len(candidates) - len(order)
    counts["questions_without_answers"] += not query.answers
    positives = tuple(passage for passage, label in labels.items() if label)
    if layout != LABELS:
        return Question(query.id, query.text, query.answers, candidates=tuple(candidates))
    counts["questions_without_positives"] += not positives
    Draws("candidates", query.id).shuffle(candidates)
    return Question(query.id, query.text, (), evidence=positives, candidates=tuple(candidates), metadata={"labels": labels, "order": order})
