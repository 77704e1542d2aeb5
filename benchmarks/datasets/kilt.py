"""KILT: eleven knowledge-intensive tasks over one Wikipedia, with the pages that support each answer.

A record is `{id, input, output[{answer?, provenance[{wikipedia_id, title, …}]?}]}`. The pages of each output stay together in
`metadata["pages"]`: KILT's metrics (`kilt_rprec`, `kilt_recall@k`, `kilt_em`, `kilt_f1`, `kilt_accuracy`) read them.

Source: Petroni et al., 2021, https://github.com/facebookresearch/KILT.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from pydantic import Field

from benchmarks.corpus import Corpus
from benchmarks.corpus_build import open_documents
from benchmarks.datasets import QuestionIds, count_notes
from benchmarks.records import Record, read_records, refuse_other_dataset
from benchmarks.registry import Benchmark, DataReference, DatasetCard, DatasetConfig, SkippedRecord, register
from benchmarks.schema import PAGES, Question
from benchmarks.sources import find_files

VERSION = 1

SIZES: dict[str, tuple[int, int, int]] = {
    "nq": (87372, 2837, 1444),
    "hotpotqa": (88869, 5600, 5569),
    "triviaqa": (61844, 5359, 6586),
    "eli5": (272634, 1507, 600),
    "fever": (104966, 10444, 10100),
    "wow": (63734, 3054, 2944),
    "aidayago2": (18395, 4784, 4463),
    "wned": (0, 3396, 3376),
    "cweb": (0, 5599, 5543),
    "trex": (2284168, 5000, 5000),
    "structured_zeroshot": (147909, 3724, 4966),
}
"""Number of questions of each task's train, dev and test split; 0 if the split does not exist."""
_QA = ("kilt_em", "kilt_f1", "em", "f1", "kilt_rprec", "kilt_recall@5")
_LABELS = ("kilt_accuracy", "em", "kilt_rprec", "kilt_recall@5")

CARD = DatasetCard(
    title="KILT",
    task="knowledge-intensive tasks",
    description="Open-domain QA (nq, hotpotqa, triviaqa, eli5), fact checking (fever), dialogue (wow), entity linking "
    "(aidayago2, wned, cweb) and slot filling (trex, structured_zeroshot) over the Wikipedia of 2019-08-01, with "
    "the pages that support each answer.",
    hub_id="facebook/kilt_tasks",
    revision=None,
    license="MIT; each task its own",
    citation="@inproceedings{petroni2021kilt, title={{KILT}: a Benchmark for Knowledge Intensive Language Tasks}, author={Petroni, "
    "Fabio and Piktus, Aleksandra and Fan, Angela and Lewis, Patrick and others}, booktitle={NAACL}, year={2021}}",
    languages=("en",),
    splits={"train": None, "dev": None, "test": None},
    subset_splits={
        name: {split: size for split, size in zip(("train", "dev", "test"), sizes, strict=True) if size} for name, sizes in SIZES.items()
    },
    same_questions={f"nq:{split}": (f"nq/kilt:{split}",) for split in ("train", "dev", "test")}
    | {f"hotpotqa:{split}": (f"hotpotqa/distractor:{split}",) for split in ("train", "dev")},
    metrics=_QA,
    subset_metrics={
        **dict.fromkeys(("fever", "aidayago2", "wned", "cweb", "trex", "structured_zeroshot"), _LABELS),
        **dict.fromkeys(("eli5", "wow"), ("f1", "rouge(type=rougeL)", "kilt_f1", "kilt_rprec", "kilt_recall@5")),
    },
    cluster="question",
    settings=("corpus", "closed_book"),
    notes="Hub revision not pinned yet. Test splits are released without answers and pages. TriviaQA's files contain ids without "
    "questions; KILT's own script adds the questions from TriviaQA. Questions without provenance are unscorable here; the "
    "official script counts them as 0.",
)

