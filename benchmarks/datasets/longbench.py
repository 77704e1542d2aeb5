"""LongBench v1: all 21 sets, and the `_e` variants (evenly distributed lengths) of thirteen of them.

Nine sets ask about documents, which are cut into passages: single documents, several joined ones, a meeting (qmsum). The other
twelve (summarization, few-shot learning, counting and finding paragraphs, code) have their context as one passage without
retrieval. A prompt that is too long loses its middle, as in LongBench's code.

Source: Bai et al., 2024, https://github.com/THUDM/LongBench; file formats as released by the authors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from benchmarks.core.errors import UserError
from benchmarks.datasets.long_document import (
    LISTED,
    Cut,
    LongDocumentConfig,
    LongDocumentRow,
    answer_type,
    assemble,
    character_chunks,
    gold,
)
from benchmarks.published_prompts import as_template, path_of, texts_of
from benchmarks.records import Record, refuse_other_dataset
from benchmarks.registry import Benchmark, DataReference, DatasetCard, register
from benchmarks.schema import Question
from benchmarks.sources import find_files

VERSION = 1

ENGLISH, CHINESE = "f1(rules=longbench)", "f1(rules=longbench_zh)"
SUMMARY, CHINESE_SUMMARY = "longbench_rouge(words=spaces)", "longbench_rouge(words=jieba)"
CLASS, NUMBER, CODE = "longbench_class", "longbench_number", "longbench_code"


@dataclass(frozen=True, slots=True)
class Set:
    """Set of LongBench and its authors' reading instructions.

    Attributes:
        prompt: Reader template ($passages, $question) with the structure of the authors' prompt, in our wording.
        max_new_tokens: Maximum answer length in tokens.
        metric: The authors' metric.
        words: Mean context length by the authors' count: words, or characters in Chinese.
        size: Number of questions of its only split.
        even: Number of questions of its `_e` variant, 0 if there is none.
        language: Language of texts and answers.
        whole: Whether the context is one passage; otherwise it is cut into passages.
        task: Question for records that have none.
        chat: Whether chat models receive the prompt in their chat format.
    """

    prompt: str
    max_new_tokens: int
    metric: str
    words: int
    size: int = 200
    even: int = 0
    language: str = "en"
    whole: bool = False
    task: str = ""
    chat: bool = True


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
_TEXT_ZH = (
    "请阅读下面的文字，并用中文简短作答。\n\n$passages\n\n请根据以上文字回答问题，只写答案，不写其他内容。\n\n问题：$question\n回答："
)
_ARTICLES_ZH = "请根据下面的文章回答问题。\n\n文章：$passages\n\n请根据以上文章回答问题。\n\n问题：$question\n回答："
_MEETING = (
    "The transcript of a meeting follows, and then a query: a question or an instruction. Answer it in one or more sentences."
    "\n\nTranscript:\n$passages\n\nAnswer the query by the transcript above in one or more sentences.\n\nQuery: $question\nAnswer:"
)
_SUMMARIZE = "{what} follows. $question\n\n{head}:\n$passages\n\n$question\n\nSummary:"
_MEETING_ZH = "下面是一份会议记录。$question\n会议记录：\n$passages\n\n会议总结："
_EXAMPLES = "{task} Some examples come first.\n\n$passages\n{gap}$question"
_COUNT = (
    "Paragraphs from Wikipedia follow, some of them more than once. Read them carefully. $question\n\n$passages\n\n"
    "Write the number of different paragraphs alone, such as 1, 2, 3 and so on.\n\nThe final answer is:"
)
_FIND = (
    "Here are 30 paragraphs from Wikipedia and an abstract. Say which paragraph the abstract is of.\n\n$passages\n\n"
    "The abstract:\n\n$question\n\n"
    'Write the number of the paragraph that the abstract is of, in the form "Paragraph 1", "Paragraph 2" and so on.\n\nThe answer is:'
)
_FIND_ZH = (
    "下面是若干段落，以及其中一段的摘要。请判断摘要出自哪一段。\n\n$passages\n\n摘要如下：\n\n$question\n\n"
    '请写出摘要所属段落的编号，格式为"段落1"、"段落2"等。\n\n答案是：'
)
_COMPLETE = "$question\n$passages\nNext line of code:"
_COMPLETE_FILE = "Complete the code below.\n$passages\n$question\nNext line of code:"


def _examples(task: str, gap: str = "") -> str:
    return _EXAMPLES.format(task=task, gap=gap)


SETS: Mapping[str, Set] = {
    "narrativeqa": Set(_STORY, 128, ENGLISH, 18_409),
    "qasper": Set(_ARTICLE, 128, ENGLISH, 3_619, even=224),
    "multifieldqa_en": Set(_TEXT, 64, ENGLISH, 4_559, 150, 150),
    "hotpotqa": Set(_PASSAGES, 32, ENGLISH, 9_151, even=300),
    "2wikimqa": Set(_PASSAGES, 32, ENGLISH, 4_887, even=300),
    "musique": Set(_PASSAGES, 32, ENGLISH, 11_214),
    "multifieldqa_zh": Set(_TEXT_ZH, 64, CHINESE, 6_701, language="zh"),
    "dureader": Set(_ARTICLES_ZH, 128, CHINESE_SUMMARY, 15_768, language="zh"),
    "qmsum": Set(_MEETING, 512, SUMMARY, 10_614),
    "gov_report": Set(
        _SUMMARIZE.format(what="A report by a government agency", head="Report"),
        512,
        SUMMARY,
        8_734,
        even=300,
        whole=True,
        task="Write a summary of the report, one page long.",
    ),
    "multi_news": Set(
        _SUMMARIZE.format(what="Several pieces of news", head="News"),
        512,
        SUMMARY,
        2_113,
        even=294,
        whole=True,
        task="Write a summary of all the news, one page long.",
    ),
    "vcsum": Set(_MEETING_ZH, 512, CHINESE_SUMMARY, 15_380, language="zh", whole=True, task="请阅读后写一段话，总结会议的内容。"),
    "trec": Set(_examples("Say of what type the last question is."), 64, CLASS, 5_177, even=300, whole=True, chat=False),
    "triviaqa": Set(
        _examples("Answer the question by its passage, with the answer alone and no other words.", "\n"),
        32,
        "f1(rules=longbench,lines=first)",
        8_209,
        even=300,
        whole=True,
        chat=False,
    ),
    "samsum": Set(
        _examples("Sum up the dialogue in a few short sentences.", "\n"),
        128,
        "longbench_rouge(words=spaces,lines=first)",
        6_258,
        even=300,
        whole=True,
        chat=False,
    ),
    "lsht": Set(
        "请判断最后一条新闻的类别，前面是一些例子。\n\n$passages\n$question", 64, CLASS, 22_337, language="zh", whole=True, chat=False
    ),
    "passage_count": Set(
        _COUNT, 32, NUMBER, 11_141, even=300, whole=True, task="How many different paragraphs are there once repetitions are taken out?"
    ),
    "passage_retrieval_en": Set(_FIND, 32, NUMBER, 9_289, even=300, whole=True),
    "passage_retrieval_zh": Set(_FIND_ZH, 32, NUMBER, 6_745, language="zh", whole=True),
    "lcc": Set(_COMPLETE, 64, CODE, 1_235, 500, 300, "code", whole=True, task="Complete the code below.", chat=False),
    "repobench-p": Set(_COMPLETE_FILE, 64, CODE, 4_206, 500, 300, "code", whole=True, chat=False),
}
"""Sets by name; `_e` variants share the entry of their set. Sizes and lengths are from the authors' `task.md`."""

