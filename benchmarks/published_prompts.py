"""Download and read prompts as their authors published them, listed in `published_prompts.yaml`. ragmeter ships none of their
text.

A prompt is read from `RAGMETER_DATA/prompts`, else from the cache, else downloaded from the recorded commit of the authors'
repository. Program source is parsed, never executed. A text is refused if its hash differs from the recorded one.
"""

from __future__ import annotations

import ast
import hashlib
import http.client
import json
import os
import re
import tomllib
import urllib.error
import urllib.request
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from string import Formatter
from typing import Any, TypeAlias

import yaml
from pydantic import BaseModel, ConfigDict, Field

from benchmarks.core.errors import UserError
from benchmarks.core.files import cache_home, whole_text
from benchmarks.core.yaml import LOADER
from benchmarks.io import hub
from benchmarks.sources import DATA_VARIABLE, data_folder

FOLDER = "prompts"
ADDRESS_VARIABLE = "RAGMETER_GITHUB"
"""Environment variable with the base URL for files of GitHub repositories (default: GitHub's own)."""
ADDRESS = "https://raw.githubusercontent.com"
TIMEOUT_S = 30.0
ALL = "*"
"""Name that selects all texts of a file."""
_STRICT = ConfigDict(frozen=True, extra="forbid")


class Place(BaseModel):
    """Location of a prompt text: a file of the repository, and the key or the constant in it; `local`: its keys in the local
    file.
    """

    model_config = _STRICT
    file: str
    local: str | None = None
    yaml: str | None = None
    toml: str | None = None
    json_key: str | None = Field(None, alias="json")
    python: str | None = None
    names: Mapping[str, str] = {}


class Documents(BaseModel):
    """Format of the passages that are joined to fill one placeholder."""

    model_config = _STRICT
    placeholder: str
    each: str
    between: str = ""


class ModelFile(BaseModel):
    """A file inside a checkpoint that defines its prompts as constants: pattern of the file name, and location of each text in
    it.
    """

    model_config = _STRICT
    pattern: str
    texts: Mapping[str, str]


Text: TypeAlias = str | list[str]
"""A prompt text, or a list of alternative wordings."""


class Published(BaseModel):
    """An entry of `published_prompts.yaml`, where its fields are explained."""

    model_config = _STRICT
    checkpoints: tuple[str, ...] = ()
    repository: str
    commit: str
    license: str
    local: str
    sha256: str
    texts: Mapping[str, Place]
    layout: Mapping[str, str] = {}
    model_file: ModelFile | None = None
    options: Mapping[str, Any] = {}
    parts: tuple[Mapping[str, str], ...] = ()
    documents: Documents | None = None
    names: Mapping[str, str] = {}
    values: Mapping[str, str] = {}
    blanks: Mapping[str, tuple[str, ...]] = {}
    stripped: tuple[str, ...] = ()
    filled: Mapping[str, Mapping[str, str]] = {}
    literal: tuple[str, ...] = ()

    def is_of(self, model: str) -> bool:
        """Return whether a model name, without its owner or folder, belongs to one of the prompt's checkpoints."""
        last = model.rstrip("/").rpartition("/")[2].lower()
        return any(checkpoint.rpartition("/")[2].lower() in last for checkpoint in self.checkpoints)

    @property
    def source(self) -> str:
        """Return repository, commit and files, for display."""
        files = dict.fromkeys(place.file for place in self.texts.values())
        return ", ".join([f"{self.repository} at {self.commit[:8]}", *files])


@cache
def registry() -> Mapping[str, Published]:
    """Return all entries by name."""
    entries = yaml.load(Path(__file__).with_suffix(".yaml").read_text("utf-8"), LOADER)
    return {name: Published.model_validate(entry) for name, entry in entries.items()}


