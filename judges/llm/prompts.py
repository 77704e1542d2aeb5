"""Prompts of judges: templates as text files, into which judged text is put so that it cannot break out.

A template is two parts with a line `---` between them, the system message and the user message. Placeholders are
written `$answer`, a dollar sign of one's own `$$`; judged text belongs between tags (`<answer>` … `</answer>`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from string import Template

from benchmarks.errors import UserError
from benchmarks.fingerprint import content_hash
from judges.llm.fences import neutralised
from methods.models.chat_options import Messages
from methods.models.template_files import template_text

EMPTY = "(empty)"
"""What stands between the tags where there is nothing to judge."""
_TAG = re.compile(r"</?([A-Za-z][\w-]*)>")


@dataclass(frozen=True, slots=True)
class Shipped:
    """A prompt that ships with a judge.

    Attributes:
        name: Of its file in `templates`, without `.txt`.
        needs: Placeholders that a template of one's own must have as well.
        offers: Further placeholders that it may have.
    """

    name: str
    needs: frozenset[str]
    offers: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Prompt:
    """A template in its two parts.

    Attributes:
        system, user: Templates.
        tags: The tags that they use.
    """

    system: str
    user: str
    tags: frozenset[str]

    def messages(self, **texts: str) -> Messages:
        """The conversation; what is put in is neutralised, and not searched for placeholders again."""
        values = {name: neutralised(text, self.tags).strip() or EMPTY for name, text in texts.items()}
        messages = [{"role": "user", "content": Template(self.user).substitute(values)}]
        if not self.system:
            return messages
        return [{"role": "system", "content": Template(self.system).substitute(values)}, *messages]


def load_prompt(path: str | None, shipped: Shipped) -> Prompt:
    """Read a template: one's own file, or the one that ships.

    Raises:
        UserError: The file cannot be read, lacks a placeholder, or names one that does not exist.
    """
    text = template_text("judges.llm", shipped.name, path)
    system, mark, user = text.partition("\n---\n")
    if not mark:
        system, user = "", text
    prompt = Prompt(system.strip(), user.strip(), frozenset(_TAG.findall(text)))
    _check(prompt, shipped, path or f"{shipped.name}.txt")
    return prompt


def prompt_hash(path: str | None, shipped: Shipped) -> str:
    """A hash of the template's text, so that a judge with a changed prompt is another judge."""
    return content_hash([template_text("judges.llm", shipped.name, path)])


def _check(prompt: Prompt, shipped: Shipped, where: str) -> None:
    known = shipped.needs | shipped.offers
    names = " and ".join(f"${name}" for name in sorted(known))
    used: set[str] = set()
    for part in (prompt.system, prompt.user):
        template = Template(part)
        found = set(template.get_identifiers()) if template.is_valid() else {"$"}
        if found - known:
            raise UserError(
                f"the prompt template holds the unknown placeholder {min(found - known)!r}",
                where=where,
                try_this=f"use {names}, and $$ for a dollar sign",
            )
        used |= found
    if shipped.needs - used:
        raise UserError(f"the prompt template lacks ${min(shipped.needs - used)}", where=where, try_this=f"put in {names}")
