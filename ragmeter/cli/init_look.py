"""Find what an experiment can begin with in a folder: documents, and questions whose fields can be guessed."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.core.errors import UserError
from benchmarks.own.documents import DOCUMENTS
from benchmarks.own.fields import Fields, document_fields, question_fields
from benchmarks.own.records import open_source

_QUESTIONS = (".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet")
_LIKELY = ("question", "eval", "qa", "gold", "test")
_VAGUE = ("text", "input", "prompt", "q")
"""Columns that hold the question only if another column holds its answer."""
_PROJECT = ("readme", "license", "changelog", "contributing", "requirements", "notice", "authors")
_PASSED_OVER = ("node_modules", "site-packages", "__pycache__", "venv", "env", "dist", "build", "site", "ragmeter-store")


@dataclass
class Found:
    """Documents and questions that `ragmeter init` found in a folder.

    Attributes:
        documents: Folder of documents, or file with one document per record; None if there is neither.
        kinds: Number of documents by file extension.
        questions: File with questions; None if there is none.
        fields: Mapping of its fields to question, answer and so on; None without questions.
        notes: Remarks for the user on this choice.
    """

    documents: Path | None = None
    kinds: Counter[str] = field(default_factory=Counter)
    questions: Path | None = None
    fields: Fields | None = None
    notes: list[str] = field(default_factory=list)


def look(folder: Path, questions: Path | None) -> Found:
    """Search a folder for documents and a file of questions.

    Args:
        folder: The folder; it may not exist yet.
        questions: The file with questions, if the user named it.

    Raises:
        UserError: The file with questions does not exist, or its fields cannot be guessed.
    """
    seen = Found()
    files = sorted(_files(folder)) if folder.is_dir() else []
    if questions is not None:
        if not questions.exists():
            raise UserError("there is no such file", code="missing-file", where=f"--questions {questions}", try_this="name a file")
        seen.questions, seen.fields = questions, _fields(questions)
    else:
        _choose_questions(seen, folder, files)
    if seen.fields is None or "documents" not in seen.fields:
        _choose_documents(seen, folder, files)
    return seen


def _files(folder: Path, depth: int = 0) -> Iterator[Path]:
    """Yield files, those of the top folder first; hidden ones, environments, stores and build results are skipped."""
    try:
        items = sorted(os.scandir(folder), key=lambda item: (item.is_dir(), item.name))
    except OSError:
        return
    names = {item.name for item in items}
    if depth and names & {"pyvenv.cfg", "store.duckdb"}:
        return
    for item in items:
        if item.name.startswith((".", "~$")) or (item.is_dir() and item.name in _PASSED_OVER):
            continue
        if item.is_dir():
            yield from _files(Path(item.path), depth + 1)
        else:
            yield Path(item.path)


def _fields(path: Path) -> Fields:
    return question_fields(open_source(path, "test").first(), {}, str(path))


def _choose_questions(seen: Found, folder: Path, files: list[Path]) -> None:
    """Choose the file with questions; one that may hold questions and cannot be read is noted.

    Raises:
        UserError: The only file with questions has two fields that could hold the answers.
    """
    known: dict[Path, Fields] = {}
    unclear: UserError | None = None
    for path in files:
        name = path.name.lower()
        if not name.endswith(_QUESTIONS) or name.endswith(".states.jsonl") or len(path.relative_to(folder).parts) > 2:
            continue
        try:
            fields = _fields(path)
        except UserError as error:
            if error.code == "two-answer-fields":
                unclear = unclear or error
            elif error.code != "unknown-fields":
                seen.notes.append(f"{path.relative_to(folder).as_posix()} is not read as questions: {error.what}")
            continue
        if fields.paths["question"][0].casefold() not in _VAGUE or {"answers", "evidence", "quotes"} & set(fields.paths):
            known[path] = fields
    if unclear is not None and not known:
        raise unclear
    if known:

        def order(path: Path) -> tuple[bool, bool, int, Path]:
            """Put likely names first, and files of the folder itself before those of its folders."""
            return not any(word in path.name.lower() for word in _LIKELY), path.stem.endswith("-dev"), len(path.parts), path

        chosen = min(known, key=order)
        seen.questions, seen.fields = chosen, known[chosen]
        if others := [path.relative_to(folder).as_posix() for path in known if path != chosen]:
            read = chosen.relative_to(folder).as_posix()
            seen.notes.append(f"questions are read from {read}; --questions FILE names another: {', '.join(others)}")


def _choose_documents(seen: Found, folder: Path, files: list[Path]) -> None:
    groups: dict[Path, list[Path]] = {}
    for path in files:
        if path.suffix.lower() in DOCUMENTS and path != seen.questions:
            parts = path.relative_to(folder).parts
            if len(parts) == 1 and path.name.lower().startswith(_PROJECT):
                continue
            groups.setdefault(folder / parts[0] if len(parts) > 1 else folder, []).append(path)
    if groups:
        chosen = max(groups, key=lambda group: (len(groups[group]), str(group)))
        seen.documents = chosen
        within = [path for path in files if path.suffix.lower() in DOCUMENTS and path.is_relative_to(chosen)]
        seen.kinds = Counter(path.suffix.lower() for path in within)
        if others := [f"{group.relative_to(folder)}/" for group in groups if group not in (chosen, folder) and chosen != folder]:
            seen.notes.append(f"documents are also in {', '.join(others)}: documents: . reads all of them")
        return
    for path in files:
        if path.name.lower().endswith(_QUESTIONS) and path != seen.questions:
            try:
                fields = document_fields(open_source(path, "train").first(), {}, str(path))
            except UserError:
                continue
            if {"id", "title"} & set(fields.paths):
                seen.documents = path
                return
