"""UltraDomain: questions over textbooks and papers of twenty domains, many of them about one long document.

Source: Qian et al., 2024 (MemoRAG), https://huggingface.co/datasets/TommyChien/UltraDomain; LightRAG's layout of the same data
(queries and unique contexts) is also supported.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import content_id
from benchmarks.datasets import count_notes
from benchmarks.datasets.long_document import NOTES, LongDocumentConfig, LongDocumentRow, Shelf, assemble, gold
from benchmarks.datasets.longbench import reading
from benchmarks.io.records import stream_json
from benchmarks.records import Record, read_records, refuse_other_dataset
from benchmarks.registry import Benchmark, DataReference, DatasetCard, SkippedRecord, register
from benchmarks.schema import Question
from benchmarks.sources import find_files

VERSION = 1

SIZES = {
    "mix": 130,
    "agriculture": 100,
    "art": 200,
    "biography": 180,
    "biology": 220,
    "cooking": 120,
    "cs": 100,
    "fiction": 220,
    "fin": 345,
    "health": 180,
    "history": 180,
    "legal": 438,
    "literature": 180,
    "mathematics": 160,
    "music": 200,
    "philosophy": 200,
    "physics": 160,
    "politics": 180,
    "psychology": 200,
    "technology": 240,
}
"""Number of records per domain at the pinned revision, as counted by others."""
TRAINING = ("fin", "legal")
"""Domains whose first `TRAINED` records ARK trains on; all other domains are for testing."""
TRAINED = 200
SPLITS: Mapping[str, Mapping[str, int | None]] = {
    name: {"all": size} | ({"train": TRAINED} if name in TRAINING else {"test": size}) for name, size in SIZES.items()
}
LONGEST_ANSWER = 512
"""Maximum answer length in tokens. The authors give neither length nor prompt; ARK's code uses qasper's prompt and this length."""
_QUERIES = "-queries"
QUERIES = tuple(f"{domain}{_QUERIES}" for domain in ("mix", "agriculture", "cs", "legal"))
"""Subsets in LightRAG's layout: queries without gold answers over all contexts of the domain."""

CARD = DatasetCard(
    title="UltraDomain",
    task="long-document QA",
    description="Questions over long documents of twenty domains, most of them textbooks of several hundred thousand "
    "tokens; many questions share a document.",
    hub_id="TommyChien/UltraDomain",
    revision="aa8a51d523f8fc3c5a0ab90dd16b7f6b9dbb5d0d",
    license="not stated on the dataset's card by some accounts, Apache-2.0 by others",
    citation="@article{qian2024memorag, title={MemoRAG: Moving towards Next-Gen RAG Via Memory-Inspired Knowledge "
    "Discovery}, author={Qian, Hongjin and Zhang, Peitian and Liu, Zheng and Mao, Kelong and Dou, Zhicheng}, "
    "journal={arXiv preprint arXiv:2409.05591}, year={2024}}",
    languages=("en",),
    splits={"all": None, "train": TRAINED, "test": None},
    subset_splits={**SPLITS, **{subset: {"all": None} for subset in QUERIES}},
    # A language model wrote LightRAG's queries; they are not the dataset's questions.
    same_questions={
        f"{name}:all": tuple(f"ultradomain/{name}:{split}" for split in splits if split != "all") for name, splits in SPLITS.items()
    },
    metrics=("f1(rules=longbench)",),
    cluster="document",
    settings=("document", "corpus", "closed_book"),
    subset_settings=dict.fromkeys(QUERIES, ("corpus", "closed_book")),
    notes="The authors have no splits; `all` is a domain's whole file. train and test are ARK's: "
    f"the first {TRAINED} records of fin and of legal for training, and the whole file of every other domain for testing; ARK "
    "tests biology, fiction, music, technology and philosophy on the first 100 (limit: 100). "
    "Pairwise win rates, the other official measure, need a judge. A document is identified by its text; its passages have 512 words (ARK "
    "overlaps them by 12: chunk_overlap). extra['reading'] contains ARK's reading instructions for all domains: those of "
    "LongBench's qasper. Domains with the suffix -queries have LightRAG's layout: DOMAIN_query.jsonl and "
    "DOMAIN_unique_contexts.json, without gold, so they are compared only by a judge.",
)

FOLDERS = ("ultradomain",)
HUB = {f"{domain}:{split}": (f"{domain}.jsonl",) for domain, splits in SPLITS.items() for split in splits}
FILES = HUB | {f"{subset}:all": (f"{subset.removesuffix(_QUERIES)}_query.jsonl",) for subset in QUERIES}


