"""CLaRa's data for each training stage (compressor pretraining, instruction tuning, joint training) and for evaluation.

Source: He et al., 2025, https://huggingface.co/datasets/apple/CLaRa_multi_stage; file formats as released by the authors.
`read_rows` streams the rows for training; `load` builds a benchmark from the same rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from pydantic import Field

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import content_id
from benchmarks.core.random import Draws
from benchmarks.corpus import CorpusBuilder
from benchmarks.datasets import count_notes
from benchmarks.records import Record, read_records, refuse_other_dataset
from benchmarks.registry import Benchmark, DataReference, DatasetCard, DatasetConfig, SkippedRecord, register
from benchmarks.schema import Passage, PassageIds, Question, passage_id
from benchmarks.sources import find_files

MOST_QUESTIONS = 1_000_000
"""Maximum number of questions of a benchmark, which are held in memory (about 0.5 KB each)."""

NOTES = {
    "repeated_passages": "{n} documents stand twice in one row; each counts once as a candidate",
    "positives_absent": "{n} positives are not documents of their row; they stay in denominators and cannot be found",
    "questions_without_positives": "{n} questions have no positive document: retrieval metrics leave them out",
}
"""Note per count in `Benchmark.extra["counts"]`, shown in `Benchmark.extra["notes"]`."""


class RowsConfig(DatasetConfig):
    """Options of the loaders of training rows."""

    first: int | None = Field(None, ge=1, description="maximum number of rows to read")
    after: int = Field(0, ge=0, description="number of rows to skip at the beginning; `first` counts from there")
    shuffle: bool = Field(True, description="shuffle candidates by the row's id, because the authors list positives first")


@dataclass(frozen=True, slots=True)
class StageRow:
    """A training row.

    Attributes:
        id: Subset and position in the file.
        kind: `qa` or `paraphrase` (one document with all of its questions), or `answer` (one question, many documents).
        docs: The documents, in the file's order.
        pairs: Questions with their accepted answers, the preferred one first.
        target: Training target if it differs from the first answer, else ""; None if the teacher's answer is blank.
        positives: 0-based positions of the documents with the answer; None if unknown.
    """

    id: str
    kind: str
    docs: tuple[str, ...]
    pairs: tuple[tuple[str, tuple[str, ...]], ...]
    target: str | None = ""
    positives: tuple[int, ...] | None = None


def stream_rows(
    reference: DataReference,
    paths: Sequence[Path],
    config: RowsConfig,
    parse: Callable[[Record, str], StageRow],
    skipped: list[SkippedRecord],
) -> Iterator[StageRow]:
    """Parse the rows of files one at a time, in constant memory.

    Args:
        reference: The reference, with a subset.
        paths: The files, in order.
        config: The dataset's options.
        parse: Function from a record and its row id to the row.
        skipped: List that receives skipped records.

    Raises:
        UserError: A file cannot be read.
    """
    name = reference.subset or reference.name

    def each() -> Iterator[StageRow]:
        for number, path in enumerate(paths):
            prefix = f"{name}-{number:03d}" if len(paths) > 1 else name
            yield from read_records(
                path,
                lambda record, prefix=prefix: parse(record, f"{prefix}-{_ordinal(record):07d}"),  # type: ignore[misc]
                skip_bad=config.skip_bad,
                skipped=skipped,
            )

    return islice(each(), config.after, None if config.first is None else config.after + config.first)


def _ordinal(record: Record) -> int:
    """Return the record's number in `line 3` or `line 1, record 3`."""
    return int(record.position.rpartition(" ")[2])


def documents(record: Record, *names: str) -> tuple[str, ...]:
    """Return a row's documents from the first of these fields that is present.

    Raises:
        BadRecord: There are no documents, or one is not a string.
    """
    name = next((name for name in names if record.has(name)), names[0])
    result = record.texts(name)
    if not result:
        raise record.problem(f"field {name!r} is empty", name)
    return result


