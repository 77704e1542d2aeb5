"""The rewriter by a language model: asks for each passage in another style, and lets nothing through unchecked.

What comes back must be a text of its own (not empty, not a refusal, not the source, not a fragment or a ramble, with as
many sentences where they count), and then pass the validators that were injected: judges of style and of content. What
does not is asked for again, with the reason; what never does is given up. Every failed try is kept with its reason.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any, Literal, Protocol

from pydantic import BaseModel, Field, field_validator

from benchmarks.core.errors import UserError, unknown_name
from benchmarks.core.fingerprint import content_hash, fingerprint
from benchmarks.schema import Passage, passage_id
from benchmarks.styles.rules import STYLES, Outcome
from methods.models.chat import ChatModel, Reply, Structured
from methods.models.endpoint import ChatConfig, Estimate, Messages
from methods.models.limits import UsageByRole

# -- The prompts of the rewriter, what is put into them, and how what comes back is read --


PLACEHOLDERS = ("text", "low", "high", "form", "again")
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
_THOUGHT = re.compile(r".*</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
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
    """A rewritten text."""

    text: str = Field(description="the rewritten text")


class Sentences(BaseModel):
    """A rewritten text, sentence by sentence."""

    sentences: list[str] = Field(description="each sentence rewritten, in the order of the text")


@dataclass(frozen=True, slots=True)
class Prompt:
    """The template of a style in its two parts."""

    system: str
    user: str

    def messages(self, text: str, words: tuple[int, int], form: str, again: str = "") -> Messages:
        """The conversation; what is put in cannot end its tags, and is not searched for placeholders again."""
        shown = _TAG.sub(r"‹\1›", text)
        values = {"text": shown, "low": str(words[0]), "high": str(words[1]), "form": form, "again": again}
        messages = [{"role": "user", "content": Template(self.user).substitute(values).strip()}]
        if not self.system:
            return messages
        return [{"role": "system", "content": Template(self.system).substitute(values)}, *messages]


def load_prompt(style: str, folder: str | None = None) -> Prompt:
    """The prompt of a style: of one's own folder, or the one that ships.

    Raises:
        UserError: There is none, or it holds an unknown placeholder or lacks `$text`.
    """
    text = _text(style, folder)
    system, mark, user = text.partition("\n---\n")
    prompt = Prompt(system.strip(), user.strip()) if mark else Prompt("", text.strip())
    where = f"{style}.txt"
    for part in (prompt.system, prompt.user):
        template = Template(part)
        result = set(template.get_identifiers()) if template.is_valid() else {"$"}
        if result - set(PLACEHOLDERS):
            raise UserError(
                f"the prompt holds the unknown placeholder {min(result - set(PLACEHOLDERS))!r}",
                where=where,
                try_this=f"use {', '.join(f'${name}' for name in PLACEHOLDERS)}, and $$ for a dollar sign",
            )
    for name in ("text", "form", "again"):
        if name not in Template(prompt.user).get_identifiers():
            raise UserError(f"the prompt lacks ${name}", where=where, try_this=f"put ${name} into its last part")
    return prompt


def prompts_hash(folder: str | None) -> str:
    """A hash of all prompts, so that a rewriter with changed prompts is another one."""
    return content_hash([*(_text(style, folder) for style in styles_of(folder)), PLAIN, LINES, JSON, JSON_LINES, AGAIN])


def styles_of(folder: str | None) -> tuple[str, ...]:
    """The styles that there are prompts for."""
    if folder is None:
        return STYLES
    return tuple(sorted(path.stem for path in Path(folder).expanduser().glob("*.txt")))


def _text(style: str, folder: str | None) -> str:
    if style not in styles_of(folder):
        raise unknown_name("style", style, styles_of(folder), where=folder)
    try:
        if folder is not None:
            return (Path(folder).expanduser() / f"{style}.txt").read_text("utf-8")
        return files("methods.models").joinpath("rewriting_prompts", f"{style}.txt").read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"the prompt of {style} cannot be read: {error}", where=folder) from None


def form_of(passage: Passage, *, structured: bool) -> str:
    """How the reply is asked to look: by sentences, where the passage has any."""
    if not passage.sentences:
        return JSON if structured else PLAIN
    return Template(JSON_LINES if structured else LINES).substitute(lines=len(passage.sentences))


def shown(passage: Passage) -> str:
    """A passage's text as the prompt shows it: a line for each sentence, where it has any."""
    if not passage.sentences:
        return passage.text.strip()
    return "\n".join(" ".join(sentence.split()) for sentence in passage.sentences)


