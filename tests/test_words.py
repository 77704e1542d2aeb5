"""The words of this project: those of the field; the list here holds the ones that do not come back."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

INSTEAD = {
    r"(re)?told|tells? otherwise|(re)?tellings?": "style, restyled, rendering; says, states",
    r"(un)?bless\w*": "tag",
    r"tapes?|kept (repl|conversation)\w*|replies (that are )?kept": "cached replies",
    r"surely|sure (loss|gain|win)\w*": "significant(ly)",
    r"(takes?|taken|took|taking|brings?|brought|bringing) (\w+ )?in\b(?! (the|a|an|all|which|its|their|one|each|order)\b)": "import, read",
    r"house|rooms|front door": "repository, package, command line and API",
    r"lessons?|classrooms?|unheard|workshops?": "training example, planner, out-of-vocabulary, training context",
    r"len[dt]s?|whereabouts|linger\w*|contestants?": "provide, availability, idle, system",
    r"slips?|strangers?('s)?": "misprint, untrusted input",
    r"world[- ]truth": "scripted LLM",
    r"\w*(isation|ise[drs]?|ising)": "-ize",
    r"artifacts?|licen[c]es?|neighbors?\w*|colors?\w*|judgments?|labell\w+|centered?|centers|gray|behaviors?|favou?rs?_never": "American spelling",
}
"""Words of before, and what the field says in their place."""
NOT_ISE = re.compile(
    r"(?i)(.*(wise|noise|raise[ds]?|raising|rise[sn]?|rising|precise|imprecise|exercise[sd]?|promise[sd]?|promising|premise[s]?|expertise|advertise|"
    r"surprise[ds]?|surprising|comprise[sd]?|comprising|compromise[ds]?|devise[ds]?|revise[ds]?|revising|concise|franchise|enterprise|supervise[ds]?|"
    r"unsupervised|advise[ds]?|disguise[ds]?|likewise|paradise|praise[ds]?|cruise|bruise|demise|merchandise|televise[ds]?|improvise[ds]?|arise[sn]?|"
    r"arising|otherwise|noised|noiser|appraise[ds]?|incise|poise[ds]?|denoise[ds]?|treatise|anise|louise|denise|elise|browser|user[s]?))"
)
VALUES = {"asked", "said", "found", "given", "told", "places"}
"""What no name of a value is: query, response, result, options, rendering, positions."""
EXEMPT = {
    "tests/test_words.py", "CHANGELOG.md", "ragmeter/cli/errors.py", "benchmarks/worlds/text.py", "benchmarks/worlds/names.py",
    "benchmarks/worlds/questions.py", "benchmarks/styles/rules.py", "judges/style.py",
}  # fmt: skip
"""The list itself, history, the table of old commands, and files of words of a world's texts or of a word list."""


def files() -> list[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    kinds = (".py", ".md", ".yaml", ".yml", ".sql", ".css", ".js", ".toml")
    return [name for name in listed if name.endswith(kinds) and name not in EXEMPT and not name.startswith("methods/models/pocket/")]


def old_words(text: str) -> Iterator[tuple[int, str, str]]:
    """Line, word and what stands in its place."""
    for number, line in enumerate(text.splitlines(), 1):
        for pattern, instead in INSTEAD.items():
            for match in re.finditer(rf"(?<![A-Za-z])(?:{pattern})(?![A-Za-z])", line, re.IGNORECASE):
                if instead != "-ize" or not all(NOT_ISE.fullmatch(part) for part in re.split(r"[_\W\d]+", match[0]) if re.search("(?i)is(e|i)", part)):
                    yield number, match[0], instead


def names_of_values(text: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(text)):
        name = node.id if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else node.arg if isinstance(node, ast.arg) else ""
        if name in VALUES:
            yield node.lineno, name


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a clone")
def test_no_file_uses_a_word_of_the_list() -> None:
    wrong = []
    for name in files():
        text = (ROOT / name).read_text("utf-8")
        wrong += [f"{name}:{line}: {word!r}, say: {instead}" for line, word, instead in old_words(text)]
        if name.endswith(".py"):
            wrong += [f"{name}:{line}: a value named {word!r}" for line, word in names_of_values(text)]
    assert wrong == []


def test_the_list_finds_what_it_is_for() -> None:
    text = "blessed runs\nretold\ncolor\nnormalized text\ntakes in rows\nas a tape\nkept replies\n"
    assert [line for line, _, _ in old_words(text)] == [1, 2, 3, 4, 5, 6, 7]
    assert not list(old_words("a precise, concise noise; otherwise it rises; supervised; a sequence takes place in the room; license, color\n"))
    assert [name for _, name in names_of_values("def f(asked):\n    found = [said for said in asked]\n")] == ["asked", "found", "said"]
