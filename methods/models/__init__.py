"""The text of a prompt template: one's own file, or the one that ships with a package."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from benchmarks.core.errors import UserError

# -- The text of a prompt template: one's own file, or the one that ships with a package --


def template_text(package: str, name: str, path: str | Path | None = None) -> str:
    """The text of a template.

    Args:
        package: Whose folder `templates` holds the one that ships.
        name: Of that file, without `.txt`.
        path: One's own file in its place; `~` is one's home.

    Raises:
        UserError: The file cannot be read.
    """
    source = files(package).joinpath("templates", f"{name}.txt") if path is None else Path(path).expanduser()
    try:
        return source.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"the prompt template cannot be read: {error}", where=str(path or f"{name}.txt")) from None
