"""The vocabulary of this project: standard terms, and a list of words that are refused."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

INSTEAD = {
    "style, restyled, rendering; says, states": ["(?:re)?told", "tells? otherwise", "(?:re)?tellings?"],
    "tag": [r"bless\w*", r"unbless\w*"],
    "cached replies": ["tapes?", r"kept (?:repl|conversation)\w*", "replies (?:that are )?kept"],
    "significant(ly)": ["surely", r"sure (?:loss|gain|win)\w*"],
    "import, read": [
        r"t(?:ake|akes|aken|ook|aking) in(?! (?:the|a|an|all|which|its|their|one|each|order)\b)",
        "br(?:ings?|ought|inging) in",
    ],
    "repository, package, command line and API": ["house", "rooms", "front door"],
    "training example, planner, out-of-vocabulary, training context": ["lessons?", "classrooms?", "unheard", "workshops?"],
    "provide, availability, idle, system": ["lends?", "lent", "whereabouts", r"linger\w*", "contestants?"],
    "misprint, untrusted input": ["slips?", "strangers?(?:'s)?"],
    "scripted LLM": ["world[- ]truth"],
    "American spelling": [
        "artefacts?",
        "licences?",
        r"neighbours?\w*",
        r"colours?\w*",
        "judgements?",
        r"labell(?:ed|ing|er)\w*",
        "centred?",
        "grey",
        "behaviours?",
    ],
}
"""Standard terms, with the refused words that they replace."""
STEM = re.compile(r"(?:\(\?:re\)\?)?([a-z]+?)(?=[a-z]?\?|[^a-z]|$)")
OLD = [(STEM.match(word)[1], re.compile(rf"(?<![a-z]){word}(?![a-z])")) for words in INSTEAD.values() for word in words]  # type: ignore[index]
NOT_ISE = re.compile(
    r"(?i)(.*(wise|noise|raise[ds]?|raising|rise[sn]?|rising|precise|imprecise|exercise[sd]?|promise[sd]?|promising|premise[s]?|expertise|advertise|"
    r"surprise[ds]?|surprising|comprise[sd]?|comprising|compromise[ds]?|devise[ds]?|revise[ds]?|revising|concise|franchise|enterprise|supervise[ds]?|"
    r"unsupervised|supervising|turquoise|advise[ds]?|disguise[ds]?|likewise|paradise|praise[ds]?|cruise|bruise|demise|merchandise|televise[ds]?|improvise[ds]?|arise[sn]?|"
    r"arising|otherwise|noised|noiser|appraise[ds]?|incise|poise[ds]?|denoise[ds]?|treatise|anise|louise|denise|elise|browser|user[s]?))"
)
VALUES = {"asked", "said", "found", "given", "told", "places"}
"""Refused names of values; use query, response, result, options, rendering or positions."""
BOUND = re.compile(rf"(?<![\w.])({'|'.join(sorted(VALUES))})(?:: [A-Z\[a-z]|\)?,? =|,|\)| in | :=|:\n)")
EXEMPT = {
    "tests/test_words.py", "CHANGELOG.md", "benchmarks/worlds/text.py", "benchmarks/worlds/names.py",
    "benchmarks/worlds/world.py", "benchmarks/worlds/questions.py", "benchmarks/styles/rules.py", "judges/style.py",
    "methods/graphs/augmented_queries.py", "tests/benchmarks/worlds/test_world_relations.py", "tests/support/faults.py",
}  # fmt: skip
"""Files that are exempt: this list, history, vocabularies of world texts, word lists, and a file with SO_LINGER."""


def files() -> list[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    kinds = (".py", ".md", ".yaml", ".yml", ".sql", ".css", ".js", ".toml")
    return [name for name in listed if name.endswith(kinds) and name not in EXEMPT and not name.startswith("methods/models/pocket/")]


ISE = re.compile(r"is(?:ation|e[drs]?|ing)(?![a-z])")


def old_words(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and word, also -ise spellings of -ize words."""
    # Keys of draws stay, because other keys would change the samples.
    text = re.sub(r'Draws\("[^"]*"', "Draws(", text).lower()
    words = [(match.start(), match[0]) for stem, pattern in OLD if stem in text for match in pattern.finditer(text)]
    for match in ISE.finditer(text):
        start = match.start()
        while start and text[start - 1].isalpha():
            start -= 1
        word = text[start : match.end()]
        if not NOT_ISE.fullmatch(word):
            words.append((start, word))
    for start, word in sorted(words):
        yield text.count("\n", 0, start) + 1, word


