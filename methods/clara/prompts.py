"""Build the generator's requests and target replies in the format of a base model.

Three kinds of request: `qa_pairs` (all questions about a document with their answers), `paraphrase` (the document in other
words; thirteen wordings of the instruction) and `answer` (a question's answer), each with memory or text in the place of
documents. Source: paper, Figures 9 to 17, for what each prompt asks; the wording is ours.

A layout writes text only; memory tokens are text too, and become vectors in `generator.py`.

The synthesis of training rows has prompts of its own, each answered by JSON of one shape (Figures 9 to 16):

    simple, complex             document                     → Questions     (the paper's Figures 9 and 10)
    answer                      document, question           → Answer        (Figure 11)
    check_answer                document, question, answer   → Judgment      (Figure 12)
    more_simple, more_complex   document, pairs so far       → Supplement    (Figures 13 and 14)
    paraphrase                  document                     → Rephrasing    (Figure 15)
    check_paraphrase            document, paraphrase         → Preserved     (Figure 16)
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Protocol, Self

from pydantic import AfterValidator, BaseModel, model_validator

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import content_hash
from methods.clara.config import ClaraConfig
from methods.clara.rows import Pair
from methods.models.causal import QUIET, chat_text
from methods.models.formats import OwnFormat, own_format
from methods.prompts import BY_DEFAULT, Messages, Prompt, shipped

Kind = Literal["qa_pairs", "paraphrase", "answer"]
PROMPTS = shipped("methods.clara", *(f"generator/{name}" for name in ("qa_pairs", "paraphrase", "answer", "closed_book")))
READING = {kind: replace(PROMPTS[kind], published=f"clara_{kind}", follows=frozenset({"joined"})) for kind in ("answer", "paraphrase")}
"""Templates of the reader in use, with the published prompts that may be in their place."""
PARAPHRASES = PROMPTS["paraphrase"].load().wordings
"""Wordings of the instruction to paraphrase."""


@dataclass(frozen=True, slots=True)
class Request:
    """Request to the generator.

    Attributes:
        kind: What for.
        documents: Documents whose memory is in the prompt.
        question: The question, where an answer is asked for.
        texts: Documents as text in place of memory; `documents` is then 0.
        wording: Number of the wording, from 0, where a paraphrase is asked for.
        prompt: The template, in the place of ours.
    """

    kind: Kind
    documents: int
    question: str = ""
    texts: tuple[str, ...] = ()
    wording: int = 0
    prompt: Prompt | None = None

    def __post_init__(self) -> None:
        if self.documents < 0 or (self.texts and self.documents):
            raise ValueError("documents are in a prompt as memory or as text, not as both")
        if self.kind != "answer" and self.documents + len(self.texts) == 0:
            raise ValueError(f"a {self.kind} prompt needs a document")
        if not 0 <= self.wording < PARAPHRASES:
            raise ValueError(f"there is no wording {self.wording} of the instruction to paraphrase")


def qa_pairs(documents: int = 1) -> Request:
    """Ask for all questions and answers about a document."""
    return Request("qa_pairs", documents)


def paraphrase(wording: int = 0, documents: int = 1) -> Request:
    """Ask for the document in other words.

    Args:
        wording: Below `PARAPHRASES`; training draws one for each row.
        documents: Documents, as a rule one.
    """
    return Request("paraphrase", documents, wording=wording)


def answer(question: str, documents: int) -> Request:
    """Ask a question about documents in memory; about none at all with `documents` 0."""
    return Request("answer", documents, question)


def answer_from_text(question: str, texts: Sequence[str]) -> Request:
    """Ask a question about documents as text: what compression is compared with."""
    return Request("answer", 0, question, tuple(texts))


def query(question: str, documents: Sequence[str], *, text: bool) -> Request:
    """Ask a question about documents, as text or in memory."""
    return answer_from_text(question, documents) if text else answer(question, len(documents))


def qa_target(questions: Sequence[str], answers: Sequence[str]) -> str:
    """Return the target text of a document's questions and answers: two lines per pair."""
    return "\n".join(f"Question: {q}\nAnswer: {a}" for q, a in zip(questions, answers, strict=True))


def messages(request: Request, background: str) -> tuple[str, str]:
    """Return system and user message of a request.

    Args:
        request: What is asked.
        background: What is in the documents' place.
    """
    bare = request.kind == "answer" and not background
    prompt = request.prompt or PROMPTS["closed_book" if bare else request.kind].load()
    return prompt.worded(min(request.wording, prompt.wordings - 1)).pair(background=background, question=request.question)


