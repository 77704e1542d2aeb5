"""The Tab key: what a shell asks, and an answer that holds nothing but the words that fit.

Typer speaks with the shells; `completion.py` says which names there are. Here is what lies between. Whatever goes
wrong, nothing is offered: a traceback in the middle of somebody's command line helps nobody. And bash cuts a word such
as `worlds/long:test` or `recall@5` into several before it asks, and puts what it is told in the place of the last one.
"""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

from ragmeter.endings import BROKE, FINE

_VARIABLE = "_RAGMETER_COMPLETE"
_BASH = "complete_bash"
_BREAKS = ":=@"
"""Where bash ends a word (`COMP_WORDBREAKS`), of what occurs in names of ours."""
_SPECIAL = re.compile(r"[^\w%+=:@,./~#-]")
"""What a shell does not take as part of a word unless it is told to."""


def asked() -> bool:
    """Whether this process was started by a shell that completes a word."""
    return os.environ.get(_VARIABLE, "").startswith("complete_")


def answer(app: Any) -> int:
    """Print the words that a shell may offer, or nothing; returns the exit code."""
    in_bash = os.environ[_VARIABLE] == _BASH
    said, code, word = io.StringIO(), FINE, ""
    try:
        if in_bash:
            word = _whole_words(os.environ)
        with redirect_stdout(said), redirect_stderr(io.StringIO()):
            app(standalone_mode=False, prog_name="ragmeter")
    except SystemExit as end:
        # So typer ends an answer.
        code = end.code if isinstance(end.code, int) else FINE
    except (Exception, KeyboardInterrupt):
        return BROKE
    text = said.getvalue()
    sys.stdout.write("".join(f"{line}\n" for line in _for_bash(text.splitlines(), word)) if in_bash else text)
    return code


def _whole_words(environment: MutableMapping[str, str]) -> str:
    """Put together what bash cut; returns the word to be completed, as it is typed."""
    words = environment.get("COMP_WORDS", "").split("\n")
    at = int(environment.get("COMP_CWORD", 0))
    joined: list[str] = []
    place, after_break = at, False
    for number, word in enumerate(words):
        is_break = word != "" and set(word) <= set(_BREAKS)
        if joined and word and (is_break or after_break):
            joined[-1] += word
            place -= number <= at
        else:
            joined.append(word)
        after_break = is_break
    environment.update(COMP_WORDS="\n".join(joined), COMP_CWORD=str(place))
    return joined[place] if place < len(joined) else ""


def _for_bash(found: Sequence[str], word: str) -> Iterator[str]:
    """What bash is to put in the place of the last piece of a word, quoted where the word is not."""
    value = word.partition("=")[2] if word.startswith("-") else word
    there = value[: 1 + max(value.rfind(mark) for mark in _BREAKS)]
    plain = re.sub(r"\\(.)", r"\1", there).lstrip("'\"")
    for one in filter(None, found):
        rest = one.removeprefix(plain)
        yield rest if word[:1] in ("'", '"') else _SPECIAL.sub(lambda special: f"\\{special[0]}", rest)
