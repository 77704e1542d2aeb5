"""Terminal output contains no control or direction characters from stored texts."""

from __future__ import annotations

import io
import json

import pytest
from rich.table import Table
from rich.text import Text

from benchmarks.core.errors import UserError
from ragmeter.show import console
from ragmeter.show.console import SafeConsole, complain, emit, printable

HOSTILE = "a\x1b[2Jb\x9b31mc\u202ed\u2066e\u200bf\x07g\rh\u2028i\ufeffj\U000e0041k\x00l\x7fm"
SEEN = "a[2Jb31mcdefghijklm"
KEPT = "Ä\tß\n日本 می\u200cخواهم 👩\u200d🚀"


def test_printable_text_is_unchanged() -> None:
    assert printable(HOSTILE) == SEEN
    assert printable(KEPT) == KEPT


def test_console_removes_control_characters_from_text_tables_and_styles_stay() -> None:
    sheet = io.StringIO()
    shown = SafeConsole(file=sheet, width=60, force_terminal=True, color_system="standard", highlight=False)
    table = Table(box=None)
    # Rich takes some of the others for the end of a line.
    unbroken = HOSTILE.replace("\r", "").replace("\u2028", "")
    table.add_column(unbroken)
    table.add_row(Text(unbroken, style="red"))
    shown.print(HOSTILE, markup=False)
    shown.print(table)
    assert sheet.getvalue().count(SEEN) == 3
    assert "\x1b[31m" in sheet.getvalue()
    assert not any(sign in sheet.getvalue() for sign in "\x9b\u202e\u2066\u200b\x07\r\x00\x7f")
    assert "\x1b[2J" not in sheet.getvalue()


def test_console_aligns_columns_without_the_removed_characters() -> None:
    sheet = io.StringIO()
    table = Table(box=None, show_header=False)
    table.add_row("a\x1b[2Jb\u202ec\u200b", "|")
    table.add_row("a[2Jbc", "|")
    SafeConsole(file=sheet, width=60).print(table)
    first, second = sheet.getvalue().splitlines()
    assert first == second


def test_json_escapes_invisible_characters_and_round_trips(capsys: pytest.CaptureFixture[str]) -> None:
    emit({HOSTILE: [HOSTILE, KEPT]}, True, lambda: None)
    printed = capsys.readouterr().out
    assert printable(printed) == printed
    assert json.loads(printed) == {HOSTILE: [HOSTILE, KEPT]}


@pytest.mark.parametrize("as_json", [False, True])
def test_error_message_removes_control_characters_of_a_quoted_value(as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    complain(UserError(f"bad {HOSTILE}", where=HOSTILE, try_this=HOSTILE), as_json)
    printed = capsys.readouterr().err
    assert printed
    assert printable(printed) == printed


def test_stdout_and_stderr_are_free_of_control_characters() -> None:
    assert isinstance(console.out, SafeConsole)
    assert isinstance(console.err, SafeConsole)
