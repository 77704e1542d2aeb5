"""Load any retrieval benchmark in the layout of BEIR, MTEB or BRIGHT, from a folder, an archive or a hub repository.

| layout | documents | questions | judgments |
| --- | --- | --- | --- |
| BEIR | `corpus.jsonl` | `queries.jsonl` | `qrels/SPLIT.tsv`; on the hub in the repository `BeIR/NAME-qrels` |
| MTEB | the same names, or Parquet in `corpus/`, `queries/` | as there | `qrels/SPLIT…`, `data/SPLIT…` |
| BRIGHT | `documents/PART-*.parquet` | `examples/PART-*.parquet` | `gold_ids` and `excluded_ids` of the questions |

Documents are identified by their own ids, so documents with equal text stay separate, as in other tools that read qrels. They
are converted once into a corpus folder in the cache; afterwards their texts stay on disk.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import Field

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import content_id
from benchmarks.corpus import Corpus, read_card
from benchmarks.corpus_build import kept_corpus, open_documents
from benchmarks.datasets import QuestionIds, count_notes
from benchmarks.dumps import BEIR
from benchmarks.io import hub
from benchmarks.io.files import is_sharded, is_zip, matching
from benchmarks.io.judged import read_table
from benchmarks.records import Record, read_records
from benchmarks.registry import Benchmark, DataReference, DatasetCard, DatasetConfig, SkippedRecord, register
from benchmarks.schema import Question
from benchmarks.sources import only_asked, own_path

VERSION = 1

CARD = DatasetCard(
    title="BEIR and other retrieval benchmarks",
    task="retrieval",
    description="Questions with graded judgments of the documents of one corpus, in the layout of BEIR, MTEB or BRIGHT: a folder or "
    "zip archive (path), or a repository of the hub (hub: BeIR/scifact, mteb/arguana, xlangai/BRIGHT).",
    hub_id=None,
    revision=None,
    license="of each dataset",
    citation="@inproceedings{thakur2021beir, title={{BEIR}: A Heterogeneous Benchmark for Zero-shot Evaluation of Information "
    "Retrieval Models}, author={Thakur, Nandan and Reimers, Nils and R{\\\"u}ckl{\\'e}, Andreas and Srivastava, Abhishek and "
    "Gurevych, Iryna}, booktitle={NeurIPS Datasets and Benchmarks}, year={2021}}",
    languages=("en",),
    splits={"train": None, "dev": None, "test": None},
    metrics=("ndcg@10", "recall@100", "map@100", "mrr@10", "judged@10"),
    cluster="question",
    settings=("corpus",),
    notes="Only ranking metrics can be scored, because there are no gold answers. A benchmark contains the questions for which "
    "the split has judgments.",
)

NOTES = {
    "questions_without_judgments": "{n} questions are not judged in this split: they are not asked",
    "comments_in_judgments": "{n} lines of the judgments begin with # and were skipped as comments",
    "judged_questions_without_text": "{n} judged questions have no text: they are not asked",
    "questions_without_positives": "{n} questions have no positive document: they cannot be scored (trec_eval counts them as 0)",
    "positives_absent": "{n} positives are not in the corpus; they stay in every denominator and cannot be found",
    "questions_with_own_document": "{n} questions have the id of a document, which may be the question itself: "
    "ignore_identical_ids: true counts it as not retrieved, as BEIR's own evaluation does",
    "identical_ids_ignored": "{n} questions have the id of a document, which counts as not retrieved",
    "excluded_documents": "{n} documents are excluded for a question: they count as not retrieved",
}
"""Note per count in `Benchmark.extra["counts"]`, shown in `Benchmark.extra["notes"]`."""

_QUESTION_IDS = ("_id", "id", "query-id", "qid", "query_id")
_QUESTION_TEXTS = ("text", "query", "question")
_SPLITS = {"dev": ("dev", "validation", "val"), "test": ("test",), "train": ("train",)}


class BeirConfig(DatasetConfig):
    """Options of retrieval benchmarks."""

    path: str | None = Field(None, description="folder or zip archive; or name a repository with hub")
    hub: str | None = Field(None, description="repository of the hub instead of path, e.g. BeIR/scifact, mteb/arguana")
    part: str | None = Field(None, description="part of a repository that holds several: biology (BRIGHT), a language (MTEB)")
    corpus: str | None = Field(None, description="a folder that `ragmeter data build-corpus --layout beir` built, instead of the documents")
    ignore_identical_ids: bool = Field(False, description="count the document that has the question's id as not retrieved (ArguAna)")


def _names(role: str, split: str, part: str | None) -> list[str]:
    """Return the file patterns of a role (`corpus`, `queries`, `qrels`), the most specific first."""
    results: list[str] = []
    for name in _SPLITS[split]:
        if role == "qrels":
            stems = [f"qrels/{name}", f"data/{name}", f"default/{name}", name, f"*/qrels/{name}"]
            if part is not None:
                stems = [f"{part}/qrels/{name}", f"{part}-qrels/{name}", f"qrels/{part}/{name}", f"data/{part}/{name}", f"{part}/{name}"]
        else:
            stems = [f"{role}/{name}", role, f"{role}/*", f"*/{role}"]
            if part is not None:
                other = {"corpus": "documents", "queries": "examples"}[role]
                stems = [f"{part}/{role}", f"{part}-{role}/{name}", f"{part}-{role}/*", f"{role}/{part}", f"{other}/{part}"]
        endings = (".jsonl", ".parquet", "-*.parquet", "-*.jsonl")
        results += [f"{stem}{ending}" for stem in stems for ending in ((".tsv", *endings) if role == "qrels" else endings)]
    return results


@dataclass(frozen=True)
class _Place:
    """Location of a benchmark's files: a folder, archive or repository."""

    reference: DataReference
    config: BeirConfig

    @property
    def name(self) -> str:
        """Return the name that distinguishes this benchmark from others of its kind."""
        config = self.config
        name = config.hub.rpartition("/")[2] if config.hub is not None else Path(str(config.path)).expanduser().resolve().name
        return (name.removesuffix(".zip") or "beir") + (f", {config.part}" if config.part else "")

    def files(self, role: str) -> tuple[Path, ...]:
        """Return the files of a role: one, or the shards of one.

        Raises:
            UserError: There is none, or several that are not shards.
        """
        split = self.reference.split or "test"
        names = _names(role, split, self.config.part)
        if self.config.hub is not None:
            if role == "qrels" and self.config.hub.lower().startswith("beir/"):
                # A repository of its own, in which a revision of the other says nothing.
                return hub.fetch(f"{self.config.hub}-qrels", names).paths
            return hub.fetch(self.config.hub, names, self.config.revision).paths
        position = own_path(self.reference, self.config)
        if not (position.is_dir() or is_zip(position)):
            raise UserError(
                "a folder or a zip archive is needed",
                code="not-folder-or-zip",
                where=str(position),
                try_this="path: the folder that holds corpus.jsonl",
            )
        files = _in_place(position, names)
        if not files:
            what = {"corpus": "documents", "queries": "questions", "qrels": f"judgments of the split {split}"}[role]
            raise UserError(
                f"the {what} of {self.reference} are missing",
                code="missing-file",
                where=f"{position} (looked for {', '.join(names[:3])} …)",
                try_this="lay the files out as BEIR does: corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv",
            )
        if len(files) > 1 and not is_sharded([str(path) for path in files]):
            raise UserError(
                f"several files could be the {role}",
                code="ambiguous-file",
                where=", ".join(map(str, files)),
                try_this="name the folder of one dataset",
            )
        return files


