"""LongBench v2: multiple-choice questions over contexts of 8,000 to two million words.

Source: Bai et al., 2025, https://github.com/THUDM/LongBench; file format as released by the authors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from benchmarks.datasets.long_document import LongDocumentConfig, LongDocumentRow, assemble
from benchmarks.records import Record, refuse_other_dataset
from benchmarks.registry import Benchmark, DataReference, DatasetCard, register
from benchmarks.schema import Question
from benchmarks.sources import find_files

VERSION = 1

LETTERS = "ABCD"
CHOICES = "choices"
"""Key of `Question.metadata`: the texts of the choices A, B, C, D in order."""
_FORM = 'Reply in the form "The correct answer is (A)", with the letter of the right choice.'
PROMPT = "Read the text, then answer the question about it.\n\n<text>\n$passages\n</text>\n\n$question\n\n" + _FORM
_LENGTHS = ("short", "medium", "long")

CARD = DatasetCard(
    title="LongBench v2",
    task="long-document QA",
    description="Questions with four choices over long contexts of six kinds (documents, several documents, examples in the "
    "context, dialogues, code repositories, structured data). They are difficult even for people who can search "
    "the context.",
    hub_id="THUDM/LongBench-v2",
    revision=None,
    license="Apache-2.0",
    citation="@inproceedings{bai2025longbench2, title={LongBench v2: Towards Deeper Understanding and Reasoning on Realistic "
    "Long-context Multitasks}, author={Bai, Yushi and Tu, Shangqing and Zhang, Jiajie and Peng, Hao and Wang, Xiaozhi and "
    "Lv, Xin and Cao, Shulin and Xu, Jiazheng and Hou, Lei and Dong, Yuxiao and Tang, Jie and Li, Juanzi}, booktitle={ACL}, "
    "year={2025}}",
    languages=("en",),
    splits={"test": 503},
    metrics=("choice(rules=longbench_v2)", "choice(rules=letter)"),
    cluster="document",
    settings=("document", "corpus", "closed_book"),
    notes="The hub's revision is not pinned yet. The only split is called train. The gold answer is a letter, and the question's "
    "text ends with the four choices. choice(rules=longbench_v2) scores like the authors' script: a reply without the "
    "required sentence is wrong, even if it is only a letter; choice(rules=letter) accepts that too. Some contexts are "
    "Chinese; all are cut by words.",
)

FOLDERS = ("longbench_v2", "longbench-v2", "longbenchv2")
FILES = {":test": ("data.json", "data.jsonl", "longbench_v2*.json", "longbench_v2*.jsonl", "longbench-v2*.json")}
HUB = {":test": ("data.json",)}


@register("longbench_v2", card=CARD, version=VERSION, config=LongDocumentConfig, default_split="test")
def load(reference: DataReference, config: LongDocumentConfig) -> Benchmark:
    """Load the authors' file.

    `type` is the domain. `metadata` keeps `choices`, `difficulty`, `length` (short, medium, long) and `sub_domain`.

    Raises:
        UserError: The file is missing, or belongs to another dataset or split.
    """
    paths = find_files(reference, config, card=CARD, folders=FOLDERS, patterns=FILES, hub=HUB)
    extra = {"reading": {"prompt": PROMPT, "max_new_tokens": 128, "truncation": "middle", "chat": True}}
    return assemble(reference, VERSION, CARD, config, paths, _parse, extra=extra)


def _parse(record: Record) -> LongDocumentRow:
    refuse_other_dataset(record, "longbench_v2")
    choices = [record.nonblank(f"choice_{letter}") for letter in LETTERS]
    answer, length = record.text("answer"), record.text("length")
    if answer not in LETTERS or len(answer) != 1:
        raise record.problem(f"field 'answer' is {answer!r}", "answer", "one of A, B, C, D")
    if length not in _LENGTHS:
        raise record.problem(f"field 'length' is {length!r}", "length", f"one of {', '.join(_LENGTHS)}")
    question = Question(
        id=record.text("_id"),
        text=with_choices(record.nonblank("question"), choices),
        answers=(answer,),
        aliases={answer: (choices[LETTERS.index(answer)],)},
        type=record.text("domain", ""),
        metadata={
            CHOICES: tuple(choices),
            "difficulty": record.text("difficulty"),
            "length": length,
            "sub_domain": record.text("sub_domain", ""),
        },
    )
    return LongDocumentRow(question, record.nonblank("context", None), record, Counter())


def with_choices(question: str, choices: Sequence[str]) -> str:
    """Return the question's text followed by its lettered choices."""
    return "\n".join((question.strip(), *(f"({letter}) {choice.strip()}" for letter, choice in zip(LETTERS, choices, strict=True))))