def word_range(text: str, shares: tuple[float, float]) -> tuple[int, int]:
    """Fewest and most words of a rewriting, for a text."""
    words = len(text.split())
    return max(1, math.floor(words * shares[0])), max(1, math.ceil(words * shares[1]))


def said(reply: str) -> str:
    """A reply without what models put around a text: thoughts, a greeting, a fence, a label, quotes."""
    text = _THOUGHT.sub("", reply).strip()
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
    """The lines of a reply that was asked for by lines, without bullets or numbers where all have one."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines and all(_NUMBERED.match(line) for line in lines):
        return [_NUMBERED.sub("", line) for line in lines]
    return lines


def refuses(text: str) -> bool:
    """Whether a reply declines to do what it was asked."""
    return bool(_REFUSAL.match(text))


VERSION = 1
"""Of reading and checking; part of every rewriter's id."""


class Validator(Protocol):
    """Says of rewritten texts why they cannot be used (`judges.style` has some)."""

    @property
    def id(self) -> str:
        """What it is; part of the rewriter's id."""
        ...

    def objections(self, sources: Sequence[str], rewritten: Sequence[str], style: str) -> list[str | None]:
        """For each pair a reason, `what: detail`, or None where there is nothing against it.

        Raises:
            Broke: No further call could succeed.
        """
        ...


class RewriterConfig(ChatConfig):
    """Options of the rewriter by a language model."""

    max_tokens: int = Field(512, ge=1, description="longest reply")
    tries: int = Field(3, ge=1, description="times that a passage is asked for before it is given up")
    output: Literal["text", "json"] = Field("text", description="how replies are asked to look")
    keep_sentences: bool = Field(
        True, description="passages that come in sentences are rewritten sentence by sentence, as supporting facts need it"
    )
    words: tuple[float, float] = Field(
        (0.8, 1.2),
        description="fewest and most words that are asked for, as shares of the source's; paper: informal 80 to 120 "
        "words for blocks of 100, humor and romance of about the same length",
    )
    accepted_words: tuple[float, float] = Field(
        (0.5, 3.0), description="fewest and most words with which a rewriting is accepted, as shares of the source's"
    )
    prompts: str | None = Field(None, description="folder of prompts of one's own, <style>.txt each; null: those that ship")

    @field_validator("words", "accepted_words")
    @classmethod
    def _ordered(cls, value: tuple[float, float]) -> tuple[float, float]:
        if not 0 < value[0] <= value[1]:
            raise ValueError("give two shares above 0, the smaller first")
        return value


@dataclass(slots=True)
class _Try:
    """A passage on its way."""

    position: int
    passage: Passage
    failed: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Came:
    """What came back for a passage: texts (its sentences, or one), who wrote them, and why there are none."""

    texts: list[str]
    by: str
    failed: str | None = None


