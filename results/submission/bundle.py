"""A submission in one file: a zip of `card.yaml`, `predictions.jsonl` and, from `ragmeter submit bundle`, `manifest.json`.

A bundle is never unpacked to disk. Before a member is read, its archive must be small, hold just these names, once
each, as ordinary deflated or stored files, and unpack to no more than the limits allow; while it is read, its bytes
are counted and hashed against the manifest.
"""

from __future__ import annotations

import hashlib
import importlib.resources
import json
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from benchmarks.core.errors import UserError, described
from benchmarks.core.models import FrozenModel
from benchmarks.settings import Setting
from methods.api import Prediction
from results.offered import LIMITS, MIB, Limits
from results.submission import shown
from results.submission.card import Card, card_yaml, parse_card
from results.submission.rows import PROMPT
from results.submission.validate import Target

CARD, PREDICTIONS, QUESTIONS = "card.yaml", "predictions.jsonl", "questions.jsonl"
PASSAGES, CANDIDATES = "passages.jsonl", "candidates.jsonl"


def write_template(
    folder: Path,
    target: Target,
    setting: Setting,
    *,
    seed: int = 0,
    limit: int | None = None,
    config: dict[str, Any] | None = None,
    passages: bool = False,
) -> list[Path]:
    """Write the files that a submitter fills in: a card, the questions without gold, and an empty predictions file.

    Args:
        folder: Destination; created if needed. Existing files are not overwritten.
        target: The benchmark in its retrieval setting.
        setting: The retrieval setting.
        seed: Random seed of the setting.
        limit: Number of questions; None for all.
        config: Options of the dataset that differ from the defaults.
        passages: Whether to write the corpus and each question's candidates, too.

    Returns:
        The written files.

    Raises:
        UserError: A file exists already, or the folder cannot be written.
    """
    files = template_files(target, setting, seed=seed, limit=limit, config=config, passages=passages)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in files:
            if (folder / name).exists():
                raise UserError(
                    "output file already exists", code="output-exists", where=str(folder / name), try_this="choose another --output"
                )
        for name, content in files.items():
            with open(folder / name, "x", encoding="utf-8") as sink:
                sink.writelines(content())
    except OSError as error:
        raise UserError(f"the folder cannot be written: {error.strerror}", code="unwritable-folder", where=str(folder)) from error
    return [folder / name for name in files]


def template_files(
    target: Target,
    setting: Setting,
    *,
    seed: int = 0,
    limit: int | None = None,
    config: dict[str, Any] | None = None,
    passages: bool = False,
) -> dict[str, Callable[[], Iterable[str]]]:
    """Generate the files of a submission template: functions that yield the lines, by file name; arguments as in `write_template`."""
    data: dict[str, Any] = {"benchmark": str(target.loaded.reference), "setting": str(setting), "seed": seed}
    data |= {"limit": limit} if limit is not None else {}
    data |= {"config": config} if config else {}
    data["dataset_fingerprint"] = target.fingerprint
    questions = target.in_setting.questions
    queries = [question.query() for question in questions]
    template = importlib.resources.files("results.submission").joinpath("card_template.yaml").read_text("utf-8")
    card = template.format(data=yaml.safe_dump(data, sort_keys=False), name=target.loaded.reference.name)
    files: dict[str, Callable[[], Iterable[str]]] = {
        CARD: lambda: [card],
        PREDICTIONS: list,
        QUESTIONS: lambda: (_line({"id": query.id, "text": query.text}) for query in queries),
    }
    if passages:
        corpus = target.loaded.corpus
        files[PASSAGES] = lambda: (
            _line({"id": item.id, "title": item.title, "text": item.text, "sentences": list(item.sentences)}) for item in corpus
        )
        files[CANDIDATES] = lambda: (
            _line(
                {
                    "id": query.id,
                    "candidates": None if query.candidates is None else list(query.candidates),
                    "document_id": query.document_id,
                    "topic_entities": list(query.topic_entities),
                }
            )
            for query in queries
        )
    return files


def _line(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False) + "\n"


MANIFEST = "manifest.json"
MEMBERS = (MANIFEST, CARD, PREDICTIONS)
_OPTIONAL = (MANIFEST, QUESTIONS)
"""Files that are optional in a manually packed template."""
SUFFIX = ".zip"
_FIXED_DATE = (1980, 1, 1, 0, 0, 0)
_SMALL = MIB
"""Maximum unpacked bytes of a member without a limit on the compression ratio."""
_END = struct.Struct("<4s4H2LH")
_MANIFEST_BYTES = 1024 * 1024


class Member(FrozenModel):
    """Entry of a bundle's manifest for one file: size and hash."""

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    bytes: int = Field(ge=0)


