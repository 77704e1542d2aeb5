"""FlashRAG's datasets: 36 question sets in one layout, `{id, question, golden_answers, metadata}` per line.

Multi-hop sets have paragraphs and supporting facts in `metadata`; the other sets need a corpus, or run closed-book.

Source: Jin et al., 2024, https://github.com/RUC-NLPIR/FlashRAG.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import Field

from benchmarks.corpus_build import open_documents
from benchmarks.datasets.multihop import MultiHopConfig, Parsed, assemble, gold_answers, restored, sentence_record
from benchmarks.records import Record, refuse_other_dataset
from benchmarks.registry import Benchmark, DataReference, DatasetCard, DatasetConfig, register
from benchmarks.schema import Passage, PassageIds, Question, passage_id
from benchmarks.sources import find_files

VERSION = 1

SETS = (
    *("nq", "triviaqa", "popqa", "squad", "msmarco-qa", "narrativeqa", "wikiqa", "web_questions", "ambig_qa", "siqa", "commonsense_qa"),
    *("boolq", "piqa", "fermi", "hotpotqa", "2wikimultihopqa", "musique", "bamboogle", "strategyqa", "asqa", "eli5", "wikipassageqa"),
    *("wikiasp", "mmlu", "truthful_qa", "hellaswag", "arc", "openbookqa", "quartz", "fever", "wow", "ay2", "wned", "trex"),
    *("zero-shot_re", "domainrag", "curatedtrec"),
)
"""Names of the sets, the folders of FlashRAG's repository."""

CARD = DatasetCard(
    title="FlashRAG datasets",
    task="open-domain and multi-hop QA",
    description="Questions with golden answers as FlashRAG distributes them, a folder per set.",
    hub_id="RUC-NLPIR/FlashRAG_datasets",
    revision=None,
    license="of each dataset",
    citation="@inproceedings{jin2025flashrag, title={{FlashRAG}: A Modular Toolkit for Efficient Retrieval-Augmented Generation "
    "Research}, author={Jin, Jiajie and Zhu, Yutao and Dong, Guanting and Zhang, Yuyao and Yang, Xinyu and Zhang, Chenghao and Zhao, "
    "Tong and Yang, Zhao and Dou, Zhicheng and Wen, Ji-Rong}, booktitle={WWW Companion}, year={2025}}",
    languages=("en",),
    splits={"train": None, "dev": None, "test": None},
    metrics=("em", "f1", "cover_em"),
    settings=("closed_book", "corpus", "oracle", "gold_only"),
    subset_settings=dict.fromkeys(
        ("hotpotqa", "2wikimultihopqa", "musique"), ("distractor", "corpus", "oracle", "gold_only", "closed_book")
    ),
    same_questions={"nq:train": ("nq/dpr:train",), "nq:dev": ("nq/dpr:dev",), "nq:test": ("nq/dpr:test",)}
    | {f"hotpotqa:{split}": (f"hotpotqa/distractor:{split}",) for split in ("train", "dev")}
    | {f"2wikimultihopqa:{split}": (f"2wikimultihopqa:{split}",) for split in ("train", "dev")}
    | {f"musique:{split}": (f"musique/ans:{split}",) for split in ("train", "dev")},
    notes="Hub revision not pinned yet. In multiple-choice sets, FlashRAG's golden answers are the numbers of choices; here, the "
    "golden answer is the text or the letter of the choice, and the question is followed by its choices.",
)

FOLDERS = ("flashrag", "flashrag_datasets", "FlashRAG_datasets")
FILES = {
    f"{name}:{split}": (f"{name}/{split}.jsonl", f"{name}/{split}.parquet", f"{name}_{split}.jsonl")
    for name in SETS
    for split in ("train", "dev", "test")
}


class FlashragConfig(DatasetConfig):
    """Options of FlashRAG's datasets."""

    corpus: str | None = Field(
        None, description="corpus to search: FlashRAG's corpus ({id, contents} per line), another dump, or a built corpus folder"
    )


