"""Polarity of texts by a list of English words: enough to see a shift from one set of texts to another."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from judges.api import Scores

_POSITIVE = """
adorable adore adored affection affectionate amazing amused amusing applause ardour awesome beautiful beloved best
better blessed bless bliss brave bright brilliant celebrate celebrated charm charming cheer cheerful cherish cherished
comfort cool dear dearest delight delighted delightful devoted devotedly dream dreaming eager easy elegant embrace
embraced enchant enchanted enchanting enchants enjoy enjoyed enjoys excellent excited exciting fabulous famous fantastic
favourite favorite fine fond fondly friend friendly fun funny gallant gentle gently glad glorious glory good gorgeous
grace graceful grand grateful great grinning happily happy heart hearts heartfelt hero honour honor hope hopeful
impressive incredible joy joyful kind kindly kiss laugh laughed laughter love loved lovely lover lovers loves loving
lovingly lucky magic magical magnificent marvellous marvelous merry nice passion passionate peace perfect pleasant
pleased pleasure praise praised precious pretty prize promise proud rapture remarkable rich romance romantic rose roses
smile smiled smiling splendid stunning success successful super sweet sweetest sweethearts sweetness tender tenderly
terrific thrilled thrilling treasure triumph triumphant warm warmly warmth welcome win winner winning wise won wonder
wonderful wondrous wow yay
"""
_NEGATIVE = """
abandoned abuse accident afraid aggressive agony alas angry annoyance annoyed annoying anxious awful bad banned battle
bitter bitterly blame blamed bleak boring broken brutal burden clumsy collapse complain cruel crime crisis cry crying
damage damaged danger dangerous dead deadly death defeat defeated despair despised destroyed destruction devastating
die died dies difficult dire disappointed disappointing disaster disease disgrace disgusting dismal distress dreadful
dull embarrassing enemy evil fail failed fails failure false fear feared fearful fight foul fraud furious gloomy goner
grave greed grief grim guilty harm harmful harsh hate hated hates hatred horrible horrific horror hostile hurt ill
illness infamous injured jealous kill killed lonely lose loses losing loss lost mad mean mess miserable misery mistake
mourn murder murdered nasty negative nightmare odd pain painful panic plague poor prison problem punished rage regret
reject rejected ridiculous rude ruin ruined sad sadly sadness scandal scared serious shame shameful shock sick sigh
sinister sorrow sorry startled stupid suffer suffered suffering terrible terrified terror threat tragedy tragic trouble
ugly unfortunate unfortunately unhappy upset victim violence violent war wars weak weary weep wept worse worst wound
wounded wretched wrong
"""
_NEGATIONS = frozenset(["not", "no", "never", "neither", "nor", "nobody", "nothing", "without", "hardly", "cannot"])

_SIGN = {**dict.fromkeys(_POSITIVE.split(), 1), **dict.fromkeys(_NEGATIVE.split(), -1)}
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
REACH = 2
"""How many words after a negation are turned round by it."""


def polarity(text: str) -> float:
    """(positive − negative) / (positive + negative) words of a text, in [-1, 1]; 0 where there are none.

    A word counts by fixed lists of English words, with the other sign where one of the two words before it is a
    negation (not, never, no, …, anything that ends in n't). Case does not count. This is not TextBlob's polarity, which
    SARK reports: only shifts can be compared, and only roughly.
    """
    positive = negative = 0
    negated = 0
    for match in _WORD.finditer(text.lower().replace("’", "'")):
        word = match[0]
        if word in _NEGATIONS or word.endswith("n't"):
            negated = REACH
            continue
        sign = _SIGN.get(word, 0)
        if negated:
            sign, negated = -sign, negated - 1
        positive += sign > 0
        negative += sign < 0
    return (positive - negative) / (positive + negative) if positive + negative else 0.0


def polarities(texts: Sequence[str]) -> Scores:
    """`polarity` of every text. Shape (texts,)."""
    return np.array([polarity(text) for text in texts], dtype=np.float64)
