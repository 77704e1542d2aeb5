"""Rewrite passages in another style with a language model, and check every result.

A result must not be empty, a refusal, the source itself, or much shorter or longer than it, and must have the same number of
sentences if they matter. It must then pass the injected validators (judges of style and content). A failed result is requested
again with the reason, and given up after too many attempts. All failed attempts are recorded with their reasons.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from string import Template
from typing import Annotated, Literal, Protocol

from pydantic import BaseModel, Field, field_validator

from benchmarks.core.errors import unknown_name
from benchmarks.core.fingerprint import content_hash, fingerprint
from benchmarks.core.models import FrozenModel
from benchmarks.schema import Passage, passage_id
from benchmarks.styles.rules import STYLES, Outcome
from methods.api import Services
from methods.flow import in_order, one
from methods.models.chat import Reply
from methods.models.counting import Estimate
from methods.models.endpoint import Messages
from methods.models.llm import LLM, AskingConfig, defaults, open_llm
from methods.models.structured import parse
from methods.prompts import Prompt, read, shipped

PROMPTS = shipped("methods.models", *(f"rewriting/{style}" for style in STYLES), optional=("low", "high"))
PLAIN = "Reply with the rewritten text alone, as one paragraph."
LINES = (
    "The text has one sentence in each of its $lines lines. Reply with as many lines: each sentence rewritten, in the "
    "same order, one a line, and nothing else."
)
JSON = 'Reply with a JSON object: {"text": the rewritten text}.'
JSON_LINES = (
    'The text has one sentence in each of its $lines lines. Reply with a JSON object: {"sentences": [each sentence '
    "rewritten, in the same order]}, with $lines items."
)
AGAIN = "- this is attempt $number: the one before it could not be used ($reason)."

_TAG = re.compile(r"<(/?\s*passage\s*)>", re.IGNORECASE)
_FENCE = re.compile(r"```[\w-]*[ \t]*\n(.*?)\n?```", re.DOTALL)
_LEAD = re.compile(r"(?:sure|certainly|of course|okay|here(?:['’]s| is| are)|output|rewritten)\b[^\n]{0,80}:\s*\n+", re.IGNORECASE)
_LABEL = re.compile(r"(?:\*\*)?(?:output|rewritten text|rewrite)\s*:(?:\*\*)?\s*", re.IGNORECASE)
_NUMBERED = re.compile(r"^\s*(?:[-*•]|\(?\d{1,3}[.):])\s+")
_REFUSAL = re.compile(
    r"\W*(?:(?:i['’]?m|i am)(?: \w+)? sorry\b|as an ai\b|unfortunately,? i (?:can|am)"
    r"|i (?:can['’]?t|can ?not|won['’]?t|am unable|am not able|must decline)\b|i['’]m (?:unable|not able)\b)",
    re.IGNORECASE,
)


class Whole(BaseModel):
    """Reply with a rewritten text."""

    text: str = Field(description="the rewritten text")


class Sentences(BaseModel):
    """Reply with a rewritten text, sentence by sentence."""

    sentences: list[str] = Field(description="each sentence rewritten, in the order of the text")


def load_prompt(style: str, folder: str | None = None) -> Prompt:
    """Load the prompt of a style from the user's folder, or the shipped one.

    Raises:
        UserError: The prompt does not exist, cannot be read, or has other placeholders than the shipped ones.
    """
    if style not in styles_of(folder):
        raise unknown_name("style", style, styles_of(folder), where=folder)
    return PROMPTS.get(style, PROMPTS[STYLES[0]]).load(None if folder is None else Path(folder).expanduser() / f"{style}.txt")


def request_for(prompt: Prompt, text: str, words: tuple[int, int], form: str, again: str = "") -> Messages:
    """Fill the prompt and return the chat messages; the text is escaped, so that it cannot close tags."""
    messages = prompt.messages(text=_TAG.sub(r"‹\1›", text), low=words[0], high=words[1], form=form, again=again)
    messages[-1]["content"] = messages[-1]["content"].strip()
    return messages


def prompts_hash(folder: str | None) -> str:
    """Return a hash of all prompts, for the rewriter's id."""
    own = [] if folder is None else [read(Path(folder).expanduser() / f"{style}.txt") for style in styles_of(folder)]
    prompts = own or [template.load() for template in PROMPTS.values()]
    return content_hash([*(prompt.source for prompt in prompts), PLAIN, LINES, JSON, JSON_LINES, AGAIN])


def styles_of(folder: str | None) -> tuple[str, ...]:
    """Return the styles that have a prompt."""
    if folder is None:
        return STYLES
    return tuple(sorted(path.stem for path in Path(folder).expanduser().glob("*.txt")))


