"""Invented words, the same for every world: one set for training worlds, and words that only held-out worlds use.

A few thousand short pronounceable words, none inside another, so that a small tokenizer trained on the worlds
covers each with one or two tokens and an answer never occurs inside another word by accident.
"""

from __future__ import annotations

from functools import cache

from benchmarks.draws import Draws

SIZES = {"train": 1500, "validation": 300, "test": 600}
"""Words by the split that introduces them; every split also uses the training words."""


def _list(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_ONSETS = _list("b d f g h k l m n p r s t v w z b d k l m n r s t v br dr fl gl gr kl pl st th tr")
_VOWELS = _list("a e i o u a e i o u a e i o u ei ia ou")
_INNER_CODAS = _list("l n r m s")
_CODAS = ("", "", "l", "n", "r", "s", "m", "k", "th", "x", "nd", "rn", "sk")
_REAL = frozenset(
    _list(
        """brother father mother sister under winter summer silver golden garden market master letter river water
    banter barter border dinner finger ginger hammer harbour hinder holder honest hunter kitten lantern latter
    legend lesson listen litter manner matter member mental modern mortal mother mutton number order panther
    parent parlour partner pattern person pillar planet platter plaster poster powder printer proper rather
    render sender shelter sister slander sober solar sonar stolen talent tender timber turnip under venom
    verdant victor vinyl wander wonder yonder london berlin paris milan japan brazil dublin lisbon koran stalin
    hitler osama nazi hotel motel radar laser honor motor tumor rumor human woman roman titan satan pagan
    slogan began melon lemon salon talon baron bacon wagon dragon canon felon gallon salad ballad"""
    )
)


@cache
def words() -> tuple[str, ...]:
    """All words: the training words first, then those of validation, then those of test worlds."""
    draws = Draws("lexicon", 1)
    wanted = sum(SIZES.values())
    chosen: list[str] = []
    parts: set[str] = set()  # every piece of a chosen word that could itself be a word
    taken: set[str] = set()
    while len(chosen) < wanted:
        word = _word(draws)
        pieces = [word[a:b] for a in range(len(word)) for b in range(a + 4, len(word) + 1)]
        if not 4 <= len(word) <= 8 or word in parts or word in _REAL or not taken.isdisjoint(pieces):
            continue
        chosen.append(word)
        taken.add(word)
        parts.update(pieces)
    return tuple(word.capitalize() for word in chosen)


def introduced_by(split: str) -> range:
    """Positions in `words()` of the words that a split introduces."""
    start = 0
    for name, size in SIZES.items():
        if name == split:
            return range(start, start + size)
        start += size
    raise KeyError(split)


def training_words() -> tuple[str, ...]:
    """The words that occur in training worlds, and in part in all others."""
    return words()[: SIZES["train"]]


def _word(draws: Draws) -> str:
    syllables = 3 if draws.chance(0.2) else 2
    text = ""
    for position in range(syllables):
        text += draws.pick(_ONSETS) + draws.pick(_VOWELS)
        if position == syllables - 1:
            text += draws.pick(_CODAS)
        elif draws.chance(0.3):
            text += draws.pick(_INNER_CODAS)
    return text
