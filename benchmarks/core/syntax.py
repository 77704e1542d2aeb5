"""Analyze a Python file's syntax tree: a hash that ignores formatting, the imported modules, and the files it may read.

The hash is made from our own walk over the tree. `ast.dump` and `ast.unparse` change between Python versions (3.12 added
fields to functions and classes, 3.13 stopped printing empty ones); the walk skips empty fields, so that a file has one
hash under Python 3.11 to 3.13.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.core.files import cache_home, whole_text
from benchmarks.core.fingerprint import LENGTH, fingerprint

PLAIN, DOCUMENTED, SOURCE = 0, 1, 2
"""Levels of a file's hash: only statements; also docstrings; every byte."""

_READ_DOCSTRINGS = frozenset({"__doc__", "getdoc", "BaseModel", "use_attribute_docstrings"})
_READ_SOURCE = frozenset({"getsource", "getsourcelines"})
_FRAMEWORKS = re.compile(
    r"(agents|autogen\w*|camel|controlflow|crewai|dspy|fastmcp|google\.adk|griptape|guidance|haystack|instructor|lang(chain|graph)\w*|letta|"
    r"llama_index|magentic|marvin|mcp|mirascope|outlines|pydantic_ai|qwen_agent|semantic_kernel|smolagents|strands|swarm)(\..*)?"
)
"""Packages that send docstrings of functions and classes to a model."""
_IMPORTING = frozenset({"import_module", "__import__"})
_LOADING = frozenset(
    {"walk_packages", "iter_modules", "run_path", "run_module", "spec_from_file_location", "exec_module", "load_module", "SourceFileLoader"}
)
_SKIPPED = frozenset({"ctx", "kind", "type_comment", "type_ignores"})
"""Fields of syntax trees that do not affect what is computed."""
_NAME = re.compile(r"(?:\./)?[\w.-]+(?:/[\w. -]+)*/?(?::\w+)?|[\w. /-]+\.\w{1,8}")
_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class Import:
    """An import statement, or a call of `import_module` with a literal name.

    Attributes:
        level: Leading dots of a relative import.
        module: The name after the dots.
        names: Imported names, each possibly a module; `*` for all.
    """

    level: int
    module: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Syntax:
    """Imports, referenced files and hashes of one Python file.

    Attributes:
        hashes: Hash per level (`PLAIN`, `DOCUMENTED`, `SOURCE`).
        level: The level that the file requires: `SOURCE` if it reads source code, `DOCUMENTED` if it reads docstrings or
            imports a framework that sends them to a model.
        imports: All imports in the file, including those in functions.
        names: String literals that may name files, folders or modules.
        computed: Whether it imports modules whose names it computes.
    """

    hashes: tuple[str, str, str]
    level: int
    imports: tuple[Import, ...] = ()
    names: tuple[str, ...] = ()
    computed: bool = False

    def to_json(self) -> list[Any]:
        """Return the syntax as a JSON value."""
        imports = [[item.level, item.module, list(item.names)] for item in self.imports]
        return [list(self.hashes), self.level, imports, list(self.names), self.computed]

    @classmethod
    def from_json(cls, value: Any) -> Syntax:
        """Restore the syntax from a value of `to_json`."""
        (plain, documented, source), level, imports, names, computed = value
        known = tuple(Import(dots, module, tuple(chosen)) for dots, module, chosen in imports)
        return cls((plain, documented, source), level, known, tuple(names), computed)


