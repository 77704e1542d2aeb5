"""PISCO's tuning data: questions with five retrieved documents and a teacher's answer.

Source: Louis et al., 2025, https://huggingface.co/datasets/maxoul/pisco_finetuning_data; the set that the authors'
configuration names. `read_rows` streams the rows for training; `load` builds a benchmark from the same rows.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.datasets.clara import RowsConfig, StageRow, documents, gather, stream_rows
from benchmarks.records import Record, refuse_other_dataset
from benchmarks.registry import Benchmark, DataReference, DatasetCard, SkippedRecord, register
from benchmarks.sources import find_files

VERSION = 1

CARD = DatasetCard(
    title="PISCO tuning data",
    task="training",
    description="Training data for compressors: about 453,000 questions, each with the five passages that retrieval and "
    "reranking ranked first and Mistral-7B's answer to them.",
    hub_id="maxoul/pisco_finetuning_data",
    revision=None,
    license="not stated; PISCO's repository has a license of NAVER",
    citation="@inproceedings{louis2025pisco, title={PISCO: Pretty Simple Compression for Retrieval-Augmented "
    "Generation}, author={Louis, Maxime and D{\\'e}jean, Herv{\\'e} and Clinchant, St{\\'e}phane}, booktitle={Findings "
    "of ACL}, year={2025}}",
    languages=("en",),
    splits={"train": None},
    metrics=("cover_em", "f1"),
    cluster="question",
    settings=("distractor", "closed_book"),
    notes="Hub revision not pinned yet. The gold answer is the teacher's text, the only one available. A row's id is its position "
    "in the file.",
)

FOLDERS = ("pisco", "pisco_finetuning_data")
FILES = {":train": ("pisco_finetuning_data*.jsonl", "*train*.jsonl", "*train*.parquet")}
HUB = {":train": ("data/train-*.parquet", "*train*.parquet", "*.parquet", "*train*.jsonl", "*.jsonl")}


@register("pisco", card=CARD, version=VERSION, config=RowsConfig, default_split="train")
def load(reference: DataReference, config: RowsConfig) -> Benchmark:
    """Load the rows as questions over their documents (see `clara.gather`).

    Raises:
        UserError: The file is missing, or belongs to another dataset or split.
    """
    skipped: list[SkippedRecord] = []
    return gather(reference, VERSION, CARD, read_rows(reference, config, skipped), skipped, shuffle=False)


def read_rows(reference: DataReference, config: RowsConfig, skipped: list[SkippedRecord]) -> Iterator[StageRow]:
    """Stream the training rows.

    Args:
        reference: The reference, with split (`benchmarks.registry.resolve`).
        config: The dataset's options.
        skipped: List that receives records skipped by `skip_bad`.

    Raises:
        UserError: The file is missing or cannot be read.
    """
    paths = find_files(reference, config, card=CARD, folders=FOLDERS, patterns=FILES, hub=HUB)
    return stream_rows(reference, paths, config, _row, skipped)


def _row(record: Record, identifier: str) -> StageRow:
    refuse_other_dataset(record, "pisco")
    question, answer = record.nonblank("query"), record.nonblank("mistral_label")
    return StageRow(identifier, "answer", documents(record, "docs"), ((question, (answer,)),))
