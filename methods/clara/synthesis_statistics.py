"""What a synthesis came to, as the paper's Table 9, and what one would take, before anything is spent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from methods.clara.data_config import TYPES, Type
from methods.clara.rows import ScpRow
from methods.clara.synthesis import Document, Synthesis, SynthesisConfig
from methods.clara.synthesis_prompts import ABSENT, NONE_YET, Prompts
from methods.models.tokens import TokenCounter

PAIRS: Mapping[Type, float] = {"simple": 7.80, "complex": 4.62, "paraphrase": 1.0}
"""Pairs of a document in the paper's Table 9."""
OUTPUT_WORDS: Mapping[Type, float] = {"simple": 158, "complex": 254, "paraphrase": 109}
"""Output words of a document in the paper's Table 9."""
TOKENS_A_WORD = 4 / 3
ANSWER_TOKENS = 12
"""Of a reply that is a short answer or a judgment, as JSON."""
SAMPLE = 200
"""Documents whose prompts are counted; the others are taken to be alike."""


@dataclass
class TypeStatistics:
    """What became of one type of rows; a line of Table 9.

    Attributes:
        documents: Documents with a row.
        pairs: Of those rows; 1 for a paraphrase.
        input_words: Of those documents.
        output_words: Of questions and answers, or of paraphrases.
        covered_without_pairs: Documents of which nothing could be asked.
        uncovered: Documents dropped after the last round.
        unfinished: Documents that are not at an end.
        rounds: Documents by the round in which they ended.
        counts: What became of calls and questions, dropped documents included.
        by: The models that replied; [] where none was asked.
    """

    documents: int = 0
    pairs: int = 0
    input_words: int = 0
    output_words: int = 0
    covered_without_pairs: int = 0
    uncovered: int = 0
    unfinished: int = 0
    rounds: Counter[int] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    by: list[str] = field(default_factory=list)

    def add(self, row: ScpRow) -> None:
        """Count a row."""
        self.documents += 1
        self.pairs += len(row.answers)
        self.input_words += len(row.document.split())
        self.output_words += sum(len(text.split()) for text in (*row.questions, *row.answers))

    def to_json(self) -> dict[str, Any]:
        """Totals, and the means of Table 9 (None where there is no document)."""

        def mean(total: int) -> float | None:
            return total / self.documents if self.documents else None

        return {
            **asdict(self),
            "rounds": {str(key): self.rounds[key] for key in sorted(self.rounds)},
            "counts": dict(sorted(self.counts.items())),
            "pairs_per_document": mean(self.pairs),
            "input_words_per_document": mean(self.input_words),
            "output_words_per_document": mean(self.output_words),
        }


Statistics = dict[Type, TypeStatistics]


def of_rows(rows: Iterable[ScpRow]) -> Statistics:
    """Statistics of rows whose ids end in their type."""
    found: Statistics = {}
    for row in rows:
        kind: Type = next(one for one in TYPES if row.id.endswith(f"/{one}"))
        found.setdefault(kind, TypeStatistics()).add(row)
    return {kind: found[kind] for kind in TYPES if kind in found}


def of_synthesis(synthesis: Synthesis, documents: Iterable[Document], types: Sequence[Type] = TYPES) -> Statistics:
    """Statistics of what a synthesis made, and of what it dropped."""
    found: Statistics = {kind: TypeStatistics() for kind in types}
    for document in documents:
        for row in synthesis.rows([document], types):
            found[next(one for one in types if row.id.endswith(f"/{one}"))].add(row)
        for kind, one in found.items():
            loop = synthesis.loop(document, kind)
            one.counts.update(loop.counts)
            one.by = sorted({*one.by, *loop.by})
            one.uncovered += loop.status == "uncovered"
            one.unfinished += loop.status == "open"
            one.covered_without_pairs += loop.status == "covered" and not loop.pairs
            if loop.status != "open":
                one.rounds[loop.round] += 1
    return found


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a synthesis would still take.

    Attributes:
        documents: In all.
        loops, done: Documents times types, and how many of those are at an end.
        fewest_calls: Where nothing can be asked of any document, and every paraphrase is accepted at once.
        calls: Where a document gives as many pairs as in the paper's Table 9 and is covered by them.
        most_calls: Where every reply is full, every round needed and every call made again.
        prompt_tokens, completion_tokens: Of `calls`, about.
        usd: Of those, by the configured prices.
        counted_by: How tokens were counted.
    """

    documents: int
    loops: int
    done: int
    fewest_calls: int
    calls: int
    most_calls: int
    prompt_tokens: int
    completion_tokens: int
    usd: float
    counted_by: str

    def __str__(self) -> str:
        return (
            f"{self.loops - self.done:,} of {self.loops:,} loops to go: about {self.calls:,} calls (at least "
            f"{self.fewest_calls:,}), {self.prompt_tokens:,} prompt tokens and {self.completion_tokens:,} completion "
            f"tokens ({self.counted_by}), ${self.usd:,.4f}"
        )


def outlook(synthesis: Synthesis, documents: Sequence[Document], types: Sequence[Type] = TYPES) -> Outlook:
    """What is still to be asked; a loop that has begun counts as if it had not. Asks nobody."""
    counter = TokenCounter(synthesis.config.tokenizer)
    waiting = {kind: [one for one in documents if synthesis.loop(one, kind).status == "open"] for kind in types}
    calls = prompt = completion = 0.0
    fewest = most = 0
    for kind, some in waiting.items():
        fewest += 2 * len(some)
        most += len(some) * most_calls(kind, synthesis.config)
        calls += len(some) * (2 if kind == "paraphrase" else 2 + 2 * PAIRS[kind])
        sample = some[:SAMPLE]
        if sample:
            sampled = sum(_prompt_tokens(kind, one.text, synthesis.prompts, counter) for one in sample)
            prompt += sampled * len(some) / len(sample)
        checks = 1 if kind == "paraphrase" else 1 + 2 * PAIRS[kind]
        completion += len(some) * (OUTPUT_WORDS[kind] * TOKENS_A_WORD + checks * ANSWER_TOKENS)
    return Outlook(
        len(documents),
        len(documents) * len(types),
        sum(len(documents) - len(some) for some in waiting.values()),
        fewest,
        round(calls),
        most,
        round(prompt),
        round(completion),
        synthesis.config.usd(round(prompt), round(completion)),
        counter.name,
    )


def most_calls(kind: Type, config: SynthesisConfig) -> int:
    """The calls that one document can take at most."""
    each = 2 if kind == "paraphrase" else 1 + 2 * config.most_questions
    return (config.rounds + 1) * each * config.tries


def _prompt_tokens(kind: Type, text: str, prompts: Prompts, counter: TokenCounter) -> float:
    """Prompt tokens of a document that is covered by the paper's number of pairs."""

    def tokens(name: str, **values: str) -> int:
        return counter.count(prompts.messages(name, document=text, **values))

    if kind == "paraphrase":
        return tokens("paraphrase") + tokens("check_paraphrase", paraphrase=text)
    pair = {"question": NONE_YET, "answer": NONE_YET}
    each = tokens("answer", question=NONE_YET, absent=ABSENT) + tokens("check_answer", **pair)
    shown = OUTPUT_WORDS[kind] * TOKENS_A_WORD
    return tokens(kind) + PAIRS[kind] * each + tokens(f"more_{kind}", pairs=NONE_YET) + shown
