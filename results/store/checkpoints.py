"""Trained checkpoints: the card of a model folder, its verification, and the runs that were made with it.

A checkpoint folder carries `ragmeter.json`: which method and stage trained it, from which parents, on which data, and
the hash of everything else in the folder. A run records the same hash among the weights of its parts, or in its provenance if a
part of a part has it; this links runs and checkpoints. `results.store.checkpoints` gives names to checkpoints
and runs.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.core.errors import UserError, nearest, unknown_name
from benchmarks.core.fingerprint import CHECKPOINT_CARD as CARD
from benchmarks.core.fingerprint import READ_QUESTIONS, folder_sha256
from benchmarks.registry import DataReference
from benchmarks.styles import STYLED
from results.store import queries
from results.store.database import now
from results.store.queries import RunRow
from results.store.read_questions import Fold, Record, Touched, is_contaminated, put_record, records
from results.store.store import FINISHED, Store
from results.store.variants import covers_run

PREFIX = 4
"""Minimum hex digits of an abbreviated hash."""

_SHA256 = re.compile(r"[0-9a-f]{64}")
_KEYS = ("method", "version", "stage", "config", "parents", "data", "sha256")


@dataclass(frozen=True)
class Checkpoint:
    """Trained model in a folder, with the record of how it was trained (`ragmeter.json`).

    Attributes:
        method: Id of the method that uses it.
        version: Version of the method's code when it was trained.
        stage: The training stage that produced it.
        config: Options of the training.
        parents: Hashes of the checkpoints that training started from or used.
        data: Fingerprints of the training data.
        sha256: Hash of the folder's files (`benchmarks.core.fingerprint.folder_sha256`).
        path: The folder.
        added_at: When it was registered (UTC); None before.
        read: Hashes of the questions in its training data; None if unknown.
    """

    method: str
    version: int
    stage: str
    config: Mapping[str, Any]
    parents: tuple[str, ...]
    data: tuple[str, ...]
    sha256: str
    path: Path
    added_at: datetime | None = None
    read: Record | None = field(default=None, compare=False, repr=False)

    @property
    def name(self) -> str:
        """Return the name of the folder."""
        return self.path.name

    def to_json(self) -> dict[str, Any]:
        """Return the card as a JSON object."""
        own = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "read"}
        return own | {"name": self.name, "path": str(self.path), "added_at": self.added_at.isoformat() if self.added_at else None}


def describe(
    folder: Path | str,
    *,
    method: str,
    stage: str,
    version: int = 1,
    config: Mapping[str, Any] | None = None,
    parents: Iterable[Checkpoint | str] = (),
    data: Iterable[str] = (),
) -> Checkpoint:
    """Write `ragmeter.json` into a finished model folder, as the last step of a training.

    Args:
        folder: The folder with all files of the model.
        method, stage, version, config, data: As in `Checkpoint`; `config` must be JSON.
        parents: Checkpoints, or their full hashes.

    Raises:
        UserError: The folder is missing or empty, or the description is not JSON.
    """
    folder = Path(folder).absolute()
    hashes = [parent.sha256 if isinstance(parent, Checkpoint) else parent for parent in parents]
    card = {
        "method": method,
        "version": version,
        "stage": stage,
        "config": dict(config or {}),
        "parents": hashes,
        "data": list(data),
        "sha256": folder_sha256(folder),
    }
    target = folder / CARD
    try:
        text = json.dumps(card, ensure_ascii=False, indent=2, allow_nan=False) + "\n"
    except (TypeError, ValueError) as error:
        raise UserError(f"the description is not JSON: {error}", code="description-not-json", where=f"{target} (config)") from None
    result = _parsed(json.loads(text), target)
    # A concurrent reader sees the old card or the new one, never a part of it.
    draft = folder.with_name(f".{folder.name}.{os.getpid()}.{CARD}")
    draft.write_text(text, "utf-8")
    draft.replace(target)
    return result


def read(folder: Path | str) -> Checkpoint:
    """Read the card of a checkpoint folder without verifying the files (`verify` does).

    Raises:
        UserError: The folder has no readable card.
    """
    path = Path(folder).absolute() / CARD
    try:
        card = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise UserError(
            f"this folder holds no {CARD}, so it is not a checkpoint",
            code="folder-not-checkpoint",
            where=str(path.parent),
            try_this="name the folder that training wrote; results.store.checkpoints.describe writes a card for others",
        ) from None
    except (OSError, ValueError) as error:
        raise UserError(f"this checkpoint card cannot be read: {error}", code="unreadable-checkpoint-card", where=str(path)) from None
    return _parsed(card, path)


def verify(folder: Path | str) -> Checkpoint:
    """Read a checkpoint folder's card, and verify that the folder contains exactly the described files.

    Raises:
        UserError: The card is missing or damaged, or files were changed, added or removed.
    """
    result = read(folder)
    actual = folder_sha256(result.path)
    if actual != result.sha256:
        written = (result.path / CARD).stat().st_mtime_ns
        later = sorted(
            path.relative_to(result.path).as_posix()
            for path in result.path.rglob("*")
            if path.is_file() and path.name not in (CARD, READ_QUESTIONS) and path.stat().st_mtime_ns > written
        )
        hint = f"; written after the card: {', '.join(later[:5])}" if later else ""
        raise UserError(
            f"the files are not those that {CARD} describes: sha256 {actual[:12]}…, described {result.sha256[:12]}…" + hint,
            code="files-differ-from-card",
            where=str(result.path),
            try_this="copy the folder again from where it was trained, or train it again",
        )
    return result


def _parsed(card: Any, path: Path) -> Checkpoint:
    """Validate a card's content as a checkpoint."""
    if not isinstance(card, dict):
        raise UserError("this checkpoint card is not a JSON object", code="checkpoint-card-not-object", where=str(path))
    for key in _KEYS:
        if key not in card:
            raise UserError(f"this checkpoint card lacks {key!r}", code="checkpoint-card-lacks", where=str(path))
    for key in card:
        if key not in _KEYS:
            raise unknown_name("key of a checkpoint card", key, _KEYS, where=str(path))
    version = card["version"]
    shapes = {
        "method": isinstance(card["method"], str) and bool(card["method"]),
        "version": isinstance(version, int) and not isinstance(version, bool) and 1 <= version < 2**31,
        "stage": isinstance(card["stage"], str) and bool(card["stage"]),
        "config": isinstance(card["config"], dict),
        "parents": _texts(card["parents"]) and all(_SHA256.fullmatch(parent) for parent in card["parents"]),
        "data": _texts(card["data"]),
        "sha256": isinstance(card["sha256"], str) and bool(_SHA256.fullmatch(card["sha256"])),
    }
    for key, good in shapes.items():
        if not good:
            raise UserError(
                f"invalid {key} in the checkpoint card: {json.dumps(card[key], ensure_ascii=False)[:80]}",
                code="bad-checkpoint-card",
                where=str(path),
                try_this="method and stage: texts; version: a number from 1; config: an object; data: fingerprints; "
                "parents and sha256: hashes of 64 hex digits",
            )
    return Checkpoint(
        card["method"], version, card["stage"], card["config"], tuple(card["parents"]), tuple(card["data"]), card["sha256"], path.parent
    )


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) and item for item in value)


