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
"""Constant that keeps the package's F from dividing by 0, and below 1."""


def _words_language(values: Mapping[str, Any]) -> str:
    return "zh" if values["words"] == "jieba" else "en"


def _has_words(text: str) -> bool:
    """Return whether a text has words for ROUGE-L."""
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
    """Compute ROUGE-L F of the Python package `rouge` (used by LongBench), which differs from the metric `rouge`; the maximum
    over the gold answers.

    Texts are split into sentences at full stops and into words at white space; case and punctuation are kept. Distinct words
    are counted: those in a longest common subsequence of any answer sentence with any gold sentence, divided by the distinct
    words of the answer (precision) and of the gold answer (recall). words=jieba first segments Chinese text. A gold answer of
    only full stops is left out; a question with none left is unscorable. If the package fails on two long sentences (recursion
    limit, which LongBench counts as 0), the correct value is computed.
    """
    result = pairs(shortened(batch, lines), golds, _has_words)
    cut = lru_cache(maxsize=None)(_jieba if words == "jieba" else str)
    return _each(result, [rouge_l(cut(answer), cut(gold)) for answer, gold in zip(result.answers, result.references, strict=True)])


def _jieba(text: str) -> str:
    return " ".join(chinese_words(text))


def _each(result: Pairs, values: Sequence[float]) -> Scores:
    return result.best(np.array(values, dtype=np.float64))


def rouge_l(prediction: str, reference: str) -> float:
    """Compute ROUGE-L F of two texts as the package `rouge` does; 0 if it considers one of them empty."""
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
    """Return the words of the same longest common subsequence that the package finds."""
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
"""Key of `Question.metadata` with the classes to choose from."""


@register("longbench_class", source="LongBench classification_score", group="answer", needs=("answer",), parameters=(GOLDS,))
def longbench_class(batch: Batch, golds: str) -> Scores:
    """Compute LongBench's classification score: 1 / the number of classes named in the answer's first line if the gold class is
    among them, else 0.

    Class names are matched exactly, anywhere in the line. A name that is part of the gold name is removed from the matches; as
    in the official script, the match after a removed one is then skipped. A question without a list of classes is unscorable.
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
    """Compute LongBench's number score: the share of numbers in the answer that equal the gold number, the maximum over the
    gold answers; 0 without numbers.

    A number is a run of digits, compared as a string. The gold number is that in the first "Paragraph 7" or "段落7", else the
    whole gold answer. A question without a gold answer is unscorable.
    """
    result = pairs(batch, golds)
    return _each(result, [_number_score(*pair) for pair in zip(result.answers, result.references, strict=True)])


def _number_score(answer: str, gold: str) -> float:
    numbers, paragraph = _NUMBER.findall(answer), _PARAGRAPH.search(gold)
    return numbers.count(paragraph[1] if paragraph else gold) / len(numbers) if numbers else 0.0


@register("longbench_code", source="LongBench code_sim_score", group="answer", needs=("answer",), parameters=(GOLDS,))
def longbench_code(batch: Batch, golds: str) -> Scores:
    """Compute LongBench's code similarity of the answer's first line of code with the gold answer, in whole percent; the
    maximum over the gold answers.

    The first line of code is the first one without a backtick, `#` or `//`. The similarity is fuzzywuzzy's `ratio` without
    python-Levenshtein (with that package, fuzzywuzzy computes another value): Python's `difflib.SequenceMatcher`, times 100,
    rounded; 1 for equal texts, 0 if one is empty. A question without a gold answer is unscorable.
    """
    result = pairs(batch, golds)
    return _each(result, [_code_score(*pair) for pair in zip(result.answers, result.references, strict=True)])


def code_line(answer: str) -> str:
    """Return the first line of code in an answer (without a backtick, `#` or `//`); "" if there is none."""
    lines = answer.lstrip("\n").split("\n")
    return next((line for line in lines if not any(mark in line for mark in ("`", "#", "//"))), "")


def _code_score(answer: str, gold: str) -> float:
    line = code_line(answer)
    if line == gold:
        return 1.0
    return round(100 * difflib.SequenceMatcher(None, line, gold).ratio()) / 100 if line and gold else 0.0