class LLMRewriter:
    """Rewrites by a chat model.

    Args:
        config: Options.
        validators: Asked in order about what passed the checks before; later ones see what earlier ones let through.
        cache: File of cached replies; None asks every time.
        usage_by_role: Shared with other models; None makes one.

    Raises:
        UserError: The key is not set, or a prompt cannot be used.
    """

    def __init__(
        self,
        config: RewriterConfig,
        *,
        validators: Sequence[Validator] = (),
        cache: Path | None = None,
        usage_by_role: UsageByRole | None = None,
    ) -> None:
        self.config = config
        self.validators = tuple(validators)
        self.model = ChatModel(config, role="rewriter", cache=cache, usage_by_role=usage_by_role)
        self._prompts_hash = prompts_hash(config.prompts)

    @property
    def id(self) -> str:
        """Model, version, and a hash of everything else that decides what it writes."""
        also = fingerprint(self.config.model_dump(mode="json"), self._prompts_hash, [v.id for v in self.validators])
        return f"llm-{self.config.model}#v{VERSION}({also[:8]})"

    def rewrite(self, passages: Sequence[Passage], style: str) -> list[Passage | None]:
        return [outcome.passage for outcome in self.outcomes(passages, style)]

    def outcomes(self, passages: Sequence[Passage], style: str) -> list[Outcome]:
        """Rewrite passages; what fails is asked for again, all that failed at once.

        Args:
            passages: The formal passages.
            style: One that there is a prompt for.

        Returns:
            One per passage, in order; `by` is the model as its endpoint names it.

        Raises:
            UserError: There is no prompt of this style.
            Broke: No further call could succeed: wrong key, unknown model, or nothing answers at all.
        """
        prompt = load_prompt(style, self.config.prompts)
        result = [Outcome(None)] * len(passages)
        waiting = [_Try(position, passage) for position, passage in enumerate(passages)]
        for item in [item for item in waiting if not item.passage.text.strip()]:
            result[item.position] = Outcome(None, failed=("empty: the source has no text",))
            waiting.remove(item)
        for number in range(self.config.tries):
            if not waiting:
                break
            results = self._ask(waiting, prompt, number)
            self._validate(waiting, results, style)
            for item, (passage, by) in zip(waiting, results, strict=True):
                result[item.position] = Outcome(passage, by if passage else "", tuple(item.failed))
            waiting = [item for item, (passage, _) in zip(waiting, results, strict=True) if passage is None]
        return result

    def estimate(self, passages: Sequence[Passage], style: str) -> Estimate:
        """What asking once for every passage would take, without the validators; nothing is asked."""
        prompt = load_prompt(style, self.config.prompts)
        queries = [_Try(position, item) for position, item in enumerate(passages) if item.text.strip()]
        return self.model.estimate([self._messages(item, prompt, 0) for item in queries])

    def _ask(self, waiting: Sequence[_Try], prompt: Prompt, number: int) -> list[tuple[Passage | None, str]]:
        """Ask once more for every passage; those that cannot be used leave a reason."""
        results: list[tuple[Passage | None, str]] = []
        for item, came in zip(waiting, self._replies(waiting, prompt, number), strict=True):
            reason = came.failed or self._fault(item.passage, came.texts)
            if reason is not None:
                item.failed.append(reason)
            results.append((None if reason is not None else self._passage(item.passage, came.texts), came.by))
        return results

    def _replies(self, waiting: Sequence[_Try], prompt: Prompt, number: int) -> list[_Came]:
        queries = [self._messages(item, prompt, number) for item in waiting]
        if self.config.output == "text":
            replies = self.model.complete(queries, repetition=number)
            return [self._plain(item.passage, reply) for item, reply in zip(waiting, replies, strict=True)]
        results: dict[int, _Came] = {}
        for shape in (Whole, Sentences):
            positions = [position for position, item in enumerate(waiting) if self._by_lines(item.passage) == (shape is Sentences)]
            made = self.model.complete_structured([queries[position] for position in positions], shape, repetition=number)
            results |= {position: _read(item) for position, item in zip(positions, made, strict=True)}
        return [results[position] for position in range(len(waiting))]

    def _plain(self, passage: Passage, reply: Reply) -> _Came:
        if reply.failed is not None:
            return _Came([], reply.model, f"no reply: {reply.failed}")
        text = said(reply.text)
        return _Came(lines_of(text) if self._by_lines(passage) else [text], reply.model)

    def _messages(self, item: _Try, prompt: Prompt, number: int) -> Messages:
        passage = item.passage if self._by_lines(item.passage) else _whole(item.passage)
        again = AGAIN.replace("$number", str(number + 1)).replace("$reason", item.failed[-1]) if item.failed else ""
        text = shown(passage)
        form = form_of(passage, structured=self.config.output == "json")
        return prompt.messages(text, word_range(text, self.config.words), form, again)

    def _by_lines(self, passage: Passage) -> bool:
        return self.config.keep_sentences and bool(passage.sentences)

    def _fault(self, passage: Passage, texts: Sequence[str]) -> str | None:
        """Why texts cannot be a rewriting of a passage, as far as formal checks can see."""
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

    def _validate(self, waiting: Sequence[_Try], results: list[tuple[Passage | None, str]], style: str) -> None:
        """Let the validators object; what they object to is not returned."""
        for validator in self.validators:
            positions = [position for position, (passage, _) in enumerate(results) if passage is not None]
            sources = [waiting[position].passage.text for position in positions]
            texts = [passage.text for passage, _ in results if passage is not None]
            objections = validator.objections(sources, texts, style) if positions else []
            for position, objection in zip(positions, objections, strict=True):
                if objection is not None:
                    waiting[position].failed.append(objection)
                    results[position] = (None, results[position][1])


def _whole(passage: Passage) -> Passage:
    """A passage without its sentences."""
    return Passage(passage.id, passage.title, passage.text, (), passage.document_id)


def _read(item: Structured[Any]) -> _Came:
    value = item.value
    if value is None:
        kind = "no reply" if item.reply.failed else "unreadable"
        return _Came([], item.reply.model, f"{kind}: {item.failed}")
    texts = value.sentences if isinstance(value, Sentences) else [value.text]
    return _Came([text.strip() for text in texts], item.reply.model)