_EVEN = "_e"
SIZES: Mapping[str, int] = {name: a_set.size for name, a_set in SETS.items()} | {
    f"{name}{_EVEN}": a_set.even for name, a_set in SETS.items() if a_set.even
}
"""Number of questions per subset."""


LENGTHS = ("0-4k", "4-8k", "8k+")
"""Length ranges, by the authors' count, for each of which LongBench-E reports a mean."""


def bucket_of(metadata: Mapping[str, Any]) -> str:
    """Return the length range of an `_e` question, from its metadata."""
    length = int(metadata["length"])
    return LENGTHS[0] if length < 4000 else LENGTHS[1] if length < 8000 else LENGTHS[2]


def set_of(subset: str) -> Set:
    """Return the entry of a subset or of the set that it is a variant of."""
    return SETS[subset.removesuffix(_EVEN)]


WHOLE = ("document",)
"""Settings of sets whose context is one passage."""

CARD = DatasetCard(
    title="LongBench",
    task="long-document QA",
    description="Questions over long documents: books and film scripts (narrativeqa), papers (qasper), articles of many "
    "kinds (multifieldqa_en, multifieldqa_zh), meetings (qmsum), and questions over joined passages (hotpotqa, "
    "2wikimqa, musique, dureader). Tasks over a whole context: summaries (gov_report, multi_news, vcsum), "
    "few-shot tasks (trec, triviaqa, samsum, lsht), paragraphs to count or find (passage_count, "
    "passage_retrieval_en, passage_retrieval_zh), code completion (lcc, repobench-p). The _e variants spread "
    "their questions evenly over lengths.",
    hub_id="THUDM/LongBench",
    revision="5e628be450b7e67fb7ae6e201bd6d8f7056f7672",
    license="MIT; the component sets keep their own licenses",
    citation="@inproceedings{bai2024longbench, title={LongBench: A Bilingual, Multitask Benchmark for Long Context "
    "Understanding}, author={Bai, Yushi and Lv, Xin and Zhang, Jiajie and Lyu, Hongchang and Tang, Jiankai and Huang, "
    "Zhidian and Du, Zhengxiao and Liu, Xiao and Zeng, Aohan and Hou, Lei and Dong, Yuxiao and Tang, Jie and Li, "
    "Juanzi}, booktitle={ACL}, year={2024}}",
    languages=("en",),
    subset_languages={name: (set_of(name).language,) for name in SIZES if set_of(name).language != "en"},
    splits={"test": None},
    subset_splits={name: {"test": size} for name, size in SIZES.items()},
    metrics=(ENGLISH,),
    subset_metrics={name: (set_of(name).metric,) for name in SIZES if set_of(name).metric != ENGLISH},
    cluster="document",
    settings=("document", "corpus", "closed_book"),
    subset_settings={name: WHOLE for name in SIZES if set_of(name).whole},
    notes="The hub's set is a script, so ragmeter reads its data.zip with data/SET.jsonl (also as zai-org/LongBench). A context "
    "is plain text, with the headings 'Passage n:' in multi-document sets. It is cut into passages of 512 words (ARK "
    "overlaps them by 12: chunk_overlap); a Chinese context is cut after the last sentence within 512 characters. Tasks "
    "about a whole context have one passage and one setting: full_context, with a reader that follows the benchmark. "
    "extra['reading'] contains the authors' prompt if it is available locally (prompts/longbench), else an equivalent of "
    "ours, and the maximum answer length. The middle of long prompts is removed (long_document.truncate_middle). If a "
    "record has no question, the question is a description of the task. In qasper, 'unanswerable' is an ordinary gold "
    "answer.",
)


