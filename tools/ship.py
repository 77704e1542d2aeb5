"""`python -m tools.ship CHECKPOINT --name ark-minilm --note NOTE`: a checkpoint as the package carries it.

An encoder becomes its difference to `minilm` in low rank (`methods/models/delta.py`), CLaRa's adapters are halved. A
folder that holds `ark`, `gpr`, `ranker`, `sark`, `clara` and their notes (`ark.md` …) is shipped at once. A note is lines
of `key: value` that go into the card: command, seed, minutes, rank, trained, expected.
"""

from __future__ import annotations

import argparse
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import CHECKPOINT_CARD, file_sha256
from methods.clara.checkpoint import CONFIG, ROWS, read_config
from methods.models.delta import Shrunk, shrink, write_halves
from methods.models.weights import MINILM, POCKET, SHIPPED, locate, weights_hash
from results.store.checkpoints import describe, read

LARGEST_BYTES = 16 * 2**20
"""Of all weights that ship, together."""
NAMES = {name.partition("-")[0]: name for name in SHIPPED if name != POCKET}
"""What ships, by the folder that `ship_all` looks for."""
MADE = ("command", "seed", "minutes")
_CARD = """---
license: apache-2.0
language: en
base_model: {base}
---
# {name}

`model: {name}` in ragmeter: a checkpoint over `{base}`, which is not in it, in half precision. {trained}

| | |
| --- | --- |
{facts}

{expected}
"""


def ship(checkpoint: Path, folder: Path, note: Mapping[str, str], rank: int = 4) -> Shrunk:
    """Write a trained checkpoint in the small form that ships with ragmeter (differences from its base); the folder is replaced atomically.

    Args:
        checkpoint: Checkpoint folder, trained from `minilm` or, for CLaRa, from the pocket model.
        folder: Destination; its card gets the name of the shipped checkpoint.
        note: Facts about its training, for the card.
        rank: Rank of the stored difference from `minilm`.

    Raises:
        UserError: The folder is not a checkpoint, its base does not ship, or the shipped files would exceed their size limit.
    """
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=_made(folder.parent)) as outer:
        draft = Path(outer) / "new"
        clara = (checkpoint / CONFIG).is_file()
        shrunk = _halved(checkpoint, draft) if clara else shrink(checkpoint, draft, MINILM, rank)
        name = next((known for known in NAMES.values() if Path(locate(known)) == folder.absolute()), folder.name)
        _write_card(name, draft, note, POCKET if clara else MINILM, f"{shrunk.kept:.3f} of the difference's norm")
        shrunk = replace(shrunk, size=bytes_of(draft))
        others = sum(bytes_of(path) for path in _shipped() if path != folder.absolute())
        if name in SHIPPED and others + shrunk.size > LARGEST_BYTES:
            what = f"{others + shrunk.size:,} bytes would ship, more than {LARGEST_BYTES:,}"
            raise UserError(what, where=name, try_this="a lower --rank")
        if folder.exists():
            folder.rename(Path(outer) / "old")
        draft.rename(folder)
    return shrunk


def bytes_of(folder: Path) -> int:
    """Return the total size of a folder's files, in bytes."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _shipped() -> list[Path]:
    return [Path(locate(name)) for name in SHIPPED]


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _halved(checkpoint: Path, draft: Path) -> Shrunk:
    """What a checkpoint of CLaRa needs to be loaded."""
    from safetensors.torch import load_file

    config, adapters = read_config(checkpoint)
    if config.base != POCKET:
        raise UserError(f"the base is {config.base!r}, and only {POCKET!r} ships", where=str(checkpoint))
    for name in (CONFIG, ROWS, *(f"{item}/{file}" for item in adapters for file in ("adapter_config.json", "adapter_model.safetensors"))):
        _made((draft / name).parent)
        if name.endswith(".safetensors"):
            write_halves(draft / name, load_file(str(checkpoint / name)))
        else:
            shutil.copyfile(checkpoint / name, draft / name)
    return Shrunk(bytes_of(draft), 1.0)


def _write_card(name: str, draft: Path, note: Mapping[str, str], base: str, kept: str) -> None:
    """What people read of a checkpoint, and the hash that holds with it."""
    known = read(draft) if (draft / CHECKPOINT_CARD).is_file() else None
    facts = {key: note[key] for key in MADE if key in note} | ({"training data": ", ".join(known.data)} if known else {})
    facts |= {"base": f"`{base}`, {weights_hash(base)}", "kept": kept}
    facts |= {f"sha256 of {path.relative_to(draft)}": file_sha256(path) for path in sorted(draft.rglob("*.safetensors"))}
    rows = "\n".join(f"| {key} | {value} |" for key, value in facts.items())
    text = _CARD.format(name=name, base=base, facts=rows, trained=note.get("trained", ""), expected=note.get("expected", ""))
    (draft / "README.md").write_text(text.strip() + "\n", "utf-8")
    if known:
        describe(draft, **{key: getattr(known, key) for key in ("method", "stage", "version", "config", "parents", "data")})


def read_note(path: Path) -> dict[str, str]:
    """Read a note of `key: value` lines; further lines belong to the value before them."""
    parts = re.split(r"^(\w+): *", path.read_text("utf-8"), flags=re.M) if path.is_file() else [""]
    return {key: " ".join(value.split()) for key, value in zip(parts[1::2], parts[2::2], strict=True)}


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path, help="a folder that a training made, or one that holds several")
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--name", choices=sorted(NAMES.values()), help="ship it under this name")
    place.add_argument("--out", type=Path, help="write it here instead")
    parser.add_argument("--note", type=Path, help="a file of lines `key: value`")
    parser.add_argument("--rank", type=int, help="of differences (default: the note's, or 4)")
    value = parser.parse_args()
    if value.name or value.out:
        jobs = [(value.checkpoint, value.out or Path(locate(value.name)), value.note or Path())]
    else:
        here = {value.checkpoint / key: name for key, name in NAMES.items() if (value.checkpoint / key).is_dir()}
        jobs = [(path, Path(locate(name)), path.with_suffix(".md")) for path, name in here.items()]
    for checkpoint, folder, path in jobs:
        note = read_note(path)
        shrunk = ship(checkpoint, folder, note, value.rank or int(note.get("rank", 4)))
        print(f"{folder}: {shrunk.size:,} bytes, {shrunk.kept:.3f} of the difference's norm kept")
    print(f"{sum(map(bytes_of, _shipped())):,} bytes ship, of at most {LARGEST_BYTES:,}")


if __name__ == "__main__":
    main()
