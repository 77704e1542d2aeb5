"""Registries that discover their entries: decorators in ragmeter's own modules, entry points in other packages.

Discovery imports only modules whose source holds a registration mark (`@register`), so that listing methods
does not import the training code next to them. A module with a registration keeps heavy imports (torch,
transformers …) inside functions.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from glob import glob
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Generic, Protocol, TypeVar, get_type_hints

from benchmarks.core.errors import UserError, message_of, unknown_name

Options = TypeVar("Options")

PLUGIN = "--plugin"
"""Option of commands that names a plug-in file (`load_file`)."""
MARK = re.compile(rb"\n@_?register")
_WRITTEN = re.compile(r'^@_?(register\w*)\(\s*"([^"\n]+)"', re.MULTILINE)
_ALSO = {
    "register": ("register_function", "register_program", "register_system", "register_answer", "register_joint"),
    "register_training": ("register_system",),
}
"""Decorators that wrap another registering decorator."""


def config_class(factory: Callable[..., Any], base: type[Options]) -> type[Options]:
    """Return the annotation of a factory's parameter `config` if it is a subclass of `base`, else `base`.

    Raises:
        UserError: The annotation cannot be resolved in the factory's module.
    """
    parameter = inspect.signature(factory).parameters.get("config")
    hint = parameter.annotation if parameter else None
    if isinstance(hint, str):
        annotated = SimpleNamespace(__annotations__={"config": hint})
        try:
            hint = get_type_hints(annotated, vars(sys.modules[factory.__module__]))["config"]
        except NameError as error:
            where = f"{factory.__module__}.{factory.__qualname__}"
            remedy = "state the class of the options: @register(…, config=…)"
            raise UserError(f"unknown options class {hint!r}", code="unknown-options-class", where=where, try_this=remedy) from error
    return hint if isinstance(hint, type) and issubclass(hint, base) else base


class Entry(Protocol):
    """Protocol of registry entries: an object with an id."""

    @property
    def id(self) -> str: ...


E = TypeVar("E", bound=Entry)


class Registry(Generic[E]):
    """Registry of entries by id, which discovers its entries on first use.

    Args:
        noun: Noun for an entry in messages ("method").
        package: The package whose modules register entries ("methods").
        group: The entry-point group through which other packages add theirs ("ragmeter.methods"). An entry
            point names a module (or an object in one); loading it must run its registrations.
    """

    def __init__(self, noun: str, package: str, group: str) -> None:
        self.noun = noun
        self.package = package
        self.group = group
        self.broken: dict[str, Broken] = {}
        """Plug-ins that could not be loaded, by the name of their entry point; `ragmeter doctor` shows them."""
        self._entries: dict[str, E] = {}
        self._sources: dict[str, str] = {}
        self._complete = False

    def add(self, entry: E, source: str) -> None:
        """Register an entry.

        Args:
            entry: The entry.
            source: The registering module; registering again from the same module replaces the entry.

        Raises:
            UserError: Another module has taken this id.
        """
        if source.partition(".")[0] != self.package:
            # An entry of ours with this id may not be loaded yet; it would be replaced without a word.
            self._import_ours(entry.id)
        taken = self._sources.get(entry.id)
        if taken is not None and taken != source:
            raise UserError(
                f"two {self.noun}s are called {entry.id!r}",
                code="duplicate-name",
                where=f"{taken} and {source}",
                try_this="rename one of them",
            )
        self._entries[entry.id] = entry
        self._sources[entry.id] = source

    def get(self, identifier: str, *, where: str | None = None) -> E:
        """Return the entry with this id.

        Raises:
            UserError: The id is unknown. If a plug-in failed to load, the error describes that instead, because the plug-in may
                define the id.
        """
        if identifier not in self:
            error = unknown_name(self.noun, identifier, self._entries, where=where)
            if self.broken:
                raise self._unloaded(identifier, error)
            if "did you mean" not in str(error.try_this):
                error.also_try(f"if a file of yours defines it: `plugins: [FILE]` in an experiment, or {PLUGIN} FILE")
            raise error
        return self._entries[identifier]

    def _unloaded(self, identifier: str, unknown: UserError) -> UserError:
        name = identifier if identifier in self.broken else next(iter(self.broken))
        broken, others = self.broken[name], [other for other in self.broken if other != name]
        error = UserError(
            f"the plug-in {name!r} cannot be loaded: {broken.cause}",
            code="plugin-cannot-be-loaded",
            where=broken.where,
            try_this=f"{broken.remedy}; no other plug-in has the {self.noun} {identifier!r}",
        )
        if others:
            error.also_try(f"plug-ins that cannot be loaded either: {', '.join(others)} (`ragmeter doctor`)")
        if (unknown.try_this or "").startswith("did you mean"):
            error.also_try(unknown.try_this or "")
        return error

    def __contains__(self, identifier: object) -> bool:
        if identifier not in self._entries and isinstance(identifier, str):
            self._import_one(identifier)
        if identifier not in self._entries:
            self._discover()
        return identifier in self._entries

    def __iter__(self) -> Iterator[E]:
        self._discover()
        return iter([self._entries[name] for name in sorted(self._entries)])

    def source(self, identifier: str) -> str:
        """Return the name of the module that registered an entry."""
        return self._sources[identifier]

    def _import_one(self, identifier: str) -> None:
        """Import only the package's module that registers an entry; import nothing if plug-ins may register it."""
        if not self._complete and not has_plugins(self.group):
            self._import_ours(identifier)

    def _import_ours(self, identifier: str) -> None:
        for module in _modules_by_id(self.package).get(identifier, ()):
            importlib.import_module(module)

    def _discover(self) -> None:
        if self._complete:
            return
        self._complete = True
        for module, _ in _registering_modules(self.package):
            importlib.import_module(module)
        for point in entry_points(group=self.group):
            # A broken third-party package must not stop commands that do not need it; doctor names it.
            try:
                point.load()
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                self.broken[point.name] = Broken.of(point, error)


