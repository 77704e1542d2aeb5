"""Prompts for reading: templates as text files, passages as a numbered list, replies reduced to the answer.

A template is two parts with a line `---` between them: the system message and the user message. `$question` and
`$passages` are put in; a dollar sign of one's own is written `$$`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from string import Template

from benchmarks.errors import UserError
from benchmarks.fingerprint import content_hash
from benchmarks.schema import Passage
from methods.models.template_files import template_text

_PREFIX = re.compile(r"^\s*(?:the\s+)?(?:final\s+)?answer\s*(?:is\s*:?|:)\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Prompt:
    """A template in its two parts."""

    system: str
    user: str

    def filled(self, question: str, passages: str = "") -> tuple[str, str]:
        """System and user message; what is put in is not searched for placeholders again."""
        values = {"question": question, "passages": passages}
        return Template(self.system).substitute(values), Template(self.user).substitute(values)


def load_prompt(path: str | None, default: str) -> Prompt:
    """Read a template: one's own file, or the one that ships under this name.

    Raises:
        UserError: The file cannot be read, lacks `$question`, or names another placeholder.
    """
    return parse_prompt(template_text("methods.readers", default, path), path or f"{default}.txt")


def parse_prompt(text: str, where: str) -> Prompt:
    """A template's two parts, checked.

    Args:
        text: The template.
        where: What it is called in messages.

    Raises:
        UserError: It lacks `$question`, or names another placeholder.
    """
    system, mark, user = text.partition("\n---\n")
    if not mark:
        system, user = "", text
    prompt = Prompt(system.strip(), user.strip())
    for part in (prompt.system, prompt.user):
        template = Template(part)
        unknown = set(template.get_identifiers()) - {"question", "passages"} if template.is_valid() else {"$"}
        if unknown:
            raise UserError(
                f"the prompt template holds the unknown placeholder {sorted(unknown)[0]!r}",
                where=where,
                try_this="use $question and $passages, and $$ for a dollar sign",
            )
    if "question" not in Template(prompt.user).get_identifiers():
        raise UserError("the prompt template lacks $question", where=where, try_this="put $question into its last part")
    return prompt


def prompt_hash(*templates: tuple[str | None, str]) -> str:
    """A hash of templates' texts, so that a changed prompt is a changed method."""
    return content_hash(template_text("methods.readers", default, path) for path, default in templates)


def numbered(passages: Sequence[Passage]) -> str:
    """Passages as `[1] title: text`, white space collapsed, an empty line between them."""
    lines = []
    for number, passage in enumerate(passages, start=1):
        title = f"{' '.join(passage.title.split())}: " if passage.title else ""
        lines.append(f"[{number}] {title}{' '.join(passage.text.split())}")
    return "\n\n".join(lines)


def bare_answer(reply: str) -> str:
    """A reply without what models put around an answer: "Answer:" before it, lines after it, quotes and a stop.

    A full stop goes unless it belongs to an abbreviation or initial ("Robert Downey Jr.", "U.S.").
    """
    lines = [line for line in _PREFIX.sub("", reply.strip()).splitlines() if line.strip()]
    text = lines[0].strip() if lines else ""
    if len(text) > 1 and text[0] in "\"'“`" and text[-1] in "\"'”`":
        text = text[1:-1].strip()
    if text.endswith(".") and len(text.split()[-1]) > 4 and "." not in text.split()[-1][:-1]:
        text = text[:-1]
    return text
