"""LongBench's own metrics: ROUGE-L as the package `rouge` has it, classes, numbers, code.

Its question answering is `f1(rules=longbench)` and `f1(rules=longbench_zh)`. All are the maximum over the golds, of the
whole answer or, for few-shot tasks, of its first line (`lines=first`).

Source: Bai et al., 2024, LongBench, `metrics.py` and `eval.py`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from benchmarks.text import chinese_words
from judges.metric import Batch, Parameter, Scores, register
from judges.metrics.answer import GOLDS, LINES, Pairs, pairs, shortened

_WORDS = Parameter("words", str, "spaces", ("spaces", "jieba"), "what lies between white space, or Chinese words by jieba")
_EPSILON = 1e-8
"""Keeps the package's F from dividing by 0, and below 1."""


def _words_language(values: Mapping[str, Any]) -> str:
    return "zh" if values["words"] == "jieba" else "en"


def _worded(text: str) -> bool:
    """Return whether ROUGE-L finds anything in a text."""
    return bool(text.replace(".", "").strip())


@register(
    "longbench_rouge",
    source="rouge 1.0.1 (PyPI), rouge-l; LongBench rouge_score and rouge_zh_score",
    group="text",
    needs=("answer",),
    parameters=(_WORDS, GOLDS, LINES),
    language=_words_language,
)
def longbench_rouge(batch: Batch, words: str, golds: str, lines: str) -> Scores:
    """Return ROUGE-L F of the package `rouge`, which is not the ROUGE-L of `rouge`: the maximum over the golds.

    Texts are parted into sentences at full stops and into words at white space, case and punctuation kept. Counted are
    distinct words: those in a longest common subsequence of any sentence of the answer with any of the gold, over the
    distinct words of the answer (precision) and of the gold (recall). words=jieba: Chinese is first cut into words. A
    gold of nothing but stops is left out; a question with none left is unscorable. Where the package fails on two long
    sentences (recursion, which LongBench counts as 0), the value is what it would have been.
    """
    result = pairs(shortened(batch, lines), golds, _worded)
    cut = lru_cache(maxsize=None)(_jieba if words == "jieba" else str)
    return _each(result, [rouge_l(cut(answer), cut(gold)) for answer, gold in zip(result.answers, result.references, strict=True)])


def _jieba(text: str) -> str:
    return " ".join(chinese_words(text))


def _each(result: Pairs, values: Sequence[float]) -> Scores:
    return result.best(np.array(values, dtype=np.float64))


def rouge_l(prediction: str, reference: str) -> float:
    """Return ROUGE-L F as the package `rouge` computes it, 0 if it finds one of the two empty."""
    predicted, wanted = _sentences(prediction), _sentences(reference)
    if not predicted or not wanted:
        return 0.0
    common: set[str] = set()
    for sentence in wanted:
        for other in predicted:
            common |= _common(sentence, other)
    precision, recall = (len(common) / len({word for sentence in side for word in sentence}) for side in (predicted, wanted))
    return 2.0 * ((precision * recall) / (precision + recall + _EPSILON))


def _sentences(text: str) -> list[list[str]]:
    # As in the original, only white space between two stops is a sentence of one empty word.
    return [" ".join(piece.split()).split(" ") for piece in text.split(".") if piece]


def _common(wanted: list[str], predicted: list[str]) -> set[str]:
    """Return the words of the longest common subsequence that the package finds: of several, the same one."""
    numbers = {word: number for number, word in enumerate(dict.fromkeys((*wanted, *predicted)))}
    columns = np.array([numbers[word] for word in predicted])
    lengths = np.zeros((len(wanted) + 1, len(predicted) + 1), dtype=np.int32)
    for row, word in enumerate(wanted, start=1):
        above = lengths[row - 1]
        lengths[row, 1:] = np.maximum.accumulate(np.maximum(above[1:], above[:-1] + (columns == numbers[word])))
    common: set[str] = set()
    row, column = len(wanted), len(predicted)
    while row and column:
        if wanted[row - 1] == predicted[column - 1]:
            row, column = row - 1, column - 1
            common.add(wanted[row])
        elif lengths[row - 1, column] > lengths[row, column - 1]:
            row -= 1
        else:
            column -= 1
    return common