@register("ultradomain", card=CARD, version=VERSION, config=LongDocumentConfig, subsets=(*SIZES, *QUERIES), default_split="all")
def load(reference: DataReference, config: LongDocumentConfig) -> Benchmark:
    """Load a domain from the authors' file, or LightRAG's queries over its contexts.

    Doubly JSON-encoded string fields are decoded. `metadata` keeps `context_id`, `length`, `dataset`, `label`, `title` and
    `authors`, where the record has them; records without `_id` get one from question and context.

    Raises:
        UserError: The file is missing, or belongs to another dataset or split.
    """
    subset = reference.subset or "mix"
    paths = find_files(reference, config, card=CARD, folders=FOLDERS, patterns=FILES, hub=HUB)
    if subset in QUERIES:
        return _queries(reference, config, paths[0])
    first = TRAINED if reference.split == "train" else None
    extra = {"reading": {**reading("qasper", None), "max_new_tokens": LONGEST_ANSWER}}
    return assemble(reference, VERSION, CARD, config, paths, lambda record: _parse(record, subset), first=first, extra=extra)


def _parse(supplied: Record, domain: str) -> LongDocumentRow:
    refuse_other_dataset(supplied, "ultradomain")
    record = Record({name: _decoded(value) for name, value in supplied.fields.items()}, supplied.path, supplied.position)
    _require_domain(record, domain)
    text, context = record.nonblank("input"), record.nonblank("context", None)
    answers, counts = gold(record)
    identifier = record.text("_id", "") or content_id("u", text, context)
    question = Question(id=identifier, text=text, answers=answers, metadata=_metadata(record))
    return LongDocumentRow(question, context, record, counts)


def _require_domain(record: Record, domain: str) -> None:
    """Raise an error (even with `skip_bad`) if a record belongs to another domain."""
    label = record.fields.get("label")
    # mix is made of other sets and labels its records by them.
    if domain != "mix" and label != domain and label in SIZES:
        raise UserError(
            f"this record belongs to {label}, not to {domain}",
            code="record-of-other-subset",
            where=f"{record.where}, field label",
            try_this=f"ask for ultradomain/{label}",
        )


def _decoded(value: Any) -> Any:
    """Decode doubly JSON-encoded strings, also in lists."""
    if isinstance(value, list):
        return [_decoded(item) for item in value]
    if not (isinstance(value, str) and len(value) > 1 and value[0] == value[-1] == '"'):
        return value
    try:
        inner = json.loads(value, strict=False)
    except ValueError:  # a text that begins and ends with quotation marks of its own
        return value
    return inner if isinstance(inner, str) else value


def _metadata(record: Record) -> Mapping[str, Any]:
    about = record.fields.get("meta")
    if isinstance(about, str) and about.lstrip().startswith("{"):
        try:
            about = json.loads(about)
        except ValueError as error:
            raise record.problem(f"field 'meta' is not JSON: {error}", "meta", dict) from error
    about = record.expect(about, "meta", dict) if about else {}
    known = {name: record.fields.get(name) for name in ("context_id", "length", "dataset", "label")}
    known |= {name: about.get(name) for name in ("title", "authors")}
    return {name: value for name, value in known.items() if value not in (None, "", [], {})}


def _queries(reference: DataReference, config: LongDocumentConfig, path: Path) -> Benchmark:
    """Load LightRAG's queries; the contexts are an array of strings in a file next to them."""
    contexts = path.with_name(path.name.replace("_query.jsonl", "_unique_contexts.json"))
    if contexts == path or not contexts.is_file():
        raise UserError(
            "the file with the contexts of these queries does not exist",
            code="missing-contexts",
            where=str(contexts),
            try_this="put DOMAIN_unique_contexts.json next to DOMAIN_query.jsonl",
        )
    skipped: list[SkippedRecord] = []
    records = read_records(path, _query, skip_bad=config.skip_bad, skipped=skipped)
    questions = list(records)
    shelf = Shelf(config.cut)
    for item in stream_json(contexts):
        if item.problem is not None or not isinstance(item.value, str):
            raise UserError(item.problem or "a context must be a string", code="bad-record", where=f"{contexts}, {item.position}")
        shelf.add(item.value)
    return Benchmark(
        reference, VERSION, CARD, questions, shelf.corpus(), tuple(skipped), count_notes({"questions_without_gold": len(questions)}, NOTES)
    )


def _query(record: Record) -> Question:
    refuse_other_dataset(record, "ultradomain")
    text = record.nonblank("query")
    return Question(id=content_id("u", text), text=text, answers=())