@register("flashrag", card=CARD, version=VERSION, config=FlashragConfig, subsets=SETS, default_split="test")
def load(reference: DataReference, config: FlashragConfig) -> Benchmark:
    """Load a split of a question set.

    Raises:
        UserError: The file is missing, or belongs to another dataset or split.
    """
    split = reference.split or "test"
    paths = find_files(reference, config, card=CARD, folders=FOLDERS, patterns=FILES, hub=FILES)

    def parse(record: Record) -> Parsed:
        refuse_other_dataset(record, "flashrag")
        return _parsed(record, split, reference.subset)

    options = MultiHopConfig.model_validate({"skip_bad": config.skip_bad})
    benchmark = assemble(reference, VERSION, CARD, options, paths, parse)
    return benchmark if config.corpus is None else _searching(benchmark, Path(config.corpus).expanduser())


def _searching(benchmark: Benchmark, path: Path) -> Benchmark:
    """Attach another corpus to the questions, without positives."""
    corpus = open_documents(path)
    questions = [replace(question, candidates=None, evidence=(), supporting_facts=()) for question in benchmark.questions]
    notes = (*benchmark.extra["notes"], f"the corpus is {path.name}: it names no positives, so has_answer scores retrieval")
    return replace(benchmark, questions=questions, corpus=corpus, extra={**benchmark.extra, "notes": notes})


def _parsed(record: Record, split: str, subset: str | None) -> Parsed:
    value = record.fields.get("id")
    fields: dict[str, Any] = {"_id": str(value) if type(value) is int else record.text("id"), "question": record.nonblank("question")}
    metadata = record.field("metadata", dict, {})
    choices = record.texts("choices", ())
    fields["answer"] = _chosen(record, choices) if choices else list(record.answers("golden_answers"))
    if not fields["answer"] and split != "test":
        raise record.problem(f"field 'golden_answers' is empty; this is asked for as {split}", "golden_answers", "a list of answers")
    native = restored(Record({**metadata, **fields}, record.path, record.position))
    if isinstance(native.fields.get("context"), list) and "supporting_facts" in native.fields:
        return sentence_record(native, split=split, joiner=" " if subset == "2wikimultihopqa" else "")
    passages, positives = _paragraphs(native)
    question = Question(
        fields["_id"],
        fields["question"] + "".join(f"\n{_letter(number)}. {choice}" for number, choice in enumerate(choices)),
        answers := gold_answers(native, split),
        aliases={choice: (_letter(choices.index(choice)),) for choice in answers} if choices else {},
        evidence=positives,
        type=metadata["type"] if isinstance(metadata.get("type"), str) else "",
        candidates=PassageIds(dict.fromkeys(passage.id for passage in passages)) if passages else None,
    )
    return Parsed(question, passages, {}, Counter(), record)


def _letter(number: int) -> str:
    return chr(ord("A") + number)


def _chosen(record: Record, choices: Sequence[str]) -> list[str]:
    """Return the choices that the golden answers refer to by 0-based number."""
    numbers = record.field("golden_answers", list)
    for place, number in enumerate(numbers):
        record.expect(number, f"golden_answers[{place}]", int)
        if not 0 <= number < len(choices):
            raise record.problem(f"there is no choice {number}", f"golden_answers[{place}]", f"a number from 0 to {len(choices) - 1}")
    return [choices[number] for number in numbers]


def _paragraphs(record: Record) -> tuple[list[Passage], tuple[str, ...]]:
    """Return MuSiQue's paragraphs in `metadata` and the ids of supporting ones; empty for other sets."""
    passages: list[Passage] = []
    positives: list[str] = []
    for place, item in enumerate(record.field("paragraphs", list, [])):
        part = Record(record.expect(item, f"paragraphs[{place}]", dict), record.path, f"{record.position}, paragraph {place}")
        title, text = part.text("title", ""), part.text("paragraph_text")
        passages.append(Passage(passage_id(title, text), title, text))
        if part.field("is_supporting", bool, False):
            positives.append(passages[-1].id)
    return passages, tuple(dict.fromkeys(positives))
