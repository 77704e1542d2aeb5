"""The page of the command line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ragmeter.reference.writing import code, page, table

EVERYWHERE = ("store", "as_json", "quiet", "verbose")
"""Options that every command has, told once."""


def commands_page() -> str:
    """Every command with its arguments and options."""
    from typer.main import get_command

    from ragmeter.cli import app

    lead = (
        "Every command, as `ragmeter COMMAND --help` prints it too. All take `--store FOLDER`, `--json`, `--quiet` and "
        "`--verbose`; `NO_COLOR=1` takes the colours off. Exit codes: 0 fine, 1 something broke, 2 wrong usage or "
        "input, 130 interrupted; `gate` adds 100 (regressed) and 101 (too few questions to tell)."
    )
    return page("Command line", lead, (_section(path, one) for path, one in _walk("ragmeter", get_command(app))))


def _walk(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Commands that do something, depth first, with the words that call them."""
    inner: dict[str, Any] = getattr(command, "commands", {})
    if not inner or command.invoke_without_command:
        yield path, command
    for name in sorted(inner):
        yield from _walk(f"{path} {name}", inner[name])


def _section(path: str, command: Any) -> str:
    shown = [p for p in command.params if p.name not in (*EVERYWHERE, "help") and not getattr(p, "hidden", False)]
    context = command.make_context(path, [], resilient_parsing=True)
    usage = " ".join([path, *(piece for p in shown for piece in p.get_usage_pieces(context))])
    records = (p.get_help_record(context) for p in shown)
    rows = [(code(name), " ".join(said.split())) for name, said in filter(None, records)]
    help_text = " ".join((command.help or "").split())
    parts = (f"## {path}", help_text, f"```text\n{usage}\n```", table(("", "meaning"), rows))
    return "\n\n".join(filter(None, parts))
