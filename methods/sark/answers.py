"""Who answers, a chat model or a reader of this machine behind one interface, and whether the answer is right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from benchmarks.core.errors import Broke, UserError
from benchmarks.core.fingerprint import fingerprint
from benchmarks.core.random import Draws
from benchmarks.schema import Passage, Question
from benchmarks.styles.sark_files import contents
from benchmarks.text import em, normalize, tokens
from methods.api import FAILED, Context, Judge, Reader, Services
from methods.flow import each
from methods.models.chat import ChatModel
from methods.models.rewriter import said
from methods.readers.prompts import bare_answer
from methods.sark.config import LabelsConfig
from methods.sark.prompts import asking, load_prompt


@dataclass(frozen=True, slots=True)
class AnswerRequest:
    """A question that is to be answered once.

    Attributes:
        question: The question; of it, nothing but its text is shown.
        passage: The one passage that may be used; None: none.
        memory: Evidence that a reader may know by heart (`LabelsConfig.known`); no language model is shown it.
    """

    question: Question
    passage: Passage | None = None
    memory: tuple[Passage, ...] = ()


class Answerer(Protocol):
    """Answers questions with one passage or none."""

    @property
    def fingerprint(self) -> str:
        """Of all that decides what it answers."""
        ...

    def answers(self, queries: Sequence[AnswerRequest]) -> list[str | None]:
        """One answer each, None where none came; a later call may get it.

        Raises:
            Broke: No further call could succeed.
        """
        ...


class LLMAnswerer:
    """Asks a chat model.

    Args:
        model: The model; with a cache of replies it is asked but once.
        prompt: A template file of one's own.
    """

    def __init__(self, model: ChatModel, prompt: str | None = None) -> None:
        self._model = model
        self._prompt = load_prompt("answer", prompt)

    @property
    def fingerprint(self) -> str:
        return fingerprint("llm", self._model.config.model_dump(mode="json"), self._prompt.hash)

    def answers(self, queries: Sequence[AnswerRequest]) -> list[str | None]:
        conversations = [
            asking(self._prompt, item.question.text, None if item.passage is None else contents(item.passage)) for item in queries
        ]
        replies = self._model.complete(conversations)
        return [bare_answer(said(reply.text)) if reply.failed is None else None for reply in replies]


class ReaderAnswerer:
    """Has a registered reader read.

    Args:
        reader: Built.
        identity: Of its options and weights.
        known: Share of the questions, of those that one passage answers, whose evidence it knows by heart.
        seed: Of the draw of these.
    """

    def __init__(self, reader: Reader, identity: str, known: float = 0.0, seed: int = 0) -> None:
        self._reader, self._identity = reader, identity
        self._known, self._seed = known, seed

    @property
    def fingerprint(self) -> str:
        return fingerprint("reader", self._identity, self._known, self._seed)

    def knows(self, question: Question) -> bool:
        """Whether a question is among those known by heart: one draw for each, whatever else is asked.

        Questions that take several passages are not: no single one of these could help whoever does not know them, so
        that all their labels would be 0, and the kind of question would give the label away.
        """
        alone = len(set(question.evidence)) == 1
        return alone and Draws("known by heart", self._seed, question.id).chance(self._known)

    def answers(self, requests: Sequence[AnswerRequest]) -> list[str | None]:
        size = int(getattr(self._reader, "batch_size", 32))
        results: list[str | None] = []
        for start in range(0, len(requests), size):
            some = requests[start : start + size]
            queries = [item.question.query() for item in some]
            contexts = [Context(query.id, self._read(item)) for query, item in zip(queries, some, strict=True)]
            for answer in each(self._reader, "read", queries, contexts):
                failed = answer.notes.get(FAILED)
                results.append(None if failed else answer.text)
        return results

    def _read(self, item: AnswerRequest) -> tuple[Passage, ...]:
        if item.passage is not None:
            return (item.passage,)
        return item.memory if self.knows(item.question) else ()


def answerer_of(config: LabelsConfig, services: Services, seed: int) -> Answerer:
    """The answerer that options name.

    Raises:
        UserError: Its key, template or weights cannot be used.
    """
    if config.by == "llm" and config.chat is not None:
        return LLMAnswerer(ChatModel(config.chat, role="passage labels", cache=services.cache), config.prompt)
    component = config.component
    return ReaderAnswerer(component.build(services), component.fingerprint, config.known, seed)


def require_some(came: int, of: int, where: str) -> None:
    """Stop where not one of many calls was answered: what comes of that is no data.

    Raises:
        Broke: None was.
    """
    if of and not came:
        raise Broke(
            f"not one of {of} calls was answered", where=where, try_this="try again when the endpoint answers; what came before is kept"
        )


# -- Is an answer right (E of eq. 2): exact match first, and a judge for what matches no gold exactly --


MATCH, PARTIAL, MISMATCH = "Match", "Partial", "Mismatch"
VERDICTS = (MATCH, PARTIAL, MISMATCH)
EM, JUDGE, BLANK, UNSEEN = "em", "judge", "blank", "no judge"
"""By what a verdict was reached."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was said of an answer: Match, Partial or Mismatch (None: the judge's reply could not be used), by what."""

    verdict: str | None
    by: str


