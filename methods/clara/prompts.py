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
"""Templates for answering with a checkpoint, each with the published prompt that can replace it."""
PARAPHRASES = PROMPTS["paraphrase"].load().wordings
"""Number of wordings of the paraphrase instruction."""


@dataclass(frozen=True, slots=True)
class Request:
    """Description of a prompt for the generator.

    Attributes:
        kind: `qa_pairs`, `paraphrase` or `answer`.
        documents: Number of documents given as memory.
        question: The question, for `answer`.
        texts: Documents given as text instead of memory; `documents` is then 0.
        wording: Number of the wording, from 0, for `paraphrase`.
        prompt: A user's template that replaces the shipped one.
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
    """Build a request for all questions and answers about a document."""
    return Request("qa_pairs", documents)


def paraphrase(wording: int = 0, documents: int = 1) -> Request:
    """Build a request for a paraphrase of a document.

    Args:
        wording: Number of the wording, below `PARAPHRASES`; training draws one per row.
        documents: Number of documents, usually 1.
    """
    return Request("paraphrase", documents, wording=wording)


def answer(question: str, documents: int) -> Request:
    """Build a request to answer a question from the memory of `documents` documents; 0 asks without documents."""
    return Request("answer", documents, question)


def answer_from_text(question: str, texts: Sequence[str]) -> Request:
    """Build a request to answer a question from documents as text, the uncompressed baseline."""
    return Request("answer", 0, question, tuple(texts))


def query(question: str, documents: Sequence[str], *, text: bool) -> Request:
    """Build a request to answer a question from documents, as text or as memory."""
    return answer_from_text(question, documents) if text else answer(question, len(documents))


def qa_target(questions: Sequence[str], answers: Sequence[str]) -> str:
    """Return the target reply for `qa_pairs`: two lines per pair of question and answer."""
    return "\n".join(f"Question: {q}\nAnswer: {a}" for q, a in zip(questions, answers, strict=True))


def messages(request: Request, background: str) -> tuple[str, str]:
    """Return the system and user message of a request.

    Args:
        request: The request.
        background: Text inserted for the documents.
    """
    bare = request.kind == "answer" and not background
    prompt = request.prompt or PROMPTS["closed_book" if bare else request.kind].load()
    return prompt.with_wording(min(request.wording, prompt.wordings - 1)).pair(background=background, question=request.question)


_PROBE = "zebra"
"""Reply for finding out what a chat template puts around replies."""


class Layout(Protocol):
    """Protocol of prompt formats of a base model.

    Attributes:
        special: Whether the tokenizer should add special tokens to a prompt.
        ending: Text of the token that ends a reply.
    """

    special: bool
    ending: str

    def document(self, text: str) -> str:
        """Format a document or question as the compressor's input."""
        ...

    def prompt(self, query: Request, memory: str, between: str) -> str:
        """Format a prompt, up to the beginning of the reply.

        Args:
            query: The request.
            memory: Memory tokens of one document.
            between: The token after each document's memory.
        """
        ...

    def reply(self, text: str) -> str:
        """Format a reply as the continuation of a prompt, without the end token."""
        ...


def layout_of(config: ClaraConfig, tokenizer: Any) -> Layout:
    """Return the prompt format of a base model.

    Raises:
        UserError: A chat template is required but missing, or the tokenizer has no end token.
    """
    kind = config.template
    if kind == "auto":
        chats = bool(getattr(tokenizer, "chat_template", None))
        kind = "chat" if chats else "plain"
    if own := own_format(config.base, config.template):
        return OwnLayout(own, tokenizer)
    return ChatLayout(tokenizer) if kind == "chat" else PlainLayout(tokenizer)


def background_of(query: Request, memory: str = "", between: str = "") -> str:
    """Return the text that stands for the documents in a prompt: their texts, or memory placeholders."""
    return "\n\n".join(query.texts) if query.texts else f"{memory}{between}" * query.documents


def _end(tokenizer: Any) -> str:
    if tokenizer.eos_token is None:
        raise UserError(
            "the base has no end-of-sequence token", code="missing-end-token", where="base", try_this="a base with an eos token"
        )
    return str(tokenizer.eos_token)


class PlainLayout:
    """Prompt format for base models without chat training: system and user message in sequence."""

    special = True

    def __init__(self, tokenizer: Any) -> None:
        self.ending = _end(tokenizer)

    def document(self, text: str) -> str:
        """Return the text unchanged."""
        return text

    def prompt(self, query: Request, memory: str, between: str) -> str:
        system, user = messages(query, background_of(query, memory, between))
        return f"{system}\n\n{user}\n\nReply:"

    def reply(self, text: str) -> str:
        return f" {text}"


class OwnLayout:
    """Prompt format of the pocket model, the only one it was trained on: each document's memory follows its number.

    Memories are separated like passages, and there is one wording of the paraphrase instruction.
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
        """Format title and text on one line as the model reads passages, with the leading space of its vocabulary."""
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
    """Prompt format with the base's chat template; an unsupported system message is prepended to the user's."""

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
        """Return the text unchanged."""
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
"""Answer that models give if a document does not contain it."""
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
"""A non-blank text on one line."""


class Questions(BaseModel):
    """Reply with questions about a document."""

    questions: list[str]


class Supplement(BaseModel):
    """Reply with facts that the questions so far do not cover."""

    count: int
    questions: list[str]

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if (self.count == 0) != (not self.questions):
            raise ValueError(f"count is {self.count}, and there are {len(self.questions)} questions")
        return self


class Answer(BaseModel):
    """Reply with the answer to one question."""

    answer: Said


class Judgment(BaseModel):
    """Reply that judges whether the document supports a question-answer pair: Correct or Incorrect."""

    judgment: Literal["Correct", "Incorrect"]


class Rephrasing(BaseModel):
    """Reply with a paraphrase of a document."""

    paraphrase: Said


class Preserved(BaseModel):
    """Reply that judges whether a paraphrase preserves the content: Yes or No."""

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
"""Reply schema of each prompt."""


class Prompts:
    """All prompt templates of the synthesis.

    Args:
        folder: A user's folder of templates; missing ones are the shipped ones.

    Raises:
        UserError: A template cannot be read, or has wrong placeholders.
    """

    def __init__(self, folder: str | None = None) -> None:
        self._prompts = {name: template.load_from(folder) for name, template in SYNTHESIS.items()}

    @property
    def hash(self) -> str:
        """Return a hash of all templates, for fingerprints."""
        return content_hash([self._prompts[name].hash for name in sorted(self._prompts)])

    def messages(self, name: str, **values: str) -> Messages:
        """Fill a template and return the chat messages; values are escaped, so that they cannot close tags or add placeholders."""
        shown = {key: _TAG.sub(r"‹\1›", value) for key, value in values.items()}
        return self._prompts[name].messages(**shown)


def shown_pairs(pairs: Sequence[Pair]) -> str:
    """Format question-answer pairs for the prompts of the coverage loop."""
    lines = [f"{number}. {pair.question} -> {pair.answer}" for number, pair in enumerate(pairs, 1)]
    return "\n".join(lines) or NONE_YET


def read_pairs(shown: str) -> list[Pair]:
    """Parse pairs that `shown_pairs` formatted."""
    results = (re.fullmatch(r"\d+\. (.*?) -> (.*)", line) for line in shown.split("\n"))
    return [Pair(match[1], match[2]) for match in results if match is not None]
