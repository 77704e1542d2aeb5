"""Real questions over passages that a large language model rewrote informally, with its texts recorded in a file.

The corpus holds only passages that have a rewrite, so each candidate exists in both styles. `extra["pairs"]` holds them: the
dataset `styled` mixes them with `rewriter: own`, and SARK trains on them with `styles: {by: own}`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import Field

from benchmarks import registry
from benchmarks.core.errors import UserError
from benchmarks.corpus import Corpus
from benchmarks.datasets import QuestionIds, count_notes
from benchmarks.datasets.sark import CITATION
from benchmarks.records import Record, read_records
from benchmarks.registry import Benchmark, DataReference, DatasetCard, DatasetConfig, SkippedRecord, register
from benchmarks.schema import Passage, Question, passage_id
from benchmarks.sources import data_path, find_file
from benchmarks.styles.pairs import ANY, Rewriting, restyled
from benchmarks.text import tokens

VERSION = 1
STYLE, BY = "informal", "llm-recorded"
"""Style of the rewrites, and name of their writer in style pairs."""
STATED = "rewrites written by a large language model (recorded)"

SPLITS = {"musique": "train", "hotpotqa": "train", "2wikimultihopqa": "dev"}

CARD = DatasetCard(
    title="Recorded rewrites",
    task="reranking",
    description="Questions of MuSiQue, HotpotQA and 2WikiMultihopQA over the passages that a large language model rewrote in "
    "an informal style. The candidates of a question are its evidence and the passages that share most words "
    "with it.",
    hub_id=None,
    revision=None,
    license="that of the source dataset",
    citation=CITATION,
    languages=("en",),
    splits={"train": None, "dev": None},
    subset_splits={subset: {split: None} for subset, split in SPLITS.items()},
    metrics=("recall@5", "mrr@10"),
    cluster="evidence group",
    settings=("distractor", "corpus"),
    notes="A line of the file has `set`, `id`, `title`, `informal` and `gold`. The id of a MuSiQue passage is its line number in "
    "passages.jsonl of HippoRAG's files, from 0; other ids are QUESTION#POSITION, the position in the question's context, "
    "from 0. A line that does not match its source is an error.",
)

FOLDERS = ("recorded",)
FILES = {f"{subset}:{split}": ("styles.jsonl",) for subset, split in SPLITS.items()}

NOTES = {
    "passages_without_rewrite": "{n} passages of the source have no rewrite and are left out",
    "questions_without_rewrite": "{n} questions are left out: some of their evidence has no rewrite",
    "repeated_rewrites": "{n} passages are rewritten for several questions; the first text counts",
}


class RewrittenConfig(DatasetConfig):
    """Options of recorded rewrites."""

    source: str | None = Field(
        None,
        description="location of the questions: for musique, the folder with questions.jsonl and passages.jsonl (null: "
        "hipporag); for the others, `path` of the dataset of this name. Relative paths are also looked for in "
        "RAGMETER_DATA",
    )
    candidates: int = Field(
        20, ge=2, description="number of candidates per question: its evidence, then the nearest other passages by BM25"
    )


@dataclass(frozen=True)
class _Source:
    """Questions and passages of the source dataset.

    Attributes:
        locate: Function from a line to the passage that it rewrites, and whether it is evidence.
    """

    questions: Sequence[Question]
    passages: Sequence[Passage]
    locate: Callable[[Record], tuple[Passage, bool]]


@register("rewritten", card=CARD, version=VERSION, config=RewrittenConfig, subsets=tuple(SPLITS))
def load(reference: DataReference, config: RewrittenConfig) -> Benchmark:
    """Load recorded rewrites and the questions that they belong to.

    Raises:
        UserError: A file is missing, or a line names an unknown passage, has another title, or has no text.
    """
    path = find_file(reference, config, folders=FOLDERS, patterns=FILES)
    source = _hipporag(config) if reference.subset == "musique" else _contexts(reference, config)
    skipped: list[SkippedRecord] = []
    counts = Counter[str]()
    rewritings: dict[str, Rewriting] = {}
    for item in read_records(path, lambda record: _rewriting(record, reference, source), skip_bad=config.skip_bad, skipped=skipped):
        if item is not None:
            counts["repeated_rewrites"] += item.formal.id in rewritings
            rewritings.setdefault(item.formal.id, item)
    questions = [question for question in source.questions if question.evidence and all(item in rewritings for item in question.evidence)]
    if not questions:
        raise UserError(f"no question of {reference} has all of its evidence rewritten", code="no-rewritten-question", where=str(path))
    counts["questions_without_rewrite"] = len(source.questions) - len(questions)
    counts["passages_without_rewrite"] = len({passage.id for passage in source.passages} - rewritings.keys())
    passages = [item.formal for item in rewritings.values()]
    nearest = _Nearest(passages)
    questions = [replace(question, candidates=nearest.candidates(question, config.candidates)) for question in questions]
    extra = {**count_notes(counts, NOTES, STATED), "pairs": tuple(rewritings.values())}
    return Benchmark(reference, VERSION, CARD, questions, Corpus.of(passages), tuple(skipped), extra)


def _rewriting(record: Record, reference: DataReference, source: _Source) -> Rewriting | None:
    """Parse a line of rewrites; None if it belongs to another set."""
    named = record.text("set")
    if named not in SPLITS:
        raise record.problem(f"unknown set {named!r}", "set", f"one of {', '.join(SPLITS)}")
    if named != reference.subset:
        return None
    passage, evidence = source.locate(record)
    if record.text("title") != passage.title:
        raise record.problem(f"the title is {record.text('title')!r}, and that of the passage {passage.title!r}", "title")
    if record.field("gold", bool) != evidence:
        raise record.problem(f"gold is {str(not evidence).lower()}, but the source says {str(evidence).lower()}", "gold")
    return Rewriting(ANY, passage, STYLE, restyled(passage, record.nonblank("informal", None)), BY)


def _hipporag(config: RewrittenConfig) -> _Source:
    """Load HippoRAG's files, in which `supporting` and `id` are 0-based line numbers of passages."""
    folder = data_path(config.source or "hipporag")
    files = [folder / name for name in ("passages.jsonl", "questions.jsonl")]
    for file in files:
        _require_file(file)
    passages = list(read_records(files[0], _passage, skip_bad=False, skipped=[]))
    ids = QuestionIds([files[1]])

    def question(record: Record) -> Question:
        rows = record.field("supporting", list)
        evidence = tuple(dict.fromkeys(_at(record, row, passages, "supporting").id for row in rows))
        identifier, answer = record.text("id"), record.text("answer")
        ids.add(identifier, record)
        return Question(
            identifier,
            record.nonblank("question"),
            (answer,),
            {answer: record.texts("aliases", ())} if record.has("aliases") else {},
            evidence=evidence,
            type=f"{identifier[0]}hop",
        )

    questions = list(read_records(files[1], question, skip_bad=False, skipped=[]))
    gold = {item for question in questions for item in question.evidence}

    def locate(record: Record) -> tuple[Passage, bool]:
        passage = _at(record, record.field("id", int), passages, "id")
        return passage, passage.id in gold

    return _Source(questions, passages, locate)


