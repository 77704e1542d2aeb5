"""CWQ (ComplexWebQuestions): WebQSP's questions made more complex, over Freebase.

Source: Talmor & Berant, 2018, https://www.tau-nlp.sites.tau.ac.il/compwebq (file format as released by the authors);
question graphs by Luo et al., 2024 (RoG), He et al., 2021 (NSM) and Mavromatis & Karypis, 2024 (GNN-RAG); topic
entities by Sun et al., 2024 (ToG).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from benchmarks.core.errors import UserError
from benchmarks.datasets import graph_layouts, graph_qa, nsm
from benchmarks.datasets.graph_layouts import GraphRow, Layout, answered, nested_records, topics_by_id, topics_once
from benchmarks.datasets.graph_qa import GraphConfig, Source
from benchmarks.records import Record
from benchmarks.registry import Benchmark, DataReference, DatasetCard, register
from benchmarks.schema import Question

VERSION = 3

CARD = DatasetCard(
    title="ComplexWebQuestions",
    task="graph QA",
    description="Complex questions of up to four hops over Freebase, composed from WebQSP's questions (composition, "
    "conjunction, comparative, superlative). A question has a set of answers and topic entities; in the layouts "
    "with graphs, it also has a neighborhood of Freebase with thousands of triples.",
    hub_id="rmanluo/RoG-cwq",
    revision="b0f6275586286312c4e99ef4b0adc65463c91f8e",
    license="CC BY 4.0 or Apache-2.0, by different accounts",
    citation="@inproceedings{talmor2018web, title={The Web as a Knowledge-Base for Answering Complex Questions}, "
    "author={Talmor, Alon and Berant, Jonathan}, booktitle={NAACL}, year={2018}}",
    languages=("en",),
    splits={"train": 27639, "validation": 3519, "test": 3531},
    metrics=graph_qa.METRICS,
    cluster="webqsp_id",
    settings=graph_qa.SETTINGS,
    notes="Sizes are those of version 1.1, which RoG's rows, NSM's files and the official JSON share. The official file has "
    "answer aliases but no topic entities. The dataset cwq_tog reads ToG's file, and other copies in which an answer is a "
    "string. Questions without answers are included but cannot be scored. RoG's rows (3.5 GB) are converted once into a "
    "cache, which is then memory-mapped.",
)

_FILES: Mapping[str, Mapping[str, Sequence[str]]] = {
    "rog": graph_layouts.rog_files("cwq"),
    "official": {
        ":train": ("ComplexWebQuestions_train.json", "ComplexWebQuestions_train*.json"),
        ":validation": ("ComplexWebQuestions_dev.json", "ComplexWebQuestions_dev*.json"),
        ":test": ("ComplexWebQuestions_test.json", "ComplexWebQuestions_test*.json"),
    },
    "nsm": nsm.NSM_FILES,
}
_TOG_FILES = {"tog": {":test": ("tog_cwq*.json", "cwq.json")}}
_OTHER = re.compile(r"WebQ(?:Trn|Test)-\d+")


@register("cwq", card=CARD, version=VERSION, config=GraphConfig, default_split="test")
def load(reference: DataReference, config: GraphConfig) -> Benchmark:
    """Load a split from RoG's rows, the official JSON or NSM's JSON Lines (see `graph_qa.assemble`).

    `type` is the official compositionality type where the record has it. `metadata` keeps `webqsp_id`, the question of
    WebQSP that a question was made from, which is what was sampled; of official records `sparql`, `machine_question`,
    `answer_ids` and `topic_ids`; of RoG's rows `a_entity`; of NSM's `answer_ids`.

    Raises:
        UserError: The file is missing, or belongs to another dataset or split.
    """
    return _with_source(graph_qa.assemble(reference, VERSION, CARD, config, SOURCE))


TOG_CARD = CARD.model_copy(
    update={
        "title": "ComplexWebQuestions in ToG's file",
        "description": "ComplexWebQuestions as ToG (Sun et al., 2024) publishes them: with topic entities, and of each question's set of "
        "answers a single one.",
        "hub_id": None,
        "revision": None,
        "splits": {"test": 3531},
        "settings": ("closed_book",),
        "same_questions": {":test": ("cwq:test",)},
        "notes": "One answer of each set is kept, so scores are not comparable with those of cwq: the same predictions have a rog_f1 of "
        "53.9 by this file and 60.1 by the whole sets.",
    }
)


@register("cwq_tog", card=TOG_CARD, version=VERSION, config=GraphConfig, default_split="test")
def load_tog(reference: DataReference, config: GraphConfig) -> Benchmark:
    """Load ToG's JSON, or a copy of the official file with a single answer string; otherwise like `load`.

    Raises:
        UserError: The file is missing, or belongs to another dataset or split.
    """
    return _with_source(graph_qa.assemble(reference, VERSION, TOG_CARD, config, TOG))


def _with_source(benchmark: Benchmark) -> Benchmark:
    """Add the id of the source WebQSP question to each question's metadata; it is the prefix of the question's id."""
    pairs = ((question, _OTHER.match(question.id)) for question in benchmark.questions)
    named = (replace(item, metadata={"webqsp_id": head[0] if head else item.id, **item.metadata}) for item, head in pairs)
    return replace(benchmark, questions=tuple(named))


def official(record: Record) -> GraphRow:
    """Parse an official record: `ID, question, sparql, compositionality_type, answers[{answer, aliases}]`.

    Copies with a list `answer` in place of `answers` are read too.

    Raises:
        BadRecord: A field is missing or of the wrong type.
        UserError: The record has a single answer, as in ToG's file.
    """
    single = record.fields.get("answer")
    if "answers" not in record.fields and single and record.answers("answer") == (single,):
        raise UserError(
            "this file has only one answer per question, and CWQ has a set of answers",
            code="file-keeps-one-answer",
            where=record.where,
            try_this="use cwq_tog; its scores are not compared with those of cwq",
        )
    return tog(record)


def tog(record: Record) -> GraphRow:
    """Parse ToG's record: like an official one, with a string `answer` instead of `answers`, and `topic_entity{id: name}`.

    Raises:
        BadRecord: A field is missing or of the wrong type.
    """
    metadata: dict[str, Any] = {}
    aliases: dict[str, tuple[str, ...]] = {}
    if "answers" in record.fields:
        answers, aliases, counts, metadata["answer_ids"] = _answers(record)
    else:
        answers, counts = answered(record, "answer")
    topics = topics_by_id(record, "topic_entity")
    metadata |= {
        "sparql": record.text("sparql", ""),
        "machine_question": record.text("machine_question", ""),
        "webqsp_id": record.text("webqsp_ID", ""),
        "topic_ids": list(topics),
    }
    question = Question(
        id=record.text("ID"),
        text=record.nonblank("question"),
        answers=answers,
        aliases={answer: others for answer, others in aliases.items() if others},
        answer_set=True,
        type=record.text("compositionality_type", ""),
        topic_entities=topics_once(topics.values(), counts),
        metadata={name: value for name, value in metadata.items() if value},
    )
    return GraphRow(question, None, counts, record)


def _answers(record: Record) -> tuple[tuple[str, ...], dict[str, tuple[str, ...]], Counter[str], list[str]]:
    """Return answers, aliases by answer, counts of peculiarities, and answer ids."""
    names: list[str] = []
    known: dict[str, dict[str, None]] = {}
    ids: list[str] = []
    counts: Counter[str] = Counter()
    for part in nested_records(record, "answers"):
        others = part.texts("aliases", ())
        identifier = part.text("answer_id", "")
        # An entity without a name has null here; what else is known of it then stands for it.
        name = part.text("answer", "") or next((text for text in (*others, identifier) if text), "")
        if not name:
            raise part.problem("this answer has neither a name nor an id", "answer", str)
        counts["unnamed_answers"] += name == identifier
        counts["repeated_answers"] += name in known
        names.append(name)
        known.setdefault(name, {}).update(dict.fromkeys(other for other in others if other != name))
        ids.append(identifier)
    return tuple(names), {name: tuple(others) for name, others in known.items()}, counts, ids if any(ids) else []


def refuse(question: Question, split: str, where: str) -> None:
    """Refuse a record whose id is WebQSP's, because the file belongs to that dataset.

    Raises:
        UserError: The id is WebQSP's.
    """
    if _OTHER.fullmatch(question.id):
        raise UserError(f"the id {question.id!r} is one of WebQSP", code="id-of-webqsp", where=where, try_this="ask for webqsp")


SOURCE = Source(
    name="cwq",
    folders=("cwq", "rog-cwq", "complexwebquestions"),
    layouts={
        "rog": graph_layouts.ROG,
        "official": Layout("the official JSON", (frozenset({"compositionality_type"}),), lambda path: official),
        "nsm": nsm.NSM,
    },
    files=_FILES,
    hub=graph_layouts.HUB_FILES,
    refuse=refuse,
)

TOG = Source(
    name="cwq_tog",
    folders=("cwq_tog", "cwq"),
    layouts={"tog": Layout("ToG's JSON", (frozenset({"compositionality_type"}), frozenset({"answer"})), lambda path: tog)},
    files=_TOG_FILES,
    hub={},
    refuse=refuse,
)
