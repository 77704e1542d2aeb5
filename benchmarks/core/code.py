"""The identity of plug-in code: a hash over the files that make up a part registered outside ragmeter's own packages.

A part's code is the module that registers it, the modules that it imports from its own distribution or folder, and their
data files. Imports are read from the source, also relative ones, those within functions, and those by a literal name; the
packages around a module count, since importing it runs them. A module that computes the names it imports adds its whole
package. Nothing is imported or executed.

Python files are compared as syntax trees (`benchmarks.core.syntax`): comments, docstrings and formatting do not count.
Docstrings count if any of the modules reads them or imports a framework that sends them to a model; the bytes count if one
reads source code. Extension modules and bytecode without source count by their bytes.

Data files are text files next to the modules of a package, all text files in folders called `templates`, `prompts` and the
like, and whatever a module names in a literal (`"assets/ask.txt"`). Next to a module that is in no package, only named files
count, because such a folder also holds experiments and reports. READMEs, licenses and the like next to modules, hidden
folders and stores do not count. Of a file over 1 MiB, or past 32 MiB in all, the size and evenly spaced
blocks count, which differ if a model was trained again. Of a template or
named folder, the first 5,000 files count.

Not covered: packages of other distributions (their versions are recorded), paths that a program puts together from pieces
of names, and files outside the distribution or folder. A part whose source cannot be read (defined in a notebook, at a
prompt, by `exec`) has an unknown identity, which equals no other: its runs are never reused by another process.
"""

from __future__ import annotations

import os
import re
import secrets
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.machinery import BYTECODE_SUFFIXES, EXTENSION_SUFFIXES, SOURCE_SUFFIXES
from importlib.util import find_spec
from inspect import unwrap
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any, Literal
from zipfile import BadZipFile

from benchmarks.core.distribution import Owner, owner_of
from benchmarks.core.fingerprint import LENGTH, fingerprint
from benchmarks.core.syntax import PLAIN, Import, Syntax, Syntaxes, byte_hash
from benchmarks.core.tree import Tree, tree_at

SHIPPED = frozenset({"benchmarks", "methods", "judges", "results", "leaderboard", "ragmeter"})
"""Top-level packages whose parts are identified by the version that they are registered with."""
Identity = Literal["code", "version"]
"""Identification of a plug-in's code: `code` by a hash of its files, `version` only by the version that its author sets."""

_TEXT = re.compile(
    r".+\.(cfg|csv|hbs|html|ini|j2|jinja2?|jsonl?|md|mustache|prompt|rst|sql|template|tmpl|toml|tpl|tsv|txt|xml|ya?ml)", re.IGNORECASE
)
_TEMPLATES = frozenset({"template", "templates", "prompt", "prompts"})
_ABOUT = re.compile(
    r"(readme|licen[cs]e|notice|changelog|changes|contributing)\b.*|(requirements|constraints).*\.txt|pyproject\.toml|setup\.cfg|tox\.ini",
    re.IGNORECASE,
)
"""Documentation files next to modules, which do not count as code."""
_MOST_BYTES, _MOST_TOGETHER, _MOST_FILES = 2**20, 2**25, 5000
_SUFFIXES = (*EXTENSION_SUFFIXES, *SOURCE_SUFFIXES, *BYTECODE_SUFFIXES)
"""Module file suffixes, in Python's search order."""
_PYC_HEADER = 16
"""Bytes at the start of a bytecode file with its source's modification time."""