def _contexts(reference: DataReference, config: RewrittenConfig) -> _Source:
    """Load the source dataset; the `id` of a rewrite is QUESTION#POSITION in its context, from 0."""
    options = {} if config.source is None else {"path": config.source}
    loaded = registry.load(f"{reference.subset}:{reference.split}", {"skip_bad": config.skip_bad, **options})
    questions = {question.id: question for question in loaded.questions}
    passages = list(loaded.corpus.get(loaded.corpus.ids))
    known: Mapping[str, Passage] = {passage.id: passage for passage in passages}

    def locate(record: Record) -> tuple[Passage, bool]:
        identifier, _, position = record.text("id").partition("#")
        question = questions.get(identifier)
        if question is None or not position.isdecimal():
            raise record.problem(f"{record.text('id')!r} names no question of {loaded.reference}", "id", "QUESTION#POSITION")
        candidates = [known[item] for item in question.candidates or ()]
        # A context may hold a passage twice, which is one candidate: then later positions are one too high.
        titled = [item for item in candidates if item.title == record.text("title")]
        at = int(position)
        passage = candidates[at] if at < len(candidates) else None
        if len(titled) == 1:
            (passage,) = titled
        if passage is None:
            raise record.problem(f"question {identifier} has no passage {position}", "id", f"less than {len(candidates)}")
        return passage, passage.id in question.evidence

    return _Source(loaded.questions, passages, locate)


def _require_file(path: Path) -> None:
    if not path.is_file():
        raise UserError(
            "file of the questions does not exist",
            code="missing-file",
            where=str(path),
            try_this="set source to the folder with questions.jsonl and passages.jsonl",
        )


def _passage(record: Record) -> Passage:
    title, text = record.text("title"), record.nonblank("text", None)
    return Passage(passage_id(title, text), title, text)


def _at(record: Record, row: object, passages: Sequence[Passage], field: str) -> Passage:
    number = record.expect(row, field, int)
    if not 0 <= number < len(passages):
        raise record.problem(f"there is no line {number} among {len(passages)} passages", field, f"from 0 to {len(passages) - 1}")
    return passages[number]


class _Nearest:
    """BM25 ranking of passages for questions."""

    K1, B = 1.2, 0.75

    def __init__(self, passages: Sequence[Passage]) -> None:
        self._ids = [passage.id for passage in passages]
        self._words = [Counter(tokens(passage.full_text)) for passage in passages]
        self._lengths = [words.total() for words in self._words]
        self._mean = sum(self._lengths) / len(self._lengths)
        self._holding = Counter(word for words in self._words for word in words)

    def candidates(self, question: Question, size: int) -> tuple[str, ...]:
        """Return the evidence and the best other passages, best first."""
        query_words = sorted(set(tokens(question.text)))
        scores = {name: self._score(query_words, place) for place, name in enumerate(self._ids)}
        others = sorted((name for name in self._ids if name not in question.evidence), key=lambda name: -scores[name])
        chosen = (*question.evidence, *others[: max(0, size - len(question.evidence))])
        return tuple(sorted(chosen, key=lambda name: (-scores[name], name)))

    def _score(self, query_words: Sequence[str], place: int) -> float:
        words, length = self._words[place], self._lengths[place]
        norm = self.K1 * (1 - self.B + self.B * length / self._mean)
        return sum(self._weight(word) * words[word] * (self.K1 + 1) / (words[word] + norm) for word in query_words if word in words)

    def _weight(self, word: str) -> float:
        frequency = self._holding[word]
        return math.log(1 + (len(self._ids) - frequency + 0.5) / (frequency + 0.5))
