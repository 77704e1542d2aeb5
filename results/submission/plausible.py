"""Signs that predictions were not made by the method that their card describes, each a warning with its evidence.

No sign is a proof, so nothing is refused: a maintainer looks at the places that are listed, and decides. The thresholds
keep honest systems without a warning, strong ones included; the docstring of each check has the reason.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import comb

from benchmarks.corpus import Corpus
from benchmarks.schema import Question
from benchmarks.text import is_abstention
from judges.llm.rules import lacks_evidence
from methods.api import FAILED, Prediction, support_claims
from results.submission import Findings, shown
from results.submission.rows import PROMPT

RIGHT, GOLD_EVIDENCE, COPIED, USAGE, SAME = (
    "right_without_evidence",
    "evidence_is_gold",
    "equals_stored_run",
    "impossible_usage",
    "same_answer",
)
SIGNS = (RIGHT, GOLD_EVIDENCE, COPIED, USAGE, SAME)
"""Codes of these findings; boards mark submissions with one."""
FEWEST = 10
"""Minimum number of questions for a pattern."""
_ASK = "compare the listed questions with the method's own output; `ragmeter submit verify` compares with a run made here"


@dataclass(frozen=True)
class Answered:
    """Submitted prediction with its question, for plausibility checks.

    Attributes:
        line: 1-based line of the file.
        question: The question with its gold.
        prediction: The submitted prediction.
        corpus: The corpus that contains the evidence.
    """

    line: int
    question: Question
    prediction: Prediction
    corpus: Corpus

    @cached_property
    def answer(self) -> str:
        """Return the normalized answer (`folded`); "" if the question failed."""
        return "" if self.prediction.notes.get(FAILED) else folded(self.prediction.answer)

    @cached_property
    def golds(self) -> tuple[str, ...]:
        """Return the accepted answers and their aliases, normalized (`folded`)."""
        golds = dict.fromkeys((*self.question.golds, *(name for names in self.question.aliases.values() for name in names)))
        return tuple(dict.fromkeys(filter(None, map(folded, golds))))

    @cached_property
    def evidence(self) -> tuple[str, ...]:
        """Return the unique ids of the listed evidence and claimed support that the corpus contains."""
        claims = support_claims(self.prediction.notes.get("support", ())) or ()
        ids = dict.fromkeys([*(item.id for item in self.prediction.evidence), *(passage for passage, _ in claims)])
        return tuple(identifier for identifier in ids if identifier in self.corpus)

    def texts(self) -> tuple[str, ...]:
        """Return the texts of the evidence; they are looked up on each call to save memory."""
        return tuple(passage.full_text for passage in self.corpus.get(self.evidence))

    @property
    def given(self) -> bool:
        """Return whether the setting provides only gold passages, as `gold_only` does."""
        return bool(self.question.candidates) and set(self.question.candidates or ()) <= set(self.question.evidence)

    @property
    def place(self) -> str:
        """Return the question's id for messages."""
        return f"question {shown(self.question.id)}"


@dataclass(frozen=True)
class StoredRun:
    """Answers of a stored run to the same questions, to detect copies.

    Attributes:
        label: Method and run, for messages.
        answers: Answers by question id, without failed questions.
    """

    label: str
    answers: Mapping[str, str]


LoadRuns = Callable[[], Iterable[StoredRun]]
"""Function that returns the runs with which a submission is compared."""


_ARTICLES = frozenset(("a", "an", "the"))
_HIDDEN = re.compile(
    "[\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e0fff]"
)


def folded(text: str) -> str:
    """Normalize a text for comparison: without letter case, width, invisible characters, markup and articles."""
    return _folded_answer(text) if len(text) <= _SHORT else _folded(text)


_SHORT = 200
"""Maximum characters of a text that is likely to be an answer and to recur."""


def _folded(text: str) -> str:
    plain = text.lower() if text.isascii() else unicodedata.normalize("NFKC", _HIDDEN.sub("", text)).casefold()
    return " ".join(word for word in re.findall(r"[^\W_]+", plain) if word not in _ARTICLES)