def gather(
    reference: DataReference, version: int, card: DatasetCard, rows: Iterable[StageRow], skipped: list[SkippedRecord], *, shuffle: bool
) -> Benchmark:
    """Build a benchmark from training rows: one question per pair, with the row's documents as candidates and corpus.

    Args:
        reference: The reference, with subset and split.
        version: The loader's code version.
        card: The dataset's card.
        rows: The rows.
        skipped: Skipped records; complete once the rows are consumed.
        shuffle: Whether to shuffle the candidates, seeded by the row's id.

    Raises:
        UserError: There are more than `MOST_QUESTIONS`.
    """
    builder, counts, questions = CorpusBuilder(), Counter[str](), list[Question]()
    for row in rows:
        passages = [Passage(passage_id("", text), "", text) for text in row.docs]
        builder.add(passages)
        candidates = list(dict.fromkeys(passage.id for passage in passages))
        counts["repeated_passages"] += len(passages) - len(candidates)
        evidence = _evidence(row, passages, counts)
        if shuffle:
            Draws("candidates", row.id).shuffle(candidates)
        counts["questions_without_positives"] += len(row.pairs) * (not evidence)
        questions += _questions(row, PassageIds(candidates), evidence)
        if len(questions) > MOST_QUESTIONS:
            raise UserError(
                f"{reference} has more than {MOST_QUESTIONS:,} questions, too many to hold at once",
                code="too-many-questions",
                where=str(reference),
                try_this="set first to a number of rows; training streams the rows and needs no limit",
            )
    return Benchmark(reference, version, card, questions, builder.build(), tuple(skipped), count_notes(counts, NOTES))


def _evidence(row: StageRow, passages: Sequence[Passage], counts: Counter[str]) -> tuple[str, ...]:
    evidence = []
    for position in row.positives or ():
        present = 0 <= position < len(passages)
        counts["positives_absent"] += not present
        evidence.append(passages[position].id if present else content_id("p", "absent", row.id, str(position)))
    return tuple(dict.fromkeys(evidence))


def _questions(row: StageRow, candidates: PassageIds, evidence: tuple[str, ...]) -> Iterator[Question]:
    alone = row.kind == "answer"  # then the question has the row's id
    metadata = ({} if alone else {"row": row.id}) | ({"target": row.target} if row.target else {})
    for number, (text, answers) in enumerate(row.pairs):
        identifier = row.id if alone else f"{row.id}-{number:02d}"
        yield Question(identifier, text, answers, evidence=evidence, type=row.kind, candidates=candidates, metadata=metadata)


VERSION = 1

PARAPHRASE = "Say the same as the passage in other words."
"""Question text of paraphrase rows, replacing the one in the file."""

_SETS = ("2wiki", "hotpotqa", "musique", "nq")
_POOLS = ("with_pos", "no_pos")
SPLITS = {
    "pretraining": "train",
    "instruction_tuning": "train",
    **{f"inst_eval_{name}_{pool}": "test" for name in _SETS for pool in _POOLS},
    **{f"e2e_training_{name}_{pool}": "train" for name in _SETS for pool in _POOLS},
    **{f"e2e_eval_{name}_{pool}": "test" for name in _SETS for pool in _POOLS},
}
"""The single split of each subset. In the authors' names, `with_pos` sets include the positives (oracle) and `no_pos` sets are
plain retrieval.
"""
_PAPER = {"nq": (58622, 6489), "hotpotqa": (90185, 7384), "musique": (168745, 2417), "2wiki": (167454, 12576)}
_QUESTIONS = {
    f"e2e_{part}_{name}_{pool}": size
    for name, sizes in _PAPER.items()
    for part, size in zip(("training", "eval"), sizes, strict=True)
    for pool in _POOLS
}
_SOURCES = {"2wiki": ("2wikimultihopqa",), "hotpotqa": ("hotpotqa/distractor",), "musique": ("musique/ans",)}
"""Source datasets of each e2e set, by the paper's counts; the origin of nq's selection is unknown."""
_MIXED = {"musique": tuple(source for sources in _SOURCES.values() for source in sources)}
"""Source datasets of training sets that differ from `_SOURCES`: the paper trains for MuSiQue on all three."""


