"""The models that methods and judges stand on: `encoder.py` (texts to vectors), `chat.py` (endpoints), `causal.py`
(local language models). `weights.py` finds a model's folder and hashes what is in it; `pocket/` ships."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from benchmarks.core.errors import UserError


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