class LongBenchConfig(LongDocumentConfig):
    """Options of LongBench."""

    prompt: Literal["published", "ours"] | None = Field(
        None,
        description="prompt for readers that follow the benchmark: published (the authors' prompt, downloaded), ours (our own "
        "wording); null: published if it was already downloaded",
    )


FOLDERS = ("longbench",)
FILES = {f"{name}:test": (f"{name}.jsonl",) for name in SIZES}
HUB = {f"{name}:test": (f"data.zip!data/{name}.jsonl", f"data/{name}.jsonl") for name in SIZES}


@register("longbench", card=CARD, version=VERSION, config=LongBenchConfig, subsets=tuple(SIZES), default_split="test")
def load(reference: DataReference, config: LongBenchConfig) -> Benchmark:
    """Load a set from the authors' file.

    `type` is `yes_no` or `unanswerable` if every gold answer has that form; in `_e` sets it is the length range. `metadata`
    keeps `length` (by the authors' count) and `all_classes`. `extra["reading"]` has the reading instructions.

    Raises:
        UserError: The file is missing, or belongs to another dataset or split, or an option is not possible for the set.
    """
    subset = reference.subset or "narrativeqa"
    a_set, cut = set_of(subset), _cut(subset, config)
    paths = find_files(reference, config, card=CARD, folders=FOLDERS, patterns=FILES, hub=HUB)

    def parse(record: Record) -> LongDocumentRow:
        _require_set(record, subset)
        answers, counts = gold(record, words=a_set.metric.startswith("f1"))
        known = {"length": _length(record, subset), "all_classes": record.texts("all_classes", ()) or None}
        if counts["blank_answers"] or counts["questions_without_gold"]:
            known[LISTED] = record.answers("answers")
        if a_set.metric == CLASS and not known["all_classes"]:
            raise record.problem("field 'all_classes' names no class", "all_classes", list)
        text = record.text("input", a_set.task or None)
        question = Question(
            id=record.text("_id"),
            text=a_set.task if a_set.task and not text.strip() else record.nonblank("input"),
            answers=answers,
            type=kind(known, answers),
            metadata={name: value for name, value in known.items() if value is not None},
        )
        return LongDocumentRow(question, record.nonblank("context", None), record, counts)

    def kind(known: Mapping[str, Any], answers: tuple[str, ...]) -> str:
        if subset.endswith(_EVEN):
            return bucket_of(known)
        return answer_type(answers) if a_set.metric == ENGLISH else ""

    extra = {"reading": reading(subset, config.prompt)} | ({"settings": WHOLE} if a_set.whole else {})
    return assemble(reference, VERSION, CARD, config, paths, parse, extra=extra, cut=cut)