def _in_place(position: Path, names: Iterable[str]) -> tuple[Path, ...]:
    # A pattern without a folder fits anywhere in an archive, so that an archive's one folder need not be named.
    return next((files for name in names if (files := matching(position, name))), ())


def qrels_of(position: Path) -> Path:
    """Return the qrels file of the split `test` in a folder or archive in BEIR's layout.

    Raises:
        UserError: No qrels file was found.
    """
    (path,) = _Place(DataReference("beir", None, "test"), BeirConfig.model_validate({"path": str(position)})).files("qrels")
    return path


@dataclass(slots=True)
class _Asked:
    """A question as parsed from a record, with judgments if the record has them (BRIGHT)."""

    id: str
    text: str
    record: Record
    grades: Mapping[str, float] | None
    excluded: tuple[str, ...]


@register("beir", card=CARD, version=VERSION, config=BeirConfig, default_split="test")
def load(reference: DataReference, config: BeirConfig) -> Benchmark:
    """Load the judged questions of a split; documents with a grade above 0 are positive.

    Raises:
        UserError: A file is missing or cannot be read, or no question is judged.
    """
    only_asked(reference)
    if config.hub is not None and config.path is not None:
        raise UserError("path and hub cannot be combined", code="path-and-hub", where="hub", try_this="leave out one of them")
    place, skipped = _Place(reference, config), list[SkippedRecord]()
    paths = place.files("queries")
    ids, asked_questions = QuestionIds(paths), list[_Asked]()
    for item in read_records(paths, _question, skip_bad=config.skip_bad, skipped=skipped):
        ids.add(item.id, item.record)
        asked_questions.append(item)
    counts: Counter[str] = Counter()
    judged = _judgments(place, asked_questions, counts)
    corpus = _corpus(place, skipped)
    questions = []
    for item in asked_questions:
        if item.id in judged:
            question = resolved(Question(item.id, item.text, ()), judged[item.id], corpus, counts)
            questions.append(_excluding(question, item.excluded, corpus, config.ignore_identical_ids, counts))
    if not questions:
        raise UserError(
            f"no question of {reference} is judged",
            code="no-judged-question",
            where=str(paths[0]),
            try_this="check that queries and qrels share their ids",
        )
    if counts["positives_absent"] and counts["positives_absent"] == sum(len(question.evidence) for question in questions):
        raise UserError(
            f"no judged document of {reference} is in the corpus",
            code="judged-documents-absent",
            where=str(paths[0].parent),
            try_this="check that corpus and qrels share their ids",
        )
    return Benchmark(reference, VERSION, CARD, questions, corpus, tuple(skipped), {**count_notes(counts, NOTES), "variant": place.name})


