"""Prompts of SARK's data: templates as text files, in parts with a line `---` between them.

    answer   system message; user message
    order    opening turn; the model's acknowledgement; a turn for each passage; its acknowledgement; closing turn

Placeholders are those of `string.Template` (`$question`); a dollar sign of one's own is written `$$`. What is put in is
never searched for placeholders again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from string import Template

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import content_hash
from methods.models import template_text
from methods.models.endpoint import Messages

MARK = "\n---\n"
SHIPPED: dict[str, tuple[frozenset[str], ...]] = {
    "answer": (frozenset(), frozenset({"question", "context"})),
    "order": (
        frozenset({"question", "answer", "count"}),
        frozenset(),
        frozenset({"number", "passage"}),
        frozenset({"number"}),
        frozenset({"count"}),
    ),
}
"""What each part of a template is filled with; a part may leave out `$count` and `$number`, but nothing else."""
_OPTIONAL = frozenset({"count", "number"})


@dataclass(frozen=True, slots=True)
class Prompt:
    """A template in its parts."""

    parts: tuple[str, ...]

    @property
    def hash(self) -> str:
        """Of its text, so that another prompt gives other data."""
        return content_hash(self.parts)

    def filled(self, part: int, **values: str) -> str:
        """A part with its placeholders filled."""
        return Template(self.parts[part]).substitute(values)


def load_prompt(name: str, path: str | None = None) -> Prompt:
    """The template that ships under a name, or one's own in its place.

    Raises:
        UserError: The file cannot be read, has too few or too many parts, or placeholders that are not theirs.
    """
    where = path or f"{name}.txt"
    parts = tuple(part.strip("\n") for part in template_text("methods.sark", name, path).split(MARK))
    wanted = SHIPPED[name]
    if len(parts) != len(wanted):
        raise UserError(
            f"the prompt template has {len(parts)} parts, not {len(wanted)}", where=where, try_this="part them by lines that hold --- alone"
        )
    for number, (part, names) in enumerate(zip(parts, wanted, strict=True), 1):
        template = Template(part)
        if not template.is_valid():
            raise UserError(f"part {number} holds a lone dollar sign", where=where, try_this="write it $$")
        results = set(template.get_identifiers())
        if not names - _OPTIONAL <= results <= names:
            shown = ", ".join(f"${item}" for item in sorted(names)) or "no placeholder"
            raise UserError(f"part {number} of the prompt template must hold {shown}", where=where)
    return Prompt(parts)


def asking(prompt: Prompt, question: str, passage: str | None) -> Messages:
    """The conversation that asks for an answer, with one passage or without any."""
    context = "" if passage is None else f"<Context> {' '.join(passage.split())}\n"
    user = prompt.filled(1, question=question, context=context)
    system = prompt.filled(0)
    messages = [{"role": "user", "content": user}]
    return [{"role": "system", "content": system}, *messages] if system else messages


def ordering(prompt: Prompt, question: str, answer: str, passages: Sequence[str]) -> Messages:
    """The conversation of many turns that asks for an order of passages."""
    count = str(len(passages))
    turns = [prompt.filled(0, question=question, answer=answer, count=count), prompt.filled(1)]
    for number, passage in enumerate(passages, 1):
        turns += [prompt.filled(2, number=str(number), passage=" ".join(passage.split())), prompt.filled(3, number=str(number))]
    turns.append(prompt.filled(4, count=count))
    return [{"role": ("user", "assistant")[position % 2], "content": turn} for position, turn in enumerate(turns)]
