"""Judges of rewriting: is a text formal or informal, and does it keep what its source says?"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

from judges.judge import Item, JudgeCall, JudgeConfig, Measure, Score, register_judge
from judges.llm.ask import Case, LLMJudgeConfig, Worded, mean_scores, prompt_identity
from judges.llm.fences import cut
from judges.llm.reading import VERSION
from judges.llm.rules import Ruled, ruled
from methods.prompts import Shipped

KEPT, LOST, ALTERED = "Kept", "Lost", "Altered"
SOURCE_CHARS = 40_000
"""Maximum characters of the source in the prompt."""
MARKS_PER_100_WORDS = 1.5
"""Minimum number of informal marks per 100 words of an informal text."""
CONTENT_VERDICTS = (KEPT, LOST, ALTERED)
CONTENT_PART = "content"
SAME, NOTHING = "same text", "no text"
"""Rules that decide without a call."""
CONTENT_MEASURES = (
    Measure("kept", "Share of verdicts that are Kept: every fact of the source is there, unchanged.", ranks=False),
    Measure("lost", "Share of verdicts that are Lost: a fact is missing, none is changed.", higher_is_better=False, ranks=False),
    Measure("altered", "Share of verdicts that are Altered: a fact is changed or made up.", higher_is_better=False, ranks=False),
)


class ContentConfig(LLMJudgeConfig):
    """Options of the judge `content` (preservation of facts)."""

    template: ClassVar[Shipped] = Shipped("judges.llm", "content")


@register_judge(
    "content",
    kind="point",
    summary="an LLM says whether a rewritten text keeps, loses or alters the facts of its source",
    source="SARK: content preservation, as its annotators were asked",
    needs=("answer", "passages"),
    config=ContentConfig,
    measures=CONTENT_MEASURES,
    version=VERSION,
    also=prompt_identity,
)
class ContentJudge(Worded[ContentConfig]):
    """LLM judge of content preservation: the model reads a source and its rewriting, and answers Kept, Lost or Altered.

    For an answer, the source is the text of its passages. Texts that differ only in white space are Kept, and an empty
    rewriting is Lost, both without a call. A reply with no verdict or with several is requested once more as JSON; if that
    fails, it is unscored. An item without a source is unscorable. Scores are averaged over readable repetitions; unscored if
    fewer than half are readable.

    Args:
        config: The judge's options.
        services: Provides the reply cache.
    """

    verdicts = CONTENT_VERDICTS

    def score(self, item: Item, calls: Sequence[JudgeCall]) -> Mapping[str, Score]:
        return mean_scores(
            calls, {verdict.lower(): {other: float(other == verdict) for other in CONTENT_VERDICTS} for verdict in CONTENT_VERDICTS}
        )

    def cases(self, item: Item) -> list[Case]:
        source, rewritten = "\n\n".join(passage.text for passage in item.passages), item.prediction.answer
        if not source.strip():
            return []
        if not rewritten.strip():
            return [Case.ruled(CONTENT_PART, NOTHING, verdict=LOST)]
        if source.split() == rewritten.split():
            return [Case.ruled(CONTENT_PART, SAME, verdict=KEPT)]
        messages = self.messages(source=cut(source, SOURCE_CHARS), rewritten=cut(rewritten, self.config.max_answer_chars))
        return [Case(CONTENT_PART, messages)]


FORMAL, INFORMAL = "Formal", "Informal"
STYLE_VERDICTS = (INFORMAL, FORMAL)
STYLE_PART = "style"
STYLE_MEASURES = (
    Measure("formal", "Share of verdicts that are Formal.", ranks=False),
    Measure("informal", "Share of verdicts that are Informal.", ranks=False),
)


class StyleConfig(LLMJudgeConfig):
    """Options of the judge `style`."""

    template: ClassVar[Shipped] = Shipped("judges.llm", "style")


@register_judge(
    "style",
    kind="point",
    summary="an LLM says whether an answer is written formally or informally",
    source="SARK: style transfer strength",
    needs=("answer",),
    config=StyleConfig,
    measures=STYLE_MEASURES,
    version=VERSION,
    also=prompt_identity,
)
class StyleJudge(Worded[StyleConfig]):
    """LLM judge of writing style: the model reads only the answer, and replies Formal or Informal.

    A reply with neither or both is requested once more as JSON; if that fails, it is unscored. A missing or blank answer is
    unscorable. Scores are averaged over readable repetitions; unscored if fewer than half are readable.

    Args:
        config: The judge's options.
        services: Provides the reply cache.
    """

    verdicts = STYLE_VERDICTS

    def score(self, item: Item, calls: Sequence[JudgeCall]) -> Mapping[str, Score]:
        return style_scores(calls)

    def cases(self, item: Item) -> list[Case]:
        text = item.prediction.answer
        if not text.strip():
            return []
        return [Case(STYLE_PART, self.messages(text=cut(text, self.config.max_answer_chars)))]


def style_scores(calls: Sequence[JudgeCall]) -> dict[str, Score]:
    """Convert the verdicts of a style judge to scores."""
    return mean_scores(calls, {"formal": {FORMAL: 1.0, INFORMAL: 0.0}, "informal": {FORMAL: 0.0, INFORMAL: 1.0}})


_SLANG = """
yeah yep yup nope okay ok wow whoa omg lol lmao btw tbh imo gonna wanna gotta kinda sorta dunno lemme gimme ya dude guys
folks buddy huh hey hi psst oh ugh haha hahaha awesome cool crazy insane super totally literally basically honestly
seriously stuff whatever anyway cuz cause ain't y'all blah wild epic vibe vibes
"""
_PHRASES = (
    "pretty much|you know|guess what|real talk|no kidding|no joke|for real|turns out|believe it or not|can you imagine"
    "|if you ask me|i swear|gonna lie|heads up|get this|by the way|kind of|sort of|that's that|that's a wrap|a ton of"
    "|loads of|shout-out|end of story|easy as pie"
)
_MARKS = re.compile(
    rf"(?P<word>\b(?:{'|'.join(_SLANG.split())})\b)"
    rf"|(?P<phrase>\b(?:{_PHRASES})\b)"
    r"|(?P<person>\b(?:i(?!\.)|i'm|i've|i'll|me|my|you|your|you're|we|we're|let's)\b)"
    r"|(?P<contraction>\b\w+(?:n't|'ll|'re|'ve|'d)\b)"
    r"|(?P<shout>!+|\?!+|\.{3}|…)"
    "|(?P<picture>[\U0001f300-\U0001faff\u2600-\u27bf])",
    re.IGNORECASE,
)


@register_judge(
    "rule_style",
    kind="point",
    summary="Formal or Informal by counting slang, contractions, exclamations and talk to the reader, without a model",
    source="the classes of SARK's style classifier; the marks are ours",
    needs=("answer",),
    config=JudgeConfig,
    measures=STYLE_MEASURES,
)
class RuleStyle(Ruled[JudgeConfig]):
    """Rule-based judge of writing style: Informal with at least `MARKS_PER_100_WORDS` informal marks per 100 words, else Formal.

    Marks are words and phrases from a fixed list of English slang, first and second person pronouns, contractions, exclamation
    marks, ellipses and emoji. A missing or blank answer is unscorable.

    Args:
        config: The judge's options.
        services: Not needed.
    """

    def ask(self, items: Sequence[Item]) -> list[list[JudgeCall]]:
        texts = [item.prediction.answer for item in items]
        return [[ruled(STYLE_PART, verdict=self._verdict(text))] if text.strip() else [] for text in texts]

    def score(self, item: Item, calls: Sequence[JudgeCall]) -> Mapping[str, Score]:
        return style_scores(calls)

    def _verdict(self, text: str) -> str:
        marks = sum(1 for _ in _MARKS.finditer(text.replace("’", "'")))
        return INFORMAL if marks >= MARKS_PER_100_WORDS * len(text.split()) / 100 and marks else FORMAL
