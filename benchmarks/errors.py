"""The one error that a user's mistake becomes: what is wrong, where, and what to do about it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """A mistake in what ragmeter was given; shown without a traceback.

    Args:
        what: One sentence that says what is wrong.
        where: The place: a file with its line, a field, a flag.
        try_this: What to do about it.
    """

    exit_code = 2
    """What the command exits with: 2 for wrong usage or input."""

    def __init__(self, what: str, *, where: str | None = None, try_this: str | None = None) -> None:
        self.what = what
        self.where = where
        self.try_this = try_this
        super().__init__("\n".join(self.lines()))

    def lines(self) -> list[str]:
        """The message, one aspect a line."""
        lines = [self.what]
        if self.where:
            lines.append(f"  where: {self.where}")
        if self.try_this:
            lines.append(f"  try:   {self.try_this}")
        return lines


class Broke(UserError):
    """What was asked for is right and could not be done: the disk is full, an endpoint dead, a method at fault."""

    exit_code = 1


class MissingPackage(UserError):
    """An optional package that this piece of work needs is not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package {package!r}, which is not installed",
            try_this=f"pip install 'ragmeter[{extra}]'",
        )


def nearest(wrong: str, known: Iterable[str]) -> str | None:
    """The known name closest to a mistyped one, or None where nothing is close."""
    found = difflib.get_close_matches(wrong, list(known), n=1, cutoff=0.5)
    return found[0] if found else None


_LISTED = 12


def unknown_name(noun: str, wrong: str, known: Iterable[str], *, where: str | None = None) -> UserError:
    """The error for a name that nobody registered, with the nearest one that exists, or the first dozen of all."""
    names = sorted(set(known))
    guess = nearest(wrong, names)
    more = f", … ({len(names)} in all)" if len(names) > _LISTED else ""
    listed = f"known: {', '.join(names[:_LISTED])}{more}" if names else f"there is no {noun} yet"
    hint = f"did you mean {guess!r}?" if guess else listed
    return UserError(f"unknown {noun} {wrong!r}", where=where, try_this=hint)
