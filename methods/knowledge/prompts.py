"""Prompts of this room: templates as text files, filled without ever reading what is put in.

A template is two parts with a line `---` between them, the system message and the user message. Placeholders are those
of `string.Template` (`$text`); a dollar sign of one's own is written `$$`. Braces mean nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from string import Template

from benchmarks.errors import UserError
from benchmarks.fingerprint import content_hash
from methods.models.template_files import template_text

PLACEHOLDERS = {"extraction": frozenset({"text"}), "names": frozenset({"text"}), "queries": frozenset({"given", "most"})}
"""What each shipped template is filled with."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A template in its two parts."""

    system: str
    user: str

    @property
    def hash(self) -> str:
        """Of the template's text, so that a changed prompt is a changed extraction."""
        return content_hash((self.system, self.user))

    def messages(self, **values: str) -> list[dict[str, str]]:
        """The conversation; what is put in is not searched for placeholders again."""
        parts = (("system", self.system), ("user", self.user))
        return [{"role": role, "content": Template(text).substitute(values)} for role, text in parts if text]


def load_prompt(name: str, path: str | None = None) -> Prompt:
    """A template of this room, or one's own in its place; errors as `read_prompt`."""
    return read_prompt("methods.knowledge", name, PLACEHOLDERS[name], path)


def read_prompt(package: str, name: str, wanted: frozenset[str], path: str | Path | None = None) -> Prompt:
    """The template that ships with a package, or one's own in its place.

    Args:
        package, name, path: See `template_text`.
        wanted: The placeholders that it has to have.

    Raises:
        UserError: The file cannot be read, or its placeholders are not those.
    """
    where = str(path or f"{name}.txt")
    text = template_text(package, name, path)
    system, mark, user = text.partition("\n---\n")
    prompt = Prompt(system.strip(), user.strip()) if mark else Prompt("", system.strip())
    templates = Template(prompt.system), Template(prompt.user)
    shown = ", ".join(f"${name}" for name in sorted(wanted))
    if not all(template.is_valid() for template in templates):
        raise UserError("the prompt template holds a lone dollar sign", where=where, try_this="write it $$")
    if {name for template in templates for name in template.get_identifiers()} != wanted:
        raise UserError(f"the prompt template must hold exactly {shown}", where=where, try_this="and $$ for a dollar sign")
    return prompt