def register(store: Store, folder: Path | str) -> Checkpoint:
    """Verify a checkpoint folder and register it in the store; registering it at another path updates the path.

    Raises:
        UserError: As for `verify`.
    """
    result = replace(verify(folder), added_at=now())
    with store.database.writing() as connection:
        connection.execute("DELETE FROM checkpoints WHERE sha256 = ?", [result.sha256])
        connection.execute(
            "INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                result.sha256,
                result.method,
                result.version,
                result.stage,
                json.dumps(dict(result.config)),
                list(result.parents),
                list(result.data),
                str(result.path),
                result.added_at,
            ],
        )
        put_record(connection, result.sha256, result.path)
    return result


def register_recorded(store: Store, folders: Mapping[str, Path]) -> None:
    """Register checkpoints that a run uses, if their folders record the training questions; an unreadable record counts as unknown.

    Args:
        store: The store to write to.
        folders: Checkpoint folders by their hash.
    """
    recorded = [sha256 for sha256, folder in folders.items() if (folder / READ_QUESTIONS).is_file()]
    known = known_checkpoints(store) if recorded else {}
    for sha256 in recorded:
        if sha256 not in known or known[sha256].read is None:
            with suppress(UserError):
                register(store, folders[sha256])


def checkpoints(store: Store) -> list[Checkpoint]:
    """List registered checkpoints, newest first; empty if there is no store yet."""
    rows = store.database.rows(
        """SELECT method, version, stage, config, parents, data, sha256, path, added_at FROM checkpoints
               ORDER BY added_at DESC, sha256""",
        lenient=True,
    )
    return [
        Checkpoint(m, v, stage, json.loads(config), tuple(parents), tuple(data), sha, Path(path), added)
        for m, v, stage, config, parents, data, sha, path, added in rows
    ]