def byte_hash(content: bytes) -> str:
    """Hash bytes to sixteen hex digits."""
    return hashlib.blake2b(content, digest_size=LENGTH // 2).hexdigest()


def syntax_of(source: bytes) -> Syntax:
    """Analyze a Python file; one that Python cannot parse is hashed by its bytes."""
    raw = byte_hash(source)
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return Syntax((raw, raw, raw), PLAIN)
    seen = _Found()
    for node in ast.walk(tree):
        seen.add(node)
    hashes = (byte_hash(_spelled(tree, PLAIN)), byte_hash(_spelled(tree, DOCUMENTED)), raw)
    return Syntax(hashes, seen.level, tuple(seen.imports), tuple(sorted(seen.names)), seen.computed)


class _Found:
    """Imports, file names and docstrings found in a syntax tree."""

    def __init__(self) -> None:
        self.imports: dict[Import, None] = {}
        self.names: set[str] = set()
        self.level = PLAIN
        self._dynamic = False
        self._importing = 0
        """Uses of `import_module` other than calls with a literal name."""

    @property
    def computed(self) -> bool:
        return self._dynamic or self._importing > 0

    def add(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                self._import(Import(0, alias.name))
        elif isinstance(node, ast.ImportFrom):
            self._dynamic |= any(alias.name in _IMPORTING and alias.asname for alias in node.names)
            self._import(Import(node.level, node.module or "", tuple(alias.name for alias in node.names)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if len(node.value) <= _LONGEST_NAME and _NAME.fullmatch(node.value):
                self.names.add(node.value)
        elif isinstance(node, ast.Name | ast.Attribute):
            name = node.id if isinstance(node, ast.Name) else node.attr
            self._importing += name in _IMPORTING
            self._used(name)
        elif isinstance(node, ast.Call):
            self._call(node)

    def _import(self, item: Import) -> None:
        self.imports[item] = None
        if not item.level and _FRAMEWORKS.fullmatch(item.module):
            self.level = max(self.level, DOCUMENTED)
        for name in item.names:
            self._used(name)

    def _used(self, name: str) -> None:
        if name in _READ_SOURCE:
            self.level = SOURCE
        elif name in _READ_DOCSTRINGS:
            self.level = max(self.level, DOCUMENTED)
        elif name in _LOADING:
            self._dynamic = True

    def _call(self, node: ast.Call) -> None:
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called not in _IMPORTING:
            return
        first = node.args[0] if node.args else next((item.value for item in node.keywords if item.arg == "name"), None)
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            module = first.value.lstrip(".")
            self.imports[Import(len(first.value) - len(module), module)] = None
            self._importing -= 1


def _spelled(tree: ast.AST, level: int) -> bytes:
    """Serialize a syntax tree so that equal code gives equal bytes; iterative, because sums of many terms nest deeply."""
    written: list[str] = []
    stack: list[Any] = [tree]
    while stack:
        item = stack.pop()
        if isinstance(item, _Mark):
            written.append(item.text)
        elif isinstance(item, ast.AST):
            written.append(f"{type(item).__name__}(")
            stack.append(_CLOSE)
            for field in reversed(item._fields):
                value = getattr(item, field, None)
                if field not in _SKIPPED and value is not None and value != []:
                    stack += [value, _Mark(f"{field}=")]
        elif isinstance(item, list):
            written.append("[")
            stack.append(_END)
            stack += reversed(list(_counting(item, level)))
        else:
            written.append(f"{type(item).__name__}:{hex(item) if type(item) is int else ascii(item)},")
    return "".join(written).encode()


@dataclass(frozen=True, slots=True)
class _Mark:
    """Text between the values of a serialized tree."""

    text: str


_CLOSE, _END = _Mark(")"), _Mark("]")


def _counting(items: Sequence[Any], level: int) -> Iterator[Any]:
    """Yield the list elements that count: no `pass`, docstrings only at their level, adjacent strings of an f-string merged."""
    text: str | None = None
    within = any(isinstance(item, ast.FormattedValue) for item in items)
    for item in items:
        if within and isinstance(item, ast.Constant) and isinstance(item.value, str):
            text = (text or "") + item.value
            continue
        if text:
            yield text
        text = None
        bare = isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant) and isinstance(item.value.value, str)
        if not isinstance(item, ast.Pass) and (level > PLAIN or not bare):
            yield item
    if text:
        yield text


_ANALYZED: dict[str, Syntax] = {}
"""In-process cache of analyses by hash of the file's bytes."""
_FORM, _KEPT = 1, 2000


class Syntaxes:
    """Disk cache of `syntax_of`, keyed by the hash of the file's bytes, because parsing is slow.

    Modification times are not used, because a copied or unpacked file may have another file's size and time.

    Args:
        place: The package or module whose files are analyzed.
    """

    def __init__(self, place: Path) -> None:
        self._file: Path | None = None
        with suppress(RuntimeError):  # no home folder is known
            self._file = cache_home() / "code" / f"{fingerprint(_FORM, str(place))}.json"
        self._kept: dict[str, Any] | None = None
        self._new: dict[str, Any] = {}

    def of(self, content: bytes) -> Syntax:
        """Return the analysis of a file with this content, cached."""
        key, kept = byte_hash(content), self._load()
        if key not in _ANALYZED:
            with suppress(TypeError, ValueError):  # another form, or none
                _ANALYZED[key] = Syntax.from_json(kept.get(key))
        if key not in _ANALYZED:
            _ANALYZED[key] = syntax_of(content)
        if key not in kept:
            self._new[key] = _ANALYZED[key].to_json()
        return _ANALYZED[key]

    def keep(self) -> None:
        """Save the cache; if it cannot be written, files are analyzed again the next time."""
        if not self._new or self._file is None:
            return
        rows = list({**self._load(), **self._new}.items())
        with suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            whole_text(self._file, json.dumps(dict(rows[-_KEPT:])))

    def _load(self) -> dict[str, Any]:
        if self._kept is None:
            value = None
            with suppress(OSError, ValueError):
                value = json.loads(self._file.read_text("utf-8")) if self._file else None
            self._kept = value if isinstance(value, dict) else {}
        return self._kept
