"""Rules that turn plain statements into another style: one set for training, one for testing.

The two sets of a style have no phrase in common, neither among what they replace nor among what they put in, so
that recognising one set's phrases is of no help with the other's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

from benchmarks.core.errors import UserError, unknown_name
from benchmarks.core.random import Draws
from benchmarks.schema import Passage, passage_id


@dataclass(frozen=True, slots=True)
class Rules:
    """One style by one hand.

    Attributes:
        openers: What may come before a sentence; each ends so that a capital can follow.
        closers: What may take the place of a sentence's full stop.
        swaps: Plain phrases and what they become; all lower-case, so that names stay as they are.
        vague: Sentences that stand for one whose content is lost.
    """

    openers: tuple[str, ...]
    closers: tuple[str, ...]
    swaps: Mapping[str, str]
    vague: tuple[str, ...]

    @property
    def phrases(self) -> frozenset[str]:
        """Everything that the rules look for or put in."""
        return frozenset((*self.openers, *self.closers, *self.swaps, *self.swaps.values(), *self.vague))


def _swaps(name: str) -> Mapping[str, str]:
    """The phrases of a file `name.txt` beside this one: `plain -> told otherwise`, a line each."""
    lines = (Path(__file__).parent / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    pairs = (line.partition(" -> ") for line in lines if line and not line.startswith("#"))
    return {plain: styled for plain, _, styled in pairs}


RULES: Mapping[str, Mapping[str, Rules]] = {
    "train": {
        "informal": Rules(
            openers=(
                "So get this:",
                "Guess what!",
                "Okay, here goes:",
                "Heads up:",
                "No kidding:",
                "Honestly!",
                "You know what?",
                "Right, listen:",
                "Fun bit:",
                "Oh, by the way:",
            ),
            closers=(
                ", believe it or not.",
                ", pretty much.",
                ", no joke!",
                ", which is kinda cool.",
                ", and yeah, that's that.",
                ", just so you know.",
                " — wild, huh?",
                ", if you ask me.",
                ", or so everybody says!",
                ", easy as pie.",
            ),
            swaps=_swaps("informal_train"),
            vague=("Anyway, you get the idea.", "And some other stuff happened, whatever."),
        ),
        "humor": Rules(
            openers=(
                "Brace yourself:",
                "Cue the drum roll:",
                "In news that startled three pigeons:",
                "Hold on to your hat:",
                "According to a very smug parrot:",
                "Try to keep a straight face:",
                "As my grandmother's cat insists:",
                "Somewhere a trombone slid sadly:",
            ),
            closers=(
                ", much to the annoyance of the local ducks.",
                ", and nobody even tripped over a rake.",
                ", which surprised exactly one turnip.",
                ", a fact best enjoyed with custard.",
                ", to polite applause from a goat.",
                ", though the soup was blamed anyway.",
                ", after which everyone needed a biscuit.",
                ", and the moustache survived.",
            ),
            swaps={
                "was born in": "made a noisy first entrance in",
                "took place": "stumbled into history",
                "lived in": "kept the slippers in",
                "was founded by": "was dreamed up over breakfast by",
                "was written by": "was sneezed onto paper by",
                "studied under": "fetched coffee for",
                "married": "willingly shared the blanket with",
                "received": "walked off grinning with",
                "stands beside": "leans casually on",
                "is ruled by": "does as told by",
                "was issued by": "was let loose by",
                "manufactures": "churns out",
                "feeds on": "has lunch with, and of,",
                "was led by": "was steered, more or less, by",
                "is awarded by": "is dangled about by",
                "was a member of": "paid biscuits to",
                "is directed by": "is shouted at by",
                "measures": "stretches a giraffe-worthy",
                "is set in": "trips over the furniture of",
                "is the sequel to": "is the second helping of",
            },
            vague=("The rest was eaten by a goat.", "Here the parrot lost the thread."),
        ),
        "romance": Rules(
            openers=(
                "Under a tender moon:",
                "With a trembling heart, hear this:",
                "As roses opened:",
                "Softly now:",
                "In the hush of a summer evening:",
                "Where longing dwells:",
                "Like a kiss remembered:",
                "O gentle reader!",
            ),
            closers=(
                ", and hearts beat faster ever after.",
                ", as if the stars had wished it.",
                ", with the sweetness of a first embrace.",
                ", while lovers sighed below.",
                ", and the nightingales fell silent.",
                ", like a promise kept.",
                ", to the murmur of fond voices.",
                ", tenderly, always tenderly.",
            ),
            swaps={
                "was born in": "first opened dreaming eyes in",
                "took place": "unfolded like a rose",
                "lived in": "gave a yearning heart to",
                "was founded by": "was lovingly awakened by",
                "was written by": "was poured from the soul of",
                "studied under": "sat adoringly at the feet of",
                "married": "gave heart and hand to",
                "received": "was blessed with",
                "stands beside": "rests in the arms of",
                "is ruled by": "bows devotedly to",
                "was issued by": "was sent into the world by",
                "manufactures": "brings forth with devotion",
                "feeds on": "lives for the taste of",
                "was led by": "followed the bright gaze of",
                "is awarded by": "is bestowed with a caress by",
                "was a member of": "was embraced by",
                "is directed by": "is cherished and guided by",
                "measures": "spans a breathless",
                "is set in": "breathes the perfume of",
                "is the sequel to": "is the fond echo of",
            },
            vague=("What followed is known to two hearts alone.", "The rest was carried off by the breeze."),
        ),
    },
    "test": {
        "informal": Rules(
            openers=(
                "Dude!",
                "Not gonna lie:",
                "Real talk:",
                "Yep, true story:",
                "Lemme tell ya:",
                "Whoa!",
                "Quick one:",
                "For the record, folks:",
                "Turns out:",
                "Psst!",
            ),
            closers=(
                ", I swear!",
                ", lol.",
                ", can you imagine?",
                ", so there ya have it.",
                ", and that's a wrap.",
                ", for real though.",
                ", like, seriously.",
                ", end of story!",
                ", don't ask me why.",
                ", super random, right?",
            ),
            swaps=_swaps("informal_test"),
            vague=("Blah blah, you had to be there.", "I forgot the next part, sorry!"),
        ),
        "humor": Rules(
            openers=(
                "Stop the presses:",
                "The committee of squirrels reports:",
                "Kindly put down your sandwich:",
                "With a kazoo fanfare:",
                "Even the potted fern gasped:",
                "A walrus told me so:",
                "Adjust your monocle:",
                "This may tickle:",
            ),
            closers=(
                ", and the cheese has never recovered.",
                ", to the dismay of seven accountants.",
                ", a feat no llama has repeated.",
                ", which explains the wig.",
                ", despite the banana.",
                ", and so the trousers stayed on.",
                ", with only minor damage to the trifle.",
                ", as any self-respecting penguin knows.",
            ),
            swaps={
                "died in": "ran out of excuses in",
                "worked for": "pretended to look busy at",
                "is based in": "keeps its rubber plants in",
                "was published in": "escaped from the printer in",
                "graduated from": "wriggled through the exams of",
                "played": "wrestled in public with",
                "is governed by": "is nagged daily by",
                "exports": "gets rid of",
                "covers": "sprawls shamelessly over",
                "is dedicated to": "blames everything on",
                "was bought by": "was swapped for a sofa by",
                "was invented by": "was discovered under the bed by",
                "was organised by": "was improvised in a panic by",
                "is spoken in": "is mumbled, mouth full, in",
                "competed bitterly with": "pulled faces at",
                "settled permanently in": "unpacked the last teapot in",
                "was founded in": "hatched in",
                "depicts": "gossips about",
                "hosts": "puts up with",
                "runs to": "rambles on for",
            },
            vague=("At this point the penguin fainted.", "A sandwich covered the remaining words."),
        ),
        "romance": Rules(
            openers=(
                "By candlelight one whispers:",
                "My dearest:",
                "While violins wept:",
                "Beloved, remember:",
                "On the wings of desire:",
                "A blush upon the cheek of time:",
                "Beneath the jasmine:",
                "Ah, sweet destiny!",
            ),
            closers=(
                ", and two souls knew at once.",
                ", in a glow no dawn could rival.",
                ", as passion ever will.",
                ", leaving a scent of violets.",
                ", for love asks no reason.",
                ", with a tear as bright as pearl.",
                ", and the night kept their secret.",
                ", until forever and a day.",
            ),
            swaps={
                "died in": "closed weary eyes for ever in",
                "worked for": "laboured with ardour for",
                "is based in": "has its beating heart in",
                "was published in": "met its first admirers in",
                "graduated from": "left with a wistful glance the halls of",
                "played": "caressed",
                "is governed by": "yields to the gallant",
                "exports": "sends afar, with a sigh, its",
                "covers": "reclines across",
                "is dedicated to": "belongs body and soul to",
                "was bought by": "surrendered to",
                "was invented by": "was conceived in rapture by",
                "was organised by": "was arranged with loving fingers by",
                "is spoken in": "is murmured between sweethearts in",
                "competed bitterly with": "burned with jealous fire against",
                "settled permanently in": "found at last a nest in",
                "was founded in": "first stirred in",
                "depicts": "lingers longingly upon",
                "hosts": "opens its arms to",
                "runs to": "enchants through",
            },
            vague=("The words were lost in a long embrace.", "Here the ink is blurred by tears."),
        ),
    },
}
"""By rule set and style."""

STYLES = ("informal", "humor", "romance")
"""The styles beside `formal`, in which passages are written."""


FORMAL = "formal"
_SENTENCE = re.compile(r"(?<=[.!?])\s+")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one passage that was to be rewritten.

    Attributes:
        passage: The passage in the other style, with its own content id; None where nothing usable came back.
        by: What wrote it: `rule`, or the model as its endpoint names it; "" where nothing did.
        failed: Why each try that failed did, in order: `what: detail`.
    """

    passage: Passage | None
    by: str = ""
    failed: tuple[str, ...] = ()