def matching(store: Store, text: str) -> list[Checkpoint]:
    """Find registered checkpoints by the beginning of the hash, else by folder, else by the folder's name.

    Raises:
        UserError: The text is a checkpoint folder that was changed, or that is not registered.
    """
    known = checkpoints(store)
    results = [c for c in known if len(text) >= PREFIX and c.sha256.startswith(text.lower())]
    if not results and (Path(text) / CARD).is_file():
        # A folder refers to its present content, even if it was registered elsewhere.
        sha256 = verify(text).sha256
        results = [c for c in known if c.sha256 == sha256]
        if not results:
            raise UserError(
                "this checkpoint is not registered",
                code="unregistered-checkpoint",
                where=text,
                try_this=f"ragmeter train checkpoints add {text}",
            )
    return results or [c for c in known if c.name == text]


def runs_with(store: Store, checkpoint: Checkpoint) -> list[RunRow]:
    """List runs that use a checkpoint's weights in one of their parts, newest first."""
    made = {run.run: run for run in queries.runs(store) if made_with(run, checkpoint.sha256)}
    return sorted(made.values(), key=lambda run: run.started_at, reverse=True)


def made_with(run: RunRow, sha256: str) -> bool:
    """Return whether a run uses a checkpoint, directly or through a part that was trained from it."""
    return sha256 in run.provenance.get("checkpoints", ()) or uses(run.description, sha256)


def uses(description: Any, sha256: str) -> bool:
    """Return whether a run's description contains a checkpoint's hash among the weights of its parts."""
    if isinstance(description, Mapping):
        weights = description.get("weights")
        if isinstance(weights, str) and sha256 in weights:
            return True
        return any(uses(part, sha256) for part in description.values())
    if isinstance(description, list | tuple):
        return any(uses(part, sha256) for part in description)
    return False


# Tags, and the resolution of RUN and CHECKPOINT arguments. A tag points to a run or to a checkpoint: `main`, the
# baseline that candidates are compared with. It can be moved, and it takes precedence over all other matches of the
# same text.


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")


@dataclass(frozen=True, slots=True)
class Tag:
    """User-defined name for a run or a checkpoint; exactly one of `run` and `checkpoint` is set."""

    name: str
    run: str | None
    checkpoint: str | None
    note: str | None
    tagged_at: datetime


def tag_run(store: Store, name: str, target: RunRow | Checkpoint, note: str | None = None) -> Tag | None:
    """Give a run or a checkpoint a name; an existing name is moved to the new target.

    Returns:
        The tag with its previous target; None if the name is new.

    Raises:
        UserError: The name is not a valid tag, or the run is unfinished or a control.
    """
    if not _NAME.fullmatch(name):
        raise UserError(
            f"{name!r} cannot be a tag",
            code="bad-tag",
            try_this="up to 100 letters, digits and . _ + -, beginning with a letter or digit: main, ark-best",
        )
    if isinstance(target, RunRow):
        if target.kind == "control":
            raise UserError(f"{target.method} is a control, which cannot be a baseline", code="control-as-baseline", where=target.path)
        if target.status != FINISHED:
            raise UserError(
                f"this run is {target.status}, not finished", code="run-not-finished", where=target.path, try_this="ragmeter run --resume"
            )
    before = tag_named(store, name)
    run, checkpoint = (target.run, None) if isinstance(target, RunRow) else (None, target.sha256)
    with store.database.writing() as connection:
        connection.execute("DELETE FROM tags WHERE name = ?", [name])
        connection.execute("INSERT INTO tags VALUES (?, ?, ?, ?, ?)", [name, run, checkpoint, note, now()])
    return before