def _length(record: Record, subset: str) -> int | None:
    """Return the context length by the authors' count, by which LongBench-E groups questions.

    Raises:
        BadRecord: The length is not an integer, or an `_e` set lacks it.
    """
    length = record.fields.get("length")
    if isinstance(length, float) and length.is_integer():
        length = int(length)
    if length is None and not subset.endswith(_EVEN):
        return None
    if isinstance(length, bool) or not isinstance(length, int) or length < 0:
        raise record.problem(f"field 'length' is {length!r}", "length", "a whole number from 0 on")
    return length


def _cut(subset: str, config: LongDocumentConfig) -> Cut | None:
    """Return the function that cuts contexts of a subset; None cuts by words.

    Raises:
        UserError: An option is not possible for the set.
    """
    a_set, chosen = set_of(subset), config.model_fields_set & {"chunk_words", "chunk_overlap"}
    if a_set.whole:
        if chosen:
            raise UserError(
                f"contexts of longbench/{subset} are read whole and cannot be cut into chunks",
                code="context-not-cut",
                where=f"option {min(chosen)} of longbench",
                try_this=f"leave {' and '.join(sorted(chosen))} out of longbench/{subset}",
            )
        return lambda text: [text]
    if a_set.language != "zh":
        return None
    if config.chunk_overlap:
        raise UserError(
            "chunk_overlap counts words between spaces, which Chinese text does not have",
            code="overlap-in-chinese",
            where="option chunk_overlap of longbench",
            try_this=f"leave chunk_overlap out of longbench/{subset}",
        )
    return lambda text: character_chunks(text, config.chunk_words)


def reading(subset: str, prompt: Literal["published", "ours"] | None = "ours") -> dict[str, Any]:
    """Return a subset's reading instructions: prompt, maximum answer length, truncation, and whether the chat format is used.

    Args:
        subset: The set or its `_e` variant.
        prompt: The authors' prompt or ours; None uses the authors' if it is available locally.

    Raises:
        UserError: The authors' prompt is requested but cannot be downloaded, or has a wrong hash.
    """
    result = set_of(subset)
    text = result.prompt
    if prompt != "ours":
        known = texts_of("longbench") if prompt == "published" or path_of("longbench").is_file() else {}
        theirs = str(known.get(subset.removesuffix(_EVEN), ""))
        # Five prompts hold the question in their own words; readers take a template only if it names the question.
        if "{input}" in theirs:
            text = as_template(theirs, context="passages", input="question")
        elif prompt == "published":
            raise UserError(
                f"the published prompt of longbench/{subset} contains its own question, so a question cannot be inserted",
                code="longbench-prompt-mismatch",
                where="option prompt of longbench",
                try_this="prompt: ours",
            )
    return {"prompt": text, "max_new_tokens": result.max_new_tokens, "truncation": "middle", "chat": result.chat}


def _require_set(record: Record, subset: str) -> None:
    """Raise an error (even with `skip_bad`) if a record belongs to another dataset or set."""
    refuse_other_dataset(record, "longbench")
    # UltraDomain's mix keeps the names of the LongBench sets that it was made from.
    value = "ultradomain" if "label" in record.fields else record.text("dataset")
    # A variant's file may carry the plain set's name, never the other way round.
    if value not in (subset, subset.removesuffix(_EVEN)):
        raise UserError(
            f"this record belongs to {value}, not to {subset}",
            code="record-of-other-subset",
            where=f"{record.where}, field dataset",
            try_this=f"ask for longbench/{value}:test" if value in SIZES else f"give longbench the file {subset}.jsonl",
        )