def texts_of(name: str, fetch: bool = True) -> Mapping[str, Text]:
    """Return the texts of a published prompt by name, after verifying their hash.

    Args:
        name: Name in the registry.
        fetch: Whether to download missing files.

    Raises:
        UserError: The texts are not available, or their hash is wrong.
    """
    entry = registry()[name]
    if not entry.texts:
        return entry.layout
    path = path_of(name)
    if path.is_file():
        return _verified(_read(path, entry), entry, str(path))
    if not fetch:
        raise _missing(name, entry, "it is not on this machine")
    if hub.offline():
        raise _missing(name, entry, "it is not on this machine, and the network is forbidden")
    files = {file: _get(name, entry, file) for file in {place.file for place in entry.texts.values()}}
    texts: dict[str, Text] = {}
    for key, place in entry.texts.items():
        content = _extracted(files[place.file], place, entry)
        texts.update(content if isinstance(content, dict) else {key: content})
    _verified(texts, entry, entry.source)
    path.parent.mkdir(parents=True, exist_ok=True)
    whole_text(path, json.dumps(texts, ensure_ascii=False, indent=1))
    return texts


def texts_in(name: str, folder: Path) -> tuple[Mapping[str, Text], Path] | None:
    """Return the prompt texts defined by the program in a checkpoint's folder, and that file; None if it defines none.

    The file is parsed, never executed. The texts belong to this checkpoint and may differ from the registry's.
    """
    holder = entry.model_file if (entry := registry().get(name)) else None
    for path in sorted(folder.glob(holder.pattern)) if holder is not None else []:
        try:
            tree = ast.parse(path.read_text("utf-8"))
            return {key: _constant(tree, place.split(".")) for key, place in holder.texts.items()}, path  # type: ignore[union-attr]
        except (OSError, ValueError, SyntaxError, LookupError, RecursionError):
            continue
    return None


def download(reference: str) -> list[dict[str, str]]:
    """Download the prompts that `prompts` (all) or `prompts/NAME` names if they are missing; return source, license and file of
    each.

    NAME is a prompt, or a system with several prompts. Any other reference is a dataset's, and gives an empty list.

    Raises:
        UserError: No prompt has this name, or as in `texts_of` (raised after all other prompts are downloaded).
    """
    folder, _, name = reference.partition("/")
    if folder != FOLDER:
        return []
    names = [each for each in registry() if not name or each == name or each.startswith(f"{name}_")]
    if not names:
        raise UserError(f"no published prompt is called {name!r}", code="unknown-prompt", where=reference, try_this=", ".join(registry()))
    failed: dict[str, UserError] = {}
    for each in names:
        try:
            texts_of(each)
        except UserError as error:
            failed[each] = error
    if failed:
        first = next(iter(failed.values()))
        if len(names) == 1:
            raise first
        raise UserError(
            f"{len(failed)} of {len(names)} published prompts could not be fetched: {', '.join(failed)}; the others are on this machine. "
            f"{next(iter(failed))}: {first.what}",
            code=first.code,
            where=first.where,
            try_this=f"run `ragmeter data download {reference}` again, or set prompt: ours for these systems",
        )
    return [
        {
            "reference": f"{FOLDER}/{each}",
            "source": entry.source,
            "license": entry.license,
            "sha256": entry.sha256,
            "path": str(path_of(each)),
        }
        for each in names
        for entry in (registry()[each],)
    ]


def path_of(name: str) -> Path:
    """Return the local file of a prompt: the existing one, or the one that `download` will write."""
    entry = registry()[name]
    if not entry.texts:
        return Path(__file__).with_suffix(".yaml")
    here = _in_data_folder(entry)
    return here if here is not None and here.is_file() and all(_read(here, entry).values()) else _cached(name, entry)