def untag(store: Store, name: str) -> Tag:
    """Remove a tag and return it; its target stays in the store.

    Raises:
        UserError: No tag has this name.
    """
    before = tag_named(store, name)
    if before is None:
        raise unknown_name("tag", name, [item.name for item in tags(store)])
    with store.database.writing() as connection:
        connection.execute("DELETE FROM tags WHERE name = ?", [name])
    return before


def tags(store: Store) -> list[Tag]:
    """List all tags by name; empty if there is no store yet."""
    rows = store.database.rows("SELECT name, run, checkpoint, note, tagged_at FROM tags ORDER BY name", lenient=True)
    return [Tag(*row) for row in rows]


def tag_named(store: Store, name: str) -> Tag | None:
    """Find a tag by its name; None if there is none."""
    return next((item for item in tags(store) if item.name == name), None)


def resolve(store: Store, text: str) -> RunRow | Checkpoint:
    """Find the run or checkpoint that a command-line argument names; tags take precedence.

    A run can be named by the beginning of its fingerprint or by its path; a checkpoint by the beginning of its hash, its folder
    or the folder's name.

    Raises:
        UserError: The argument matches nothing or several things, or a tag points to something that was deleted.
    """
    name = tag_named(store, text)
    if name is not None:
        return _tagged(store, name)
    results = matching(store, text)
    try:
        run = queries.find_run(store, text)
    except UserError as error:
        if not error.what.startswith("unknown "):
            raise
        if not results:
            named = [*(item.name for item in tags(store)), *(checkpoint.name for checkpoint in checkpoints(store))]
            noun, every = "run, checkpoint or tag", queries.runs(store)
            raise queries.unknown_run(store, noun, text, _names(store, text), every, named) from None
        if len(results) > 1:
            raise _ambiguous(text, [], results) from None
        return results[0]
    if results:
        raise _ambiguous(text, [run], results)
    return run


def find_checkpoint(store: Store, text: str) -> Checkpoint:
    """Find a checkpoint by a tag, the beginning of its hash, a folder or the folder's name.

    Raises:
        UserError: The argument matches no checkpoint or several, or the tag names a run.
    """
    name = tag_named(store, text)
    if name is not None:
        target = _tagged(store, name)
        if isinstance(target, Checkpoint):
            return target
        raise UserError(f"{text!r} is the tag of a run, not of a checkpoint", code="tag-of-run", try_this=f"ragmeter results show {text}")
    results = matching(store, text)
    if len(results) == 1:
        return results[0]
    if results:
        raise _ambiguous(text, [], results)
    raise unknown_name("checkpoint", text, [name for checkpoint in checkpoints(store) for name in (checkpoint.name, checkpoint.sha256)])


def find_run(store: Store, text: str) -> RunRow:
    """Find the run that a command-line argument names; for a checkpoint, the newest finished run that uses it.

    Raises:
        UserError: As for `resolve` and `run_of`.
    """
    return run_of(store, resolve(store, text))


def run_of(store: Store, target: RunRow | Checkpoint, like: RunRow | None = None) -> RunRow:
    """Return the target itself if it is a run; for a checkpoint, the newest finished run that uses it.

    Args:
        store: The store to read.
        target: A run or checkpoint, as returned by `resolve`.
        like: A run to compare with; only runs with the same dataset, setting and seed are considered.

    Raises:
        UserError: There is no such run, or, without `like`, there are runs on several benchmarks.
    """
    if isinstance(target, RunRow):
        return target
    made = [run for run in runs_with(store, target) if run.status == FINISHED and run.kind != "control"]
    if like is not None:
        fits = [run for run in made if _benchmark(run) == _benchmark(like)]
        if not fits:
            elsewhere = ", ".join(sorted({f"{run.dataset} in {run.setting}, seed {run.seed}" for run in made}))
            raise UserError(
                f"no finished run was made with checkpoint {target.name} ({target.sha256[:12]}) on {like.dataset} in "
                f"{like.setting} with seed {like.seed}",
                code="no-run-of-checkpoint",
                where=f"finished elsewhere: {elsewhere}" if elsewhere else None,
                try_this=f"ragmeter run an experiment whose method loads {target.path}, on the same benchmark and limit",
            )
        made = fits
    if not made:
        raise UserError(
            f"no finished run was made with checkpoint {target.name} ({target.sha256[:12]})",
            code="no-run-of-checkpoint",
            try_this=f"ragmeter run an experiment whose method loads {target.path}",
        )
    if len({_benchmark(run) for run in made}) > 1:
        listed = ", ".join(f"{run.short} ({run.path})" for run in made[:5])
        raise UserError(
            f"checkpoint {target.name} has runs on several benchmarks",
            code="checkpoint-on-several-benchmarks",
            try_this=f"name one: {listed}",
        )
    return made[0]


