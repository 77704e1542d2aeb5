"""How the command line introduces itself: commands by what one is about to do, each with its whole first sentence."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

SECTIONS = {
    "Measure": ("demo", "run", "plan", "resume", "score", "judge"),
    "Look": ("table", "runs", "show", "diff", "serve", "report", "published"),
    "Decide": ("gate", "bless", "checkpoints"),
    "Methods": ("methods", "train", "explain", "compress", "synthesise", "serve-model"),
    "Data": ("datasets", "metrics", "experiments", "styles", "annotate"),
    "Exchange": ("submit", "submission", "trec", "results", "cache"),
    "Check": ("doctor", "check"),
}
"""The commands of `ragmeter --help`; one that is in none of them comes last."""
_WHOLE = 500


class Commands(TyperGroup):
    """A group of commands, the line of none of which is cut off."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write what `--help` lists."""
        self.write_section(formatter, "Commands", self.list_commands(ctx))

    def write_section(self, formatter: Any, title: str, names: Any) -> None:
        """Write some of the commands under a title."""
        shown = [(name, self.commands[name]) for name in names if name in self.commands]
        rows = [(name, command.get_short_help_str(limit=_WHOLE)) for name, command in shown if not command.hidden]
        if rows:
            with formatter.section(title):
                formatter.write_dl(rows)


class AllCommands(Commands):
    """The commands of `ragmeter` itself, in sections."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write what `--help` lists, section by section."""
        placed = {name for names in SECTIONS.values() for name in names}
        for title, names in SECTIONS.items():
            self.write_section(formatter, title, names)
        self.write_section(formatter, "Further", [name for name in self.list_commands(ctx) if name not in placed])