def form_of(passage: Passage, *, structured: bool) -> str:
    """Return the requested reply format: by sentences if the passage has separate sentences."""
    if not passage.sentences:
        return JSON if structured else PLAIN
    return Template(JSON_LINES if structured else LINES).substitute(lines=len(passage.sentences))


def shown(passage: Passage) -> str:
    """Format a passage's text for the prompt: one line per sentence if sentences are separate."""
    if not passage.sentences:
        return passage.text.strip()
    return "\n".join(" ".join(sentence.split()) for sentence in passage.sentences)


def word_range(text: str, shares: tuple[float, float]) -> tuple[int, int]:
    """Return the allowed minimum and maximum number of words of a rewrite."""
    words = len(text.split())
    return max(1, math.floor(words * shares[0])), max(1, math.ceil(words * shares[1]))


def bare_text(reply: str) -> str:
    """Strip what models add around a text: greetings, code fences, labels, quotes."""
    text = reply.strip()
    fenced = _FENCE.search(text)
    if fenced:
        text = fenced[1].strip()
    text = _LABEL.sub("", _LEAD.sub("", text, count=1), count=1) if _LABEL.match(text) or _LEAD.match(text) else text
    text = text.strip()
    pairs = {'"': '"', "“": "”"}
    if len(text) > 1 and pairs.get(text[0]) == text[-1] and text[0] not in text[1:-1]:
        text = text[1:-1].strip()
    return text


def lines_of(text: str) -> list[str]:
    """Split a reply into lines, removing bullets or numbers if all lines have them."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines and all(_NUMBERED.match(line) for line in lines):
        return [_NUMBERED.sub("", line) for line in lines]
    return lines


def refuses(text: str) -> bool:
    """Return whether a reply is a refusal."""
    return bool(_REFUSAL.match(text))


VERSION = 1
"""Version of parsing and checks; part of every rewriter's id."""


class Validator(Protocol):
    """Protocol of checks of rewritten texts (`judges.style` has implementations).

    An implementation has `objections(sources, rewritten, style)`, which returns per pair a reason `what: detail`, or None if
    the text passes; or the asynchronous `objections_one(source, rewritten, style)`.
    """

    @property
    def id(self) -> str:
        """Return the validator's name, which is part of the rewriter's id."""
        ...


class RewritingOptions(FrozenModel):
    """Options for rewriting with a language model and for checking its output."""

    tries: int = Field(3, ge=1, description="maximum attempts per passage")
    output: Literal["text", "json"] = Field("text", description="format of replies")
    keep_sentences: bool = Field(
        True, description="rewrite passages that are split into sentences sentence by sentence, as supporting facts require"
    )
    words: tuple[float, float] = Field(
        (0.8, 1.2),
        description="minimum and maximum requested words, as shares of the source's; paper: informal 80 to 120 words for "
        "blocks of 100, humor and romance of about the same length",
    )
    accepted_words: tuple[float, float] = Field((0.5, 3.0), description="minimum and maximum accepted words, as shares of the source's")
    prompts: str | None = Field(None, description="folder of your own prompts, one <style>.txt each; null: the shipped ones")

    @field_validator("words", "accepted_words")
    @classmethod
    def _ordered(cls, value: tuple[float, float]) -> tuple[float, float]:
        if not 0 < value[0] <= value[1]:
            raise ValueError("give two shares above 0, the smaller first")
        return value


REPLY = defaults(max_tokens=512)
"""Defaults for the language model's options."""


class RewriterConfig(AskingConfig, RewritingOptions):
    """Options of the language-model rewriter."""

    llm: Annotated[LLM, REPLY] = Field(description="the model that rewrites")


