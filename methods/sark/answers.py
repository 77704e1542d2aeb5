"""Who answers: a chat model, or a reader of this machine, behind one interface."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from benchmarks.draws import Draws
from benchmarks.errors import Broke
from benchmarks.fingerprint import fingerprint
from benchmarks.schema import Passage, Question
from benchmarks.styles.sark_layouts import contents
from methods.api import FAILED, Context, Reader, Services
from methods.models.chat import ChatModel
from methods.models.rewriting_prompt import said
from methods.readers.prompting import bare_answer
from methods.sark.data_config import LabelsConfig
from methods.sark.prompts import asking, load_prompt


@dataclass(frozen=True, slots=True)
class Asked:
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

    def answers(self, asked: Sequence[Asked]) -> list[str | None]:
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

    def answers(self, asked: Sequence[Asked]) -> list[str | None]:
        conversations = [asking(self._prompt, one.question.text, None if one.passage is None else contents(one.passage)) for one in asked]
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

    def answers(self, asked: Sequence[Asked]) -> list[str | None]:
        size = int(getattr(self._reader, "batch_size", 32))
        found: list[str | None] = []
        for start in range(0, len(asked), size):
            some = asked[start : start + size]
            queries = [one.question.query() for one in some]
            contexts = [Context(query.id, self._read(one)) for query, one in zip(queries, some, strict=True)]
            for answer in self._reader.read(queries, contexts):
                failed = answer.notes.get(FAILED)
                found.append(None if failed else answer.text)
        return found

    def _read(self, one: Asked) -> tuple[Passage, ...]:
        if one.passage is not None:
            return (one.passage,)
        return one.memory if self.knows(one.question) else ()


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
