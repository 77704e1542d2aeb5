"""2WikiMultihopQA: HotpotQA's format, with reasoning triples from Wikidata as further gold.

Source: Ho et al., 2020, https://github.com/Alab-NII/2wikimultihop; file formats as released by the authors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from benchmarks.datasets.multihop import MultiHopConfig, Parsed, assemble, sentence_record
from benchmarks.io.files import sibling, size_of
from benchmarks.records import Record, read_records, refuse_other_dataset
from benchmarks.registry import Benchmark, DataReference, DatasetCard, register
from benchmarks.schema import Triple
from benchmarks.sources import find_files

VERSION = 2

CARD = DatasetCard(
    title="2WikiMultihopQA",
    task="multi-hop QA",
    description="Questions over two to four Wikipedia paragraphs (compositional, inference, comparison, bridge "
    "comparison), with supporting sentences and the Wikidata triples that lead to the answer.",
    hub_id="xanhho/2WikiMultihopQA",
    revision="612bc5039a457880d9e7d84c3b0a4cf154b70e4f",
    license="Apache-2.0",
    citation="@inproceedings{ho2020constructing, title={Constructing A Multi-hop QA Dataset for Comprehensive "
    "Evaluation of Reasoning Steps}, author={Ho, Xanh and Duong Nguyen, Anh-Khoa and Sugawara, Saku and Aizawa, "
    "Akiko}, booktitle={COLING}, year={2020}}",
    languages=("en",),
    splits={"train": 167454, "dev": 12576, "test": 12576},
    metrics=("f1(rules=hotpotqa)", "em", "sp_em", "sp_f1", "evidence_em", "evidence_f1", "joint_em(rules=2wiki)", "joint_f1(rules=2wiki)"),
    cluster="evidence group",
    settings=("distractor", "corpus", "oracle", "gold_only", "closed_book"),
    notes="Answer aliases come from the authors' id_aliases.json in the same folder; without it, as on the hub, only the answer "
    "itself is accepted. The test split is released without gold: its questions load without answers and cannot be scored.",
)

FOLDERS = ("2wikimultihopqa", "2wiki", "2wikimultihop", "2wikimqa")
FILES = {f":{split}": (f"{split}.json", f"2wiki_{split}*.json", f"2wiki*_{split}*.json") for split in ("train", "dev", "test")}
HUB = {
    f":{split}": (f"{split}.parquet", f"data/{stem}-*.parquet", f"default/{stem}/*.parquet", f"{split}.jsonl")
    for split, stem in (("train", "train"), ("dev", "validation"), ("test", "test"))
}
ALIASES = "id_aliases.json"


@register("2wikimultihopqa", card=CARD, version=VERSION, config=MultiHopConfig)
def load(reference: DataReference, config: MultiHopConfig) -> Benchmark:
    """Load a split from the authors' file (with the aliases file next to it) or from the hub's rows.

    Sentences have no leading space, so a paragraph's text joins them with one. `Question.triples` are the `evidences`;
    `metadata` keeps `entity_ids`, `answer_id`, `evidences_id` and, if aliases are available, `triple_aliases`: per triple the
    other names of its head and tail, which the official script accepts.

    Raises:
        UserError: The file is missing, or belongs to another dataset or split.
    """
    split = reference.split or "dev"
    paths = find_files(reference, config, card=CARD, folders=FOLDERS, patterns=FILES, hub=HUB)
    aliases = _aliases(paths[0])

    def parse(record: Record) -> Parsed:
        refuse_other_dataset(record, "2wikimultihopqa")
        parsed = sentence_record(record, split=split, joiner=" ")
        triples = _triples(record, "evidences", required=split != "test")
        ids = _triples(record, "evidences_id", required=False)
        if ids and len(ids) != len(triples):
            what = f"there are {len(triples)} evidences and {len(ids)} evidences_id"
            raise record.problem(what, "evidences_id", "a list as long as evidences")
        answer_id = record.text("answer_id", "")
        metadata = {**parsed.question.metadata, "entity_ids": record.text("entity_ids", ""), "answer_id": answer_id, "evidences_id": ids}
        if aliases:
            # Without ids the official script knows no other name, not even one of the answer.
            entities = [(head, tail) for head, _, tail in ids] or [("", "")] * len(triples)
            metadata["triple_aliases"] = tuple((aliases.get(head, ()), aliases.get(tail, ())) for head, tail in entities)
        known = aliases.get(answer_id, ())
        parsed.question = replace(
            parsed.question,
            aliases=dict.fromkeys(parsed.question.answers, known) if known else {},
            triples=triples,
            metadata={name: value for name, value in metadata.items() if value},
        )
        return parsed

    return assemble(reference, VERSION, CARD, config, paths, parse, joiner=" ")


def _triples(record: Record, name: str, *, required: bool) -> tuple[Triple, ...]:
    triples = []
    for i, item in enumerate(record.field(name, list, None if required else [])):
        if type(item) is not list or len(item) != 3 or any(type(part) is not str for part in item):
            raise record.problem(f"field '{name}[{i}]' is not a triple", f"{name}[{i}]", "a list of three strings")
        triples.append((item[0], item[1], item[2]))
    return tuple(triples)


def _aliases(path: Path) -> Mapping[str, tuple[str, ...]]:
    """Read aliases by Wikidata id from `id_aliases.json` next to a file (it contains JSON Lines)."""
    for name in (ALIASES, f"{ALIASES}.gz"):
        file = sibling(path, name)
        # A file of a world without aliases is empty; that is not a fault.
        if size_of(file):
            return dict(read_records(file, _alias, skip_bad=False, skipped=[]))
    return {}


def _alias(record: Record) -> tuple[str, tuple[str, ...]]:
    names = (*record.texts("aliases", ()), *record.texts("demonyms", ()))
    return record.text("Q_id"), tuple(dict.fromkeys(names))