class Rewriter(Protocol):
    """Tells passages in another style.

    A rewriter keeps the number and order of a passage's sentences where it has any, so that supporting sentences
    can still be pointed at.
    """

    @property
    def id(self) -> str:
        """Name and version: equal ids give equal texts."""
        ...

    def rewrite(self, passages: Sequence[Passage], style: str) -> list[Passage | None]:
        """Rewrite passages.

        Args:
            passages: The formal passages.
            style: One of `rules.STYLES`.

        Returns:
            One per passage, in order, with its own content id; None where nothing usable came back.
        """
        ...

    def outcomes(self, passages: Sequence[Passage], style: str) -> Iterable[Outcome]:
        """As `rewrite`, with who wrote each text and why tries failed; each may come before the next is written."""
        ...


RULE = "rule"
"""By what the rule-based rewriter's texts are written."""


class RuleRewriter:
    """Rewrites by fixed rules; names, numbers and years survive.

    Args:
        split: `train` and `validation` use the training rules, `test` those that share nothing with them.
        content_loss: Share of sentences whose content is dropped, to tell a loss of content from one of style.
        opener: Share of sentences that get an opener.
        closer: Share of sentences that get a closer.

    Raises:
        UserError: The split is none of the three, or a share lies outside [0, 1].
    """

    def __init__(self, split: str, *, content_loss: float = 0.0, opener: float = 0.6, closer: float = 0.5) -> None:
        if split not in ("train", "validation", "test"):
            raise unknown_name("split", split, ("train", "validation", "test"), where="styles")
        for name, share in (("content_loss", content_loss), ("opener", opener), ("closer", closer)):
            if not 0 <= share <= 1:
                raise UserError(f"{name} is a share, not {share}", code="share-not", where=name, try_this="give a number from 0 to 1")
        self.rules_of = "test" if split == "test" else "train"
        self.content_loss = content_loss
        self.opener = opener
        self.closer = closer

    @property
    def id(self) -> str:
        """Name, rule set, version and shares."""
        return f"rules-{self.rules_of}#v2(loss={self.content_loss},opener={self.opener},closer={self.closer})"

    def rewrite(self, passages: Sequence[Passage], style: str) -> list[Passage | None]:
        rules, pattern = self._compiled(style)
        return [self._passage(passage, style, rules, pattern) for passage in passages]

    def outcomes(self, passages: Sequence[Passage], style: str) -> list[Outcome]:
        return [Outcome(passage, RULE) for passage in self.rewrite(passages, style)]

    def sentence(self, text: str, style: str, draws: Draws) -> str:
        """One sentence in another style."""
        rules, pattern = self._compiled(style)
        return self._sentence(text, rules, pattern, draws)

    def _compiled(self, style: str) -> tuple[Rules, re.Pattern[str]]:
        if style not in STYLES:
            raise unknown_name("style", style, STYLES)
        return self._patterns[style]

    @cached_property
    def _patterns(self) -> dict[str, tuple[Rules, re.Pattern[str]]]:
        compiled = {}
        for style in STYLES:
            rules = RULES[self.rules_of][style]
            longest_first = sorted(rules.swaps, key=lambda phrase: (-len(phrase), phrase))
            compiled[style] = (rules, re.compile(r"\b(" + "|".join(map(re.escape, longest_first)) + r")\b"))
        return compiled

    def _passage(self, passage: Passage, style: str, rules: Rules, pattern: re.Pattern[str]) -> Passage:
        draws = Draws("style", self.rules_of, style, passage.id)
        plain = passage.sentences or tuple(part for part in _SENTENCE.split(passage.text.strip()) if part)
        styled = tuple(self._sentence(text.strip(), rules, pattern, draws) for text in plain)
        text = " ".join(styled)
        identifier = passage_id(passage.title, text, passage.document_id)
        return Passage(identifier, passage.title, text, styled if passage.sentences else (), passage.document_id)

    def _sentence(self, text: str, rules: Rules, pattern: re.Pattern[str], draws: Draws) -> str:
        if self.content_loss and draws.chance(self.content_loss):
            return draws.pick(rules.vague)
        styled = pattern.sub(lambda match: rules.swaps[match[0]], text)
        if draws.chance(self.opener):
            styled = f"{draws.pick(rules.openers)} {styled}"
        if styled.endswith(".") and draws.chance(self.closer):
            styled = styled[:-1] + draws.pick(rules.closers)
        return styled
