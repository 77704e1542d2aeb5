"""CLaRa's training and evaluation data, stage by stage: compressor pretraining, instruction tuning, joint training.

Source: He et al., 2025, https://huggingface.co/datasets/apple/CLaRa_multi_stage; file formats as released by the
authors. `rows` streams what training reads, `load` brings the same rows together as a benchmark.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.datasets.long_document import worded
from benchmarks.datasets.training_rows import Row, RowsConfig, documents, gather, stream_rows
from benchmarks.errors import UserError
from benchmarks.registry import Benchmark, DataReference, DatasetCard, SkippedRecord, register
from benchmarks.sources import Record, find_files, refuse_other_dataset

VERSION = 1

PARAPHRASE = "Say the same as the passage in other words."
"""Stands for the question of a paraphrase row, whose own is to be ignored."""

_SETS = ("2wiki", "hotpotqa", "musique", "nq")
_POOLS = ("with_pos", "no_pos")
SPLITS = {
    "pretraining": "train",
    "instruction_tuning": "train",
    **{f"inst_eval_{name}_{pool}": "test" for name in _SETS for pool in _POOLS},
    **{f"e2e_training_{name}_{pool}": "train" for name in _SETS for pool in _POOLS},
    **{f"e2e_eval_{name}_{pool}": "test" for name in _SETS for pool in _POOLS},
}
"""The only split of each subset, by the authors' names: with_pos is the oracle setting, no_pos the normal one."""
_PAPER = {"nq": (58622, 6489), "hotpotqa": (90185, 7384), "musique": (168745, 2417), "2wiki": (167454, 12576)}
_QUESTIONS = {
    f"e2e_{part}_{name}_{pool}": size
    for name, sizes in _PAPER.items()
    for part, size in zip(("training", "eval"), sizes, strict=True)
    for pool in _POOLS
}
_SOURCES = {"2wiki": ("2wikimultihopqa",), "hotpotqa": ("hotpotqa/distractor",), "musique": ("musique/ans",)}
"""Whose questions the e2e sets ask, by the paper's numbers; nq's are a selection, and it does not say from where."""
_MIXED = {"musique": tuple(one for sources in _SOURCES.values() for one in sources)}
"""The same for training, where it differs: the paper trains for MuSiQue on a mix of all three."""


def _same_questions() -> dict[str, tuple[str, ...]]:
    """Both pools ask the same; the e2e sets ask the questions of the datasets that they are called after."""
    found = {}
    for subset, split in SPLITS.items():
        if not subset.endswith(_POOLS):
            continue
        name = next(name for name in _SETS if f"_{name}_" in subset)
        same = [f"clara_stages/{subset.removesuffix('no_pos')}with_pos:{split}"] if subset.endswith("no_pos") else []
        if subset.startswith("e2e_training"):
            same += [f"{source}:train" for source in _MIXED.get(name, _SOURCES.get(name, ()))]
        elif subset.startswith("e2e_eval"):
            same += [f"{source}:dev" for source in _SOURCES.get(name, ())]
        found[f"{subset}:{split}"] = tuple(same)
    return found


CARD = DatasetCard(
    title="CLaRa multi-stage",
    task="training",
    description="Rows that train and evaluate CLaRa. pretraining: a document with all its questions and answers, or "
    "with its paraphrase; instruction_tuning: a question, five documents and a teacher's answer; e2e: a question, "
    "twenty documents, its answers and the places of the positives among them.",
    hub_id="apple/CLaRa_multi_stage",
    revision=None,
    licence="MIT by the dataset's card",
    citation="@article{he2025clara, title={CLaRa: Bridging Retrieval and Generation with Continuous Latent Reasoning}, "
    "author={He, Jie and Bai, Richard He and Williamson, Sinead and Pan, Jeff Z. and Jaitly, Navdeep and Zhang, "
    "Yizhe}, journal={arXiv preprint arXiv:2511.18659}, year={2025}}",
    languages=("en",),
    splits={"train": None, "test": None},
    subset_splits={subset: {split: _QUESTIONS.get(subset)} for subset, split in SPLITS.items()},
    same_questions=_same_questions(),
    metrics=("cover_em", "f1(rules=clara)", "em(rules=clara)"),
    settings=("distractor", "closed_book"),
    subset_settings={name: ("distractor", "gold_only", "closed_book") for name in SPLITS if name.endswith(("with_pos", "pretraining"))},
    notes="Hub revision not pinned yet. Subsets have the authors' names and one split each: train for pretraining, "
    "instruction_tuning and e2e_training_*, test for the others; numbers of questions of the e2e sets are the paper's. "
    "A pretraining row is as many questions as it has, metadata['row'] says which belong together; a paraphrase row is "
    "one. Rows have no ids of their own: the place in the file is the id. The authors put positives first: the "
    "candidates of with_pos sets are put into an order drawn from the row's id, unless shuffle is off. "
    "metadata['target'] is what training teaches, where it differs from the first gold answer.",
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
    """Read a stage's rows as questions over their documents (`training_rows.gather`).

    Raises:
        UserError: The file is not found, or is not what was asked for.
    """
    skipped: list[SkippedRecord] = []
    shuffle = config.shuffle and (reference.subset or "").endswith("with_pos")
    return gather(reference, VERSION, CARD, rows(reference, config, skipped), skipped, shuffle=shuffle)


def rows(reference: DataReference, config: RowsConfig, skipped: list[SkippedRecord]) -> Iterator[Row]:
    """Stream a stage's rows.

    Args:
        reference: Subset and split set (`benchmarks.registry.resolve`).
        config: The options.
        skipped: Receives what `skip_bad` leaves out.

    Raises:
        UserError: The file is not found, or is not what was asked for.
    """
    subset = reference.subset or "pretraining"
    paths = find_files(reference, config, card=CARD, folders=FOLDERS, patterns=FILES, hub=HUB)
    parse = _pretraining if subset == "pretraining" else _answered
    return stream_rows(reference, paths, config, parse, skipped)


def _pretraining(record: Record, identifier: str) -> Row:
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
    return Row(identifier, kind, docs, pairs, positives=(0,))


def _answered(record: Record, identifier: str) -> Row:
    """A row of instruction tuning, joint training or evaluation.

    Its gold is the short answer where the row has one beside the text that is taught.
    """
    refuse_other_dataset(record, "clara_stages")
    if record.has("data_type"):
        raise UserError(
            "this row is of pretraining: it has a data_type", where=record.where, try_this="ask for clara_stages/pretraining:train"
        )
    question = worded(record, "question")
    name = next((name for name in ("gold_answer", "golden_answers", "answers", "answer") if record.has(name)), "answer")
    golds = tuple(answer for answer in record.answers(name) if answer.strip())
    if not golds:
        raise record.problem(f"field {name!r} is blank", name)
    taught = record.fields.get("answer")
    target = taught if isinstance(taught, str) and taught.strip() and taught != golds[0] else ""
    docs = documents(record, "docs", "context", "content")
    return Row(identifier, "answer", docs, ((question, golds),), target, _positives(record))


def _positives(record: Record) -> tuple[int, ...] | None:
    given = record.fields.get("pos_index")
    if given is None:
        return None
    places = given if isinstance(given, list) else [given]
    return tuple(record.expect(place, f"pos_index[{i}]", int) for i, place in enumerate(places))