def digest(texts: Mapping[str, Text]) -> str:
    """Return the SHA-256 of texts as JSON with sorted keys and without spaces."""
    return hashlib.sha256(json.dumps(texts, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()).hexdigest()


def as_template(prompt: str, **names: str) -> str:
    """Convert a prompt for `str.format` to a `string.Template`, renaming its placeholders.

    Args:
        prompt: Text with `{placeholder}` or `{}` (named 0, 1 … by position); doubled braces are literal braces.
        names: New name per placeholder; others keep theirs.
    """
    pieces, position = list[str](), 0
    for text, name, _, _ in Formatter().parse(prompt):
        pieces.append(text.replace("$", "$$"))
        if name is not None:
            position += not name
            name = name or str(position - 1)
            pieces.append(f"${{{names.get(name, name)}}}")
    return "".join(pieces)


def _in_data_folder(entry: Published) -> Path | None:
    folder = data_folder()
    return None if folder is None else folder / FOLDER / entry.local


def _cached(name: str, entry: Published) -> Path:
    return cache_home() / FOLDER / f"{name}-{entry.sha256[:12]}.json"


def _read(path: Path, entry: Published) -> Mapping[str, Text]:
    try:
        text = path.read_bytes().decode()
        content = {next(iter(entry.texts)): text} if path.suffix == ".txt" else json.loads(text)
        if isinstance(content, list):  # of messages
            content = {key: message["content"] for key, message in zip(entry.texts, content, strict=True)}
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UserError(
            f"this file of prompts cannot be read: {error}",
            code="prompts-not-json",
            where=str(path),
            try_this="fetch it again, or remove it",
        ) from None
    if isinstance(content, list):  # messages
        content = {message.get("role"): message.get("content") for message in content if isinstance(message, dict)}
    if not isinstance(content, dict):
        return {}
    if ALL in entry.texts:
        return content
    return {key: _locally(content, path, key, place) for key, place in entry.texts.items()}


def _locally(content: dict[str, Any], path: Path, key: str, place: Place) -> Text:
    """Return a text from a local file, or from another file next to it; "" if absent."""
    file, marked, keys = (place.local or "").rpartition("#")
    try:
        whole = json.loads(path.with_name(file).read_bytes()) if marked else content
    except (OSError, ValueError):
        return ""
    return _under(whole, keys if keys and (marked or key not in content) else key)


def _under(content: Any, keys: str) -> Text:
    for key in keys.split("."):
        if isinstance(content, list) and key.isdigit():
            content = content[int(key)] if int(key) < len(content) else ""
        else:
            content = content.get(key, "") if isinstance(content, dict) else ""
    return content if isinstance(content, str | list) else ""


def _verified(texts: Mapping[str, Text], entry: Published, where: str) -> Mapping[str, Text]:
    if (actual := digest(texts)) != entry.sha256:
        what = f"these prompts are not the published ones: their hash is {actual[:12]}…, recorded is {entry.sha256[:12]}…"
        raise UserError(what, code="missing-prompt", where=where, try_this="fetch the file again, or remove it; or set prompt: ours")
    return texts


def _missing(name: str, entry: Published, why: str) -> UserError:
    return UserError(
        f"the published prompt of {name} cannot be used: {why}",
        code="published-prompt-missing",
        where=f"{entry.source}; {DATA_VARIABLE}/{FOLDER}/{entry.local}",
        try_this=f"run `ragmeter data download {FOLDER}/{name}` with a network, or set prompt: ours or prompt: FILE",
    )


def _get(name: str, entry: Published, file: str) -> str:
    address = (os.environ.get(ADDRESS_VARIABLE) or ADDRESS).rstrip("/")
    url = f"{address}/{entry.repository}/{entry.commit}/{file}"
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers={"user-agent": "ragmeter"}), timeout=TIMEOUT_S) as reply:
            return str(reply.read().decode())
    except (OSError, ValueError, http.client.HTTPException) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        raise _missing(name, entry, f"{url} cannot be read: {error}") from None