@dataclass(frozen=True)
class Broken:
    """A plug-in that could not be loaded.

    Attributes:
        cause: The error.
        where: The line of the plug-in that raised the error; the entry point if no line of it ran.
        remedy: How to fix it.
    """

    cause: str
    where: str
    remedy: str

    @classmethod
    def of(cls, point: EntryPoint, error: BaseException) -> Broken:
        """Describe the error that loading an entry point raised."""
        cause = f"{type(error).__name__}: {message_of(error)}"
        package = "" if point.dist is None else f" of {point.dist.name} {point.dist.version}"
        entry = f"entry point {point.name} = {point.value}{package}"
        place = _line_of(error, point.module.partition(".")[0])
        if place is not None:
            return cls(cause, f"{place} ({entry})", "correct it, or install what it imports")
        return cls(cause, entry, f"install the package again or uninstall it{package.replace(' of', ':', 1)}")


def _line_of(error: BaseException, package: str) -> str | None:
    """Return the file and line in a package at which an error was raised; None if no line of it ran."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    with suppress(ImportError, ValueError):
        spec = find_spec(package)
        folders = [f"{folder}{os.sep}" for folder in spec.submodule_search_locations or ()] if spec else []
        known = tuple(folders or filter(None, [spec.origin if spec else None]))
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if known and frame.filename.startswith(known)]
        return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else None
    return None


def load_file(path: Path, *, where: str | None = None) -> ModuleType:
    """Import a Python file as a module, so that its registrations run; modules in its folder can be imported.

    Args:
        path: The file.
        where: Location of the setting that names the file, for messages.

    Raises:
        UserError: The file does not exist, its name is taken, or it cannot be imported; the message gives the cause and its line.
    """
    file, name = path.resolve(), path.stem
    if not file.is_file():
        raise UserError(
            f"the plug-in file {path} does not exist", code="missing-file", where=where or str(path), try_this="name a .py file"
        )
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == str(file):
        return known
    if known is not None or not name.isidentifier() or name in sys.stdlib_module_names:
        what = f"the plug-in file {path.name} cannot be a module: " + ("that name is taken" if name.isidentifier() else "no valid name")
        raise UserError(what, code="plugin-name-taken", where=where or str(path), try_this="rename the file, for example my_app.py")
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))
    spec = spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, UserError) or not isinstance(error, Exception | SystemExit):
            raise
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
        line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else 1
        raise UserError(
            f"the plug-in cannot be loaded: {type(error).__name__}: {message_of(error)}",
            code="plugin-cannot-be-loaded",
            where=f"{path}:{line}",
            try_this="correct it, or install what it imports",
        ) from error
    return module


def written_ids(package: str, decorator: str) -> dict[str, str]:
    """Return the ids that a package's modules register, each with its module, by parsing the source without importing it.

    Used for shell completion. Ids from other packages are not included (see `has_plugins`).

    Args:
        package: The package whose modules register ("methods").
        decorator: Name of the registering decorator ("register", "register_training"); decorators that wrap it count, too.
    """
    return {
        identifier: module
        for module, source in _registering_modules(package)
        for result, identifier in _WRITTEN.findall(source)
        if result in (decorator, *_ALSO.get(decorator, ()))
    }


@cache
def _modules_by_id(package: str) -> dict[str, list[str]]:
    """Return the modules of a package that register an id, by parsing their source."""
    modules: dict[str, list[str]] = {}
    for module, source in _registering_modules(package):
        for _, identifier in _WRITTEN.findall(source):
            modules.setdefault(identifier, []).append(module)
    return modules


def has_plugins(group: str) -> bool:
    """Return whether any other package registers entries through an entry-point group."""
    return group in _groups(tuple(sys.path))


@cache
def _groups(path: tuple[str, ...]) -> set[str]:
    """Return the entry-point groups of all installed packages, cached by search path."""
    return entry_points().groups


def _registering_modules(package: str) -> Iterator[tuple[str, str]]:
    """Yield the package's modules that contain a registration, by name and source, in a fixed order."""
    root = importlib.import_module(package)
    for folder in root.__path__:
        for path in sorted(glob("**/*.py", root_dir=folder, recursive=True)):
            with open(os.path.join(folder, path), "rb") as file:
                source = file.read()
            if MARK.search(source):
                parts = [package, *path.removesuffix(".py").split(os.sep)]
                yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), source.decode()