_PROBE = "zebra"
"""A reply by which it is seen what a chat template puts around replies."""


class Layout(Protocol):
    """Writes prompts and replies.

    Attributes:
        special: Whether the tokenizer is to add its special tokens to a prompt.
        ending: Text of the token that ends a reply.
    """

    special: bool
    ending: str

    def document(self, text: str) -> str:
        """Return a document or question as the compressor reads it."""
        ...

    def prompt(self, query: Request, memory: str, between: str) -> str:
        """Return the text of a prompt, up to where the reply begins.

        Args:
            query: What is asked.
            memory: Memory tokens of one document.
            between: The token behind each memory.
        """
        ...

    def reply(self, text: str) -> str:
        """Return a reply as it continues a prompt, without its end."""
        ...


def layout_of(config: ClaraConfig, tokenizer: Any) -> Layout:
    """Return the layout for a base.

    Raises:
        UserError: A chat template is asked for and there is none, or replies have no end.
    """
    kind = config.template
    if kind == "auto":
        chats = bool(getattr(tokenizer, "chat_template", None))
        kind = "chat" if chats else "plain"
    if own := own_format(config.base, config.template):
        return OwnLayout(own, tokenizer)
    return ChatLayout(tokenizer) if kind == "chat" else PlainLayout(tokenizer)


def background_of(query: Request, memory: str = "", between: str = "") -> str:
    """Return the representation of the documents: their texts, or memory for each of them."""
    return "\n\n".join(query.texts) if query.texts else f"{memory}{between}" * query.documents


def _end(tokenizer: Any) -> str:
    if tokenizer.eos_token is None:
        raise UserError(
            "the base has no end-of-sequence token", code="missing-end-token", where="base", try_this="a base with an eos token"
        )
    return str(tokenizer.eos_token)


class PlainLayout:
    """System and user message one after the other, for bases that were not trained to chat."""

    special = True

    def __init__(self, tokenizer: Any) -> None:
        self.ending = _end(tokenizer)

    def document(self, text: str) -> str:
        """Return the text itself."""
        return text

    def prompt(self, query: Request, memory: str, between: str) -> str:
        system, user = messages(query, background_of(query, memory, between))
        return f"{system}\n\n{user}\n\nReply:"

    def reply(self, text: str) -> str:
        return f" {text}"


class OwnLayout:
    """The one format that a base was trained on, with each document's memory behind its number.

    Nothing separates memories but what separates passages, and there is one wording to paraphrase.
    """

    special = True

    def __init__(self, own: OwnFormat, tokenizer: Any) -> None:
        self._own, self.ending = own, own.EOS
        if tokenizer.eos_token != own.EOS:
            raise UserError(
                "the base was not trained on this format: its texts end differently",
                code="base-format-mismatch",
                where="template",
                try_this="template: chat or plain for this base",
            )

    def document(self, text: str) -> str:
        """Return title and text on one line as the model reads passages, with the space that its first word is known with."""
        return self._own.document(text)

    def prompt(self, query: Request, memory: str, between: str) -> str:
        blocks = [self.document(text) for text in query.texts] or [memory] * query.documents
        context = self._own.numbered(blocks)
        if query.kind == "answer":
            return context + self._own.asking(query.question)
        return context + (self._own.QUESTION if query.kind == "qa_pairs" else self._own.PARAPHRASE)

    def reply(self, text: str) -> str:
        # The prompt for pairs ends with the first pair's `Question:`, as the model's prompts end with a colon.
        return f" {text.removeprefix(f'{self._own.QUESTION} ')}"


