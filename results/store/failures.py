"""Questions without an answer: the kind of each failure, whether a run has too many, and the remedy.

A failure is not a wrong answer. It still counts as one, so that dropping hard questions never raises a score; but a run
with many failures measures its endpoint rather than its method, so it is `incomplete`: marked, and neither tested nor
ranked.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.core.errors import Incomplete, counted
from methods.api import CUT, REASON_CHARACTERS
from results.store.redaction import without_secrets
from results.store.store import Store

MAX_RATE = 0.05
"""Share of failed questions above which a run is incomplete, unless an experiment sets another."""
FROM_QUESTIONS = 20
"""Minimum number of questions for this rule; a smaller run is incomplete only without any answer."""
IN_A_ROW = 20
"""Number of consecutive failures with the same cause after which a task ends without further calls."""
_SHOWN = 3
"""Number of listed failure reasons."""

OTHER = "other"
_KINDS: Mapping[str, tuple[str, str]] = {
    "limit": (r"^limit reached", "raise the limit that it names"),
    "refusal": (
        r"^refusal\b|^refused: |^the endpoint's filter withheld|(?i:content.?filter|content.?(management.)?policy|ResponsibleAIPolicy"
        r"|data.?inspection|content exists risk|\bflagged\b|safety system|usage polic(y|ies)|prompt was blocked|敏感)",
        "another model, as this one or its filter refuses these prompts",
    ),
    "truncation": (
        r"has room for|longer than the (longest prompt|model's context|maximum model length)|context.?(length|window)|prompt is too long"
        rf"|finish reason: (?i:{'|'.join(CUT)})\)|^still thinking when max_tokens"
        # In the words of Anthropic, Bedrock, Gemini, TGI, llama.cpp, xAI, Cohere, DashScope and proxies; 429 is a limit per minute.
        r"|^(?!(?:HTTP|Error code:) 429).*(?i:context (limit|size)|(input|request|payload|entity)( is)? too (long|large)"
        r"|token count \(?[\d,]+\)? exceeds|inputs` (tokens|must have less)|maximum (prompt|input) length|range of input length"
        r"|tokens in the prompt cannot exceed|input tokens \S+ cannot exceed)",
        "a smaller k or a larger max_tokens, or a model with more room",
    ),
    "memory": (r"out of memory|OutOfMemory|MemoryError|Cannot allocate memory|bad_alloc", "a smaller batch_size, or a smaller model"),
    "raised": (r"^[A-Za-z_][\w.]*:( |$)", "fix the component that raises; `ragmeter method check` tests it"),
    "endpoint": (
        r"^HTTP \d|^Error code: \d|timed out|[Cc]onnect|^no reply: |^the endpoint (reports an error|broke the reply off)"
        r"|^the reply (is (empty|no chat|not a chat|not JSON|an HTML page|broken JSON|neither JSON)|holds no choice|cannot be used)"
        r"|^the reply reports an error|^the stream (has no events|ends before|reports an error)|^an event of the stream",
        "check that the endpoint answers; if it limits requests, set a lower `concurrency` or more `attempts`",
    ),
    OTHER: ("", "see the reasons: `ragmeter results show RUN QUESTION`"),
}
"""Kinds of failures in the order of matching: pattern of the reason, and remedy."""


def kind_of(reason: str) -> str:
    """Classify the reason of a failure: `endpoint`, `truncation`, `memory`, `refusal`, `raised`, `limit` or `other`."""
    return next(kind for kind, (pattern, _) in _KINDS.items() if re.search(pattern, reason))


def cause_of(reason: str) -> tuple[str, str]:
    """Return a failure's kind, and its reason with numbers, quoted texts and ids masked, so that equal causes can be counted."""
    plain = re.sub(r"'[^']*'|\"[^\"]*\"|`[^`]*`", "…", reason)
    return kind_of(reason), re.sub(r"(?<![\w-])[\w-]*\d[\w.,-]*", "…", plain)


OF_ITS_PROMPT = frozenset({"truncation", "refusal", "memory"})
"""Kinds of failures that questions over one document share, because they send the same text."""


class Streak:
    """Counts consecutive failures of one cause, to stop a task that can no longer succeed.

    If a document is too long or refused by a filter, its questions count as one failure, because other documents may still
    succeed.
    """

    def __init__(self) -> None:
        self._since: Counter[tuple[str, str]] = Counter()
        self._documents: set[tuple[tuple[str, str], str]] = set()

    def stops(self, reason: str | None, document: str | None = None) -> bool:
        """Record how a question ended, and return whether the task should stop.

        Args:
            reason: Why the question failed; None if it was answered.
            document: Id of the question's document, if any.
        """
        if reason is None:
            self._since.clear()
            self._documents.clear()
            return False
        cause = cause_of(reason)
        if document is not None and cause[0] in OF_ITS_PROMPT:
            if (cause, document) in self._documents:
                return False
            self._documents.add((cause, document))
        self._since[cause] += 1
        return self._since[cause] >= IN_A_ROW


