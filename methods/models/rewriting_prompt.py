"""The prompts of the rewriter, what is put into them, and how what comes back is read."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template

from pydantic import BaseModel, Field

from benchmarks.errors import UserError, unknown_name
from benchmarks.fingerprint import content_hash
from benchmarks.schema import Passage
from benchmarks.styles.rewriter import STYLES
from methods.models.chat_options import Messages

PLACEHOLDERS = ("text", "low", "high", "form", "again")
PLAIN = "Reply with the retold text alone, as one paragraph."
LINES = (
    "The text has one sentence in each of its $lines lines. Reply with as many lines: each sentence retold, in the "
    "same order, one a line, and nothing else."
)
JSON = 'Reply with a JSON object: {"text": the retold text}.'
JSON_LINES = (
    'The text has one sentence in each of its $lines lines. Reply with a JSON object: {"sentences": [each sentence '
    "retold, in the same order]}, with $lines items."
)
AGAIN = "- this is attempt $number: the one before it could not be used ($reason)."

_TAG = re.compile(r"<(/?\s*passage\s*)>", re.IGNORECASE)
_THOUGHT = re.compile(r".*</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
_FENCE = re.compile(r"```[\w-]*[ \t]*\n(.*?)\n?```", re.DOTALL)
_LEAD = re.compile(r"(?:sure|certainly|of course|okay|here(?:['’]s| is| are)|output|rewritten|retold)\b[^\n]{0,80}:\s*\n+", re.IGNORECASE)
_LABEL = re.compile(r"(?:\*\*)?(?:output|rewritten text|retold text|rewrite)\s*:(?:\*\*)?\s*", re.IGNORECASE)
_NUMBERED = re.compile(r"^\s*(?:[-*•]|\(?\d{1,3}[.):])\s+")
_REFUSAL = re.compile(
    r"\W*(?:(?:i['’]?m|i am)(?: \w+)? sorry\b|as an ai\b|unfortunately,? i (?:can|am)"
    r"|i (?:can['’]?t|can ?not|won['’]?t|am unable|am not able|must decline)\b|i['’]m (?:unable|not able)\b)",
    re.IGNORECASE,
)


class Whole(BaseModel):
    """A retold text."""

    text: str = Field(description="the retold text")


class Sentences(BaseModel):
    """A retold text, sentence by sentence."""

    sentences: list[str] = Field(description="each sentence retold, in the order of the text")


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
        found = set(template.get_identifiers()) if template.is_valid() else {"$"}
        if found - set(PLACEHOLDERS):
            raise UserError(
                f"the prompt holds the unknown placeholder {min(found - set(PLACEHOLDERS))!r}",
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
    """Fewest and most words of a retelling, for a text."""
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