def _tagged(store: Store, name: Tag) -> RunRow | Checkpoint:
    if name.checkpoint is not None:
        results = [checkpoint for checkpoint in checkpoints(store) if checkpoint.sha256 == name.checkpoint]
        if results:
            return results[0]
    else:
        row = next((run for run in queries.runs(store, hidden=True) if run.run == name.run), None)
        if row is not None:
            return row
    gone = f"checkpoint {name.checkpoint}" if name.checkpoint else f"run {name.run}"
    raise UserError(
        f"{name.name!r} is the tag of {gone}, which the store does not hold any more",
        code="dangling-tag",
        try_this=f"ragmeter results tag {name.name} RUN, or ragmeter results tag {name.name} --remove",
    )


def _benchmark(run: RunRow) -> tuple[str, str, int]:
    return run.dataset_fingerprint, run.setting, run.seed


def _names(store: Store, text: str) -> list[str]:
    """Suggest similar hashes if the text resembles one, else names of checkpoints."""
    runs, trained = queries.runs(store), checkpoints(store)
    hashes = [*(run.run for run in runs), *(item.sha256 for item in trained)]
    if re.fullmatch("[0-9a-f]{4,}", text) and nearest(text, hashes):
        return hashes
    return [*(item.name for item in tags(store)), *(run.path for run in runs), *(item.name for item in trained)]


def _ambiguous(text: str, runs: Sequence[RunRow], results: Sequence[Checkpoint]) -> UserError:
    listed = [f"run {run.run[:12]} ({run.path})" for run in runs]
    listed += [f"checkpoint {item.sha256[:12]} ({item.path})" for item in results[:5]]
    return UserError(f"{text!r} means {len(runs) + len(results)} things", code="ambiguous-name", try_this=f"name one: {', '.join(listed)}")


# A checkpoint's options name its data as `ragmeter train` was given them: under `data` or `graph`, one list, or one list
# a stage. Its base was trained on other data, so parents count too. Validation data, by which a training
# is only watched, do not.


Cards = Mapping[str, Mapping[str, Any]]
"""Cards of methods and their parts, by id."""
Checkpoints = Mapping[str, Checkpoint]
"""Registered checkpoints by hash."""
_NAMED = ("data", "graph")
"""Options of trainings that name the training data; the loaders' options are in `data_options` and so on."""
_LIST_OF_STAGE = {"supervised": "joint"}
"""Stages that use the data list of another stage; all others use the list of their own name."""


def known_checkpoints(store: Store) -> dict[str, Checkpoint]:
    """Return all registered checkpoints by their hash."""
    registered = records(store)
    return {checkpoint.sha256: replace(checkpoint, read=registered.get(checkpoint.sha256)) for checkpoint in checkpoints(store)}