class Manifest(BaseModel):
    """Manifest of a submission bundle; its `metrics` are only compared with recomputed scores, never imported."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    format: int = Field(default=1, ge=1, le=1)
    run: str = Field(max_length=64)
    origin: str = Field(max_length=32)
    dataset: str = Field(max_length=200)
    dataset_fingerprint: str = Field(pattern=r"^[0-9a-f]{16}$")
    setting: str = Field(max_length=200)
    seed: int
    questions: int = Field(ge=0)
    files: dict[str, Member] = Field(max_length=4)
    versions: dict[str, str] = Field(default_factory=dict, max_length=100)
    metrics: dict[str, float | None] = Field(default_factory=dict, max_length=1000)


@dataclass(frozen=True)
class Bundle:
    """Submission bundle (zip) whose files have passed all checks; `manifest` is None if it was packed by hand."""

    name: str
    card: Card
    manifest: Manifest | None
    archive: zipfile.ZipFile

    @contextmanager
    def predictions(self) -> Iterator[BinaryIO]:
        """Open the bundle's predictions file as a binary stream."""
        with self.archive.open(PREDICTIONS) as source:
            yield cast(BinaryIO, source)

    def differences(self, means: Mapping[str, float | None]) -> list[str]:
        """List metrics whose recomputed mean differs from the one that the bundle states."""
        results = []
        for metric, recorded in self.manifest.metrics.items() if self.manifest else ():
            ours = means.get(metric)
            if metric in means and (recorded is None) != (ours is None):
                results.append(f"{metric}: scored here {ours}, the bundle states {recorded}")
            elif recorded is not None and ours is not None and abs(recorded - ours) > 1e-9:
                results.append(f"{metric}: scored here {ours:.6f}, the bundle states {recorded:.6f}")
        return results