_folded_answer = lru_cache(maxsize=1 << 15)(_folded)


def check_plausible(
    rows: Sequence[Answered], findings: Findings, *, synthetic: bool, closed_book: bool, retrieval_only: bool, runs: LoadRuns | None
) -> None:
    """Check a submission for five signs of an implausible result, such as gold answers without evidence or copied runs.

    Args:
        rows: The well-formed rows, in the order of the questions.
        findings: Receives the warnings.
        synthetic: Whether the data are synthetic, so that no model can know an answer.
        closed_book: Whether the setting provides no passages.
        retrieval_only: Whether only rankings are evaluated.
        runs: Loads stored runs to compare with; None skips this check.
    """
    if not retrieval_only:
        right_without_evidence(rows, findings, synthetic, closed_book)
        same_answer(rows, findings)
        if runs is not None:
            equals_stored_run(rows, findings, runs())
    evidence_is_gold(rows, findings, synthetic)
    impossible_usage(rows, findings, retrieval_only)


_WRAPPING = 12
"""Maximum words around a gold answer; a longer answer may contain the gold by chance."""
SYNTHETIC_SHARE, KNOWN_SHARE, CLOSED_BOOK_SHARE, UNLISTED_SHARE, PRECISE = 0.05, 0.5, 0.8, 0.95, 0.95


def right_without_evidence(rows: Sequence[Answered], findings: Findings, synthetic: bool, closed_book: bool) -> None:
    """Warn if too many gold answers occur neither in the listed evidence, nor in the prompt, nor in the question.

    Yes/no questions, numbers of up to three digits and answers that the question names do not count: these can be guessed.

    On synthetic data no method can know an answer that it did not read, so 5 % of such questions, and two, are a sign. On
    real data, language models remember answers: those of 40 to 75 % of the questions of NQ, HotpotQA and WebQSP in published
    closed-book results, hence the limit of 80 % in the closed book. A model that is shown passages without the answer mostly
    follows these, and questions whose evidence is not found are the hard ones: there, 50 % are a sign.

    A submission may list no evidence at all, as most official formats do, and its method may have read every passage that
    the setting allows. The best published answers then are right for 91 % (WebQSP, any of several answers), so 95 % are a
    sign; in the closed book the limits above hold.

    Fewer than ten such answers are a sign if memory that knows this share would give as many in fewer than one of 100 runs.

    A few copied answers are detected by their precision, because a model that answers from memory is sometimes wrong. If at
    least ten answers, and 95 % of those that no listed evidence contains, are right, the share of questions does not matter.
    """
    unsupported = [row for row in rows if row.answer and _must_be_read(row) and not _supported(row)]
    right = [row for row in unsupported if _gives_gold(row)]
    listed = any(row.prediction.evidence or row.evidence for row in rows)
    if not closed_book and not listed:
        share, fewest = UNLISTED_SHARE, FEWEST
    elif synthetic:
        share, fewest = SYNTHETIC_SHARE, 2
    else:
        share, fewest = CLOSED_BOOK_SHARE if closed_book else KNOWN_SHARE, FEWEST
    often = len(right) >= share * len(unsupported) and (len(right) >= fewest or _beyond_chance(len(right), len(unsupported), share))
    if not often and not (listed and len(right) >= FEWEST and len(right) >= PRECISE * _unread(unsupported)):
        return
    for row in right:
        findings.listed(
            RIGHT,
            f"{row.place}: {shown(row.prediction.answer)}, {len(row.evidence)} items of evidence",
            line=row.line,
            right=len(right),
            unsupported=len(unsupported),
        )


def _beyond_chance(count: int, total: int, share: float) -> bool:
    """Return whether this many of a total have a probability below 1 % if each has this probability."""
    return total > 0 and sum(comb(total, k) * share**k * (1 - share) ** (total - k) for k in range(count, total + 1)) < 0.01