def names_of_values(text: str) -> Iterator[tuple[int, str]]:
    if not BOUND.search(text):
        return
    for node in ast.walk(ast.parse(text)):
        name = node.id if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else node.arg if isinstance(node, ast.arg) else ""
        if name in VALUES:
            yield node.lineno, name


PHRASES = {
    "again, from scratch": r"\banew\b",
    "states it, reports it": r"\bsa(?:y|ys|id) so\b",
    "anybody who": r"\bwhoever\b",
    "is not a": r"(?<!here )\b(?:is|are) no (?!longer\b|more\b|less\b|such\b|other\b)[a-z]",
    "next to": r"\bbeside\b",
    "continues, resumes": r"\bgo(?:es)? on\b",
}
"""Idioms by their plain replacement, in texts that people read."""
PLAIN = {better: re.compile(phrase) for better, phrase in PHRASES.items()}
OPENERS = frozenset({"What", "Whether", "Of", "By", "Where", "How", "As", "In", "With", "Who", "Which", "That"})
"""Words that docstrings must not start with."""
ARTICLES = frozenset({"The", "A", "An", "One", "Every", "All", "Each", "Why", "Its"})
"""Words that docstrings of functions must not start with, because they start with a verb."""
PACKAGES = ("benchmarks/", "methods/", "judges/", "results/", "leaderboard/", "ragmeter/")


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str, bool]]:
    """Yield line, text and whether it belongs to a function, also of strings that describe constants and attributes."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for at, item in enumerate(body if isinstance(body, list) else ()):
            if isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant) and isinstance(item.value.value, str):
                yield item.lineno, item.value.value, at == 0 and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def unclear(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and idiom, in docstrings and comments of a file."""
    for line, docstring, of_function in docstrings(ast.parse(text)):
        first = docstring.split(maxsplit=1)[0].rstrip(".,:;") if docstring.strip() else ""
        if first in OPENERS or (of_function and first in ARTICLES):
            yield line, first
        yield from ((line, match[0]) for phrase in PLAIN.values() for match in phrase.finditer(re.sub("`[^`]*`", "", docstring)))
    behind_signs = "\n".join(re.findall("#.*", text))
    # Tokenizing takes most of the time, and is needed only if such words follow a # that may start a comment.
    for token in tokenize.generate_tokens(io.StringIO(text).readline) if any(p.search(behind_signs) for p in PLAIN.values()) else ():
        if token.type == tokenize.COMMENT:
            yield from ((token.start[0], match[0]) for phrase in PLAIN.values() for match in phrase.finditer(token.string))


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a clone")
def test_docstrings_and_comments_have_no_listed_idiom() -> None:
    modules = [name for name in files() if name.endswith(".py") and name.startswith(PACKAGES)]
    wrong = [f"{name}:{line}: {word!r}" for name in modules for line, word in unclear((ROOT / name).read_text("utf-8"))]
    assert wrong == []


def test_listed_idioms_are_detected() -> None:
    function, constant = 'def f():\n    """The value."""\n', '"""Whether it is no file; whoever reads it says so."""\n'
    text = f"{function}\n\nx = 1\n{constant}# made anew beside it\n# goes on\n"
    assert {word for _, word in unclear(text)} == {"The", "Whether", "is no f", "whoever", "says so", "anew", "beside", "goes on"}
    assert not list(unclear('def f():\n    """Return what there is; `beside` is no longer read, and there is no file."""\n'))


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a clone")
def test_no_file_uses_a_listed_word() -> None:
    wrong = []
    for name in files():
        text = (ROOT / name).read_text("utf-8")
        wrong += [f"{name}:{line}: {word!r}" for line, word in old_words(text)]
        if name.endswith(".py"):
            wrong += [f"{name}:{line}: a value named {word!r}" for line, word in names_of_values(text)]
    assert wrong == []


def test_listed_words_are_detected() -> None:
    text = "blessed runs\nretold\ncolour\nnormalised text\ntakes in rows\nas a tape\nkept replies\n"
    assert [line for line, _ in old_words(text)] == [1, 2, 3, 4, 5, 6, 7]
    assert not list(old_words("a precise, concise noise; otherwise it rises; supervised; takes place in the room; license, color\n"))
    assert [name for _, name in names_of_values("def f(asked):\n    found = [said for said in asked]\n")] == ["asked", "found", "said"]