def parts(description: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the descriptions of a run's method and of all of its parts (retriever, rerankers, …), each with its `id`."""
    for value in (
        description.get("method"),
        *(description.get("rerankers") or ()),
        description.get("compressor"),
        description.get("reader"),
    ):
        if isinstance(value, Mapping) and isinstance(value.get("id"), str):
            yield value


def trained_on(run: RunRow, cards: Cards, known: Checkpoints) -> dict[str, str]:
    """Map each data reference that a run's parts were trained on to the checkpoint that states it ("" for a method's card).

    Args:
        run: The run.
        cards: Cards of methods and their parts, by id.
        known: Registered checkpoints by their hash.
    """
    listed = (cards.get(part["id"], {}).get("training_data") or () for part in parts(run.description))
    results = {str(item): "" for each in listed for item in each}
    for checkpoint in _lineage(run, known):
        for reference in references_of(checkpoint):
            results.setdefault(reference, _called(checkpoint))
    return results


def contaminating(run: RunRow, cards: Cards, known: Checkpoints) -> list[str]:
    """List training data of a run that cover its test questions, one sentence each; compares references and fingerprints.

    If the training questions are recorded one by one, the record decides, because different parts of a split share one
    reference.
    """
    in_record = {
        reference for item in _lineage(run, known) if item.read is not None for reference in references_of(item) if _is_part(reference)
    }
    results = [
        f"{reference} was trained on" + (f" by {who}" if who else "")
        for reference, who in trained_on(run, cards, known).items()
        if reference not in in_record and covers_run(reference, run.styled.same_questions, run.styled.base != run.dataset)
    ]
    if results:
        return results
    # Equal content under another name.
    if results := [
        f"the same data were used to train {_called(item)}" for item in _lineage(run, known) if run.dataset_fingerprint in item.data
    ]:
        return results
    touched = touched_by(run, known)
    return [touched.in_words(run.questions)] if is_contaminated(touched.questions, run.questions) else []


def touched_by(run: RunRow, known: Checkpoints) -> Touched:
    """Return the test questions that occur in the training data of a run's checkpoints or of those that they were trained from."""
    result = Touched()
    folds = _folds(run)
    others = [sha256 for sha256 in _named_hashes(run, known) if sha256 not in folds]
    groups = [(None, others), *((fold, [sha256]) for sha256, fold in folds.items())]
    for fold, hashes in groups:
        for item in _ancestors(hashes, known):
            if item.read is not None:
                result |= item.read.touched(run.dataset_fingerprint, _called(item), fold)
    return result


_BY_FOLD = ("ark_folds",)
"""Methods that assign the questions of fold K to the K-th of their N checkpoints (`benchmarks.datasets.fold_of`)."""


def _folds(run: RunRow) -> dict[str, Fold]:
    """Return the fold of each checkpoint's questions, by hash; unknown checkpoints have all questions."""
    folded, others = ([part for part in parts(run.description) if (part["id"] in _BY_FOLD) is by_fold] for by_fold in (True, False))
    results: dict[str, Fold] = {}
    for part in folded:
        hashes = _hashes(part)
        results |= {sha256: (number, len(hashes)) for number, sha256 in enumerate(hashes, 1) if hashes.count(sha256) == 1}
    elsewhere = {sha256 for part in others for sha256 in _hashes(part)}
    return {sha256: fold for sha256, fold in results.items() if sha256 not in elsewhere}


def read_unknown(run: RunRow, known: Checkpoints) -> bool:
    """Return whether a run uses weights without a record of their training questions.

    Records cover ragmeter's own trainings; the data of the pretrained base model are always unknown.
    """
    models = run.provenance.get("models")
    if run.kind == "control" or (isinstance(models, Mapping) and models.get("counted") == [] and models.get("weights_here") is True):
        return False
    lineage = _lineage(run, known)
    if any(item.read is None or any(parent not in known for parent in item.parents) for item in lineage):
        return True
    weights = [part for part in parts(run.description) if part.get("weights") or _names_a_model(part.get("config"))]
    named = _named_hashes(run, known)
    return any(sha256 not in known for sha256 in named) or any(not _recorded(part, named, known) for part in weights)


def _recorded(part: Mapping[str, Any], named: Sequence[str], known: Checkpoints) -> bool:
    own = _hashes(part) or named
    return bool(own) and all(sha256 in known and known[sha256].read is not None for sha256 in own)


def declared(run: RunRow, cards: Cards, known: Checkpoints) -> bool:
    """Return whether the training data of all trained parts of a run are known.

    Args:
        run: The run; for a submission the answer is always True, because its card can declare all training data.
        cards: Cards of methods and their parts, by id.
        known: Registered checkpoints by their hash.
    """
    if run.card is not None:
        return True
    made_of = list(parts(run.description))
    if not any(part["id"] in cards for part in made_of):
        return False
    if not all(sha in known for sha in _named_hashes(run)):
        return False
    if any(
        parent not in known or not references_of(known[parent]) for item in _lineage(run, known) for parent in (item.sha256, *item.parents)
    ):
        return False
    models = run.provenance.get("models")
    if isinstance(models, Mapping) and models.get("counted") == [] and models.get("weights_here") is True:
        return True  # nothing in it has weights; its entry is a hash of parts
    return all(_described(part, cards, known) for part in made_of)


def references_of(checkpoint: Checkpoint) -> tuple[str, ...]:
    """Return data references that a checkpoint's last training stage used, from its options; empty if they name none.

    Restyled data are named with their base dataset, for example `styled:train(hotpotqa)`.
    """
    results: dict[str, None] = {}
    for key in _NAMED:
        value, options = checkpoint.config.get(key), checkpoint.config.get(f"{key}_options")
        if isinstance(value, Mapping):
            options = value.get("options")
            value = _of_stage(value, checkpoint.stage)
        for text in value if isinstance(value, list | tuple) else ():
            if name := _named(text, options if isinstance(options, Mapping) else {}):
                results[name] = None
    return tuple(results)


def _of_stage(lists: Mapping[str, Any], stage: str) -> list[Any]:
    """Return a stage's list; for a training with other option names, all its lists."""
    own = lists.get(_LIST_OF_STAGE.get(stage, stage))
    every = (item for item in lists.values() if isinstance(item, list | tuple))
    return list(own) if isinstance(own, list | tuple) else [text for item in every for text in item]


_PARTS = ("ids", "fold")
"""Options of loaders that choose a part of a split; they become the variant of its reference."""


def _is_part(reference: str) -> bool:
    return any(f"({option}=" in reference for option in _PARTS)


def _own(options: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    own = options.get(name)
    return own if isinstance(own, Mapping) else {}


def _named(text: Any, options: Mapping[str, Any]) -> str | None:
    """Normalize a reference to a benchmark's name; None if it is not one."""
    try:
        reference = DataReference.parse(text) if isinstance(text, str) else None
    except UserError:
        return None
    if reference is not None:
        own = _own(options, reference.name)
        for option in _PARTS:
            if own.get(option):
                return f"{reference}({option}={own[option]})"
    if reference is None or reference.name != STYLED:
        return None if reference is None else str(reference)
    value = options.get(STYLED)
    base = value.get("base") if isinstance(value, Mapping) else None
    from benchmarks.datasets.styled import StyledConfig

    return f"{reference}({base or StyledConfig.model_fields['base'].default})"


def trained_here(run: RunRow, known: Checkpoints) -> bool:
    """Return whether a run uses a registered checkpoint."""
    return bool(_lineage(run, known))


def _lineage(run: RunRow, known: Checkpoints) -> list[Checkpoint]:
    """Return the registered checkpoints of a run's parts, and their ancestors."""
    return _ancestors(_named_hashes(run, known), known)


def _ancestors(hashes: Sequence[str], known: Checkpoints) -> list[Checkpoint]:
    """Return registered checkpoints with their ancestors, each once."""
    results: dict[str, Checkpoint] = {}
    left = list(hashes)
    while left:
        sha256 = left.pop(0)
        if sha256 in known and sha256 not in results:
            results[sha256] = known[sha256]
            left += known[sha256].parents
    return list(results.values())


def _named_hashes(run: RunRow, known: Checkpoints | None = None) -> list[str]:
    """Return the hashes of checkpoints in a run's provenance, and of registered ones among its weights."""
    named = run.provenance.get("checkpoints")
    result = [str(sha) for sha in named] if isinstance(named, list | tuple) else []
    if known:
        result += [sha for part in parts(run.description) for sha in _hashes(part) if sha in known]
    return list(dict.fromkeys(result))


def _described(part: Mapping[str, Any], cards: Cards, known: Checkpoints) -> bool:
    """Return whether a part is untrained or its training data are known."""
    if cards.get(part["id"], {}).get("training_data"):
        return True
    if not part.get("weights") and not _names_a_model(part.get("config")):
        return True
    hashes = _hashes(part)
    return bool(hashes) and all(sha in known for sha in hashes)


def _hashes(part: Mapping[str, Any]) -> list[str]:
    return _SHA256.findall(str(part.get("weights") or ""))


def _names_a_model(options: Any) -> bool:
    """Return whether options name a model or an endpoint, at any depth."""
    if isinstance(options, Mapping):
        return any(options.get(name) for name in ("model", "base_url")) or any(map(_names_a_model, options.values()))
    return isinstance(options, list) and any(map(_names_a_model, options))


def _called(checkpoint: Checkpoint) -> str:
    return f"checkpoint {checkpoint.sha256[:8]} ({checkpoint.method}, {checkpoint.stage})"
