"""MuSiQue: two- to four-hop questions composed of single-hop ones, over twenty paragraphs.

Source: Trivedi et al., 2022, https://github.com/StonyBrookNLP/musique; file formats as released by the authors.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from sys import intern
from typing import Any

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import content_id
from benchmarks.datasets.multihop import MultiHopConfig, Parsed, assemble, gold_answers
from benchmarks.records import Record, refuse_other_dataset
from benchmarks.registry import Benchmark, DataReference, DatasetCard, register
from benchmarks.schema import Passage, PassageIds, Question, passage_id
from benchmarks.sources import find_files

VERSION = 1

CARD = DatasetCard(
    title="MuSiQue",
    task="multi-hop QA",
    description="Two- to four-hop questions over twenty paragraphs, composed of single-hop questions so that no hop can be "
    "skipped; ans: every question is answerable; full: each question has a twin whose paragraphs do not suffice "
    "to answer it.",
    hub_id="dgslibisey/MuSiQue",
    revision="c8f4f8c9465fb69d31a8eae894c3fd509c4ca321",
    license="CC BY 4.0",
    citation="@article{trivedi2022musique, title={MuSiQue: Multihop Questions via Single-hop Question Composition}, "
    "author={Trivedi, Harsh and Balasubramanian, Niranjan and Khot, Tushar and Sabharwal, Ashish}, "
    "journal={Transactions of the Association for Computational Linguistics}, volume={10}, year={2022}}",
    languages=("en",),
    splits={"train": 19938, "dev": 2417, "test": 2459},
    metrics=("f1(rules=musique)", "em", "support_f1"),
    cluster="evidence group",
    settings=("distractor", "corpus", "oracle", "gold_only", "closed_book"),
    same_questions={f"full:{split}": (f"musique/ans:{split}",) for split in ("train", "dev", "test")},
    notes="The hub's repository contains the authors' train and dev files of ans, unchanged; full and test exist only in the "
    "authors' archive. Sizes are those of ans; full has twice as many. In full, an answerable question and its unanswerable "
    "counterpart share an id; the counterpart's id gets the suffix ~unanswerable. As in the official script, answer and "
    "support scores exclude the counterparts: they load without answers and evidence, and the original ones are in the "
    "metadata. group_answer_f1 and group_support_f1 score both together. The test split is released without gold: its "
    "questions load without answers and cannot be scored. In the test split of full, the second question of an id gets the "
    "suffix ~2.",
)

FOLDERS = ("musique",)
FILES = {
    f"{subset}:{split}": (f"musique_{subset}_v1.0_{split}.jsonl", f"musique_{subset}_*{split}*.jsonl", f"musique_{subset}_*{split}*.json")
    for subset in ("ans", "full")
    for split in ("train", "dev", "test")
}
HUB = {
    f"{subset}:{split}": (
        f"musique_{subset}_v1.0_{split}.jsonl",
        f"{folder}/{stem}-*.parquet",
        f"{folder}/{stem}/*.parquet",
        f"{folder}/{stem}.jsonl",
    )
    for subset, folder in (("ans", "answerable"), ("full", "default"))
    for split, stem in (("train", "train"), ("dev", "validation"), ("test", "test"))
}
PARAGRAPHS = "paragraphs"
"""Key of `Question.metadata`; read it with `numbered_paragraphs`."""
_FIELDS = itemgetter("title", "paragraph_text", "is_supporting")
_HOPS = re.compile(r"(\d+)hop\d*__")


@register("musique", card=CARD, version=VERSION, config=MultiHopConfig, subsets=("ans", "full"))
def load(reference: DataReference, config: MultiHopConfig) -> Benchmark:
    """Load a split from the authors' file or the hub's copy.

    `type` is the number of hops (`2hop`), from the id's prefix or else from the decomposition. `metadata` keeps
    `native_id` if the id was changed, `shape` (the id's prefix, `3hop1`), `decomposition` (gold), and `paragraphs` (see
    `numbered_paragraphs`) unless the candidates in their order are the paragraphs 0, 1, 2 ….

    Raises:
        UserError: The file is missing, or belongs to another dataset or split.
    """
    paths = find_files(reference, config, card=CARD, folders=FOLDERS, patterns=FILES, hub=HUB)
    return assemble(reference, VERSION, CARD, config, paths, _parser(reference, pooled=config.corpus is not None))


def _parser(reference: DataReference, *, pooled: bool) -> Callable[[Record], Parsed]:
    split, full = reference.split or "dev", reference.subset == "full"
    unlabeled: Counter[str] = Counter()

    def parse(record: Record) -> Parsed:
        refuse_other_dataset(record, "musique")
        native = record.text("id")
        # Files of answerable questions may leave the flag out; in full it is what tells twins apart.
        answerable = record.field("answerable", bool, None if full and split != "test" else True)
        if not answerable and not full:
            raise UserError(
                "this record is unanswerable: the file is MuSiQue-full, not MuSiQue-ans",
                code="musique-full",
                where=record.where,
                try_this=f"ask for musique/full:{split}",
            )
        passages, numbers, supporting = _paragraphs(record, gold=split != "test")
        evidence = tuple(dict.fromkeys(passages[position].id for position in supporting))
        candidates = PassageIds(dict.fromkeys(passage.id for passage in passages))
        answers = gold_answers(record, split)
        aliases = record.texts("answer_aliases", ())
        decomposition = _decomposition(record)
        metadata: dict[str, Any] = {"decomposition": decomposition} if decomposition else {}
        prefix = _HOPS.match(native)
        if prefix:
            metadata["shape"] = prefix[0].removesuffix("__")
        hops = prefix[1] if prefix else str(len(decomposition)) if decomposition else ""
        identifier = native
        if not answerable:
            identifier = f"{native}~unanswerable"
            metadata |= {"answers": answers, "aliases": aliases, "partial_evidence": evidence}
            answers, aliases, evidence = (), (), ()
        elif full and "answerable" not in record.fields:
            unlabeled[native] += 1
            if unlabeled[native] == 2:
                identifier = f"{native}~2"
        if identifier != native:
            metadata["native_id"] = native
        if pooled or len(candidates) < len(passages) or numbers != list(range(len(passages))):
            metadata[PARAGRAPHS] = _named([passage.id for passage in passages], numbers, supporting)
        question = Question(
            id=identifier,
            text=record.nonblank("question"),
            answers=answers,
            aliases={answers[0]: aliases} if answers and aliases else {},
            evidence=evidence,
            type=intern(f"{hops}hop") if hops else "",
            answerable=answerable,
            group=native if full and split != "test" else None,
            candidates=candidates,
            metadata=metadata,
        )
        # Titles repeat among MuSiQue's paragraphs as a matter of course, so they are not worth a count, and a
        # positive is known by its content alone: no `titles`.
        counts = Counter[str]()
        if repeated := len(passages) - len(candidates):
            counts["repeated_passages"] = repeated
        return Parsed(question, passages, {}, counts, record)

    return parse


def _paragraphs(record: Record, *, gold: bool) -> tuple[list[Passage], list[int], list[int]]:
    """Return the paragraphs in file order, the number `idx` of each, and the positions of supporting ones.

    Copies of the dataset that leave `idx` out number the paragraphs in their order.
    """
    items = record.field("paragraphs", list)
    try:
        titles, texts, supports = (list(column) for column in zip(*map(_FIELDS, items), strict=True))
        sound = set(map(type, titles + texts)) == {str} and set(map(type, supports)) == {bool}
    except (KeyError, TypeError, ValueError):
        sound = False
    if not sound:
        parts = [
            Record(record.expect(item, f"paragraphs[{i}]", dict), record.path, f"{record.position}, paragraph {i}")
            for i, item in enumerate(items)
        ]
        titles, texts = ([part.text(name) for part in parts] for name in ("title", "paragraph_text"))
        supports = [part.field("is_supporting", bool, None if gold else False) for part in parts]
    passages = [Passage(passage_id(title, text), title, text) for title, text in zip(titles, texts, strict=True)]
    supporting = [i for i, supported in enumerate(supports) if supported]
    return passages, _numbers(record, [item.get("idx") for item in items]), supporting


def _numbers(record: Record, numbers: list[Any]) -> list[int]:
    """Return the validated numbers of paragraphs; their positions if none has a number.

    Raises:
        BadRecord: A number is missing, not an integer, or repeated.
    """
    kinds = set(map(type, numbers))
    if kinds <= {type(None)}:
        return list(range(len(numbers)))
    if kinds != {int}:
        i = next(i for i, number in enumerate(numbers) if type(number) is not int)
        raise record.problem(f"field 'paragraphs[{i}].idx' is {numbers[i]!r}", f"paragraphs[{i}].idx", int)
    if len(set(numbers)) < len(numbers):
        i = next(i for i, number in enumerate(numbers) if number in numbers[:i])
        raise record.problem(f"idx {numbers[i]} is the number of two paragraphs", f"paragraphs[{i}].idx", "a number of its own")
    return numbers


def _named(ids: Sequence[str], numbers: Sequence[int], supporting: Sequence[int]) -> dict[int, tuple[str, bool]]:
    """Return the id under which predictions refer to each paragraph, and whether it supports the answer.

    If a text occurs twice in a record, only one copy keeps the passage's id (the first supporting one, if any), because the
    official script compares numbers.
    """
    keeper = {ids[at]: at for at in reversed((*supporting, *range(len(ids))))}
    return {
        number: (ids[at] if keeper[ids[at]] == at else content_id("p", "copy", ids[at], str(number)), at in supporting)
        for at, number in enumerate(numbers)
    }


def numbered_paragraphs(question: Question) -> Mapping[int, tuple[str, bool]] | None:
    """Return a question's paragraphs by `idx`: the paragraph's id, and whether it supports the answer.

    Returns None if the question has no paragraphs of its own.
    """
    numbered: Mapping[int, tuple[str, bool]] | None = question.metadata.get(PARAGRAPHS)
    if numbered is not None or question.candidates is None:
        return numbered
    evidence = set(question.evidence or question.metadata.get("partial_evidence", ()))
    return {number: (identifier, identifier in evidence) for number, identifier in enumerate(question.candidates)}


def _decomposition(record: Record) -> tuple[dict[str, Any], ...]:
    steps = record.field("question_decomposition", list, [])
    results = [record.expect(step, f"question_decomposition[{i}]", dict) for i, step in enumerate(steps)]
    # Every record brings its own copies of the keys: a quarter of what a question would hold.
    return tuple({intern(key): value for key, value in step.items()} for step in results)