class LLMRewriter:
    """Rewriter with a language model.

    Args:
        config: Options.
        validators: Validators, applied in order; each sees only texts that passed all earlier checks.
        services: Services: reply cache, and for a local model device and seed.

    Raises:
        UserError: The API key is not set, or a prompt is invalid.
    """

    def __init__(self, config: RewriterConfig, *, validators: Sequence[Validator] = (), services: Services | None = None) -> None:
        self.config = config
        self.validators = tuple(validators)
        services = services or Services()
        self.model = open_llm(config.llm, services, role="rewriter")
        self._object = [one(validator, "objections") for validator in validators]
        self._prompts_hash = prompts_hash(config.prompts)

    @property
    def id(self) -> str:
        """Return model, version, and a hash of everything else that determines its output."""
        options = self.config.model_dump(mode="json", exclude={"llm"})
        also = fingerprint(self.model.config.identity(), options, self._prompts_hash, [v.id for v in self.validators])
        return f"llm-{self.model.config.model}#v{VERSION}({also[:8]})"

    def rewrite(self, passages: Sequence[Passage], style: str) -> list[Passage | None]:
        return [outcome.passage for outcome in self.outcomes(passages, style)]

    def outcomes(self, passages: Sequence[Passage], style: str) -> Iterator[Outcome]:
        """Rewrite passages; a failed attempt is repeated with the reason.

        Args:
            passages: The formal passages.
            style: A style that has a prompt.

        Returns:
            One outcome per passage, in order, as soon as it and all earlier ones are finished; `by` is the model's name at its
            endpoint.

        Raises:
            UserError: The style has no prompt.
            Broke: No further call could succeed: wrong key, unknown model, or unreachable endpoint.
        """
        prompt = load_prompt(style, self.config.prompts)
        return in_order(lambda passage: self._rewritten(passage, style, prompt), passages, self.model.in_flight)

    def estimate(self, passages: Sequence[Passage], style: str) -> Estimate:
        """Estimate the cost of one call per passage, without validators and without calling the model."""
        prompt = load_prompt(style, self.config.prompts)
        return self.model.estimate([self._messages(passage, prompt, ()) for passage in passages if passage.text.strip()])

    async def _rewritten(self, passage: Passage, style: str, prompt: Prompt) -> Outcome:
        if not passage.text.strip():
            return Outcome(None, failed=("empty: the source has no text",))
        shape = None if self.config.output == "text" else Sentences if self._by_lines(passage) else Whole
        failed: list[str] = []
        for number in range(self.config.tries):
            reply = await self.model.ask(self._messages(passage, prompt, failed), shape=shape, repetition=number, step="rewrite")
            texts, reason = self._read(passage, reply, shape)
            reason = reason or self._fault(passage, texts)
            if reason is None:
                made = self._passage(passage, texts)
                reason = await self._objection(passage.text, made.text, style)
                if reason is None:
                    return Outcome(made, reply.model, tuple(failed))
            failed.append(reason)
        return Outcome(None, "", tuple(failed))

    async def _objection(self, source: str, rewritten: str, style: str) -> str | None:
        """Return the first objection of a validator, or None."""
        for ask in self._object:
            objection: str | None = await ask(source, rewritten, style)
            if objection is not None:
                return objection
        return None

    def _read(self, passage: Passage, reply: Reply, shape: type[Sentences | Whole] | None) -> tuple[list[str], str | None]:
        """Parse a reply's texts (sentences, or one text), or return the reason of failure."""
        if reply.failed is not None:
            return [], f"no reply: {reply.failed}"
        if shape is None:
            text = bare_text(reply.text)
            return lines_of(text) if self._by_lines(passage) else [text], None
        parsed = parse(reply.text, shape)
        if parsed.value is None:
            return [], f"unreadable: {parsed.failed}"
        texts = parsed.value.sentences if isinstance(parsed.value, Sentences) else [parsed.value.text]
        return [text.strip() for text in texts], None

    def _messages(self, passage: Passage, prompt: Prompt, failed: Sequence[str]) -> Messages:
        shown_as = passage if self._by_lines(passage) else replace(passage, sentences=())
        again = AGAIN.replace("$number", str(len(failed) + 1)).replace("$reason", failed[-1]) if failed else ""
        text = shown(shown_as)
        form = form_of(shown_as, structured=self.config.output == "json")
        return request_for(prompt, text, word_range(text, self.config.words), form, again)

    def _by_lines(self, passage: Passage) -> bool:
        return self.config.keep_sentences and bool(passage.sentences)

    def _fault(self, passage: Passage, texts: Sequence[str]) -> str | None:
        """Return why texts are formally invalid as a rewrite; None if they pass."""
        text = " ".join(texts)
        if not text.strip():
            return "empty: the reply holds no text"
        if refuses(text) and not refuses(passage.text):
            return "refusal: the reply declines"
        if self._by_lines(passage) and (len(texts) != len(passage.sentences) or not all(map(str.strip, texts))):
            return f"sentences: the text has {len(passage.sentences)} sentences, the reply {len(texts)} lines"
        if text.split() == passage.text.split():
            return "unchanged: the reply is the text itself"
        words = len(text.split())
        low, high = word_range(passage.text, self.config.accepted_words)
        if not low <= words <= high:
            return f"length: {words} words for a text of {len(passage.text.split())}"
        return None

    def _passage(self, source: Passage, texts: Sequence[str]) -> Passage:
        text = " ".join(texts) if self._by_lines(source) else texts[0]
        identifier = passage_id(source.title, text, source.document_id)
        sentences = tuple(texts) if self._by_lines(source) else ()
        return Passage(identifier, source.title, text, sentences, source.document_id)