FOLDERS = ("kilt", "kilt_tasks", "KILT")
FILES = {
    f"{name}:{split}": tuple(f"{folder}{name}-{middle}-kilt.jsonl" for folder in ("", f"{name}/", f"kilt_{name}/") for middle in middles)
    for name in SIZES
    for split, middles in {"train": ("train",), "dev": ("dev",), "test": ("test_without_answers", "test")}.items()
}
_HUB_NAMES = {"triviaqa": "triviaqa_support_only"}
HUB = {
    f"{name}:{split}": (f"{_HUB_NAMES.get(name, name)}/{stem}-*.parquet", f"{_HUB_NAMES.get(name, name)}/{stem}/*.parquet")
    for name in SIZES
    for split, stem in (("train", "train"), ("dev", "validation"), ("test", "test"))
}

NOTES = {
    "questions_without_gold": "{n} questions have no gold answer in the file and cannot be scored",
    "questions_without_pages": "{n} questions state no pages: KILT's script counts their retrieval as 0, here they are left out",
}
"""Note per count in `Benchmark.extra["counts"]`, shown in `Benchmark.extra["notes"]`."""


class KiltConfig(DatasetConfig):
    """Options of KILT."""

    corpus: str | None = Field(
        None,
        description="corpus to search: KILT's knowledge source, passages with the field wikipedia_id or document_id, or a corpus "
        "folder that `ragmeter data build-corpus --layout beir` built from either",
    )


@register("kilt", card=CARD, version=VERSION, config=KiltConfig, subsets=tuple(SIZES))
def load(reference: DataReference, config: KiltConfig) -> Benchmark:
    """Load a split of a task.

    Raises:
        UserError: The file is missing, or belongs to another dataset or split.
    """
    paths = find_files(reference, config, card=CARD, folders=FOLDERS, patterns=FILES, hub=HUB)
    split, counts, skipped = reference.split or "dev", Counter[str](), list[SkippedRecord]()
    corpus = Corpus.of([]) if config.corpus is None else open_documents(Path(config.corpus).expanduser())
    ids, questions = QuestionIds(paths), list[Question]()

    def parse(record: Record) -> tuple[Question, Record]:
        refuse_other_dataset(record, "kilt")
        return _question(record, split, corpus), record

    for question, record in read_records(paths, parse, skip_bad=config.skip_bad, skipped=skipped):
        ids.add(question.id, record)
        questions.append(question)
        counts["questions_without_gold"] += not question.answers
        counts["questions_without_pages"] += PAGES not in question.metadata
    return Benchmark(reference, VERSION, CARD, questions, corpus, tuple(skipped), count_notes(counts, NOTES))


def _question(record: Record, split: str, corpus: Corpus) -> Question:
    value = record.fields.get("id")
    answers: list[str] = []
    pages: list[tuple[str, ...]] = []
    for place, item in enumerate(record.field("output", list, [])):
        part = Record(record.expect(item, f"output[{place}]", dict), record.path, f"{record.position}, output {place}")
        if part.has("answer") and part.text("answer").strip():
            answers.append(part.text("answer"))
        if part.has("provenance"):
            named = (_page(part, entry, number) for number, entry in enumerate(part.field("provenance", list)))
            pages.append(tuple(page for page in named if page is not None))
    if not answers and split != "test":
        raise record.problem(f"there is no answer, as in a test file; this is asked for as {split}", "output", "a list with an answer")
    native = (corpus.by_native_id(page) for page in dict.fromkeys(page for wanted in pages for page in wanted))
    evidence = tuple(known for known in native if known is not None)
    metadata: dict[str, Any] = {PAGES: tuple(filter(None, pages))} if any(pages) else {}
    identifier = str(value) if type(value) is int else record.text("id")
    return Question(identifier, record.nonblank("input"), tuple(answers), evidence=evidence, metadata=metadata)


def _page(part: Record, entry: Any, number: int) -> str | None:
    """Return the page id of a provenance; None if it has none, as in the official script."""
    name = f"provenance[{number}]"
    value = part.expect(entry, name, dict).get("wikipedia_id")
    if value is None or type(value) is int:
        return None if value is None else str(value)
    return part.expect(value, f"{name}.wikipedia_id", str).strip()