def _question(record: Record) -> _Asked:
    names = [next((name for name in known if record.fields.get(name) is not None), known[0]) for known in (_QUESTION_IDS, _QUESTION_TEXTS)]
    grades = None
    if "gold_ids" in record.fields:
        grades = dict.fromkeys(record.texts("gold_ids"), 1.0)
    excluded = tuple(name for name in record.texts("excluded_ids", ()) if name != "N/A")
    return _Asked(_identifier(record, names[0]), record.nonblank(names[1]), record, grades, excluded)


def _identifier(record: Record, name: str) -> str:
    value: Any = record.fields.get(name)
    return str(value) if type(value) is int else record.nonblank(name)


def _judgments(place: _Place, asked_questions: Sequence[_Asked], counts: Counter[str]) -> Mapping[str, Mapping[str, float]]:
    if any(item.grades is not None for item in asked_questions):
        return {item.id: item.grades for item in asked_questions if item.grades is not None}
    judged: dict[str, dict[str, float]] = {}
    for path in place.files("qrels"):
        table = read_table(path, "qrels")
        counts["comments_in_judgments"] += table.reading.comments
        for question, grades in table.values.items():
            judged.setdefault(question, {}).update(grades)
    known = {item.id for item in asked_questions}
    counts["questions_without_judgments"] = len(known - judged.keys())
    counts["judged_questions_without_text"] = len(judged.keys() - known)
    return judged


def _corpus(place: _Place, skipped: list[SkippedRecord]) -> Corpus:
    config = place.config
    if config.corpus is not None:
        return open_documents(Path(config.corpus).expanduser())
    corpus = kept_corpus(place.files("corpus"), BEIR, skip_bad=config.skip_bad)
    for listed in read_card(corpus.folder)["bad_listed"] if corpus.folder else ():
        where, _, reason = listed.partition(": ")
        skipped.append(SkippedRecord(where, reason))
    return corpus


def resolved(question: Question, judged: Mapping[str, float], corpus: Corpus, counts: Counter[str]) -> Question:
    """Attach judgments to a question, translating the documents' own ids to passage ids.

    Args:
        question: Question without judgments.
        judged: Grade by native document id.
        corpus: Corpus for looking up documents. A judged document that is missing from it stays in the gold, so it counts as
            not retrieved.
        counts: Counter to update (keys of `NOTES`).
    """
    grades: dict[str, float] = {}
    for native, grade in judged.items():
        known_id = corpus.by_native_id(native)
        counts["positives_absent"] += known_id is None and grade > 0
        grades[known_id or content_id("p", "not in the corpus", native)] = grade
    evidence = tuple(name for name, grade in grades.items() if grade > 0)
    counts["questions_without_positives"] += not evidence
    return replace(question, evidence=evidence, grades=grades)


def _excluding(question: Question, named: Sequence[str], corpus: Corpus, ignored: bool, counts: Counter[str]) -> Question:
    excluded = [known_id for native in named if (known_id := corpus.by_native_id(native))]
    counts["excluded_documents"] += len(excluded)
    if own := corpus.by_native_id(question.id):
        counts["identical_ids_ignored" if ignored else "questions_with_own_document"] += 1
        excluded += [own] if ignored else []
    return replace(question, excluded=tuple(excluded))