@dataclass(frozen=True, slots=True)
class Failures:
    """Numbers of answered and failed questions of a run.

    Attributes:
        rows: Number of questions with a stored row.
        reasons: Number of failed questions by cause; the key is one of its reasons.
        code: Number of failures because ragmeter's or a plug-in's code raised an error.
        accepted: Whether the user accepted these as wrong answers.
    """

    rows: int = 0
    reasons: tuple[tuple[str, int], ...] = field(default=())
    code: int = 0
    accepted: bool = False

    @classmethod
    def of(cls, rows: int, reasons: Iterable[tuple[str, int]], code: int = 0, accepted: bool = False) -> Failures:
        """Count failures by reason, the most frequent cause first."""
        first: dict[tuple[str, str], str] = {}
        counts: Counter[tuple[str, str]] = Counter()
        for reason, count in reasons:
            cause = cause_of(reason)
            first.setdefault(cause, reason)
            counts[cause] += count
        return cls(rows, tuple((first[cause], count) for cause, count in counts.most_common()), code, accepted)

    @classmethod
    def together(cls, several: Sequence[Failures]) -> Failures:
        """Add the failures of several runs; those in code count as accepted if they are accepted in every run that has some."""
        accepted = any(item.code for item in several) and all(item.accepted for item in several if item.code)
        reasons = (reason for item in several for reason in item.reasons)
        return cls.of(sum(item.rows for item in several), reasons, sum(item.code for item in several), accepted)

    @property
    def failed(self) -> int:
        """Return the number of questions that failed."""
        return sum(count for _, count in self.reasons)

    @property
    def unresolved(self) -> int:
        """Return the number of failures in ragmeter's or a plug-in's code that the user has not accepted as wrong answers."""
        return 0 if self.accepted else self.code

    @property
    def kinds(self) -> dict[str, int]:
        """Return the number of failures by kind, the most frequent first."""
        counts: Counter[str] = Counter()
        for reason, count in self.reasons:
            counts[kind_of(reason)] += count
        return dict(counts.most_common())

    @property
    def most_frequent(self) -> str:
        """Return the most frequent failure reason, with secrets removed; "" if nothing failed."""
        return without_secrets(self.reasons[0][0]) if self.reasons else ""

    def too_many(self, max_rate: float) -> bool:
        """Return whether the failure rate is too high (or all failed) for the run's scores to count."""
        nothing = 0 < self.rows == self.failed
        return nothing or (self.rows >= FROM_QUESTIONS and self.failed > max_rate * self.rows)

    def in_words(self) -> str:
        """Summarize the failures, for example `150 failed (endpoint 148, limit 2)`."""
        return f"{self.failed:,} failed ({', '.join(f'{kind} {count:,}' for kind, count in self.kinds.items())})"

    def error(self, what: str, command: str) -> Incomplete:
        """Make the error that reports an incomplete run.

        Args:
            what: The reason, for the error's first line.
            command: The command that resumes the run.
        """
        shown = [f"{count:,} × {kind_of(reason)}: {without_secrets(reason)}" for reason, count in self.reasons[:_SHOWN]]
        more = [f"and {counted(len(self.reasons) - _SHOWN, 'more reason')}"] if len(self.reasons) > _SHOWN else []
        remedies = dict.fromkeys(_KINDS[kind_of(reason)][1] for reason, _ in self.reasons[:_SHOWN])
        return Incomplete(
            what, code="incomplete-run", where="; ".join([*shown, *more]), try_this=f"{'; '.join(remedies)}; then `{command}`"
        )


def failures(store: Store, runs: Sequence[str]) -> dict[str, Failures]:
    """Read the failures of runs; runs without stored questions are omitted."""
    rows = store.database.rows(
        "SELECT run, left(failed, ?) AS why, count(*), count(*) FILTER (cause = 'code'), bool_or(accepted_at IS NOT NULL) "
        "FROM predictions LEFT JOIN runs USING (run) WHERE list_contains(?, run) GROUP BY run, why ORDER BY ALL",
        [REASON_CHARACTERS, list(runs)],
        lenient=True,
    )
    counts: Counter[str] = Counter()
    code: Counter[str] = Counter()
    reasons: dict[str, list[tuple[str, int]]] = {}
    accepts = {run: accepted for run, _, _, _, accepted in rows}
    for run, reason, count, raised, _ in rows:
        counts[run] += count
        code[run] += raised
        if reason is not None:
            reasons.setdefault(run, []).append((reason, count))
    return {run: Failures.of(count, reasons.get(run, ()), code[run], accepts[run]) for run, count in counts.items()}
