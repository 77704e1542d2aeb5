"""Load users' own data without code: questions from a file, a saved dataset or the hub; documents from a folder or a file.

| part | from |
| --- | --- |
| questions | JSON Lines, JSON (also nested as SQuAD), CSV, TSV, Parquet; a folder of `datasets.save_to_disk`; a repository of the hub |
| documents | passages within the question records; a folder of .txt, .md, .html, .pdf, .docx; a file of documents; a built
corpus |
| gold | ids of passages, ids or names of documents, spans of a document, quotations |

Fields are mapped by the option `fields` or guessed from their names. The mapping is part of the benchmark's fingerprint.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationInfo, field_validator

from benchmarks.core.errors import UserError, counted
from benchmarks.core.fingerprint import content_id
from benchmarks.corpus import Corpus
from benchmarks.datasets import QuestionIds, count_notes, fold_of, parse_fold
from benchmarks.io import hub
from benchmarks.own.choices import check_choices
from benchmarks.own.chunks import Chunker, Kind
from benchmarks.own.documents import DOCUMENTS, Document, converter_version, read_folder
from benchmarks.own.fields import ROW, Fields, document_fields, question_fields
from benchmarks.own.library import Library, Span
from benchmarks.own.questions import GoldSpan, ParsedQuestion, Reader
from benchmarks.own.records import Source, hub_patterns, open_source
from benchmarks.records import BadRecord, Record, looks_like, read_records
from benchmarks.registry import CAVEATS, IDENTITY, MAPPING, Benchmark, DataReference, DatasetCard, DatasetConfig, SkippedRecord, register
from benchmarks.schema import SPANS, PassageIds, Question
from benchmarks.sources import data_path, only_asked, own_path

VERSION = 5

CARD = DatasetCard(
    title="Files of your own",
    task="question answering",
    description="Questions from a table, JSON, Parquet, a dataset on disk or a repository of the hub, with a mapping of fields; documents "
    "from a folder, a file, or the questions themselves.",
    hub_id=None,
    revision=None,
    license="of the files",
    citation="none",
    languages=(),
    splits={"train": None, "dev": None, "test": None},
    metrics=("em", "f1", "cover_em"),
    settings=("corpus", "distractor", "oracle", "gold_only", "closed_book"),
    notes="The default metrics depend on the fields of the files: em, f1 and cover_em with answers, recall with gold evidence, "
    "span_recall with spans. `path` names the file of the split; in a folder or repository with several splits, the split's "
    "name selects the file.",
)

NOTES = {
    "questions_without_answers": "{n} questions have no answer and cannot be scored by their answer",
    "blank_answers": "{n} blank answers were dropped in favor of other answers",
    "numeric_answers": "{n} answers are numbers: 1.0 may also be answered as 1",
    "questions_without_gold": "{n} questions name no gold evidence: retrieval metrics leave them out",
    "documents_repeated": "{n} documents are there twice, with the same id and text",
    "questions_of_other_folds": "{n} questions are not of this fold",
    "questions_sharing_evidence": "{n} questions share gold evidence with the part that is left out, and are left out too",
    "questions_with_generated_ids": "{n} questions have no id: it was made from their text",
}
"""Note per count in `Benchmark.extra["counts"]`, shown in `Benchmark.extra["notes"]`."""
_EXAMPLES = 3


class FilesConfig(DatasetConfig):
    """Options of the dataset `files`."""

    path: str | None = Field(None, description="the questions: a file, or a folder of datasets.save_to_disk")
    hub: str | None = Field(None, description="a repository of the hub instead of path: owner/name")
    config: str | None = Field(None, description="the repository's configuration (subset)")
    split: str | None = Field(None, description="the repository's or folder's split, if it is called differently")
    fields: dict[str, str | tuple[str, ...] | None] = Field(
        default_factory=dict, description="fields of each part of a question: {question: query, answers: [gold, aliases]}"
    )
    separator: str | None = Field(None, min_length=1, description="separator of several answers or documents in one cell")
    delimiter: str | None = Field(None, min_length=1, max_length=1, description="separator of columns (default: by content)")
    documents: str | None = Field(None, description="documents to search: a folder of documents, a file of them, or a built corpus")
    document_fields: dict[str, str | tuple[str, ...] | None] = Field(
        default_factory=dict, description="fields of a document's text, id and title in a file"
    )
    chunker: Kind = Field("words", description="how to cut documents: words, tokens, headings or whole")
    chunk_size: int = Field(256, ge=1, description="maximum words (or tokens) per passage")
    chunk_overlap: int = Field(0, ge=0, description="number of words (or tokens) that a passage repeats from the previous one")
    tokenizer: str | None = Field(None, description="tokenizer of chunker: tokens; a tokenizer.json, or its folder")
    fold: str | None = Field(
        None,
        description="K/N: read only the questions of part K of N, counted from 1; -K/N: read the questions of the other parts, "
        "except those that share gold evidence with a question of part K. The part follows from the question's text",
    )
    name: str | None = Field(None, pattern=r"[\w.-]+", description="name in tables (default: from its files)")

    @field_validator("chunk_overlap")
    @classmethod
    def _shorter(cls, overlap: int, info: ValidationInfo) -> int:
        if overlap >= info.data.get("chunk_size", overlap + 1):
            raise ValueError("must be less than chunk_size")
        return overlap

    @field_validator("fold")
    @classmethod
    def _is_a_part(cls, fold: str | None) -> str | None:
        if fold is not None:
            parse_fold(fold)
        return fold

    @property
    def cutting(self) -> Chunker:
        """Return the chunker that the options describe."""
        return Chunker(self.chunker, self.chunk_size, self.chunk_overlap, self.tokenizer)


@dataclass
class _Loading:
    """State of one load: options and counts."""

    reference: DataReference
    config: FilesConfig
    library: Library
    counts: Counter[str] = field(default_factory=Counter)
    skipped: list[SkippedRecord] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    identity: list[Any] = field(default_factory=list)
    mapping: str = ""
    built: Corpus | None = None
    unmatched: list[str] = field(default_factory=list)
    matched: int = 0
    of_documents: int = 0

    def refuse(self, error: BadRecord) -> None:
        """Count a bad record, or raise its error."""
        if not self.config.skip_bad:
            raise error
        self.skipped.append(SkippedRecord(error.where or "", error.what))


@register("files", card=CARD, version=VERSION, config=FilesConfig, default_split="test")
def load(reference: DataReference, config: FilesConfig) -> Benchmark:
    """Load questions and documents.

    Raises:
        UserError: A file cannot be read, a field cannot be guessed, or no gold evidence matches a document.
    """
    only_asked(reference)
    if config.hub is not None and config.path is not None:
        raise UserError("path and hub cannot be combined", code="path-and-hub", where="hub", try_this="leave out one of them")
    loading = _Loading(reference, config, Library(config.cutting))
    source = _questions_at(reference, config)
    where = ", ".join(map(str, source.paths))
    first = source.first()
    fields = question_fields(first, config.fields, where) if first else Fields({"question": ("question",)}, frozenset(), ())
    if config.documents is not None:
        _add_documents(loading, data_path(config.documents))
    else:
        _add_passages(loading, source)
    fields = _usable(fields, loading, where)
    loading.mapping = "; ".join((*source.layout, fields.in_words()))
    loading.notes.insert(0, loading.mapping)
    loading.identity[:0] = [fields.paths, config.separator]
    bare = not len(loading.library) and loading.built is None and "documents" not in fields and "quotes" in fields
    reader, ids, rows = Reader(fields, config.separator), QuestionIds(source.paths), list[tuple[ParsedQuestion, tuple[str, ...]]]()

    def parse(record: Record) -> tuple[ParsedQuestion, tuple[str, ...]]:
        item = reader.read(record)
        if bare:
            # Gold texts without documents are the passages that are searched.
            texts = [span.text for span in item.spans if span.text]
            for text in texts:
                loading.library.add_passage("", text, text, record.where)
            item = replace(item, spans=(), evidence=tuple(texts))
        return item, tuple(loading.library.add_passage(*passage, record.where) for passage in item.passages)

    try:
        for item, own in read_records(source.paths, parse, skip_bad=config.skip_bad, skipped=loading.skipped, read=source.read):
            item = item if item.identifier is not None else replace(item, identifier=_made(item.text, ids))
            loading.counts["questions_with_generated_ids"] += "id" not in fields
            ids.add(item.identifier or "", item.record)
            rows.append((item, own))
    except UserError as error:
        if looks := next(filter(None, map(looks_like, first)), None):
            error.also_try(f"its fields are those of {looks}: name that dataset, with this path")
        raise
    questions, kept = list[Question](), list[ParsedQuestion]()
    for item, own in rows:
        try:
            questions.append(_question(item, own, loading))
            kept.append(item)
        except BadRecord as error:
            loading.refuse(error)
    _check_gold(loading, where, "evidence" in fields.guessed, "quotes" in fields)
    if note := check_choices(fields, kept, where):
        loading.notes.append(note)
    if config.fold is not None:
        questions, kept = _of_fold(questions, kept, loading)
    if "answers" in fields and not any(question.answers or question.evidence for question in questions):
        raise UserError(
            f"no question has an answer: {' + '.join(fields.paths['answers'])} is empty in all records",
            code="no-answers",
            where=where,
            try_this="name the field (fields: {answers: NAME}), or state that there are none: fields: {answers: null}",
        )
    return _benchmark(loading, questions, kept)


def _of_fold(
    questions: Sequence[Question], kept: Sequence[ParsedQuestion], loading: _Loading
) -> tuple[list[Question], list[ParsedQuestion]]:
    """Return the questions of a fold, or (for a negated fold) those that share no gold evidence with it.

    Raises:
        UserError: No question is left.
    """
    named = loading.config.fold or ""
    part, parts, outside = parse_fold(named)
    inside = {question.id for question in questions if fold_of(question.text, parts) == part}
    evidence = {name for question in questions if question.id in inside for name in question.evidence}
    rest = [question.id for question in questions if question.id not in inside]
    alone = {question.id for question in questions if question.id not in inside and evidence.isdisjoint(question.evidence)}
    chosen = alone if outside else inside
    if not chosen:
        raise UserError(
            "the fold has no questions", code="empty-fold", where=f"fold: {named}", try_this="use fewer parts, or more questions"
        )
    loading.counts["questions_of_other_folds"] = len(inside) if outside else len(rest)
    loading.counts["questions_sharing_evidence"] = len(rest) - len(alone) if outside else 0
    pairs = [(question, item) for question, item in zip(questions, kept, strict=True) if question.id in chosen]
    return [question for question, _ in pairs], [item for _, item in pairs]


def _made(text: str, ids: QuestionIds) -> str:
    identifier, number = content_id("q", text), 1
    while identifier in ids:
        number += 1
        identifier = f"{content_id('q', text)}-{number}"
    return identifier


def _questions_at(reference: DataReference, config: FilesConfig) -> Source:
    split = config.split or reference.split or "test"
    if config.hub is None:
        return open_source(own_path(reference, config), split, delimiter=config.delimiter)
    paths = hub.fetch(config.hub, hub_patterns(config.config, split), config.revision).paths
    return open_source(paths[0], split, delimiter=config.delimiter) if len(paths) == 1 else Source(paths, config.delimiter)


def _usable(fields: Fields, loading: _Loading, where: str) -> Fields:
    """Drop guessed fields for gold evidence if there are no documents.

    Raises:
        UserError: Gold evidence is mapped explicitly, but there are no documents.
    """
    if loading.library.ids() or loading.built is not None or "documents" in fields:
        return fields
    named = [role for role in ("evidence", "spans", "start") if role in fields and role not in fields.guessed]
    if named:
        raise UserError(
            f"{named[0]} names documents, but there are none",
            code="no-documents",
            where=where,
            try_this="documents: FOLDER, or fields: {documents: NAME} if the questions bring them",
        )
    left = {role: paths for role, paths in fields.paths.items() if role not in ("evidence", "spans", "start", "end")}
    gone = [path for role, paths in fields.paths.items() if role not in left for path in paths]
    return Fields(left, fields.guessed & left.keys(), (*fields.ignored, *gone))


def read_documents(path: Path, config: FilesConfig) -> tuple[Library, list[str], list[SkippedRecord]]:
    """Load the documents of a folder or file, cut into passages; returns them with notes for users and the skipped records.

    Raises:
        UserError: A document cannot be read.
    """
    loading = _Loading(DataReference("files"), config, Library(config.cutting))
    _add_documents(loading, path)
    if loading.built is not None:
        raise UserError(
            "this is a built corpus, which has passages and no documents",
            code="built-corpus",
            where=str(path),
            try_this="name the folder or the file that it was built from",
        )
    return loading.library, loading.notes, loading.skipped


def _add_documents(loading: _Loading, path: Path) -> None:
    from benchmarks.corpus import CARD as BUILT

    if not path.exists():
        raise UserError(
            "there is no such file or folder",
            code="missing-file",
            where=f"documents: {path}",
            try_this=f"correct the option documents (a relative path starts at {Path.cwd()})",
        )
    if (path / BUILT).exists():
        loading.built = Corpus.open(path)
        return
    loading.identity.append(loading.library.chunker.identity)
    if path.is_dir() or path.suffix.lower() in DOCUMENTS:
        _add_folder(loading, path)
    else:
        _add_file(loading, path)
    if not len(loading.library):
        first = f": {loading.skipped[0].reason} ({loading.skipped[0].where})" if loading.skipped else ""
        raise UserError(f"no document can be read{first}", code="no-documents", where=str(path))
    loading.counts["documents_repeated"] = loading.library.repeated
    loading.notes.append(f"{counted(len(loading.library), 'document')} cut by {loading.library.chunker.identity}")


def _add_passages(loading: _Loading, source: Source) -> None:
    """Add the passages that a file with questions and gold by id brings, uncut."""
    for record in source.passages():
        try:
            loading.library.add_passage("", record.nonblank("text", None), record.text("id"), record.where)
        except BadRecord as error:
            loading.refuse(error)


def _add_folder(loading: _Loading, folder: Path) -> None:
    ignored: Counter[str] = Counter()
    notices: dict[str, list[str]] = {}
    converted = 0
    for item in read_folder(folder, ignored):
        if isinstance(item, Document):
            loading.library.add(item.name, item.title, item.text, str(folder / item.name))
            if item.notice:
                notices.setdefault(item.notice, []).append(item.name)
            converted += item.converted
        else:
            loading.refuse(item)
    loading.notes += [f"{', '.join(names[:_EXAMPLES])}{' …' * (len(names) > _EXAMPLES)}: {notice}" for notice, names in notices.items()]
    if converted:
        loading.notes.append(f"{counted(converted, 'document')} converted by {converter_version()}")
    if ignored:
        kinds = ", ".join(f"{number} {ending}" for ending, number in ignored.most_common(5))
        loading.notes.append(f"files of other kinds were ignored: {kinds}")


def _add_file(loading: _Loading, path: Path) -> None:
    source = open_source(path, "train")
    fields = document_fields(source.first(), loading.config.document_fields, str(path))
    loading.notes.append(f"documents of {path.name}: {fields.in_words()}")
    loading.identity.append(fields.paths)

    numbered, rows = fields.paths.get("id") == (ROW,), count()

    def parse(record: Record) -> None:
        row = next(rows)

        def one(role: str) -> str:
            listed = fields.of(record.fields, role) if role in fields else []
            if role == "text":  # of several paragraphs
                listed = [part for value in listed for part in (value if isinstance(value, list) else [value]) if part is not None]
            if wrong := next((value for value in listed if isinstance(value, list | dict)), None):
                record.expect(wrong, fields.paths[role][0], str)
            return "\n\n".join(map(str, listed if role == "text" else listed[:1]))

        for role in ("text", "id"):
            record.require(*(path for path in fields.paths.get(role, ()) if path != ROW and not path.endswith("?") and "[" not in path))
        title, text = one("title"), one("text")
        if not text.strip():
            raise record.problem("the document holds no text", fields.paths["text"][0])
        name = str(row) if numbered else re.sub(r"^(-?\d+)\.0$", r"\1", one("id")) or title or record.position
        loading.library.add(name, title, text, record.where)

    # A row that is left out would shift the numbers of those behind it.
    skip_bad = loading.config.skip_bad and not numbered
    for _ in read_records(source.paths, parse, skip_bad=skip_bad, skipped=loading.skipped, read=source.read):
        pass


def _question(item: ParsedQuestion, own: Sequence[str], loading: _Loading) -> Question:
    loading.counts.update(item.counts)
    spans = list(_spans(item, loading)) if item.spans else []
    evidence = [own[place] for place in item.supporting]
    if spans:
        evidence += [name for span in spans for name in span.evidence]
    elif not item.spans:
        evidence += [name for value in item.evidence for name in _named(value, own, item, loading)]
    loading.counts["questions_without_gold"] += not evidence and item.answerable
    return Question(
        item.identifier or "",
        item.text,
        item.answers,
        aliases=item.aliases,
        evidence=tuple(dict.fromkeys(evidence)),
        type=item.type,
        answerable=item.answerable,
        turns=item.turns,
        candidates=PassageIds(dict.fromkeys(own)) if own else None,
        metadata={**item.metadata, **({SPANS: [(span.length, dict(span.parts)) for span in spans]} if spans else {})},
    )


def _absent(name: str, loading: _Loading) -> str:
    """Return a placeholder id for gold evidence that matches nothing; it counts as not retrieved."""
    loading.unmatched.append(name)
    return content_id("p", "not in the corpus", name)


def _named(value: str | int, own: Sequence[str], item: ParsedQuestion, loading: _Loading) -> tuple[str, ...]:
    if isinstance(value, int):
        loading.matched += 1
        return (own[value],)
    titles = [passage for passage, (title, text, _) in zip(own, item.passages, strict=True) if value in (title, text)]
    try:
        matches = tuple(titles) or loading.library.named(value)
    except UserError as error:
        raise item.record.problem(error.what, "evidence", "the document's path in the folder") from None
    if not matches and loading.built is not None and (passage := loading.built.by_native_id(value)) is not None:
        matches = (passage,)
    if not matches:
        return (_absent(value, loading),)
    loading.matched += 1
    loading.of_documents += len(matches) > 1 and not titles
    return matches


def _spans(item: ParsedQuestion, loading: _Loading) -> Iterator[Span]:
    library = loading.library
    names = [name for name in item.evidence if isinstance(name, str)]
    for gold in item.spans:
        span = _found(gold, names, item, library)
        loading.matched += span is not None
        yield span or Span(len(gold.text or "") or 1, {_absent(gold.text or gold.document or "", loading): (0, 0)})


def _found(span: GoldSpan, names: Sequence[str], item: ParsedQuestion, library: Library) -> Span | None:
    try:
        named = [library.document(name) for name in ([span.document] if span.document else names)]
    except UserError as error:
        raise item.record.problem(error.what, "evidence", "the document's path in the folder") from None
    among = [document for document in named if document is not None]
    if (span.document or names) and not among:
        return None
    if span.start is not None and span.end is not None and among:
        part = among[0].text[span.start : span.end]
        if span.end <= len(among[0].text) and span.text in (None, part):
            return library.span(among[0], span.start, span.end)
        if span.text is None:
            what = f"the span ends at character {span.end}, and {among[0].name} has {len(among[0].text)}"
            raise item.record.problem(what, "end", "a place within the document")
    return library.quoted(span.text or "", among or None)


def _check_gold(loading: _Loading, where: str, guessed: bool, quoted: bool) -> None:
    """Raise an error if no gold evidence matches a document.

    Raises:
        UserError: Gold evidence is given, but none matches.
    """
    if loading.unmatched and not loading.matched:
        known = loading.library.ids()[:_EXAMPLES]
        first = loading.unmatched[0]
        parts = ([part.strip() for part in first.split(sign)] for sign in ";,|\n" if sign in first)
        if listed := next((names for names in parts if _are_names(names, loading.library)), None):
            remedy = f"write several names as a list: {json.dumps(listed, ensure_ascii=False)}"
        elif quoted:
            remedy = "a quote is a continuous text of a document; give several as a list"
        elif guessed:
            remedy = "name the field, or turn the guess off: fields: {evidence: null}"
        else:
            remedy = "correct the field of evidence"
        raise UserError(
            f"no gold evidence matches a document: {_some(loading.unmatched)}",
            code="gold-matches-nothing",
            where=where,
            try_this=(f"documents are called {_some(known)}; " if known else "") + remedy,
        )


def _are_names(names: Iterable[str], library: Library) -> bool:
    try:
        return all(map(library.named, names))
    except UserError:
        return False


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name if len(name) <= 60 else f"{name[:59]}…") for name in list(names)[:_EXAMPLES])
    return shown + " …" * (len(names) > _EXAMPLES)


def _benchmark(loading: _Loading, questions: Sequence[Question], rows: Sequence[ParsedQuestion]) -> Benchmark:
    corpus = loading.library.corpus() if loading.built is None else loading.built
    caveats: list[str] = []
    if loading.counts["questions_without_gold"] == len(questions):
        del loading.counts["questions_without_gold"]
    makers = Counter(item.synthetic for item in rows if item.synthetic)
    if makers:
        number, who = sum(makers.values()), ", ".join(makers)
        caveats.append(f"synthetic questions: {number:,} of {len(rows):,} were written by {who}")
    by_rule = bool(rows) and all(item.synthetic.startswith("rule: ") for item in rows)
    if number := len(loading.unmatched):
        gold = loading.matched + number
        which = f"match no document, such as {loading.unmatched[0][:60]!r}: no method can find them"
        caveats.append(f"{number:,} of {gold:,} pieces of gold evidence ({number / gold:.0%}) {which}")
    if number := loading.library.unclear:
        caveats.append(f"{number:,} gold quotations stand in several places, and only the first is gold: name documents, or quote more")
    if number := loading.counts.pop("undivided_answers", 0):
        caveats.append(
            f"{number:,} answers contain '|' and count as one answer each; if it stands between several answers, set separator: '|'"
        )
    if number := loading.counts.pop("placeholder_answers", 0):
        caveats.append(f"{number:,} answers are a word for a missing value, such as nan; if there is no answer, leave the field empty")
    if number := loading.counts.pop("midnights", 0):
        caveats.append(f"{number:,} answers are dates at 00:00:00, as data frames write those of a spreadsheet; write them as people would")
    if (number := loading.counts.pop("truth_values", 0)) and number == sum(len(question.answers) for question in questions):
        caveats.append(f"all {number:,} answers are True or False; if the questions want yes or no, write these words")
    if loading.of_documents:
        caveats.append(
            "gold evidence names whole documents: ranking metrics count documents by default (level=documents), without it their passages"
        )
    extra: dict[str, Any] = {
        **count_notes(loading.counts, NOTES, *filter(None, loading.notes), *caveats),
        "variant": _variant(loading),
        MAPPING: loading.mapping,
        IDENTITY: json.dumps([*loading.identity, len(loading.skipped)], sort_keys=True),
        CAVEATS: tuple(caveats),
    }
    return Benchmark(
        loading.reference, VERSION, _card(questions, corpus, loading, by_rule), questions, corpus, tuple(loading.skipped), extra
    )


def _card(questions: Sequence[Question], corpus: Corpus, loading: _Loading, by_rule: bool) -> DatasetCard:
    """Return the dataset card with the metrics and settings that the data allows."""
    metrics = ["em", "f1", "cover_em"] if any(question.answers for question in questions) else []
    if any(SPANS in question.metadata for question in questions):
        metrics.append("span_recall@5")
    if any(question.evidence for question in questions):
        ranked = ("recall@5", "recall@20", "mrr@10", "ndcg@10")
        metrics += [f"{name}(level=documents)" for name in ranked] if loading.of_documents else ranked
    if by_rule:  # half of such questions have no answer, and the others one word of a gap: what is retrieved tells more
        metrics.sort(key=lambda name: name in ("em", "f1", "cover_em"))
    own = any(question.candidates is not None for question in questions)
    gold = any(question.evidence for question in questions)
    allowed: Mapping[str, bool] = {"distractor": own, "corpus": len(corpus) > 0, "oracle": gold and own, "gold_only": gold}
    settings = tuple(name for name in CARD.settings if allowed.get(name, True))
    return CARD.model_copy(update={"metrics": tuple(metrics or ("f1",)), "settings": settings})


def _variant(loading: _Loading) -> str:
    config = loading.config
    if config.fold is not None:
        return f"{_variant(replace(loading, config=config.model_copy(update={'fold': None})))},fold={config.fold}"
    if config.name is not None:
        return config.name
    base = Path(config.path).name if config.path else str(config.hub) + (f".{config.config}" if config.config else "")
    cut = len(loading.library) and {"chunker", "chunk_size", "chunk_overlap", "tokenizer"} & config.model_fields_set
    return re.sub(r"[^\w.-]+", "-", base + (f"-{loading.library.chunker.identity}" if cut else "")).strip("-")