class Verifier:
    """Says of answers whether they are right.

    Args:
        judge: Asked about answers that match no gold exactly; None: they are a Mismatch.
        exact: Rules of exact match; strict: as it is written, with the first gold alone.
    """

    def __init__(self, judge: Judge | None, exact: Literal["squad", "strict"] = "squad") -> None:
        self._judge, self._exact = judge, exact

    @property
    def fingerprint(self) -> str:
        """Of what decides, the judge's prompt and options among it."""
        return fingerprint(self._exact, None if self._judge is None else self._judge.fingerprint)

    def verdicts(self, questions: Sequence[Question], answers: Sequence[str]) -> list[Verdict]:
        """One verdict each. The judge sees each question and answer once, and none that is blank or an exact match.

        Raises:
            ValueError: The judge gave more or fewer verdicts than there were answers, or one of its own making.
        """
        results: dict[tuple[str, str], Verdict] = {}
        doubtful: dict[tuple[str, str], Question] = {}
        for question, answer in zip(questions, answers, strict=True):
            key = (question.id, answer)
            if not answer.strip():
                results[key] = Verdict(MISMATCH, BLANK)
            elif exact_match(question, answer, self._exact):
                results[key] = Verdict(MATCH, EM)
            elif self._judge is None:
                results[key] = Verdict(MISMATCH, UNSEEN)
            else:
                doubtful[key] = question
        if doubtful and self._judge is not None:
            verdicts = self._judge.verdicts(list(doubtful.values()), [answer for _, answer in doubtful])
            for key, verdict in zip(doubtful, verdicts, strict=True):
                if verdict is not None and verdict not in VERDICTS:
                    raise ValueError(f"a judge of answers says {', '.join(VERDICTS)}, not {verdict!r}")
                results[key] = Verdict(verdict, JUDGE)
        return [results[question.id, answer] for question, answer in zip(questions, answers, strict=True)]


def verifier_of(config: LabelsConfig, judge: Judge | None) -> Verifier:
    """The verifier that options name.

    Raises:
        UserError: A judge is wanted, and none is provided.
    """
    if config.judge is not None and judge is None:
        raise UserError(
            f"answers that match no gold exactly are to be judged by {config.judge}, and no judge is provided",
            where="labels.judge",
            try_this="labels.judge: null, which calls them wrong",
        )
    return Verifier(None if config.judge is None else judge, config.exact)


def exact_match(question: Question, answer: str, rules: Literal["squad", "strict"] = "squad") -> bool:
    """Whether an answer is a gold word for word; where all of a set are wanted, whether it is all of them."""
    if rules == "strict":
        return bool(question.answers) and answer == question.answers[0]
    if question.answer_set and len(question.wanted) > 1:
        return _whole_set(question, answer)
    return em(answer, [gold for gold in question.golds if normalize(gold)]) == 1.0


def _whole_set(question: Question, answer: str) -> bool:
    """Whether an answer has the words of every gold, each in one of its wordings, and no other word but `and`."""
    words = Counter(tokens(answer))
    wanted: Counter[str] = Counter()
    text = f" {' '.join(tokens(answer))} "
    for gold in question.wanted:
        wordings = [tokens(item) for item in (gold, *question.aliases.get(gold, ()))]
        # The longest that stands there: of "New York" and "York", both do.
        longest = max((wording for wording in wordings if wording and f" {' '.join(wording)} " in text), key=len, default=None)
        if longest is None:
            return False
        wanted.update(longest)
    return {word: n for word, n in (words - wanted).items() if word != "and"} == {} and not wanted - words