def _unread(rows: Sequence[Answered]) -> int:
    """Count the answers that neither evidence nor question contain, except yes, no and abstentions."""
    count = 0
    for row in rows:
        if not _is_guess(row.prediction.answer):
            read = " | ".join(f" {folded(text)} " for text in (row.question.text, *row.texts()))
            count += f" {row.answer} " not in read
    return count


def _must_be_read(row: Answered) -> bool:
    """Return whether a correct answer must have been read, because the question does not suffice to guess it."""
    question = f" {folded(row.question.text)} "
    guessable = any(gold in ("yes", "no", "true", "false") or re.fullmatch(r"\d{1,3}|\w", gold) for gold in row.golds)
    named = any(f" {gold} " in question for gold in row.golds)
    return bool(row.golds) and row.question.answerable and not guessable and not named


def _gives_gold(row: Answered) -> bool:
    """Return whether an answer is a gold answer, possibly with a few more words."""
    brief = len(row.answer.split()) <= _WRAPPING + max(len(gold.split()) for gold in row.golds)
    if brief and any(f" {gold} " in f" {row.answer} " for gold in row.golds):
        return True
    letters = _letters(row.prediction.answer)
    return any(letters == (gold := _letters(text)) or (_LONG <= len(gold) > len(letters) / 3 and gold in letters) for text in row.golds)


_LONG = 8
"""Minimum letters of a gold answer that other words do not contain by chance."""


def _letters(text: str) -> str:
    """Return only the letters and digits of a text, without accents."""
    return "".join(letter for letter in unicodedata.normalize("NFKD", _HIDDEN.sub("", text)).casefold() if letter.isalnum())


def _supported(row: Answered) -> bool:
    """Return whether the evidence or a prompt contains a gold answer; leakage in prompts is checked elsewhere (`leakage`)."""
    prompts = (message["content"] for message in row.prediction.notes.get(PROMPT, ()) if message["role"] != "assistant")
    texts = [*row.texts(), *prompts]
    # Folding is slow, and most answers are in the evidence as they are.
    plain = "\n".join(texts).casefold()
    if any(re.search(rf"(?<!\w){re.escape(gold)}(?!\w)", plain) for gold in row.golds):
        return True
    read = " | ".join(f" {folded(text)} " for text in texts)
    return any(f" {gold} " in read for gold in row.golds)


FIXED_SHARE, SET_SHARE, SYNTHETIC_SET_SHARE, SHORT_SHARE = 0.98, 0.8, 0.5, 0.95


