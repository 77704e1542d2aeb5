"""Entity preservation: which names and numbers of one text are in another.

Two extractors under two ids: a model of spaCy, and rules without dependencies. Neither replaces the other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

from benchmarks.core.errors import UserError, unknown_name
from benchmarks.text import sentences
from judges.metric import Batch, Parameter, Scores, register
from judges.metrics.answer import GOLDS, pairs

RULE = "rule"
SPACY = "en_core_web_sm"
EXTRACTORS = (RULE, SPACY)

_EXTRACTOR = Parameter("extractor", str, RULE, EXTRACTORS, "our rules, or named-entity recognition by a spaCy model")


@register(
    "entity_preservation",
    source="CLaRa, table 17 (spaCy en_core_web_sm); rules: ours",
    group="text",
    needs=("answer",),
    parameters=(_EXTRACTOR, GOLDS),
    exact=False,
)
def entity_preservation(batch: Batch, extractor: str, golds: str) -> Scores:
    """Compute entity preservation: the share of the gold answer's entities that occur in the answer, the maximum over the gold answers.

    Entities are unique lower-cased strings. Gold answers without entities are ignored if another one has some; if none has any,
    the question scores 1, as in CLaRa. A set of answers is one text with a line per answer. extractor=rule takes numbers and
    runs of capitalized words (joined by of, de, von …; a sentence's first word only if it is not a common one).
    """
    result = pairs(batch, golds)
    kept = partial(_preserved, named=lru_cache(maxsize=None)(_extract(extractor)))
    scores = result.best(np.array(list(map(kept, result.references, result.answers)), dtype=np.float64))
    return np.where(result.has_pair & np.isnan(scores), 1.0, scores)


def entity_preservation_of_pairs(sources: Sequence[str], targets: Sequence[str], extractor: str = RULE) -> Scores:
    """Compute, for each pair of texts, the share of the source's entities that occur in the target.

    Args:
        sources, targets: One text per pair.
        extractor: `rule`, or the name of a spaCy model.

    Returns:
        Shape (pairs,), in [0, 1]; 1 if a source has no entities.

    Raises:
        UserError: The extractor is unknown, or spaCy or its model is not installed.
    """
    kept = partial(_preserved, named=_extract(extractor))
    scores = np.array([kept(*pair) for pair in zip(sources, targets, strict=True)], dtype=np.float64)
    return np.where(np.isnan(scores), 1.0, scores)


def rule_entities(text: str) -> frozenset[str]:
    """Extract names and numbers from a text by rules, lower-cased.

    A name is a run of capitalized words, which may be joined by small words (of, de, von …); at the start of a sentence, common
    words (The, In, She …) do not begin a name. A number is a run of digits with inner points and commas. Scripts without
    capital letters have no names.
    """
    return frozenset(name.lower() for sentence in sentences(text) for name in _entities(sentence))


Extractor = Callable[[str], frozenset[str]]


def _preserved(source: str, target: str, named: Extractor) -> float:
    wanted = named(source)
    return len(wanted & named(target)) / len(wanted) if wanted else np.nan


def _extract(extractor: str) -> Extractor:
    if extractor == RULE:
        return rule_entities
    if extractor != SPACY:
        raise unknown_name("extractor of entities", extractor, EXTRACTORS)
    model = _spacy(extractor)
    return lambda text: frozenset(entity.text.lower() for entity in model(text).ents)


@lru_cache(maxsize=1)
def _spacy(name: str) -> Any:
    try:
        import spacy
    except ImportError as error:
        raise UserError(
            f"entities by {name!r} need the package 'spacy', which is not installed",
            code="missing-spacy",
            try_this=f"pip install spacy && python -m spacy download {name}, or extractor={RULE}",
        ) from error
    try:
        return spacy.load(name)
    except OSError as error:
        raise UserError(
            f"spaCy's model {name!r} is not installed", code="missing-spacy-model", try_this=f"python -m spacy download {name}"
        ) from error


_TOKEN = re.compile(r"(?:[^\W\d_]\.){2,}|[^\W\d_]\.(?=\s+[^\W\d_])|[^\W_]+(?:['’.,&/-][^\W_]+)*")
_GAP = re.compile(r"[^\S\n]+")
"""Gap between words of a name; a line break ends a name, because lists put the next item there."""
_POSSESSIVE = re.compile(r"['’]s$", re.IGNORECASE)
_LINK_WORDS = "of de da di du del della la le van von der den bin ibn al"
_LINKS = frozenset(_LINK_WORDS.split())
_COMMON_WORDS = """
a an the this that these those he she it its his her their they we i you my your our one some many most both each in on
at by for from to with as after before during since until when while where who what which why how if although though
because however and but or so then there here no not yes is are was were be has had have did does do can may might will
would should could also only it's he's she's there's
"""
_COMMON = frozenset(_COMMON_WORDS.split())


def _entities(sentence: str) -> list[str]:
    runs: list[list[re.Match[str]]] = [[]]
    for number, token in enumerate(_TOKEN.finditer(sentence)):
        word, run = token[0], runs[-1]
        touches = bool(run) and _GAP.fullmatch(sentence, run[-1].end(), token.start())
        if word[0].isdigit():
            runs += [[token], []]
        elif word[0].isupper() and (number > 0 or word.lower() not in _COMMON):
            runs.append([*runs.pop(), token] if touches else [token])
        elif touches and word in _LINKS:
            run.append(token)
        else:
            runs.append([])
    return [name for run in runs if (name := _name([token[0] for token in run]))]


def _name(words: list[str]) -> str:
    """Return the name in a run of words, without function words at its end."""
    while words and words[-1] in _LINKS:
        words.pop()
    return _POSSESSIVE.sub("", " ".join(words))