def _same_questions() -> dict[str, tuple[str, ...]]:
    """Return the splits with the same questions, by split."""
    results = {}
    for subset, split in SPLITS.items():
        if not subset.endswith(_POOLS):
            continue
        name = next(name for name in _SETS if f"_{name}_" in subset)
        same = [f"clara_stages/{subset.removesuffix('no_pos')}with_pos:{split}"] if subset.endswith("no_pos") else []
        if subset.startswith("e2e_training"):
            same += [f"{source}:train" for source in _MIXED.get(name, _SOURCES.get(name, ()))]
        elif subset.startswith("e2e_eval"):
            same += [f"{source}:dev" for source in _SOURCES.get(name, ())]
        results[f"{subset}:{split}"] = tuple(same)
    return results


CARD = DatasetCard(
    title="CLaRa multi-stage",
    task="training",
    description="Rows that train and evaluate CLaRa. pretraining: a document with all its questions and answers, or with its "
    "paraphrase; instruction_tuning: a question, five documents and a teacher's answer; e2e: a question, twenty "
    "documents, its answers and the positions of the positives among the documents.",
    hub_id="apple/CLaRa_multi_stage",
    revision=None,
    license="MIT by the dataset's card",
    citation="@article{he2025clara, title={CLaRa: Bridging Retrieval and Generation with Continuous Latent Reasoning}, "
    "author={He, Jie and Bai, Richard He and Williamson, Sinead and Pan, Jeff Z. and Jaitly, Navdeep and Zhang, "
    "Yizhe}, journal={arXiv preprint arXiv:2511.18659}, year={2025}}",
    languages=("en",),
    splits={"train": None, "test": None},
    subset_splits={subset: {split: _QUESTIONS.get(subset)} for subset, split in SPLITS.items()},
    same_questions=_same_questions(),
    metrics=("cover_em", "f1(rules=clara)", "em(rules=clara)"),
    cluster="question",
    settings=("distractor", "closed_book"),
    subset_settings={name: ("distractor", "gold_only", "closed_book") for name in SPLITS if name.endswith(("with_pos", "pretraining"))},
    notes="Hub revision not pinned yet. Subsets have the authors' names and one split each: train for pretraining, "
    "instruction_tuning and e2e_training_*, test for the others. Numbers of questions of the e2e sets are the paper's. A "
    "pretraining row becomes several questions with the same metadata['row']; a paraphrase row becomes one question. A "
    "row's id is its position in the file. The authors put positives first; here, candidates of with_pos sets are shuffled "
    "with the row's id as seed, unless shuffle is off. metadata['target'] is the training target if it differs from the "
    "first gold answer.",
)

FOLDERS = ("clara", "clara_multi_stage")
FILES: dict[str, tuple[str, ...]] = {
    f"{subset}:{split}": (f"{subset}.jsonl", f"{subset}*.jsonl", f"{subset}*.parquet") for subset, split in SPLITS.items()
}
FILES["pretraining:train"] += ("pretrain_data*.jsonl",)
HUB = {
    f"{subset}:{split}": (
        f"{subset}.jsonl",
        f"{subset}*.jsonl",
        f"{subset}/*.jsonl",
        f"data/{subset}*.jsonl",
        f"{subset}/*.parquet",
        f"data/{subset}-*.parquet",
    )
    for subset, split in SPLITS.items()
}