class ChatLayout:
    """The base's chat template; a system message it refuses or drops goes to the head of the user's."""

    special = False

    def __init__(self, tokenizer: Any) -> None:
        if not getattr(tokenizer, "chat_template", None):
            raise UserError("the base has no chat template", code="missing-chat-template", where="template", try_this="template: plain")
        self._tokenizer = tokenizer
        turn = [{"role": "user", "content": "a"}]
        head, _, tail = self._write_turns([*turn, {"role": "assistant", "content": _PROBE}], False).rpartition(_PROBE)
        before = self._write_turns(turn, True)
        self._lead = head.removeprefix(before) if head.startswith(before) else ""
        self.ending = self._first_special(tail) or _end(tokenizer)

    def _first_special(self, tail: str) -> str:
        """Return the end of a turn: the first special token after a reply."""
        # Not all special tokens have one of the tokenizer's named parts.
        special = {number for number, token in self._tokenizer.added_tokens_decoder.items() if token.special}
        ids = self._tokenizer(tail, add_special_tokens=False)["input_ids"] if tail else []
        result = next((identifier for identifier in ids if identifier in special), None)
        return "" if result is None else str(self._tokenizer.convert_ids_to_tokens(result))

    def document(self, text: str) -> str:
        """Return the text itself."""
        return text

    def prompt(self, query: Request, memory: str, between: str) -> str:
        system, user = messages(query, background_of(query, memory, between))
        turns = [{"role": "system", "content": system}, {"role": "user", "content": user}]
        return chat_text(self._tokenizer, turns, QUIET, (query.prompt.options if query.prompt else BY_DEFAULT).joined)

    def reply(self, text: str) -> str:
        return f"{self._lead}{text}"

    def _write_turns(self, turns: Sequence[dict[str, str]], asks: bool) -> str:
        return str(self._tokenizer.apply_chat_template(list(turns), tokenize=False, add_generation_prompt=asks, **QUIET))


ABSENT = "Not contained in the document."
"""The answer where a document holds none."""
SYNTHESIS = shipped(
    "methods.clara", *("simple", "complex", "answer", "check_answer", "more_simple", "more_complex", "paraphrase", "check_paraphrase")
)
NONE_YET = "(none yet)"
_TAG = re.compile(r"<(/?\s*(?:document|questions?|answer|text)\s*)>", re.IGNORECASE)


def _require_words(text: str) -> str:
    flat = " ".join(text.split())
    if not flat:
        raise ValueError("it is blank")
    return flat


Said = Annotated[str, AfterValidator(_require_words)]
"""A text on one line that is not blank."""


class Questions(BaseModel):
    """Questions about a document."""

    questions: list[str]


class Supplement(BaseModel):
    """Facts that the questions so far do not cover."""

    count: int
    questions: list[str]

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if (self.count == 0) != (not self.questions):
            raise ValueError(f"count is {self.count}, and there are {len(self.questions)} questions")
        return self


class Answer(BaseModel):
    """The answer to one question."""

    answer: Said


class Judgment(BaseModel):
    """Judgment whether the document supports a pair."""

    judgment: Literal["Correct", "Incorrect"]


class Rephrasing(BaseModel):
    """A document in other words."""

    paraphrase: Said


class Preserved(BaseModel):
    """Judgment whether a paraphrase preserves the content."""

    judgment: Literal["Yes", "No"]


REPLIES: Mapping[str, type[BaseModel]] = {
    "simple": Questions,
    "complex": Questions,
    "answer": Answer,
    "check_answer": Judgment,
    "more_simple": Supplement,
    "more_complex": Supplement,
    "paraphrase": Rephrasing,
    "check_paraphrase": Preserved,
}
"""The reply that each prompt asks for."""


class Prompts:
    """All templates.

    Args:
        folder: Of templates of one's own; one that it lacks is taken as it ships.

    Raises:
        UserError: A template cannot be read, or its placeholders are not those that its name has.
    """

    def __init__(self, folder: str | None = None) -> None:
        self._prompts = {name: template.load_from(folder) for name, template in SYNTHESIS.items()}

    @property
    def hash(self) -> str:
        """Return a hash of all texts, so that another prompt makes other rows."""
        return content_hash([self._prompts[name].hash for name in sorted(self._prompts)])

    def messages(self, name: str, **values: str) -> Messages:
        """Return a conversation; what is put in can neither end its tags nor be read as a placeholder."""
        shown = {key: _TAG.sub(r"‹\1›", value) for key, value in values.items()}
        return self._prompts[name].messages(**shown)


def shown_pairs(pairs: Sequence[Pair]) -> str:
    """Return pairs as the prompts of the coverage loop show them."""
    lines = [f"{number}. {pair.question} -> {pair.answer}" for number, pair in enumerate(pairs, 1)]
    return "\n".join(lines) or NONE_YET


def read_pairs(shown: str) -> list[Pair]:
    """Return the pairs that `shown_pairs` showed."""
    results = (re.fullmatch(r"\d+\. (.*?) -> (.*)", line) for line in shown.split("\n"))
    return [Pair(match[1], match[2]) for match in results if match is not None]
