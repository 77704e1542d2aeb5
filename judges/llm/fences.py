"""Judged text is put between tags; here it is made unable to end them, or to pass for a verdict.

Nothing is deleted: what looks like one of our tags, a chat template's mark, a verdict line or a key of our JSON stays
readable, with `‹ ›` where the brackets or the colon were, and what cannot be seen becomes `�`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from functools import lru_cache

from methods.models.endpoint import Messages
from methods.prompts import Prompt

VERSION = 1
"""Version of these rules; part of every judge's identity, because they change the judge's input."""

TAGS = ("question", "gold", "answer", "reference", "text", "source", "rewritten")
"""Tags of ragmeter's templates; custom templates add theirs."""
_CHAT_TAGS = ("think", "system", "user", "assistant", "human", "start_of_turn", "end_of_turn", "bos", "eos", "tool")
_KEYS = r"faithfulness|conciseness|overall(?:[\s_-]*winner)?|winner|(?:final[\s_-]*)?verdict|judge?ment|label|reasoning"
_QUOTE = r"\\?[\"'`“”‘’]"

# What cannot be seen, changes the direction of writing, or is not a character at all.
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]")
_CHAT_MARK = re.compile(r"(<)(?=\s*(?:\||<\s*/?\s*sys))|(?:\||sys\s*>)\s*(>)|(<)\s*/?\s*s\s*(>)|(\[)\s*/?\s*inst\s*(\])")
_SHOWN = {"<": "‹", ">": "›", "[": "⟦", "]": "⟧", ":": "‹:›", "=": "‹=›"}


def neutralized(text: str, tags: Iterable[str] = (), keys: Iterable[str] = ()) -> str:
    """Neutralize untrusted text for insertion into a prompt: it can then neither close the surrounding tags nor imitate requested keys.

    Look-alikes that a model could read as a tag (other case, full-width letters, invisible characters) are neutralized, too.

    Args:
        text: Untrusted text.
        tags: Further tags in addition to `TAGS`.
        keys: Further keys of the requested JSON.

    Returns:
        The text without anything that could be mistaken for a line, key or tag of the prompt.
    """
    text = _UNSEEN.sub("\ufffd", text.replace("\r\n", "\n").replace("\r", "\n"))
    folded, origins = _folded(text)
    marks: dict[int, str] = {}
    for pattern in (_tag_pattern(frozenset(tags)), _CHAT_MARK, *_key_patterns(frozenset(keys))):
        for match in pattern.finditer(folded):
            for group, result in enumerate(match.groups(), start=1):
                if result is not None:
                    marks[origins[match.start(group)]] = _SHOWN[result]
    return "".join(marks.get(at, char) for at, char in enumerate(text)) if marks else text


def cut(text: str, most: int) -> str:
    """Truncate a text and mark the cut."""
    if len(text) <= most:
        return text
    return f"{text[:most]}\n[… cut: {most:,} of {len(text):,} characters are shown]"


@lru_cache(maxsize=64)
def _tag_pattern(further: frozenset[str]) -> re.Pattern[str]:
    """Return a pattern of opening and closing tags, complete or not, whose names begin like ragmeter's."""
    names = "|".join(re.escape(name.casefold()) for name in sorted({*TAGS, *_CHAT_TAGS, *further}))
    return re.compile(rf"(<)[\s/\\⁄∕]*(?:{names})(?:[^<>\n]{{0,80}}(>))?")


@lru_cache(maxsize=64)
def _key_patterns(further: frozenset[str]) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return patterns of JSON keys like ragmeter's, and of lines that look like a verdict."""
    names = f"(?:{'|'.join([_KEYS, *sorted(further)])})"
    line = rf"^[^a-z0-9\n]{{0,20}}{names}[^a-z0-9\n:=‹]{{0,20}}([:=])"
    return re.compile(rf"{_QUOTE}\s*{names}\s*{_QUOTE}\s*(:)"), re.compile(line, re.MULTILINE)


def _folded(text: str) -> tuple[str, range | list[int]]:
    """Normalize a text like a lenient reader; return each character's position in the original text."""
    if text.isascii():
        return text.lower(), range(len(text))
    pieces: list[str] = []
    origins: list[int] = []
    for at, char in enumerate(text):
        seen = _seen(char)
        pieces.append(seen)
        origins.extend([at] * len(seen))
    return "".join(pieces), origins


@lru_cache(maxsize=1 << 16)
def _seen(char: str) -> str:
    """Normalize a character's case and width; "" if it has no width."""
    return "" if unicodedata.category(char) == "Cf" else unicodedata.normalize("NFKC", char).casefold()


EMPTY = "(empty)"
"""Text between the tags if there is nothing to judge."""
_TAG = re.compile(r"</?([A-Za-z][\w-]*)>")


@lru_cache(maxsize=64)
def tags_of(template: str) -> frozenset[str]:
    """List the tags that a prompt template uses."""
    return frozenset(_TAG.findall(template))


def fenced(prompt: Prompt, texts: Mapping[str, str], keys: Iterable[str] = ()) -> Messages:
    """Fill a prompt template with untrusted texts, which are neutralized so that they cannot close a tag.

    Args:
        prompt: The template.
        texts: The texts to insert.
        keys: Keys of the requested JSON, which are neutralized in judged text.
    """
    tags = tags_of(prompt.source)
    return prompt.messages(**{name: neutralized(text, tags, keys).strip() or EMPTY for name, text in texts.items()})
