"""LongBench v1: the six English question sets over long documents, and their `_e` variants of even lengths.

Source: Bai et al., 2024, https://github.com/THUDM/LongBench; file formats as released by the authors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.core.errors import UserError
from benchmarks.datasets.long_document import LongDocumentConfig, Row, answer_type, assemble, gold
from benchmarks.registry import Benchmark, DataReference, DatasetCard, register
from benchmarks.schema import Question
from benchmarks.sources import Record, find_files, refuse_other_dataset

VERSION = 1


@dataclass(frozen=True, slots=True)
class Reading:
    """How a set's authors have it read.

    Attributes:
        prompt: Our wording of their prompt, of the same shape; a template as readers take them ($passages, $question).
        max_new_tokens: Longest answer.
    """

    prompt: str
    max_new_tokens: int


_STORY = (
    "A story follows, a book or the script of a film, and then a question about it. {rule}\n\nStory:\n$passages\n\n"
    "Answer the question by the story above. {rule}\n\nQuestion: $question\n\nAnswer:"
).format(rule="Be as concise as you can, with a single phrase if that is possible, and explain nothing.")
_ARTICLE = (
    "A scientific article follows, and then a question about it. {rule}\n\nArticle:\n$passages\n\n"
    "Answer the question by the article above. {rule}\n\nQuestion: $question\n\nAnswer:"
).format(
    rule="Be as concise as you can, with a phrase or one sentence. If the article does not hold what is needed, reply "
    '"unanswerable". To a question of yes or no reply "yes", "no" or "unanswerable". Explain nothing.'
)
_TEXT = (
    "Read the text and answer the question behind it briefly.\n\nText:\n$passages\n\n"
    "Answer by the text above, with the answer alone and no other words.\n\nQuestion: $question\n\nAnswer:"
)
_PASSAGES = (
    "Answer the question by the passages. {rule}\n\nPassages:\n$passages\n\n"
    "Answer the question by the passages above. {rule}\n\nQuestion: $question\n\nAnswer:"
).format(rule="Give the answer alone and no other words.")

READING: Mapping[str, Reading] = {
    "narrativeqa": Reading(_STORY, 128),
    "qasper": Reading(_ARTICLE, 128),
    "multifieldqa_en": Reading(_TEXT, 64),
    "hotpotqa": Reading(_PASSAGES, 32),
    "2wikimqa": Reading(_PASSAGES, 32),
    "musique": Reading(_PASSAGES, 32),
}
"""By set; an `_e` variant is read as its set."""

_EVEN = "_e"
SIZES: Mapping[str, int] = {
    "narrativeqa": 200,
    "qasper": 200,
    "multifieldqa_en": 150,
    "hotpotqa": 200,
    "2wikimqa": 200,
    "musique": 200,
    "qasper_e": 224,
    "multifieldqa_en_e": 150,
    "hotpotqa_e": 300,
    "2wikimqa_e": 300,
}
"""Questions of each subset's only split, as the authors state them."""

CARD = DatasetCard(
    title="LongBench",
    task="long-document QA",
    description="Questions over long documents: books and film scripts (narrativeqa), papers (qasper), articles of "
    "many kinds (multifieldqa_en), and multi-hop questions over joined Wikipedia passages (hotpotqa, 2wikimqa, "
    "musique); the _e variants spread their questions evenly over lengths.",
    hub_id="THUDM/LongBench",
    revision="5e628be450b7e67fb7ae6e201bd6d8f7056f7672",
    license="MIT; the component sets keep their own licenses",
    citation="@inproceedings{bai2024longbench, title={LongBench: A Bilingual, Multitask Benchmark for Long Context "
    "Understanding}, author={Bai, Yushi and Lv, Xin and Zhang, Jiajie and Lyu, Hongchang and Tang, Jiankai and Huang, "
    "Zhidian and Du, Zhengxiao and Liu, Xiao and Zeng, Aohan and Hou, Lei and Dong, Yuxiao and Tang, Jie and Li, "
    "Juanzi}, booktitle={ACL}, year={2024}}",
    languages=("en",),
    splits={"test": None},
    subset_splits={name: {"test": size} for name, size in SIZES.items()},
    metrics=("f1(rules=longbench)",),
    settings=("document", "corpus", "closed_book"),
    notes="The hub's set is a script: its data.zip is read, which holds data/SET.jsonl (the repository is also found "
    "as zai-org/LongBench). A context is plain text, the headings 'Passage n:' of the multi-document sets included; it "
    "is cut into passages of 512 words (ARK overlaps them by 12: chunk_overlap). extra['reading'] holds the set's "
    "prompt shape in our words and its longest answer; prompts that are too long lose their middle "
    "(long_document.truncate_middle). 'unanswerable' in qasper is a gold answer like any other. Other LongBench sets "
    "(Chinese, summaries, few-shot, code) are not covered.",
)

FOLDERS = ("longbench",)
FILES = {f"{name}:test": (f"{name}.jsonl",) for name in SIZES}
HUB = {f"{name}:test": (f"data.zip!data/{name}.jsonl", f"data/{name}.jsonl") for name in SIZES}


@register("longbench", card=CARD, version=VERSION, config=LongDocumentConfig, subsets=tuple(SIZES), default_split="test")
def load(reference: DataReference, config: LongDocumentConfig) -> Benchmark:
    """Read a set from the authors' file.

    `type` is `yes_no` or `unanswerable` where every gold answer says so. `metadata` keeps `length` (words, by the
    authors' count) and `all_classes`. `extra["reading"]` is the set's `Reading` as a mapping.

    Raises:
        UserError: The file is not found, or is not what was asked for.
    """
    subset = reference.subset or "narrativeqa"
    paths = find_files(reference, config, card=CARD, folders=FOLDERS, patterns=FILES, hub=HUB)

    def parse(record: Record) -> Row:
        _require_set(record, subset)
        answers, counts = gold(record)
        known = {name: record.fields.get(name) for name in ("length", "all_classes")}
        question = Question(
            id=record.text("_id"),
            text=record.worded("input"),
            answers=answers,
            type=answer_type(answers),
            metadata={name: value for name, value in known.items() if value is not None},
        )
        return Row(question, record.worded("context"), record, counts)

    return assemble(reference, VERSION, CARD, config, paths, parse, extra={"reading": reading(subset)})


def reading(subset: str) -> dict[str, Any]:
    """A subset's prompt and longest answer, and how a prompt that is too long is shortened."""
    result = READING[subset.removesuffix(_EVEN)]
    return {"prompt": result.prompt, "max_new_tokens": result.max_new_tokens, "truncation": "middle"}


def _require_set(record: Record, subset: str) -> None:
    """Stop at a record of another dataset or set: the file is the wrong one, so this is never skipped."""
    refuse_other_dataset(record, "longbench")
    # UltraDomain's mix keeps the names of the LongBench sets that it was made from.
    value = "ultradomain" if "label" in record.fields else record.text("dataset")
    # A variant's file may carry the plain set's name, never the other way round.
    if value not in (subset, subset.removesuffix(_EVEN)):
        raise UserError(
            f"this record is of {value}, not of {subset}",
            where=f"{record.where}, field dataset",
            try_this=f"ask for longbench/{value}:test" if value in SIZES else f"give longbench the file {subset}.jsonl",
        )
