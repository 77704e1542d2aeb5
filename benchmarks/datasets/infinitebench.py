"""∞Bench (InfiniteBench), question-answering tasks: multiple choice and free answers about novels, and masked names in film
scripts.

Source: Zhang et al., 2024, https://github.com/OpenBMB/InfiniteBench; file formats as released by the authors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.datasets.long_document import LongDocumentConfig, LongDocumentRow, assemble, character_chunks, gold
from benchmarks.datasets.longbench_v2 import CHOICES, LETTERS, with_choices
from benchmarks.records import Record, refuse_other_dataset
from benchmarks.registry import Benchmark, DataReference, DatasetCard, register
from benchmarks.schema import Question
from benchmarks.sources import find_files

VERSION = 1


@dataclass(frozen=True, slots=True)
class Task:
    """Task of ∞Bench and its reading instructions.

    Attributes:
        size: Number of questions.
        metric: The authors' metric.
        prompt: Prompt with the structure of the authors' prompt, in our wording.
        language: Language of texts and answers.
    """

    size: int
    metric: str
    prompt: str
    language: str = "en"


_BOOK = "Read the book and answer the question as concisely as you can.\n\n$passages\n\nQuestion: $question\nAnswer:"
_BOOK_ZH = "请阅读下面的书，然后尽量简短地回答问题。\n\n$passages\n\n问题：$question\n答案："
_CHOICE = "Read the book and answer the question with the letter of the right choice alone.\n\n$passages\n\n$question\n\nThe letter is"
_SCRIPT = "In the script below one name was replaced by $$$$MASK$$$$.\n\n$passages\n\n$question Reply with the name alone."
TASKS: Mapping[str, Task] = {
    "longbook_qa_eng": Task(351, "f1(rules=longbench)", _BOOK),
    "longbook_qa_chn": Task(175, "f1(rules=infinitebench_zh)", _BOOK_ZH, "zh"),
    "longbook_choice_eng": Task(229, "choice(rules=infinitebench)", _CHOICE),
    "longdialogue_qa_eng": Task(200, "infinitebench_name", _SCRIPT),
}
_ASKED = "Which character was replaced by $$MASK$$?"
"""Question for film scripts whose record has none."""

CARD = DatasetCard(
    title="∞Bench",
    task="long-document QA",
    description="Questions over novels with changed names (longbook_qa_eng, longbook_qa_chn; longbook_choice_eng with four "
    "choices) and over film scripts with a masked name (longdialogue_qa_eng); contexts of about 100,000 words "
    "and more.",
    hub_id="xinrongzhang2022/InfiniteBench",
    revision=None,
    license="MIT",
    citation="@inproceedings{zhang2024bench, title={∞Bench: Extending Long Context Evaluation Beyond 100K Tokens}, author={Zhang, "
    "Xinrong and Chen, Yingfa and Hu, Shengding and Xu, Zihang and Chen, Junhao and Hao, Moo and Han, Xu and Thai, Zhen and Wang, "
    "Shuo and Liu, Zhiyuan and Sun, Maosong}, booktitle={ACL}, year={2024}}",
    languages=("en",),
    subset_languages={name: (task.language,) for name, task in TASKS.items() if task.language != "en"},
    splits={"test": None},
    subset_splits={name: {"test": task.size} for name, task in TASKS.items()},
    metrics=("f1(rules=longbench)",),
    subset_metrics={name: (task.metric,) for name, task in TASKS.items() if task.metric != "f1(rules=longbench)"},
    cluster="document",
    settings=("document", "corpus", "closed_book"),
    notes="The hub's revision is not pinned yet. Records are in TASK.jsonl. Ids are the authors' row numbers. The gold answer of "
    "a multiple-choice question is the text of the choice; its letter is an alias. Scores equal those of the authors' "
    "compute_scores.py. Tasks that are not questions about a text (retrieval of keys, code, numbers, summaries) are not "
    "supported.",
)

FOLDERS = ("infinitebench", "InfiniteBench")
FILES = {f"{name}:test": (f"{name}.jsonl",) for name in TASKS}


@register("infinitebench", card=CARD, version=VERSION, config=LongDocumentConfig, subsets=tuple(TASKS), default_split="test")
def load(reference: DataReference, config: LongDocumentConfig) -> Benchmark:
    """Load a task from the authors' file.

    Raises:
        UserError: The file is missing, or belongs to another dataset or split.
    """
    name = reference.subset or "longbook_qa_eng"
    task = TASKS[name]
    paths = find_files(reference, config, card=CARD, folders=FOLDERS, patterns=FILES, hub=FILES)
    extra = {"reading": {"prompt": task.prompt, "max_new_tokens": 40, "truncation": "middle", "chat": True}}
    cut = (lambda text: character_chunks(text, config.chunk_words)) if task.language == "zh" else None
    return assemble(reference, VERSION, CARD, config, paths, lambda record: _parse(record, name), extra=extra, cut=cut)


def _parse(record: Record, name: str) -> LongDocumentRow:
    refuse_other_dataset(record, "infinitebench")
    answers, counts = gold(record, "answer", words=False)
    text_field = record.text("input", "")
    text = text_field if text_field.strip() or name != "longdialogue_qa_eng" else _ASKED
    identifier = record.fields.get("id")
    if isinstance(identifier, int) and not isinstance(identifier, bool):
        identifier = str(identifier)
    question = Question(id=record.expect(identifier, "id", str), text=text or record.nonblank("input"), answers=answers)
    if name == "longbook_choice_eng":
        question = _choice(question, record)
    return LongDocumentRow(question, record.nonblank("context", None), record, counts)


def _choice(question: Question, record: Record) -> Question:
    """Add the choices to a question; the gold is the correct one's text and its letter."""
    choices = record.texts("options")
    if len(choices) != len(LETTERS):
        raise record.problem(f"field 'options' has {len(choices)} choices", "options", f"a list of {len(LETTERS)}")
    # A list of two is text and letter.
    answer = question.answers[0] if question.answers else ""
    if answer not in choices:
        raise record.problem(f"field 'answer' is {answer!r}, which is none of the options", "answer")
    return Question(
        id=question.id,
        text=with_choices(question.text, choices),
        answers=(answer,),
        aliases={answer: (LETTERS[choices.index(answer)],)},
        metadata={CHOICES: choices},
    )
