"""Multiple choice and masked names, as the scripts of LongBench v2 and ∞Bench read them.

The gold of a choice is a letter or the text of a choice, each the other's alias (`Question.golds`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from judges.metric import Batch, Parameter, Scores, register

_LETTERS = ("A", "B", "C", "D")
_SENTENCE = (re.compile(r"The correct answer is \(([A-D])\)"), re.compile(r"The correct answer is ([A-D])"))
_LETTER = re.compile(r"\W*([A-D])\W*")
_MARKS = str.maketrans(dict.fromkeys("\n\"'.,?!{}", " "))
_NAME_MARKS = str.maketrans(dict.fromkeys("\n:\"'.,?!{}", " "))
_LED = re.compile(r"\W*([A-D])(?:\s?\)|\s?\]|[.:]\s|\s?\n|[.:]?\*{1,2}[.:]?\s)\s*(.*)", re.DOTALL)
"""Pattern of a reply that begins with a letter and a mark: "(B) Lyon", "B. Lyon"."""
_STATED = re.compile(
    r"(?:(?i:\b(?:answer|option|choice|antwort|réponse|respuesta|resposta|risposta|ответ)\b)|答案|答え|정답|\\boxed\{)"
    r"(?i:[\s:：*]{0,4}(?:is|ist|est|es|é|è|是|为|は)?[\s:：*]{0,4}(?:option|choice)?)[\s:：*(\[\"'{]{0,6}([A-D])(?=[)\]\"'*}.,;:。]|\s*$|\s*\n)"
)
"""Pattern of a letter in a sentence that states the answer."""
_PREFIXES = ("answer is:", "answer:", "answer is", "option is")


def _longbench_v2(answer: str, golds: Sequence[str]) -> bool:
    text = answer.replace("*", "")
    sentence = next(filter(None, (pattern.search(text) for pattern in _SENTENCE)), None)
    return sentence is not None and sentence[1] in golds


def _letter(answer: str, golds: Sequence[str]) -> bool:
    text = answer.strip()
    if alone := _LETTER.fullmatch(text):
        return alone[1] in golds
    if text in golds or _longbench_v2(answer, golds):
        return True
    if stated := set(_STATED.findall(text)):
        return len(stated) == 1 and stated <= set(golds)
    led = _LED.fullmatch(text)
    texts = tuple(gold.casefold() for gold in golds if gold not in _LETTERS)
    # "A. Lincoln" may be the text of another choice: after a full stop or colon, the gold's text must follow.
    marked = led is not None and (text[led.end(1)] in ")] *\n" or led[2].casefold().startswith(texts))
    return led is not None and marked and led[1] in golds


def _infinitebench(answer: str, golds: Sequence[str]) -> bool:
    text = answer.strip()
    if not text:
        return False
    if text[0] in "ABCD":
        return text[0] in golds
    if text in golds:
        return True
    text = re.sub(" {2,}", " ", text.translate(_MARKS))
    for prefix in _PREFIXES:
        at = text.find(prefix)
        if at >= 0:
            # The script skips one character after the prefix, assuming a blank.
            return text[at + len(prefix) + 1 :].startswith(tuple(golds)) and len(text) > at + len(prefix)
    return next((word in golds for word in text.split() if word in "ABCD"), False)


_RULES: Mapping[str, Callable[[str, Sequence[str]], bool]] = {
    "letter": _letter,
    "longbench_v2": _longbench_v2,
    "infinitebench": _infinitebench,
}


@register(
    "choice",
    source="LongBench v2 extract_answer; ∞Bench get_score_one_longbook_choice_eng",
    group="answer",
    needs=("answer",),
    version=2,
    parameters=(Parameter("rules", str, "letter", tuple(_RULES), "how a reply becomes a choice"),),
)
def choice(batch: Batch, rules: str) -> Scores:
    """Score a multiple-choice reply: 1 if it names the correct choice, else 0.

    Rules: longbench_v2 reads the letter in "The correct answer is (A)", brackets optional, asterisks ignored; a reply without
    that sentence is wrong. letter also accepts a reply that is only the letter or only the text of the choice, a letter in
    brackets before a text, a letter before the text of the choice, and a sentence such as "Answer: B". infinitebench
    takes a first character A to D as the choice; else a reply that is the letter or the text; else the text after "answer is:",
    "answer:", "answer is" or "option is"; else the first isolated letter. A question whose gold answer has no letter is
    unscorable.
    """
    return _each(batch, _RULES[rules], lambda golds: any(gold in _LETTERS for gold in golds))


@register("infinitebench_name", source="∞Bench get_score_one_longdialogue_qa_eng", group="answer", needs=("answer",))
def infinitebench_name(batch: Batch) -> Scores:
    """Score InfiniteBench's name questions: 1 if a word of the upper-cased reply is the first gold answer, else 0.

    Words are separated by punctuation and spaces, so a gold answer of several words never matches. A first gold answer with
    lower-case letters is unscorable.
    """
    return _each(
        batch,
        lambda answer, golds: golds[0] in answer.translate(_NAME_MARKS).upper().split(),
        lambda golds: bool(golds) and golds[0].isupper(),
    )


def _each(batch: Batch, right: Callable[[str, Sequence[str]], bool], scorable: Callable[[Sequence[str]], bool]) -> Scores:
    pairs = zip(batch.answers, batch.golds, strict=True)
    return np.array([float(right(answer, golds)) if scorable(golds) else np.nan for answer, golds in pairs], dtype=np.float64)