def _extracted(content: str, place: Place, entry: Published) -> Text | dict[str, str]:
    try:
        if place.python is not None:
            text = _constant(ast.parse(content), place.python.split("."))
            for name, new in place.names.items() if isinstance(text, str) else ():
                text = str(text).replace(f"{{{name}}}", f"{{{new}}}")
            return text
        if place.yaml is not None:
            value: Any = yaml.safe_load(content)[place.yaml]
        elif place.toml is not None:
            value = tomllib.loads(content)[place.toml]
        elif place.json_key is not None:
            value = json.loads(content)
            value = value if place.json_key == ALL else value[place.json_key]
        else:
            value = content
    except (ValueError, LookupError, TypeError, SyntaxError, yaml.YAMLError) as error:
        where = f"{entry.repository}, {place.file}"
        raise UserError(f"the prompt is not where the registry says: {error!r}", code="published-prompt-place", where=where) from None
    return value if isinstance(value, dict | list) else str(value)


def _constant(tree: ast.AST, path: list[str]) -> Text:
    """Return the text (or texts) of a constant in a program's source; an f-string's expressions become names in braces."""
    scope: Any = tree
    while path:
        name, *path = path
        if isinstance(scope, ast.Dict):
            scope = next(value for key, value in zip(scope.keys, scope.values, strict=True) if str(ast.literal_eval(key or key)) == name)  # type: ignore[arg-type]
            continue
        if isinstance(scope, ast.List):
            scope = scope.elts[int(name)]
            continue
        if isinstance(scope, ast.BinOp):
            scope = getattr(scope, name)
            continue
        if name == "self":
            name, *path = f"self.{path[0]}", *path[1:]
        scope = _named(scope, name)
    return [_text(item) for item in scope.elts] if isinstance(scope, ast.List) else _text(scope)


def _named(scope: ast.AST, name: str) -> ast.AST:
    """Return the last scope, dictionary, list or text with this name in a scope, preferring shallow ones.

    A suffix `#n` selects the n-th one in the source, at any depth.
    """
    name, _, number = name.partition("#")
    if number:
        everything = [value for node in ast.walk(scope) for value in _values(node, name)]
        return sorted(everything, key=lambda value: (getattr(value, "lineno", 0), getattr(value, "col_offset", 0)))[int(number)]
    for nodes in (ast.iter_child_nodes(scope), ast.walk(scope)):
        values = [value for node in nodes for value in _values(node, name)]
        if values:
            return values[-1]
    raise LookupError(name)


def _values(node: ast.AST, name: str) -> list[ast.AST]:
    match node:
        case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
            return [node] if node.name == name else []
        case ast.Assign():
            named, value = name in map(ast.unparse, node.targets), node.value
        case ast.AnnAssign(value=ast.AST() as value):
            named = ast.unparse(node.target) == name
        case ast.Expr(value=ast.Call(func=function, args=[ast.Dict() as value])):
            named = name == f"{ast.unparse(function).partition('.')[0]}()"
        case ast.Return(value=ast.AST() as value):
            named = name == "return"
            value = value.value if isinstance(value, ast.Subscript) else value
        case _:
            return []
    if isinstance(value, ast.ListComp):
        value = value.elt
    try:
        return [value] if named and (isinstance(value, ast.Dict | ast.List) or _text(value)) else []
    except LookupError:
        return []


def _text(node: Any) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr():
            return "".join(
                "{" + ast.unparse(part.value) + "}" if isinstance(part, ast.FormattedValue) else re.sub(r"([{}])", r"\1\1", _text(part))
                for part in node.values
            )
        case ast.BinOp(op=ast.Add()):
            return "".join(map(_side, (node.left, node.right)))
        case ast.Call(func=ast.Attribute(attr="format")):
            return _text(node.func.value)  # type: ignore[attr-defined]
    raise LookupError(f"no text: {ast.unparse(node)[:60]}")


def _side(node: ast.AST) -> str:
    """Return one operand of a string sum: its text, or the expression in braces."""
    try:
        return _text(node)
    except LookupError:
        return "{" + ast.unparse(node) + "}"
