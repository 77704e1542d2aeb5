"""Store a trained encoder as its difference from the base model: matrices in low rank, everything else in full.

    delta.json                  the base and its hash, the hash of every other file
    adapter_config.json         of PEFT, whose `PeftModel.from_pretrained(base, folder)` loads the matrices as well
    adapter_model.safetensors   A [r, in] and B [out, r] of each matrix W that training changed: W + B A
    rest.safetensors            the differences of vectors (biases, norms), and whole what the base has not (heads)
    ...                         the checkpoint's other files, numbers in half precision; its tokenizer is the base's

A checkpoint with several encoders (`question/`, `triple/`) has one such folder for each. All numbers are in half precision.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import CHECKPOINT_CARD, file_sha256, folder_sha256
from methods.models.weights import has_hash, locate, weights_hash

if TYPE_CHECKING:
    from torch import Tensor

DELTA, ADAPTER, SETTINGS, REST = "delta.json", "adapter_model.safetensors", "adapter_config.json", "rest.safetensors"
WEIGHTS = "model.safetensors"
LAYOUT = 1
"""Layout version of the folder; increase it if the contents change."""
MATRIX = 2
TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")
UNREAD = ("README.md", CHECKPOINT_CARD, DELTA)
"""Files that do not affect what the model computes."""
_TEXT = "Ünlike 1,024 words: a sentence's tokens, [SEP] and all."
_PEFT = "base_model.model."
_FACTORS = {"lora_A.weight": "lora_B.weight", "lora_embedding_A": "lora_embedding_B"}
_AGAIN = "copy the folder again, or shrink the checkpoint again"


@dataclass(frozen=True)
class Shrunk:
    """Size and error of a compressed difference.

    Attributes:
        size: Size of the folder in bytes.
        kept: Norm of the stored difference divided by the norm of the full difference, between 0 and 1.
    """

    size: int
    kept: float


def shrink(checkpoint: Path, target: Path, base: str, rank: int = 4) -> Shrunk:
    """Write a checkpoint as its low-rank difference from a base model, atomically.

    Args:
        checkpoint: Folder with one or several encoders whose matrices have the base's names.
        target: Output folder, which must not exist.
        base: The base model of the training, available as a local folder.
        rank: Rank of each matrix's difference.

    Raises:
        UserError: The folder has no such encoder, tokenizer or shapes differ from the base's, or the target exists.
    """
    root = Path(locate(base))
    encoders = [path.parent for path in sorted(checkpoint.rglob(WEIGHTS)) if _is_encoder(path.parent)]
    if not encoders or not (root / WEIGHTS).is_file():
        at = root if encoders else checkpoint
        raise UserError(
            f"the folder lacks an encoder with {WEIGHTS}",
            code="missing-encoder",
            where=str(at),
            try_this="name a folder that a training wrote",
        )
    if target.exists():
        raise UserError("output folder already exists", code="folder-exists", where=str(target), try_this="another one, or remove it")
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        draft.chmod(0o755)
        norms = []
        for path in sorted(item for item in checkpoint.rglob("*") if item.is_file()):
            encoder = next((folder for folder in encoders if path == folder / WEIGHTS), None)
            copy = draft / path.relative_to(checkpoint)
            if path.parent in encoders and path.name in TOKENIZER:
                continue
            copy.parent.mkdir(parents=True, exist_ok=True)
            if encoder is not None:
                _require_tokenizer(encoder, root)
                norms.append(_write_difference(path, root / WEIGHTS, copy.parent, base, rank))
            elif path.suffix == ".safetensors":
                write_halves(copy, _read(path))
            elif path.name != CHECKPOINT_CARD:
                shutil.copyfile(path, copy)
        for folder in encoders:
            _seal(draft / folder.relative_to(checkpoint), base, rank)
        if (checkpoint / CHECKPOINT_CARD).is_file():
            _write_card(checkpoint, draft)
        draft.rename(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    kept, whole = (sum(column) for column in zip(*norms, strict=True))
    size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    return Shrunk(size, (kept / whole) ** 0.5 if whole else 1.0)


def _is_encoder(folder: Path) -> bool:
    """Return whether a folder contains a `transformers` model, not just a layer."""
    try:
        return "model_type" in json.loads((folder / "config.json").read_text("utf-8"))
    except (OSError, ValueError):
        return False


def _require_tokenizer(encoder: Path, root: Path) -> None:
    from transformers import AutoTokenizer

    own, base = (AutoTokenizer.from_pretrained(str(folder)) for folder in (encoder, root))
    if own.get_vocab() != base.get_vocab() or own(_TEXT)["input_ids"] != base(_TEXT)["input_ids"]:
        raise UserError(
            "the checkpoint's tokenizer is not its base's",
            code="checkpoint-tokenizer-mismatch",
            where=str(encoder),
            try_this="keep the whole folder",
        )


def _write_difference(weights: Path, base: Path, folder: Path, name: str, rank: int) -> tuple[float, float]:
    """Write the difference files of one encoder; returns the squared norms of the stored and of the full difference."""
    import torch

    mine, theirs = _read(weights), _read(base)
    factors: dict[str, Tensor] = {}
    rest: dict[str, Tensor] = {}
    layers = []
    kept = whole = 0.0
    for full, value in sorted(mine.items()):
        key = _called(full, theirs)
        if key is None:
            rest[full] = value
            continue
        if value.shape != theirs[key].shape:
            raise UserError(
                f"the shape of {full!r} differs from that of the base",
                code="tensor-shape-mismatch",
                where=str(weights),
                try_this="use the base that the training started from",
            )
        change = value.float() - theirs[key].float()
        whole += float(change.square().sum())
        if change.dim() != MATRIX and change.any():
            rest[key] = change
            kept += float(change.square().sum())
        elif change.any():
            layer = key.removesuffix(".weight")
            embedded = "embed" in layer
            left, sizes, right = torch.linalg.svd(change.T if embedded else change, full_matrices=False)
            kept += float(sizes[:rank].square().sum())
            # Of a matrix with fewer rows the last factors are zero: PEFT wants one rank.
            root = torch.nn.functional.pad(sizes[:rank].sqrt(), (0, max(0, rank - len(sizes))))
            names = ("lora_embedding_A", "lora_embedding_B") if embedded else ("lora_A.weight", "lora_B.weight")
            for part, item in zip(names, (right[:rank], left[:, :rank].T), strict=True):
                factor = torch.nn.functional.pad(item, (0, 0, 0, rank - len(item))) * root[:, None]
                factors[f"{_PEFT}{layer}.{part}"] = factor if part.endswith(("A.weight", "A")) else factor.T
            layers.append(layer)
    write_halves(folder / ADAPTER, factors)
    write_halves(folder / REST, rest)
    settings = {
        "peft_type": "LORA", "base_model_name_or_path": name, "task_type": "FEATURE_EXTRACTION", "inference_mode": True,
        "r": rank, "lora_alpha": rank, "lora_dropout": 0.0, "bias": "none", "target_modules": layers,
    }  # fmt: skip
    (folder / SETTINGS).write_text(json.dumps(settings, indent=2) + "\n", "utf-8")
    return kept, whole


def _called(full: str, known: Mapping[str, Any]) -> str | None:
    """Return a parameter's name in the base; None if the base lacks it. Wrappers prefix names."""
    parts = full.split(".")
    return next((name for start in range(len(parts)) if (name := ".".join(parts[start:])) in known), None)