CLASSES = "all_classes"
"""Metadata key of a question that lists the classes to choose from."""


@register("longbench_class", source="LongBench classification_score", group="answer", needs=("answer",), parameters=(GOLDS,))
def longbench_class(batch: Batch, golds: str) -> Scores:
    """Return 1 / the number of classes that the first line of the answer names, if the gold is among them, else 0.

    Names are looked for as they are, anywhere in the line. One that is a part of the gold's name does not count next to
    it; as upstream, the name behind one that was struck out so is not looked at. A question that does not say its
    classes is unscorable.
    """
    scores = np.full(len(batch), np.nan)
    answers = shortened(batch, "first").answers
    for row, question in enumerate(batch.questions):
        classes = question.metadata.get(CLASSES)
        wanted = question.golds if golds == "all" else question.answers[:1]
        if classes and wanted:
            scores[row] = max(_class_score(answers[row], gold, classes) for gold in wanted)
    return scores


def _class_score(answer: str, gold: str, classes: Sequence[str]) -> float:
    named = [name for name in classes if name in answer]
    at = 0
    while at < len(named):
        if named[at] in gold and named[at] != gold:
            del named[at]
        at += 1  # also behind what was deleted: upstream deletes from the list that it goes through
    return 1 / len(named) if gold in named else 0.0


_PARAGRAPH = re.compile(r"(?:Paragraph |段落)(\d+)")
_NUMBER = re.compile(r"\d+")


@register(
    "longbench_number",
    source="LongBench count_score, retrieval_score, retrieval_zh_score",
    group="answer",
    needs=("answer",),
    parameters=(GOLDS,),
)
def longbench_number(batch: Batch, golds: str) -> Scores:
    """Return share of the numbers in the answer that are the gold's, the maximum over the golds; 0 without a number.

    A number is a run of digits, compared as it is written. The gold's is that of its first "Paragraph 7" or "段落7", else
    the gold itself. A question without a gold is unscorable.
    """
    result = pairs(batch, golds)
    return _each(result, [_number_score(*pair) for pair in zip(result.answers, result.references, strict=True)])


def _number_score(answer: str, gold: str) -> float:
    numbers, paragraph = _NUMBER.findall(answer), _PARAGRAPH.search(gold)
    return numbers.count(paragraph[1] if paragraph else gold) / len(numbers) if numbers else 0.0


@register("longbench_code", source="LongBench code_sim_score", group="answer", needs=("answer",), parameters=(GOLDS,))
def longbench_code(batch: Batch, golds: str) -> Scores:
    """Return likeness of the first line of code in the answer to the gold, in whole percent, the maximum over the golds.

    That line is the first one without a backtick, `#` or `//`. The likeness is fuzzywuzzy's `ratio` without
    python-Levenshtein: Python's `difflib.SequenceMatcher`, times 100, rounded; 1 for equal texts, 0 if one is empty.
    With that package next to it fuzzywuzzy computes something else. A question without a gold is unscorable.
    """
    result = pairs(batch, golds)
    return _each(result, [_code_score(*pair) for pair in zip(result.answers, result.references, strict=True)])


def code_line(answer: str) -> str:
    """Return the first line of code in an answer; "" if there is none."""
    lines = answer.lstrip("\n").split("\n")
    return next((line for line in lines if not any(mark in line for mark in ("`", "#", "//"))), "")


def _code_score(answer: str, gold: str) -> float:
    line = code_line(answer)
    if line == gold:
        return 1.0
    return round(100 * difflib.SequenceMatcher(None, line, gold).ratio()) / 100 if line and gold else 0.0