@dataclass(frozen=True)
class Code:
    """Source code of one registered part, for fingerprints.

    Attributes:
        module: The module that registers it.
        identity: Whether fingerprints use the hash or only the version.
        files: Hash by file name, relative to the import folder.
        unknown: Why the source cannot be read; "" if it can.
        folder: Folder of the package or module; None if it is not on disk.
        owner: The installed distribution that contains it.
        starts: The files of the registering module, and of factory and options if they are in others: the folder from
            which each is imported, and its name there.
    """

    module: str
    identity: Identity
    files: Mapping[str, str]
    unknown: str = ""
    folder: Path | None = None
    owner: Owner | None = None
    starts: tuple[tuple[Path, str], ...] = ()
    _token: str = field(default_factory=lambda: "u" + secrets.token_hex(LENGTH // 2)[1:], repr=False, compare=False)

    @cached_property
    def hash(self) -> str:
        """Return 16 hex digits. If the source is unknown, `u` and 15 digits that no other registration has."""
        return self._token if self.unknown else fingerprint(dict(self.files))

    @property
    def id(self) -> str | None:
        """Return the hash for fingerprints; None if the author versions by hand."""
        return self.hash if self.identity == "code" else None

    @property
    def suffix(self) -> str:
        """Return the suffix of a metric's id, such as `-3fa2c1d0`; "" if it has none."""
        return f"-{self.hash[:8]}" if self.identity == "code" else ""

    @property
    def edited(self) -> bool:
        """Return whether the files have changed on disk since registration, so that the process runs outdated code."""
        try:
            return bool(self.starts) and _hashes([_Closure(*start) for start in self.starts]) != self.files
        except (OSError, BadZipFile):
            return True

    def to_json(self) -> dict[str, Any]:
        """Return the provenance record: hash, distribution, and versions of its dependencies."""
        value: dict[str, Any] = {"module": self.module, "identity": self.identity, "hash": self.hash}
        if self.unknown:
            value["unknown"] = self.unknown
        if self.owner is not None:
            value |= {"distribution": self.owner.name, "version": self.owner.version, "dependencies": self.owner.dependencies}
        return value | {"files": dict(self.files)}


def code_id(code: Code | None) -> str | None:
    """Return the hash that enters a part's fingerprint; None for shipped parts, and for those versioned by hand."""
    return None if code is None else code.id


def registered(identity: str, *made_of: Any) -> Code | None:
    """Compute the code of a part that is being registered.

    Args:
        identity: `code` or `version`.
        made_of: Its factory and the class of its options.

    Returns:
        None for a part of ragmeter's own packages.

    Raises:
        ValueError: `identity` has another value.
    """
    if identity not in ("code", "version"):
        raise ValueError(f"identity={identity!r} is neither 'code' nor 'version'")
    frame = _registering(sys._getframe(1))
    modules = dict.fromkeys(filter(None, (frame.f_globals.get("__name__"), *(_module_of(item) for item in made_of))))
    # A module in C has no frame: the one that is seen is of the import system.
    own = [str(name) for name in modules if str(name).partition(".")[0] not in SHIPPED | sys.stdlib_module_names]
    if not own:
        return None
    return _code(own, "version" if identity == "version" else "code", frame)


def code_of(item: Any) -> Code:
    """Return the code of the module that defines an object, such as a function."""
    return _code([str(_module_of(item))], "code", None)


def _code(own: Sequence[str], kind: Identity, frame: FrameType | None) -> Code:
    """Return the code of modules; the first one registers a part."""
    unknown = next(filter(None, (_unreadable(name, frame) for name in own)), "")
    if unknown:
        return Code(own[0], kind, {}, unknown)
    try:
        starts = tuple(filter(None, map(_file_of, own)))
        closures = [_Closure(*start) for start in starts]
        files = _hashes(closures)
    except (OSError, BadZipFile, RecursionError) as error:
        return Code(own[0], kind, {}, f"its files cannot be read: {error}")
    return Code(own[0], kind, files, folder=closures[0].folder, owner=closures[0].owner, starts=starts)


def _hashes(closures: Sequence[_Closure]) -> dict[str, str]:
    """Return the hashes of all files of several modules, by name.

    Raises:
        OSError, BadZipFile: A module cannot be read.
    """
    for closure in closures:
        closure.follow()
    level = max(closure.level for closure in closures)
    return dict(sorted(item for closure in closures for item in closure.hashes(level).items()))


def _registering(frame: FrameType) -> FrameType:
    """Return the stack frame whose code registers a part: the first outside ragmeter, or ragmeter's own module."""
    while (
        str(frame.f_globals.get("__name__")).partition(".")[0] in SHIPPED
        and frame.f_code.co_name != "<module>"
        and frame.f_back is not None
    ):
        frame = frame.f_back
    return frame


def _module_of(item: Any) -> str | None:
    return getattr(unwrap(item) if callable(item) and not isinstance(item, type) else item, "__module__", None)


def _unreadable(name: str, frame: FrameType | None) -> str:
    """Return why a module's source cannot be read; "" if it can."""
    place = _file_of(name)
    if place is None:
        return f"module {name} has no file: a notebook, a prompt or `python -c`"
    base, at = place
    tree = tree_at(base)
    if tree is None or not tree.is_file(at):
        return f"module {name} is not in a file: {base / at}"
    if frame is None:
        return ""
    ran = frame.f_code.co_filename
    if frame.f_globals.get("__name__") == name and not os.path.exists(ran) and not _same_file(ran, base / at):
        return f"module {name} was not run from its file, but from {ran}"
    return ""


def _same_file(ran: str, file: Path) -> bool:
    """Return whether code was compiled from a file inside an archive."""
    return os.path.abspath(ran) == os.path.abspath(file) or Path(ran).with_suffix("") == file.with_suffix("")


def _name_of(module: str) -> str:
    """Return a module's dotted name; for the running script, its file name."""
    if module != "__main__":
        return module
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    return spec.name if spec is not None else Path(getattr(main, "__file__", "") or "__main__").stem


def _file_of(module: str) -> tuple[Path, str] | None:
    """Return the import folder and relative file of a loaded module."""
    loaded = sys.modules.get(module)
    named = getattr(loaded, "__file__", None) or getattr(getattr(loaded, "__spec__", None), "origin", None)
    if not named or str(named).startswith("<"):
        return None
    file = Path(os.path.abspath(named))
    parts = _name_of(module).split(".")
    own = [*parts, file.name] if file.stem.partition(".")[0] == "__init__" else [*parts[:-1], file.name]
    if list(file.parts[-len(own) :]) != own:
        own = [file.name]  # loaded by its path, under another name
    return Path(*file.parts[: -len(own)]), "/".join(own)


class _Closure:
    """All files that a module consists of: the module, its own imports and data files.

    Args:
        base: The folder from which it is imported.
        start: Its file there.

    Raises:
        OSError: There is no such folder.
    """

    def __init__(self, base: Path, start: str) -> None:
        tree = tree_at(base)
        if tree is None:
            raise FileNotFoundError(f"no such folder: {base}")
        self.tree, self.start = tree, start
        self.top = self.start.partition("/")[0]
        self.owner = owner_of(self.tree.base, self.start)
        self.modules: dict[tuple[Tree, str], Syntax | str] = {}
        """Parsed syntax per tree and file; the hash of the bytes if the file cannot be parsed."""
        self._roots: dict[str, Tree | None] = {}
        self._syntaxes = Syntaxes(self.tree.base / self.top)

    @property
    def folder(self) -> Path | None:
        """Return the folder of the package or single module."""
        folder = (self.tree.base / self.start).parent if "/" not in self.start else self.tree.base / self.top
        return folder if folder.is_dir() else None

    @property
    def level(self) -> int:
        """Return the hash level of the files (`PLAIN`, `DOCUMENTED` or `SOURCE`)."""
        return max((item.level for item in self.modules.values() if isinstance(item, Syntax)), default=PLAIN)

    def follow(self) -> None:
        """Read the module and its own imports, transitively."""
        waiting = [(self.tree, self.start)]
        while waiting:
            tree, file = waiting.pop()
            if (tree, file) in self.modules:
                continue
            content = tree.read(file)
            if not file.endswith(tuple(SOURCE_SUFFIXES)):
                content = content[_PYC_HEADER:] if file.endswith(tuple(BYTECODE_SUFFIXES)) else content
                self.modules[tree, file] = byte_hash(content)
                continue
            syntax = self._syntaxes.of(content)
            self.modules[tree, file] = syntax
            waiting += self._imported(tree, file, syntax)
        self._syntaxes.keep()

    def _imported(self, tree: Tree, file: str, syntax: Syntax) -> Iterator[tuple[Tree, str]]:
        """Yield the files of the modules that a file imports, and of its enclosing packages."""
        package = file.split("/")[:-1]
        if package:
            yield from self._resolved(".".join(package), tree)
        for item in syntax.imports:
            yield from self._named_by(item, package, tree)
        for name in syntax.names:  # `"acme.tools"` in a table of modules to load, or for `importlib.resources`
            if package and name.startswith(f"{package[0]}.") and "/" not in name:
                yield from self._resolved(name.partition(":")[0].rstrip("."), tree)
        if syntax.computed:
            folder = package[0] if package else ""
            for other in tree.walk(folder) if folder else tree.listing("").files:
                if other.endswith(tuple(SOURCE_SUFFIXES)) and self._own(tree, other):
                    yield tree, other

    def _named_by(self, item: Import, package: list[str], tree: Tree) -> Iterator[tuple[Tree, str]]:
        if item.level > len(package):
            return
        base = [*package[: len(package) - item.level + 1]] if item.level else []
        module = ".".join(filter(None, (*base, item.module)))
        if not module:
            return
        yield from self._resolved(module, tree if item.level else None)
        for name in item.names:
            if name != "*":
                yield from self._resolved(f"{module}.{name}", tree if item.level else None)
            else:
                yield from self._all_of(module, tree if item.level else None)

    def _all_of(self, module: str, tree: Tree | None) -> Iterator[tuple[Tree, str]]:
        """Yield the modules that `from package import *` may import, according to a literal `__all__`."""
        for root, file in list(self._resolved(module, tree))[-1:]:
            if file.endswith("__init__.py"):
                names = self._syntaxes.of(root.read(file)).names
                for name in filter(str.isidentifier, names):
                    yield from self._resolved(f"{module}.{name}", tree)

    def _resolved(self, name: str, tree: Tree | None) -> Iterator[tuple[Tree, str]]:
        """Yield the files that importing a module executes: its packages from the outside in, then the module; only the
        plug-in's own.
        """
        parts = name.split(".")
        root = tree if tree is not None else self._root(parts[0])
        if root is None:
            return
        folder = ""
        for part in parts:
            inner = f"{folder}/{part}" if folder else part
            listed = root.listing(folder)
            package = next((f"{inner}/__init__{end}" for end in _SUFFIXES if root.is_file(f"{inner}/__init__{end}")), None)
            file = package or next((f"{inner}{end}" for end in _SUFFIXES if f"{inner}{end}" in listed.files), None)
            if file is not None and self._own(root, file):
                yield root, file
            if inner not in listed.folders:
                return
            folder = inner

    def _root(self, top: str) -> Tree | None:
        """Return the tree that contains a top-level module of the plug-in; None for other modules."""
        if top not in self._roots:
            self._roots[top] = self._find_root(top)
        return self._roots[top]

    def _find_root(self, top: str) -> Tree | None:
        if top in SHIPPED or top in sys.stdlib_module_names:
            return None
        listed = self.tree.listing("")
        if top in listed.folders or any(f"{top}{end}" in listed.files for end in _SUFFIXES):
            return self.tree
        if self.owner is None or self.owner.project is None:
            return None
        # An editable installation may map each of its packages to another folder of the project.
        try:
            spec = find_spec(top)
        except (ImportError, ValueError):
            return None
        positions = [spec.origin] if spec and spec.has_location else list(spec.submodule_search_locations or ()) if spec else []
        for place in filter(None, positions):
            path = Path(place).parent if Path(place).stem == "__init__" else Path(place)
            if path.is_relative_to(self.owner.project) and (tree := tree_at(path.parent)) is not None and not tree.site:
                return tree
        return None

    def _own(self, tree: Tree, file: str) -> bool:
        """Return whether a file belongs to the plug-in: to its package or distribution."""
        if file.partition("/")[0] in SHIPPED:
            return False
        if tree is not self.tree or not tree.site:
            return True
        package = self.start.split("/")[:-1]
        # Of a namespace, which distributions share, the first package proper.
        depth = next((n for n in range(1, len(package) + 1) if tree.is_file("/".join([*package[:n], "__init__.py"]))), len(package))
        prefix = "/".join(package[:depth])
        mine = file.startswith(f"{prefix}/") if prefix else file == self.start
        return mine or (self.owner is not None and file in self.owner.files)

    def hashes(self, level: int) -> dict[str, str]:
        """Return the hash of each file: modules at this level, and data files."""
        results = {file: item.hashes[level] if isinstance(item, Syntax) else item for (_, file), item in self.modules.items()}
        read = 0
        for tree, file in sorted(self._find_data(), key=lambda item: item[1]):
            try:
                size = tree.size(file)
                if size > _MOST_BYTES or read + size > _MOST_TOGETHER:
                    results[file] = f"{size} bytes, {byte_hash(tree.sample(file))}"
                    continue
                results[file] = byte_hash(tree.read(file).replace(b"\r\n", b"\n"))
                read += size
            except OSError:
                results[file] = "unreadable"
        return results

    def _find_data(self) -> set[tuple[Tree, str]]:
        data: set[tuple[Tree, str]] = set()
        for (tree, file), syntax in self.modules.items():
            package = file.split("/")[:-1]
            here = "/".join(package)
            listed = tree.listing(here)
            if package:
                data |= {(tree, name) for name in listed.files if _is_text(name) and not _ABOUT.fullmatch(name.rpartition("/")[2])}
            for folder in listed.folders:
                if folder.rpartition("/")[2] in _TEMPLATES:
                    data |= {(tree, name) for name in islice(tree.walk(folder), _MOST_FILES) if _is_text(name)}
            if isinstance(syntax, Syntax):
                for name in syntax.names:
                    data |= {(tree, item) for item in _find_named(tree, package, name)}
        modules = set(self.modules)
        return {item for item in data if item not in modules and self._own(*item)}


def _find_named(tree: Tree, package: list[str], name: str) -> Iterator[str]:
    """Yield the files that a literal in a module names, relative to its folder or an enclosing one."""
    name = name.removeprefix("./").rstrip("/")
    first = name.partition("/")[0]
    if not first or ".." in name.split("/") or first == ".":
        return
    for depth in range(len(package), -1, -1):
        folder = "/".join(package[:depth])
        at = f"{folder}/{name}" if folder else name
        begins = f"{folder}/{first}" if folder else first
        listed = tree.listing(folder)
        if begins not in listed.files and begins not in listed.folders:
            continue
        # Above a package, and among installed modules, other things have common names.
        whole = depth > 0 or first in _TEMPLATES or not (package or tree.site)
        if tree.is_file(at):
            if not at.endswith(_SUFFIXES) and (depth or not package or _is_text(at)):
                yield at
        elif whole and tree.is_folder(at):
            yield from filter(_is_text, islice(tree.walk(at), _MOST_FILES))


def _is_text(file: str) -> bool:
    return _TEXT.fullmatch(file.rpartition("/")[2]) is not None


def shortened(files: Iterable[str]) -> list[str]:
    """Strip the common folder from file names."""
    names = [name.split("/") for name in sorted(files)]
    while names and all(len(parts) > 1 and parts[0] == names[0][0] for parts in names):
        names = [parts[1:] for parts in names]
    return ["/".join(parts) for parts in names]
