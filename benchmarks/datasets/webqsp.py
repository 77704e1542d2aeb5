"""WebQSP: questions of real users with semantic parses over Freebase.

Source: Yih et al., 2016, https://aka.ms/WebQSP (file format as released by the authors); question graphs by Luo et al.,
2024 (RoG), He et al., 2021 (NSM) and Mavromatis & Karypis, 2024 (GNN-RAG); topic entities by Sun et al., 2024 (ToG).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.core.errors import UserError
from benchmarks.datasets import graph_layouts, graph_qa, nsm
from benchmarks.datasets.graph_layouts import GraphRow, Layout, answered, nested_records, topics_by_id, topics_once
from benchmarks.datasets.graph_qa import GraphConfig, Source
from benchmarks.records import Record
from benchmarks.registry import Benchmark, DataReference, DatasetCard, register
from benchmarks.schema import Question

VERSION = 2

CARD = DatasetCard(
    title="WebQSP",
    task="graph QA",
    description="Questions that people asked a search engine, answerable from Freebase in one or two hops. A question has a "
    "set of answers and topic entities; in the layouts with graphs, it also has a neighborhood of Freebase.",
    hub_id="rmanluo/RoG-webqsp",
    revision="c0632533135a06f8c5d536b420deec5fcb5c58f3",
    license="Microsoft Research data license (the official release); CC BY 4.0 by the GPR paper's account",
    citation="@inproceedings{yih2016value, title={The Value of Semantic Parse Labeling for Knowledge Base Question "
    "Answering}, author={Yih, Wen-tau and Richardson, Matthew and Meek, Chris and Chang, Ming-Wei and Suh, Jina}, "
    "booktitle={ACL}, year={2016}}",
    languages=("en",),
    splits={"train": 2826, "validation": 246, "test": 1628},
    metrics=graph_qa.METRICS,
    cluster="evidence group",
    settings=graph_qa.SETTINGS,
    notes="Sizes are those of RoG's rows, which papers on graph retrieval evaluate; the official release has 3,098 training and "
    "1,639 test questions, no validation split and no graphs. A question's answers are those of all its parses. The "
    "authors' script (webqsp_f1, only for the official layout) uses the best parse instead and excludes questions without a "
    "good and complete parse. Questions without answers are included but cannot be scored.",
)

_FILES: Mapping[str, Mapping[str, Sequence[str]]] = {
    "rog": graph_layouts.rog_files("webqsp"),
    "official": {
        ":train": ("WebQSP.train.json", "data/WebQSP.train.json", "WebQSP.zip!WebQSP/data/WebQSP.train.json"),
        ":test": ("WebQSP.test.json", "data/WebQSP.test.json", "WebQSP.zip!WebQSP/data/WebQSP.test.json"),
    },
    "nsm": nsm.NSM_FILES,
    "tog": {":test": ("tog_webqsp*.json", "WebQSP.json")},
}
_OTHER = re.compile(r"WebQ(?:Trn|Test)-\d+_[0-9a-f]{32}")
_OWN = re.compile(r"WebQ(Trn|Test)-\d+")


@register("webqsp", card=CARD, version=VERSION, config=GraphConfig, default_split="test")
def load(reference: DataReference, config: GraphConfig) -> Benchmark:
    """Load a split from RoG's rows, the official JSON, NSM's JSON Lines or ToG's JSON (see `graph_qa.assemble`).

    `type` is the number of hops (`2hop`) if the record states it. `metadata` keeps, of official records, `parses` (per parse
    `answers`, `answer_ids`, `chain`, `sparql`, `good`), `good_parse` and `topic_ids`; of RoG's rows `a_entity`; of NSM's
    `answer_ids`.

    Raises:
        UserError: The file is missing, or belongs to another dataset or split.
    """
    return graph_qa.assemble(reference, VERSION, CARD, config, SOURCE)


def official(record: Record) -> GraphRow:
    """Parse an official record: `QuestionId, RawQuestion, Parses[{TopicEntity…, InferentialChain, Answers, …}]`.

    Raises:
        BadRecord: A field is missing or of the wrong type.
    """
    counts: Counter[str] = Counter()
    topics: dict[str, str] = {}
    answers: Counter[str] = Counter()
    parses = []
    for part in nested_records(record, "Parses"):
        parse = _parse(part, counts)
        parses.append(parse)
        # The same entity is the answer of several parses; two entities of one name are two within a parse.
        answers |= Counter(parse["answers"])
        topic = part.text("TopicEntityMid", "")
        if topic:
            topics[topic] = part.text("TopicEntityName", "") or topic
    counts["questions_without_parses"] += not parses
    good = any(parse["good"] for parse in parses)
    counts["questions_without_good_parse"] += bool(parses) and not good
    hops = next((len(parse["chain"]) for parse in parses if parse["chain"]), 0)
    # Copies of the file by others add the topic entities that they linked.
    topics = topics_by_id(record, "topic_entity") or topics
    question = Question(
        id=record.text("QuestionId"),
        text=record.nonblank("RawQuestion"),
        answers=tuple(answers.elements()),
        answer_set=True,
        type=f"{hops}hop" if hops else "",
        topic_entities=topics_once(topics.values(), counts),
        metadata={"parses": parses, "good_parse": good, "topic_ids": list(topics)},
    )
    return GraphRow(question, None, counts, record)


def _parse(part: Record, counts: Counter[str]) -> dict[str, Any]:
    names, ids = [], []
    for answer in nested_records(part, "Answers"):
        ids.append(answer.text("AnswerArgument"))
        names.append(answer.text("EntityName", "") or ids[-1])
        counts["unnamed_answers"] += names[-1] == ids[-1] and answer.text("AnswerType", "") == "Entity"
    counts["repeated_answers"] += len(names) - len(set(names))
    comment = part.field("AnnotatorComment", dict, {})
    return {
        "answers": names,
        "answer_ids": ids,
        "chain": list(part.texts("InferentialChain", ())),
        "sparql": part.text("Sparql", ""),
        "good": comment.get("QuestionQuality") == "Good" and comment.get("ParseQuality") == "Complete",
    }


def tog(record: Record) -> GraphRow:
    """Parse ToG's record: `QuestionId, RawQuestion, topic_entity{id: name}`, and `answer[]` or official `Parses`.

    Raises:
        BadRecord: A field is missing or of the wrong type.
    """
    if record.has("Parses"):
        return official(record)
    answers, counts = answered(record, "answer")
    topics = topics_by_id(record, "topic_entity")
    question = Question(
        id=record.text("QuestionId"),
        text=record.nonblank("RawQuestion"),
        answers=answers,
        answer_set=True,
        topic_entities=topics_once(topics.values(), counts),
        metadata={"topic_ids": list(topics)},
    )
    return GraphRow(question, None, counts, record)


def refuse(question: Question, split: str, where: str) -> None:
    """Refuse a record whose id belongs to CWQ or to WebQSP's other split, because the file is the wrong one.

    Raises:
        UserError: The id belongs elsewhere.
    """
    if _OTHER.fullmatch(question.id):
        raise UserError(f"the id {question.id!r} is one of CWQ", code="id-of-cwq", where=where, try_this="ask for cwq")
    half = _OWN.fullmatch(question.id)
    if half and (half[1] == "Test") != (split == "test"):
        wanted = "webqsp:test" if half[1] == "Test" else "webqsp:train or webqsp:validation"
        raise UserError(
            f"the id {question.id!r} is not one of the split {split}", code="id-of-other-split", where=where, try_this=f"ask for {wanted}"
        )


SOURCE = Source(
    name="webqsp",
    folders=("webqsp", "rog-webqsp"),
    layouts={
        "rog": graph_layouts.ROG,
        "official": Layout(
            "the official JSON", (frozenset({"Questions"}),), lambda path: official, items="Questions", sizes={"train": 3098, "test": 1639}
        ),
        "nsm": nsm.NSM,
        "tog": Layout(
            "ToG's JSON",
            (frozenset({"QuestionId"}), frozenset({"topic_entity", "Parses"})),
            lambda path: tog,
            sizes={"train": 3098, "test": 1639},
        ),
    },
    files=_FILES,
    hub=graph_layouts.HUB_FILES,
    refuse=refuse,
)