def evidence_is_gold(rows: Sequence[Answered], findings: Findings, synthetic: bool) -> None:
    """Warn if the listed evidence is too often exactly the set of gold passages, or begins with it.

    A ranking has one length for all questions, so it is exact only if every question has as many positives: HotpotQA has
    two, and the best published pair of passages is right for 97 %. Such lists are a sign from 98 % on, and so are longer
    rankings that begin with all positives. Lists whose length follows the number of positives need a method that predicts
    sets. The best published one is exact for 79 % of MuSiQue's questions, so 80 % is a sign. On synthetic data half is; a
    filter that is as good as that has to say how.

    Rankings that are longer than any set of positives, among which some lists are not, and 95 % of these exact, at least ten,
    are a sign as well.
    """
    able = [row for row in rows if row.question.evidence and row.prediction.evidence and not row.given]
    if len(able) < FEWEST:
        return
    first = [row for row in able if _begins_with_gold(row)]
    exact = [row for row in first if len(_listed(row)) == len(set(row.question.evidence))]
    lengths = Counter(len(row.prediction.evidence) for row in able)
    usual, most = sorted(lengths.elements())[3 * len(able) // 4], max(len(row.question.evidence) for row in able)
    shorter = [row for row in able if len(row.prediction.evidence) <= most < usual]
    exact_shorter = [row for row in exact if len(row.prediction.evidence) <= most < usual]
    share = FIXED_SHARE if max(lengths.values()) >= 0.95 * len(able) else SYNTHETIC_SET_SHARE if synthetic else SET_SHARE
    if len(exact) > share * len(able):
        what, signs = f"the evidence is exactly the gold evidence for {len(exact)} of {len(able)} questions", exact
    elif len(first) > FIXED_SHARE * len(able):
        what, signs = f"the evidence begins with all of the gold evidence for {len(first)} of {len(able)} questions", first
    elif len(exact_shorter) >= max(FEWEST, SHORT_SHARE * len(shorter)):
        what = f"of {len(shorter)} lists of evidence that are shorter than the others, {len(exact_shorter)} are exactly the gold evidence"
        signs = exact_shorter
    else:
        return
    for row in signs:
        findings.add(
            GOLD_EVIDENCE,
            what,
            f"{row.place}: {len(row.question.evidence)} items, all of them positives",
            line=row.line,
            severity="warning",
            try_this=f"an oracle: declare it in the card; else submit the ranking that the method made; a maintainer: {_ASK}",
        )


def _listed(row: Answered) -> list[str]:
    return list(dict.fromkeys(item.id for item in row.prediction.evidence))


def _begins_with_gold(row: Answered) -> bool:
    gold = set(row.question.evidence)
    return set(_listed(row)[: len(gold)]) == gold


EQUAL_SHARE = 0.95
_ENOUGH_WRONG = 3


def equals_stored_run(rows: Sequence[Answered], findings: Findings, runs: Iterable[StoredRun]) -> None:
    """Warn if more than 95 % of the answers equal those of a stored run, over at least ten questions that both answered.

    Yes/no answers and abstentions do not count. Two good systems agree on what they answer right, so a copy is known by
    the mistakes: of the answers that are wrong in the stored run, at least three, 95 % must be equal, too. Two systems with
    different retrieval rarely make half of their mistakes alike. A copy of a run without mistakes is not found, nor one in the
    setting `gold_only`, where all methods read the same passages.
    """
    own = {row.question.id: row for row in rows if row.answer and not row.given and not _is_guess(row.prediction.answer)}
    for run in runs:
        theirs = {question: folded(text) for question, text in run.answers.items() if question in own and not _is_guess(text)}
        both = {question: text for question, text in theirs.items() if text}
        equal = [question for question, text in both.items() if _same(own[question], run.answers[question], text)]
        wrong = [question for question, text in both.items() if text not in own[question].golds]
        same_mistakes = sum(_same(own[question], run.answers[question], both[question]) for question in wrong)
        if len(both) < FEWEST or len(equal) <= EQUAL_SHARE * len(both):
            continue
        if len(wrong) < _ENOUGH_WRONG or same_mistakes < EQUAL_SHARE * len(wrong):
            continue
        findings.listed(COPIED, f"{len(equal)} of {len(both)} answers and {same_mistakes} of {len(wrong)} wrong answers equal {run.label}")


def _same(row: Answered, other: str, folded_other: str) -> bool:
    """Return whether two answers are equal up to spacing and a few more words."""
    if row.answer == folded_other or _letters(row.prediction.answer) == _letters(other):
        return True
    brief = len(row.answer.split()) <= _WRAPPING + len(folded_other.split())
    return brief and f" {folded_other} " in f" {row.answer} "


def _is_guess(answer: str) -> bool:
    return folded(answer) in ("yes", "no", "true", "false") or is_abstention(answer)


USAGE_SHARE = 0.05
_FASTEST, _DEAREST_USD, _LONGEST_S, _LARGEST_BYTES = 1e6, 0.002, 86_400.0, 10**14


def impossible_usage(rows: Sequence[Answered], findings: Findings, retrieval_only: bool) -> None:
    """Warn if the reported usage is impossible for the given texts, in at least three questions and 5 % of those that report it.

    A token is at most a word in the tokenizers of language models, so a reply has at least as many tokens as words; half
    of that allows for other ways of counting. A prompt holds the question and something of the evidence: a fifth of the
    words of the shortest listed passage allows for compressors, and memory tokens in place of text are exempt. A call has
    at least one token of a prompt. The fastest services write some 3,000 tokens per second, and sharing the time of a
    batch multiplies that by some hundred: 1,000,000 is beyond. The dearest models cost $0.0006 per token. A usage field of 0 is
    unknown and is not looked at.
    """
    with_usage = [row for row in rows if not row.prediction.notes.get(FAILED) and _states(row)]
    wrong = [(row, reason) for row in with_usage if (reason := _impossible(row, retrieval_only))]
    prompts = [row.prediction.usage.prompt_tokens for row in with_usage if row.prediction.usage.prompt_tokens]
    # Prompts of the same length to a token do not exist once the texts differ.
    constant = len(prompts) >= 2 * FEWEST and len(set(prompts)) == 1 and len({len(row.question.text) for row in with_usage}) > 2
    if constant and not wrong:
        wrong = [(row, f"prompt_tokens is {prompts[0]:,} for each question") for row in with_usage]
    if len(wrong) < max(3.0, USAGE_SHARE * len(with_usage)):
        return
    for row, reason in wrong:
        findings.listed(USAGE, f"{row.place}: {reason}", line=row.line, wrong=len(wrong), stated=len(with_usage))


def _states(row: Answered) -> bool:
    usage = row.prediction.usage
    return bool(
        usage.prompt_tokens or usage.completion_tokens or usage.model_calls or usage.cost_usd or usage.peak_memory_bytes or usage.own_s
    )


def _impossible(row: Answered, retrieval_only: bool) -> str:
    """Return why a usage is impossible, or ""."""
    usage, answer = row.prediction.usage, len(row.prediction.answer.split())
    tokens, seconds = usage.prompt_tokens + usage.completion_tokens, usage.own_s
    if not retrieval_only and answer >= 4 and 0 < usage.completion_tokens < answer / 2:
        return f"completion_tokens is {usage.completion_tokens:,} for an answer of {answer:,} words"
    if usage.prompt_tokens and not usage.memory_tokens:
        least = len(row.question.text.split())
        passages = [len(text.split()) for text in row.texts()] if row.answer and not retrieval_only else []
        least += min(passages, default=0) // 5
        if usage.prompt_tokens < least:
            of = "question and evidence" if passages else "question"
            return f"prompt_tokens is {usage.prompt_tokens:,} for a prompt that holds at least {least:,} words of {of}"
    if usage.prompt_tokens and usage.model_calls > usage.prompt_tokens:
        return f"model_calls is {usage.model_calls:,} with {usage.prompt_tokens:,} prompt tokens"
    if seconds > 0 and usage.completion_tokens / seconds > _FASTEST:
        return f"completion_tokens is {usage.completion_tokens:,} in {seconds:g} seconds"
    if seconds > _LONGEST_S:
        return f"seconds are {seconds:,.0f} for one question"
    if tokens and usage.cost_usd / tokens > _DEAREST_USD:
        return f"cost_usd is {usage.cost_usd:g} for {tokens:,} tokens"
    if usage.peak_memory_bytes > _LARGEST_BYTES:
        return f"peak_memory_bytes is {usage.peak_memory_bytes:,}"
    return ""


SAME_SHARE = 0.5


def same_answer(rows: Sequence[Answered], findings: Findings) -> None:
    """Warn if more than half of the questions get the same answer.

    Abstentions do not count, in whatever words, since careful systems give them honestly, nor do yes and no if they are the
    gold answer of a third of the questions. Nor does an answer that is right for a third of the questions, as in classification.
    """
    total = len(rows)
    closed = 3 * sum(bool({"yes", "no", "true", "false"} & {*row.golds}) for row in rows) >= total
    answers = Counter(
        row.answer
        for row in rows
        if row.answer and not (closed and _is_guess(row.prediction.answer)) and not lacks_evidence(row.prediction)
    )
    if total < FEWEST or not answers:
        return
    answer, count = answers.most_common(1)[0]
    if count <= SAME_SHARE * total or 3 * sum(answer in row.golds for row in rows) >= total:
        return
    for row in rows:
        if row.answer == answer:
            findings.listed(SAME, f"{row.place}: {shown(row.prediction.answer)}", line=row.line, count=count, total=total)