@register("clara_stages", card=CARD, version=VERSION, config=RowsConfig, subsets=tuple(SPLITS), default_split="train")
def load(reference: DataReference, config: RowsConfig) -> Benchmark:
    """Load a stage's rows as questions over their documents (see `gather`).

    Raises:
        UserError: The file is missing, or belongs to another dataset or split.
    """
    skipped: list[SkippedRecord] = []
    shuffle = config.shuffle and (reference.subset or "").endswith("with_pos")
    return gather(reference, VERSION, CARD, read_rows(reference, config, skipped), skipped, shuffle=shuffle)


def read_rows(reference: DataReference, config: RowsConfig, skipped: list[SkippedRecord]) -> Iterator[StageRow]:
    """Stream a stage's training rows.

    Args:
        reference: The reference, with subset and split (`benchmarks.registry.resolve`).
        config: The dataset's options.
        skipped: List that receives records skipped by `skip_bad`.

    Raises:
        UserError: The file is missing, or belongs to another dataset or split.
    """
    subset = reference.subset or "pretraining"
    paths = find_files(reference, config, card=CARD, folders=FOLDERS, patterns=FILES, hub=HUB)
    parse = _pretraining if subset == "pretraining" else _answered
    return stream_rows(reference, paths, config, parse, skipped)


def _pretraining(record: Record, identifier: str) -> StageRow:
    refuse_other_dataset(record, "clara_stages")
    kind = record.text("data_type")
    docs = documents(record, "docs")
    if len(docs) != 1:
        raise record.problem(f"there are {len(docs)} documents", "docs", "a list of one document")
    answers = record.texts("answers")
    if kind == "paraphrase":
        questions: tuple[str, ...] = (PARAPHRASE,)
    elif kind == "qa":
        questions = record.texts("question")
    else:
        raise record.problem(f"data_type {kind!r} is unknown", "data_type", "qa or paraphrase")
    if not answers or len(questions) != len(answers):
        what = f"there are {len(questions)} questions and {len(answers)} answers"
        raise record.problem(what, "answers", "a list as long as question")
    for name, texts in (("question", questions), ("answers", answers)):
        blank = next((number for number, text in enumerate(texts) if not text.strip()), None)
        if blank is not None:
            raise record.problem(f"field '{name}[{blank}]' is blank", f"{name}[{blank}]")
    pairs = tuple((question, (answer,)) for question, answer in zip(questions, answers, strict=True))
    return StageRow(identifier, kind, docs, pairs, positives=(0,))


def _answered(record: Record, identifier: str) -> StageRow:
    """Parse a row of instruction tuning, joint training or evaluation.

    Its gold is the short answer, if the row has one besides the target text.
    """
    refuse_other_dataset(record, "clara_stages")
    if record.has("data_type"):
        raise UserError(
            "this is a pretraining row: it has the field data_type",
            code="row-of-pretraining",
            where=record.where,
            try_this="ask for clara_stages/pretraining:train",
        )
    question = record.nonblank("question")
    name = next((name for name in ("gold_answer", "golden_answers", "answers", "answer") if record.has(name)), "answer")
    golds = tuple(answer for answer in record.answers(name) if answer.strip())
    if not golds:
        raise record.problem(f"field {name!r} is blank", name)
    docs = documents(record, "docs", "context", "content")
    return StageRow(identifier, "answer", docs, ((question, golds),), _target(record, golds[0]), _positives(record))


def _target(record: Record, gold: str) -> str | None:
    """Return the training target as in `StageRow`; a row without the field `answer` has no teacher."""
    if "answer" not in record.fields:
        return ""
    taught = record.fields["answer"]
    first = taught if isinstance(taught, str) else next(iter(record.texts("answer", ())), "")
    if not first.strip():
        return None
    return first if first != gold else ""


def _positives(record: Record) -> tuple[int, ...] | None:
    value = record.fields.get("pos_index")
    if value is None:
        return None
    positions = value if isinstance(value, list) else [value]
    return tuple(record.expect(position, f"pos_index[{i}]", int) for i, position in enumerate(positions))
