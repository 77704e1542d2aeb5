"""What the generator is asked, with memory or text in the place of documents, and what it is taught to reply.

Three kinds: `qa_pairs` (all questions about a document with their answers), `paraphrase` (the document in other words;
thirteen wordings of the instruction) and `answer` (a question's answer). The texts are files in `prompts/`.

Source: paper, Figures 9 to 17, for what each prompt asks; the wording is ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from string import Template
from typing import Literal

Kind = Literal["qa_pairs", "paraphrase", "answer"]


@dataclass(frozen=True, slots=True)
class Prompt:
    """What is asked.

    Attributes:
        kind: What for.
        documents: Documents whose memory stands in the prompt.
        question: The question, where an answer is asked for.
        texts: Documents as text in place of memory; `documents` is then 0.
        wording: Number of the wording, from 0, where a paraphrase is asked for.
    """

    kind: Kind
    documents: int
    question: str = ""
    texts: tuple[str, ...] = ()
    wording: int = 0

    def __post_init__(self) -> None:
        if self.documents < 0 or (self.texts and self.documents):
            raise ValueError("documents stand in a prompt as memory or as text, not as both")
        if self.kind != "answer" and self.documents + len(self.texts) == 0:
            raise ValueError(f"a {self.kind} prompt needs a document")
        if not 0 <= self.wording < len(wordings("paraphrase")):
            raise ValueError(f"there is no wording {self.wording} of the instruction to paraphrase")


def qa_pairs(documents: int = 1) -> Prompt:
    """Ask for all questions and answers about a document."""
    return Prompt("qa_pairs", documents)


def paraphrase(wording: int = 0, documents: int = 1) -> Prompt:
    """Ask for the document in other words.

    Args:
        wording: Below `PARAPHRASES`; training draws one for each row.
        documents: Documents, as a rule one.
    """
    return Prompt("paraphrase", documents, wording=wording)


def answer(question: str, documents: int) -> Prompt:
    """Ask a question about documents in memory; about none at all with `documents` 0."""
    return Prompt("answer", documents, question)


def answer_from_text(question: str, texts: Sequence[str]) -> Prompt:
    """Ask a question about documents as text: what compression is compared with."""
    return Prompt("answer", 0, question, tuple(texts))


def qa_target(questions: Sequence[str], answers: Sequence[str]) -> str:
    """What is taught of a document's questions and answers: two lines for each pair."""
    return "\n".join(f"Question: {q}\nAnswer: {a}" for q, a in zip(questions, answers, strict=True))


@cache
def wordings(name: str) -> tuple[str, ...]:
    """A file of `prompts/` without its first part: the user's messages."""
    return _parts(name)[1:]


@cache
def _parts(name: str) -> tuple[str, ...]:
    text = files("methods.clara").joinpath("prompts", f"{name}.txt").read_text("utf-8")
    return tuple(part.strip() for part in text.split("\n---\n"))


def messages(prompt: Prompt, background: str) -> tuple[str, str]:
    """System and user message of a prompt.

    Args:
        prompt: What is asked.
        background: What stands in the documents' place.
    """
    bare = prompt.kind == "answer" and not background
    name = "closed_book" if bare else prompt.kind
    user = Template(wordings(name)[prompt.wording]).substitute(background=background, question=prompt.question)
    return _parts(name)[0], user


PARAPHRASES = len(wordings("paraphrase"))
"""Wordings of the instruction to paraphrase."""