def _seal(folder: Path, base: str, rank: int) -> None:
    """Write `delta.json` with the base and the hashes of all files."""
    files = {path.relative_to(folder).as_posix(): file_sha256(path) for path in sorted(folder.rglob("*")) if path.is_file()}
    value = {
        "layout": LAYOUT,
        "base": base,
        "base_hash": weights_hash(base),
        "rank": rank,
        "files": {name: sha256 for name, sha256 in files.items() if name not in UNREAD},
    }
    (folder / DELTA).write_text(json.dumps(value, indent=2) + "\n", "utf-8")


def _write_card(checkpoint: Path, draft: Path) -> None:
    """Write the card of the difference, with the checkpoint as its parent."""
    card = json.loads((checkpoint / CHECKPOINT_CARD).read_text("utf-8"))
    card |= {"parents": [card["sha256"]], "sha256": folder_sha256(draft)}
    (draft / CHECKPOINT_CARD).write_text(json.dumps(card, ensure_ascii=False, indent=2) + "\n", "utf-8")


def _read(path: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    return dict(load_file(str(path)))


def write_halves(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors in half precision (float16, 11 significant bits)."""
    from safetensors.torch import save_file

    save_file({name: (item.half() if item.is_floating_point() else item).contiguous() for name, item in tensors.items()}, str(path))
    path.chmod(0o644)


def is_delta(folder: str) -> bool:
    """Return whether a folder or hub id contains a difference from a base model."""
    return (Path(folder) / DELTA).is_file()


def load_whole(folder: str, load: Callable[[str], Any]) -> Any:
    """Load a model; for a difference folder, load the base and add the difference.

    Args:
        folder: Model folder, as returned by `locate`.
        load: Function that loads a folder as a torch module with the parameter names of its files.

    Raises:
        UserError: The base model differs, or a file is missing, truncated or modified.
    """
    if not is_delta(folder):
        return load(folder)
    here = Path(folder)
    base = Path(_checked(here))
    # The checkpoint's own shape with the base's weights: links to both, as a folder that the library takes.
    with tempfile.TemporaryDirectory() as made:
        for source in (here, base):
            for path in source.rglob("*"):
                link = Path(made) / path.relative_to(source)
                own = source == here and path.name not in (DELTA, ADAPTER, SETTINGS, REST)
                if path.is_file() and not link.exists() and (own or (path.parent == base and path.name in (WEIGHTS, *TOKENIZER))):
                    link.parent.mkdir(parents=True, exist_ok=True)
                    os.symlink(path.absolute(), link)
        model = load(made)
    _add(model, here, frozenset(_names(base / WEIGHTS)))
    return model


def _checked(folder: Path) -> str:
    """Verify a difference folder and its base, and return the base's folder."""
    path = folder / DELTA
    try:
        card = json.loads(path.read_text("utf-8"))
        layout, base, base_hash, files = card["layout"], str(card["base"]), card["base_hash"], dict(card["files"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"this file is damaged: {error!r}", code="damaged-file", where=str(path), try_this=_AGAIN) from None
    if layout != LAYOUT:
        raise UserError(
            f"this difference has layout {layout}; {LAYOUT} is read",
            code="difference-layout-mismatch",
            where=str(path),
            try_this="shrink the checkpoint again",
        )
    for name, sha256 in files.items():
        if not (folder / name).is_file():
            raise UserError(
                "a file of this checkpoint is missing", code="checkpoint-file-missing", where=str(folder / name), try_this=_AGAIN
            )
        if file_sha256(folder / name) != sha256:
            raise UserError(
                "this file was cut short or changed since it was written", code="file-changed", where=str(folder / name), try_this=_AGAIN
            )
    if not has_hash(base, None, base_hash):
        raise UserError(
            f"the base {base!r} is not the one that this checkpoint differs from",
            code="difference-base-mismatch",
            where=str(path),
            try_this="restore the original base, or shrink the whole checkpoint again",
        )
    return locate(base)


def _names(weights: Path) -> list[str]:
    from safetensors import safe_open

    with safe_open(str(weights), "pt") as file:
        return list(file.keys())


def _changes(folder: Path) -> Iterator[tuple[str, Tensor]]:
    """Yield the changes to parameters by name: added terms, or replacing values."""
    factors = _read(folder / ADAPTER)
    for name, first in factors.items():
        ending = next((item for item in _FACTORS if name.endswith(item)), None)
        if ending is not None:
            layer = name.removesuffix(ending)
            change = factors[layer + _FACTORS[ending]].float() @ first.float()
            yield layer.removeprefix(_PEFT) + "weight", change.T if "embedding" in ending else change
    yield from _read(folder / REST).items()


def _add(model: Any, folder: Path, base: frozenset[str]) -> None:
    import torch

    own = dict(model.named_parameters())
    with torch.no_grad():
        for name, change in _changes(folder):
            meant = [item for full, item in own.items() if full == name or full.endswith(f".{name}")]
            if len(meant) != 1 or meant[0].shape != change.shape:
                raise UserError(
                    f"the model has no parameter {name!r} of this shape", code="unknown-model-parameter", where=str(folder), try_this=_AGAIN
                )
            value = change.to(meant[0].device)
            meant[0].copy_(meant[0].float() + value if name in base else value)
