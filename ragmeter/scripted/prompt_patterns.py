"""Recognizing a prompt: from a template to what it was filled with."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from string import Template

from methods.models.endpoint import Messages
from methods.prompts import Prompt


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked of the script."""

    messages: Messages

    @property
    def prompt(self) -> str:
        """The last message."""
        return self.messages[-1]["content"] if self.messages else ""


@lru_cache(maxsize=64)
def template_pattern(template: str) -> re.Pattern[str]:
    """The pattern of texts that a template (`string.Template`) was filled to; placeholders become named groups.

    A placeholder that comes twice must have been filled alike.
    """
    parts, last, seen = [], 0, set()
    for match in Template.pattern.finditer(template):
        parts.append(re.escape(template[last : match.start()]))
        name = match["named"] or match["braced"]
        if name is None:
            parts.append(re.escape("$"))
        elif name in seen:
            parts.append(f"(?P={name})")
        else:
            seen.add(name)
            parts.append(f"(?P<{name}>.*?)")
        last = match.end()
    parts.append(re.escape(template[last:]))
    return re.compile("".join(parts), re.DOTALL)


def filled(prompt: Prompt, request: Request) -> dict[str, str] | None:
    """What a prompt was filled with; None where the request is not made of it."""
    system = next((m["content"] for m in request.messages if m["role"] == "system"), "")
    if prompt.system and not template_pattern(prompt.system).fullmatch(system):
        return None
    match = template_pattern(prompt.user).fullmatch(request.prompt)
    return match.groupdict() if match else None
