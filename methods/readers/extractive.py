"""Extractive reader without a language model: finds the sentence most similar to the question, and a matching span in it.

Sentences of the context are ranked by BM25 (title words count half; words are cut to six letters instead of stemming). Then, by
question type:

- "A or B?": the option whose passage fits better: by its years if the question compares times, else by word overlap;
- yes or no: always "yes", the more frequent answer;
- a date, year, number or name: the span of that type with the largest sum, over the best sentences, of sentence score² × type
  fit × proximity to question words; spans in the question itself are excluded.

The reported support is the best sentence of each of the two best passages.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from pydantic import Field

from benchmarks.schema import Passage, Query
from benchmarks.text import normalize, sentences, tokens
from methods.api import SUPPORT, Answer, Context, Services
from methods.registry import MethodConfig, register
from methods.work import free

# English only, and no more than surface rules: enough that an answer without any model is a few words, not a sentence.


Kind = Literal["yes_no", "choice", "date", "year", "number", "name"]

_MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
_YEAR = re.compile(r"\b(?:1\d{3}|20\d{2})\b")
_DATE = re.compile(rf"\b(?:\d{{1,2}} (?:{_MONTHS})|(?:{_MONTHS})(?: \d{{1,2}})?),? (?:1\d{{3}}|20\d{{2}})\b")
_NUMBER = re.compile(r"(?<![\w.])(?:[$€£]\s?)?\d[\d,]*(?:\.\d+)?(?:\s?%| (?:percent|million|billion|thousand|hundred|[a-z]+))?")
_SPAN_WORD = r"(?:[^\W\d_a-zà-öø-ÿ][\w'’-]*(?:\.(?=[\s,]|[A-Z]))?|(?:[A-Z]\.)+)"
_LINK = r"(?:of|the|de|la|le|du|von|van|der|den|and|for|in|on|al|bin|ibn|da|di|del|&)"
_NAME = re.compile(rf"{_SPAN_WORD}(?:\s+(?:{_LINK}\s+){{0,2}}{_SPAN_WORD})*(?:\s+\d{{1,4}}\b)?")
_QUOTED = re.compile(r"[\"“]([^\"“”]{2,80})[\"”]")

_ASKS_YES_NO = re.compile(r"^(?:are|is|was|were|do|does|did|has|have|had|can|could|will|would|should)\b", re.IGNORECASE)
_ASKS_YEAR = re.compile(r"\b(?:what|which) (?:\w+ )?year\b", re.IGNORECASE)
_ASKS_DATE = re.compile(r"\bwhen\b(?! in\b)|\b(?:what|which) (?:\w+ )?(?:date|day|month)\b|\bbirthday\b", re.IGNORECASE)
_ASKS_NUMBER = re.compile(
    r"\bhow (?:many|much|old|long|far|tall|high|big|large)\b|\b(?:population|percentage|what number|snowfall)\b", re.IGNORECASE
)
_OPENER_LIST = """
A An The In On At It Its He His She Her They Their This That These Those As After Before During By From For With When
While Where However Although There And But Or If Since Also One Two Some Many Most Other Both Each Such Under Over
Following Until According Born Of To We I You
"""
_OPENERS = frozenset(_OPENER_LIST.split())
"""Words that are capitalized only because they start a sentence."""


class Span(NamedTuple):
    """A candidate answer: text, start in its sentence, and type."""

    text: str
    start: int
    kind: Kind


def kind_of(question: str) -> Kind:
    """Classify a question by the type of answer it asks for."""
    if options(question) is not None:
        return "choice"
    if _ASKS_YES_NO.match(question.strip()):
        return "yes_no"
    if _ASKS_YEAR.search(question):
        return "year"
    if _ASKS_NUMBER.search(question):
        return "number"
    if _ASKS_DATE.search(question):
        return "date"
    return "name"


def options(question: str) -> tuple[str, str] | None:
    """Return the two options of a question of the form `…, A or B?`; None for other questions."""
    text = question.strip().rstrip("?").strip()
    if " or " not in text:
        return None
    before, _, right = text.rpartition(" or ")
    # The left option is what follows the last comma, or the capitalized words right before "or".
    comma = before.rstrip(",").rfind(", ")
    left = before[comma + 2 :] if comma >= 0 else ""
    if not left or not left[0].isupper() or len(left.split()) > 10:
        names = list(_NAME.finditer(before))
        if not names or names[-1].end() < len(before.rstrip(" ,")):
            return None
        left = names[-1].group()
        first = left.split()[0]
        if names[-1].start() == 0 and _ASKS_YES_NO.match(first):
            left = left.removeprefix(first).strip()
    leading = _NAME.match(right)
    if leading is None or not left:
        return None
    # "Was A or B born first": what follows the second name is the rest of the question.
    right = leading.group() if before.split()[0].lower() in {"was", "is", "did"} else right
    return left.strip(" ,"), right.strip()


def spans(sentence: str) -> list[Span]:
    """Extract all candidate answers from a sentence: dates, years, numbers, names and quoted phrases."""
    results = [Span(match.group(), match.start(), "date") for match in _DATE.finditer(sentence)]
    results += [Span(match.group(), match.start(), "year") for match in _YEAR.finditer(sentence)]
    results += [Span(match.group().strip(), match.start(), "number") for match in _NUMBER.finditer(sentence)]
    results += [Span(match.group(1), match.start(1), "name") for match in _QUOTED.finditer(sentence)]
    for match in _NAME.finditer(sentence):
        text, start = match.group(), match.start()
        while (words := text.split(maxsplit=1)) and words[0] in _OPENERS:
            rest = words[1] if len(words) > 1 else ""
            start += len(text) - len(rest)
            text = rest
        text = text.rstrip(" ,")
        if len(text) > 1 and not re.fullmatch(rf"(?:{_LINK}\s*)+", text):
            results.append(Span(text, start, "name"))
    return results


def years(text: str) -> list[int]:
    """Return the years mentioned in a text, in order."""
    return [int(year) for year in _YEAR.findall(text)]


K1, B = 1.2, 0.5
TITLE_WEIGHT = 0.5
SENTENCES = 8
"""Number of best sentences from which spans are taken."""
REACH = 20
"""Distance in characters from a question word at which the proximity weight is halved."""
PREFIX = 6
_STOPWORD_LIST = """
a an the of in on at to for by with from and or is are was were be been do does did has have had what which who whom
whose when where how why that this these those it its as than name both between
"""
STOPWORDS = frozenset(_STOPWORD_LIST.split())
FIT: dict[Kind, dict[Kind, float]] = {
    "date": {"date": 1.0, "year": 0.6},
    "year": {"year": 1.0, "date": 0.3},
    "number": {"number": 1.0, "year": 0.2},
    "name": {"name": 1.0},
}
"""Score of a span type as the answer to a question for another type."""
_EARLIER = re.compile(r"\b(?:first|earlier|earliest|older|oldest|before)\b", re.IGNORECASE)
_LATER = re.compile(r"\b(?:later|latest|younger|youngest|recent|recently|last|newer)\b", re.IGNORECASE)
_DEATH = re.compile(r"\b(?:die|died|dies|death)\b", re.IGNORECASE)
_BRACKETS = re.compile(r"\s*\([^)]*\)")
_WORD = re.compile(r"\w+")


class ExtractiveConfig(MethodConfig):
    """Options of the extractive reader."""

    span: bool = Field(True, description="answer with the best span; false: with the whole best sentence")
    support: int = Field(2, ge=0, description="number of sentences cited as support, each from another passage")


@dataclass(slots=True)
class _Sentence:
    """A sentence of the context with its words and its score."""

    passage: Passage
    index: int
    text: str
    words: list[str]
    title: frozenset[str]
    score: float = 0.0


@register(
    "extractive", kind="reader", version=2, summary="the best span of the best sentences by rules, without a language model", work=free
)
class Extractive:
    """Reader role: answers with the best span or sentence of the passages, selected by rules without a model.

    Args:
        config: Options.
        services: Unused.
    """

    batch_size = 32

    def __init__(self, config: ExtractiveConfig, services: Services) -> None:
        self.config = config

    def read(self, queries: Sequence[Query], contexts: Sequence[Context]) -> list[Answer]:
        """Return one answer per query, "" for an empty context; supporting sentences are under `notes["support"]`."""
        return [self._answer(query.text, context) for query, context in zip(queries, contexts, strict=True)]

    def _answer(self, question: str, context: Context) -> Answer:
        ranked = rank_sentences(question, context.passages)
        if not ranked:
            return Answer("")
        text = extract(question, ranked, context.passages) if self.config.span else ranked[0].text.strip()
        first_of_passage: dict[str, _Sentence] = {}
        for sentence in ranked:
            first_of_passage.setdefault(sentence.passage.id, sentence)
        chosen = list(first_of_passage.values())[: self.config.support]
        support = [[sentence.passage.id, sentence.index] for sentence in chosen]
        return Answer(text, notes={SUPPORT: support} if support else {})


def terms(text: str) -> list[str]:
    """Return the content words of a text, cut to six letters to match inflected forms."""
    return [word[:PREFIX] for word in tokens(text) if word not in STOPWORDS]


def rank_sentences(question: str, passages: Sequence[Passage]) -> list[_Sentence]:
    """Rank the sentences of a context by BM25 against the question, best first; ties in reading order."""
    results = []
    for passage in passages:
        title = frozenset(terms(passage.title))
        for index, text in enumerate(passage.sentences or sentences(passage.text)):
            if text.strip():
                results.append(_Sentence(passage, index, text, terms(text), title))
    wanted = sorted(set(terms(question)))
    holders = Counter(word for sentence in results for word in {*sentence.words, *sentence.title})
    idf = {w: math.log(1 + (len(results) - holders[w] + 0.5) / (holders[w] + 0.5)) for w in wanted}
    mean = sum(len(sentence.words) for sentence in results) / len(results) if results else 0.0
    for sentence in results:
        counts = Counter(sentence.words)
        saturation = K1 * (1 - B + B * len(sentence.words) / mean) if mean else K1
        for word in wanted:
            frequency = counts[word] + TITLE_WEIGHT * (word in sentence.title)
            if frequency:
                sentence.score += idf[word] * frequency * (K1 + 1) / (frequency + saturation)
    return sorted(results, key=lambda sentence: -sentence.score)


def extract(question: str, ranked: Sequence[_Sentence], passages: Sequence[Passage]) -> str:
    """Return the answer from the ranked sentences of a context."""
    kind = kind_of(question)
    if kind == "choice":
        offered = options(question)
        if offered is not None:
            return choose(question, offered, passages)
    if kind == "yes_no":
        return "yes"
    return best_span(question, FIT[kind], ranked) or ranked[0].text.strip()


def best_span(question: str, fit: dict[Kind, float], ranked: Sequence[_Sentence]) -> str:
    """Return the best-scoring span of a fitting type; "" if there is none."""
    query, query_terms = set(tokens(question)), set(terms(question))
    top = ranked[0].score or 1.0
    weights: dict[str, float] = {}
    wordings: dict[str, str] = {}
    for sentence in ranked[:SENTENCES]:
        positions = [m.start() for m in _WORD.finditer(sentence.text) if query_terms.intersection(terms(m.group()))]
        for span in spans(sentence.text):
            words = tokens(span.text)
            if span.kind not in fit or not words or query.issuperset(words):
                continue
            nearness = 1 / (1 + min((abs(span.start - position) for position in positions), default=200) / REACH)
            key = " ".join(words)
            gain = (sentence.score / top) ** 2 * fit[span.kind] * (1 + nearness)
            weights[key] = weights.get(key, 0.0) + gain
            wordings.setdefault(key, span.text)
    return wordings[max(weights, key=lambda key: weights[key])] if weights else ""


def choose(question: str, offered: tuple[str, str], passages: Sequence[Passage]) -> str:
    """Return the better-fitting option; the first one on a tie."""
    stem = question.replace(offered[0], " ").replace(offered[1], " ")
    named = [_passages_about(option, passages) for option in offered]
    dated = [years(result[0].text) if result else [] for result in named]
    if all(dated) and (_EARLIER.search(question) or _LATER.search(question)):
        # A biography opens with birth and death, in this order.
        second = 1 if _DEATH.search(question) else 0
        left, right = (result[min(second, len(result) - 1)] for result in dated)
        return offered[left < right if _LATER.search(question) else left > right]
    wanted = set(terms(stem))
    left, right = (max((len(wanted.intersection(terms(p.text))) for p in result), default=0) for result in named)
    return offered[left < right]


def _passages_about(option: str, passages: Sequence[Passage]) -> list[Passage]:
    """Return the passages whose title is the option (ignoring a bracket); else those that mention it."""
    words = set(tokens(_BRACKETS.sub("", option)))
    titled = []
    for passage in passages:
        title = set(tokens(_BRACKETS.sub("", passage.title)))
        if words and len(words & title) > 0.5 * len(words | title):
            titled.append(passage)
    mention = normalize(option)
    return titled or [passage for passage in passages if mention and mention in normalize(passage.text)]
