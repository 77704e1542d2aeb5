"""`python -m tools.ship_clara CHECKPOINT`: a checkpoint as the package carries it, in half precision.

Half precision keeps eleven binary digits of each number: adapters are then half as large, and answer alike.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

from methods.clara.checkpoint import CONFIG, ROWS, read_config
from methods.clara.config import ADAPTERS
from methods.models.weights import CLARA_POCKET, POCKET, locate

LARGEST_BYTES = 16 * 2**20


def ship(checkpoint: Path, folder: Path) -> int:
    """Copy what a checkpoint needs to be loaded, float32 as float16.

    Args:
        checkpoint: A checkpoint over the pocket model.
        folder: Where to; what is there is replaced, but for its card.

    Returns:
        Bytes written.

    Raises:
        UserError: It is no checkpoint of CLaRa.
        ValueError: Its base does not ship, or it is too large to.
    """
    import torch
    from safetensors.torch import load_file, save_file

    config, adapters = read_config(checkpoint)
    if config.base != POCKET:
        raise ValueError(f"the base is {config.base!r}, and only {POCKET!r} ships")
    files = [CONFIG, ROWS, *(f"{item}/{name}" for item in adapters for name in ("adapter_config.json", "adapter_model.safetensors"))]
    with tempfile.TemporaryDirectory() as made:
        for name in files:
            target = Path(made) / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if not name.endswith(".safetensors"):
                shutil.copyfile(checkpoint / name, target)
                continue
            tensors = load_file(str(checkpoint / name))
            halved = {key: item.half() if item.dtype == torch.float32 else item for key, item in tensors.items()}
            save_file(halved, str(target))
            target.chmod(0o644)
        size = sum((Path(made) / name).stat().st_size for name in files)
        if size > LARGEST_BYTES:
            raise ValueError(f"{size:,} bytes, more than {LARGEST_BYTES:,}")
        for item in ADAPTERS:
            shutil.rmtree(folder / item, ignore_errors=True)
        shutil.copytree(made, folder, dirs_exist_ok=True)
    return size


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path, help="a folder that `ragmeter train clara` or `ragmeter run` made")
    parser.add_argument("--out", type=Path, default=Path(locate(CLARA_POCKET)))
    value = parser.parse_args()
    print(f"{ship(value.checkpoint, value.out):,} bytes in {value.out}")


if __name__ == "__main__":
    main()
