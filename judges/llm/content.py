"""Does a rewritten text keep what its source says: of answers against their passages, and of any pairs of texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from pydantic import Field

from judges.judging import Item, JudgeCall, Measure, Parsed, Score, register_judge
from judges.llm.asking import Asker, Case
from judges.llm.averages import mean_scores
from judges.llm.fences import cut
from judges.llm.llm_config import LLMJudgeConfig, prompt_identity
from judges.llm.prompts import Shipped
from judges.llm.reading import read_word
from methods.api import Services

KEPT, LOST, ALTERED = "Kept", "Lost", "Altered"
VERDICTS = (KEPT, LOST, ALTERED)
PART = "content"
SAME, NOTHING = "same text", "no text"
"""By what a verdict was reached without a call."""
MEASURES = (
    Measure("kept", "Share of verdicts that are Kept: every fact of the source is there, unchanged.", ranks=False),
    Measure("lost", "Share of verdicts that are Lost: a fact is missing, none is changed.", higher_is_better=False, ranks=False),
    Measure("altered", "Share of verdicts that are Altered: a fact is changed or made up.", higher_is_better=False, ranks=False),
)


class ContentConfig(LLMJudgeConfig):
    """Options of the content validation."""

    template: ClassVar[Shipped] = Shipped("content", frozenset(("source", "rewritten")))

    max_reference_chars: int = Field(40_000, ge=1, description="longest source shown, in characters")


@register_judge(
    "content",
    kind="point",
    summary="an LLM says whether a rewritten text keeps, loses or alters the facts of its source",
    source="SARK: content preservation, as its annotators were asked",
    needs=("answer", "passages"),
    config=ContentConfig,
    measures=MEASURES,
    identity=prompt_identity,
)
class ContentJudge:
    """The model is shown a source and its rewriting and says Kept, Lost or Altered.

    Of an answer, the source is the text of its passages. Texts that differ in white space alone are Kept, an empty
    rewriting is Lost, both without a call. The reply's first word, without punctuation, is the verdict; every other
    reply is unscored. Without a source there is nothing to keep: unscorable. Repetitions are averaged over those that
    were read.

    Args:
        config: Options.
        services: Of them the cache of replies.
    """

    def __init__(self, config: ContentConfig, services: Services) -> None:
        self.config = config
        self._prompt = config.load()
        self._asker = Asker(config, services, self.parse)
        self.batch_size = self._asker.batch_size

    def ask(self, items: Sequence[Item]) -> list[list[JudgeCall]]:
        return self.ask_texts([("\n\n".join(passage.text for passage in item.passages), item.prediction.answer) for item in items])

    def ask_texts(self, pairs: Sequence[tuple[str, str]]) -> list[list[JudgeCall]]:
        """As `ask`, of pairs of source and rewriting."""
        return self._asker.ask([self._case(*pair) for pair in pairs])

    def parse(self, part: str, reply: str) -> Parsed:
        return read_word(reply, VERDICTS)

    def score(self, item: Item, calls: Sequence[JudgeCall]) -> Mapping[str, Score]:
        return mean_scores(calls, {verdict.lower(): {other: float(other == verdict) for other in VERDICTS} for verdict in VERDICTS})

    def _case(self, source: str, rewritten: str) -> list[Case]:
        if not source.strip():
            return []
        if not rewritten.strip():
            return [Case.ruled(PART, NOTHING, verdict=LOST)]
        if source.split() == rewritten.split():
            return [Case.ruled(PART, SAME, verdict=KEPT)]
        messages = self._prompt.messages(
            source=cut(source, self.config.max_reference_chars), rewritten=cut(rewritten, self.config.max_answer_chars)
        )
        return [Case(PART, messages)]