def write_bundle(
    path: Path,
    card: Card,
    predictions: Iterable[Prediction],
    *,
    run: str,
    origin: str,
    dataset: str,
    dataset_fingerprint: str,
    versions: Mapping[str, str],
    metrics: Mapping[str, float | None],
) -> Manifest:
    """Write a submission bundle atomically. Equal content gives identical bytes.

    Raises:
        UserError: The file exists already, or cannot be written.
    """
    if path.suffix != SUFFIX:
        raise UserError("bundle names must end with .zip", code="bad-bundle-name", where=str(path), try_this=f"{path.name}{SUFFIX}")
    if path.exists():
        raise UserError("output file already exists", code="output-exists", where=str(path), try_this="choose another name")
    card_bytes = card_yaml(card).encode()
    rows = [_row(prediction) for prediction in predictions]
    body = b"".join(rows)
    files = {
        name: Member(sha256=hashlib.sha256(data).hexdigest(), bytes=len(data)) for name, data in ((CARD, card_bytes), (PREDICTIONS, body))
    }
    manifest = Manifest(
        run=run,
        origin=origin,
        dataset=dataset,
        dataset_fingerprint=dataset_fingerprint,
        setting=str(card.setting),
        seed=card.seed,
        questions=len(rows),
        files=files,
        versions=dict(versions),
        metrics=dict(metrics),
    )
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
            text = json.dumps(manifest.model_dump(mode="json"), indent=2, ensure_ascii=False, allow_nan=False)
            for name, data in ((MANIFEST, text.encode()), (CARD, card_bytes), (PREDICTIONS, body)):
                member = zipfile.ZipInfo(name, _FIXED_DATE)
                member.compress_type = zipfile.ZIP_DEFLATED
                member.external_attr = (stat.S_IFREG | 0o644) << 16
                archive.writestr(member, data)
        os.replace(partial, path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise UserError(f"the bundle cannot be written: {error.strerror}", code="unwritable-bundle", where=str(path)) from error
    return manifest


def _row(prediction: Prediction) -> bytes:
    row = prediction.to_json()
    notes = dict(prediction.notes)
    if PROMPT in notes:
        row["prompt"] = notes.pop(PROMPT)
    return (json.dumps(row | {"notes": notes}, ensure_ascii=False, allow_nan=False) + "\n").encode()


@contextmanager
def open_bundle(path: Path, limits: Limits = LIMITS) -> Iterator[Bundle]:
    """Open a submission bundle, with all checks that do not need its predictions parsed.

    Raises:
        UserError: The file is not a bundle, is too large, or differs from its manifest.
    """
    where = str(path)
    with ExitStack() as stack:
        # Only what reading the archive itself raises is explained here, not what its user does with it.
        with _explained(where):
            source = stack.enter_context(open(path, "rb"))
            _check_archive(source, where, limits)
            archive = stack.enter_context(zipfile.ZipFile(source))
            _check_members(archive, where, limits)
            manifest = None
            if MANIFEST in archive.namelist():
                manifest = _manifest(_bounded(archive, MANIFEST, _MANIFEST_BYTES, where), where)
                _check_hashes(archive, manifest, where, limits)
            raw = _bounded(archive, CARD, limits.card_bytes, where)
        card = parse_card(raw, f"{path}/{CARD}")
        if manifest is not None and (str(card.setting), card.seed) != (manifest.setting, manifest.seed):
            raise _broken("the card and the manifest differ in setting or seed", f"{where}/{MANIFEST}")
        yield Bundle(where, card, manifest, archive)


@contextmanager
def _explained(where: str) -> Iterator[None]:
    try:
        yield
    except zipfile.BadZipFile as error:
        raise _broken(f"this is not a zip archive that can be read: {error}", where) from None
    except (zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise _broken(f"the archive is damaged: {error}", where) from None
    except OSError as error:
        raise UserError(f"this file cannot be read: {error.strerror or error}", code="unreadable-file", where=where) from error


def _broken(what: str, where: str) -> UserError:
    return UserError(
        what,
        code="bad-bundle",
        where=where,
        try_this=f"put {CARD} and {PREDICTIONS} into a zip, or use `ragmeter submit bundle RUN -o FILE.zip`",
    )


def _check_archive(source: IO[bytes], where: str, limits: Limits) -> None:
    """Check the archive's end record before its directory is read, which may be huge."""
    size = os.fstat(source.fileno()).st_size
    if size > limits.bundle_bytes:
        raise _broken(f"the bundle is larger than {limits.bundle_bytes // MIB} MiB", where)
    if size < _END.size:
        raise _broken("this is not a zip archive", where)
    tail = min(size, _END.size + 20)
    source.seek(size - tail)
    end = source.read(tail)
    source.seek(0)
    signature, _, _, _, entries, directory, _, comment = _END.unpack(end[-_END.size :])
    if signature != b"PK\5\6" or comment:
        raise _broken("this is not a plain zip archive (it is cut off, or carries a comment)", where)
    if end[: -_END.size][-20:].startswith(b"PK\6\7"):
        raise _broken("this is a ZIP64 archive, larger than a bundle can be", where)
    if entries > 2 * len(MEMBERS) or directory > 16 * 1024:
        raise _broken(f"a bundle holds {', '.join(MEMBERS)} and nothing else; this one has {entries} files", where)


def _check_members(archive: zipfile.ZipFile, where: str, limits: Limits) -> None:
    names = [member.filename for member in archive.infolist()]
    for member in archive.infolist():
        name = shown(member.filename)
        if member.filename not in (*MEMBERS, *_OPTIONAL):
            raise _broken(f"a bundle holds {', '.join(MEMBERS)} and nothing else, not {name}", where)
        if names.count(member.filename) > 1:
            raise _broken(f"{name} is in the archive twice", where)
        kind = stat.S_IFMT(member.external_attr >> 16)
        if kind not in (0, stat.S_IFREG):
            raise _broken(f"{name} is not an ordinary file but a link or a device", where)
        if member.flag_bits & 0x1:
            raise _broken(f"{name} is encrypted", where)
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise _broken(f"{name} is not compressed with deflate", where)
        if member.file_size > limits.file_bytes:
            raise _broken(f"{name} unpacks to more than {limits.file_bytes // MIB} MiB", where)
        if member.file_size > max(_SMALL, limits.bundle_ratio * member.compress_size):
            raise _broken(f"{name} unpacks to over {limits.bundle_ratio} times its size: a zip bomb", where)
    missing = [name for name in MEMBERS if name not in (*names, *_OPTIONAL)]
    if missing:
        raise _broken(f"the bundle lacks {', '.join(missing)}", where)


def _bounded(archive: zipfile.ZipFile, name: str, limit: int, where: str) -> bytes:
    with archive.open(name) as source:
        raw = source.read(limit + 1)
    if len(raw) > limit:
        raise _broken(f"{name} is longer than {limit // 1024} KiB", where)
    return raw


def _manifest(raw: bytes, where: str) -> Manifest:
    try:
        return Manifest.model_validate_json(raw)
    except ValidationError as error:
        path, what = described(error)
        raise _broken(f"{path or 'the document'}: {what}", f"{where}/{MANIFEST}") from None


def _check_hashes(archive: zipfile.ZipFile, manifest: Manifest, where: str, limits: Limits) -> None:
    for name in (CARD, PREDICTIONS):
        recorded: Any = manifest.files.get(name)
        if recorded is None:
            raise _broken(f"the manifest does not list {name}", f"{where}/{MANIFEST}")
        digest, size = hashlib.sha256(), 0
        with archive.open(name) as source:
            while chunk := source.read(limits.chunk_bytes):
                digest.update(chunk)
                size += len(chunk)
                # The sizes in the archive's directory are untrusted input too.
                if size > min(limits.file_bytes, recorded.bytes):
                    raise _broken(f"{name} is longer than its manifest says", f"{where}/{name}")
        if digest.hexdigest() != recorded.sha256:
            raise _broken(f"{name} was changed: its SHA-256 is not the manifest's", f"{where}/{name}")
