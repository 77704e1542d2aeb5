"""Read checkpoints as published by their authors: only tensors, from a pinned revision, checked by name.

COCOM, PISCO, OSCAR and CLaRa share one layout: the adapters, plus the base's embedding and output layers, whose last rows
belong to the added tokens. The base model itself is published elsewhere.
"""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.core.errors import UserError
from benchmarks.published_prompts import Text, texts_in
from methods.models.pretrained import loading
from methods.models.weights import locate
from methods.training.stages import read_json, write_json

if TYPE_CHECKING:
    from torch import Tensor

ADAPTERS, ENDS, CONVERTER = "adapters.pth", "decoder_first_last_layers.pth", "memory_converter.bin"
ADAPTER = "adapter_config.json"
"""File that marks a checkpoint as a PEFT adapter, instead of `config.json`."""
TRIMMED = "mistral_trimmed"
"""OSCAR's name for an encoder made of the first layers of a base model, for every base."""
_WANTED = ("*.json", "model*.py", "*.pth", "*.bin", "*.safetensors", "*.model", "*.txt", "*.jinja")
_EMBEDDING, _HEAD = "embed_tokens.weight", "lm_head.weight"


@dataclass(frozen=True)
class Released:
    """A published checkpoint in a local folder.

    Attributes:
        source: Folder or hub id.
        revision: Commit on the hub; None for a folder.
        folder: Folder of its files.
        config: Content of its `config.json`.
    """

    source: str
    revision: str | None
    folder: Path
    config: Mapping[str, Any]

    @property
    def layout(self) -> str:
        """Detect the system that the checkpoint belongs to, from its content.

        Raises:
            UserError: The layout is unknown.
        """
        if (self.folder / CONVERTER).is_file():
            return "pcc"
        if (self.folder / ADAPTERS).is_file():
            if self.config.get("compr_model_name") == TRIMMED:
                return "oscar"
            return "clara" if "clara" in str(self.config.get("model_type", "")).lower() else "pisco"
        if "summary_length" in self.config:
            return "autocompressor"
        if "retriever_hidden_size" in self.config:
            return "xrag"
        if "compr_rate" in self.config:
            return "cocom"
        raise self.refused("its files are not laid out as those of AutoCompressor, xRAG, COCOM, PCC, PISCO, OSCAR and CLaRa")

    def option(self, name: str) -> Any:
        """Return an entry of `config.json`.

        Raises:
            UserError: The entry is missing.
        """
        if name not in self.config:
            raise self.refused(f"config.json does not say {name}", f"--set {name}=…, or its original files")
        return self.config[name]

    def number(self, name: str, default: int | None = None) -> int:
        """Return an entry of `config.json` that counts something.

        Raises:
            UserError: It is missing without a default, or not a positive number.
        """
        value = self.option(name) if default is None else self.config.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or int(value) != value or value < 1:
            raise self.refused(f"config.json states {name}: {json.dumps(value)}, not a positive number")
        return int(value)

    def refused(self, what: str, remedy: str = "the checkpoint as its authors publish it") -> UserError:
        """Build an error about this checkpoint."""
        return UserError(what, code="bad-checkpoint", where=self.source, try_this=remedy)

    def tensors(self, wanted: Callable[[str], bool] = lambda name: True) -> dict[str, Tensor]:
        """Load the tensors of all weight files, by name.

        Args:
            wanted: Filter of tensor names; other tensors in safetensors files are not read.

        Raises:
            UserError: A file contains anything other than tensors, or cannot be read.
        """
        from safetensors import safe_open

        results: dict[str, Tensor] = {}
        patterns = ("model*.safetensors", "pytorch_model*.bin", "*.safetensors")  # other files next to the weights are not read
        paths = next((paths for pattern in patterns if (paths := sorted(self.folder.glob(pattern)))), [])
        for path in paths:
            if path.suffix == ".bin":
                results.update({name: item for name, item in pickled(path).items() if wanted(name)})
                continue
            with loading("checkpoint", self.source), safe_open(str(path), "pt") as file:
                results.update({name: file.get_tensor(name) for name in file.keys() if wanted(name)})  # noqa: SIM118
        return results


PROMPTS = "prompts.json"
"""File of a converted checkpoint with the prompts from the published program."""


def keep_prompts(source: Released, folder: Path, *names: str) -> None:
    """Save the prompts that are part of a published checkpoint into the folder of the converted one.

    Args:
        source: The published checkpoint.
        folder: The converted checkpoint.
        names: Names in the registry of published prompts.
    """
    present = {name: texts for name in names if (texts := texts_in(name, source.folder)) is not None}
    if present:
        write_json(folder / PROMPTS, {name: {"file": path.name, "texts": dict(texts)} for name, (texts, path) in present.items()})


def kept_texts(folder: Path, name: str) -> Mapping[str, Text] | None:
    """Return the prompt texts saved with a converted checkpoint; None if there are none."""
    if not (folder / PROMPTS).is_file():
        return None
    texts = read_json(folder / PROMPTS).get(name, {}).get("texts")
    return texts or None


def released(source: str, revision: str | None = None, subfolder: str | None = None) -> Released:
    """Locate a published checkpoint: a folder, or a hub repository, which is downloaded at a recorded commit.

    Raises:
        UserError: The checkpoint cannot be downloaded, or has no configuration.
    """
    place = Path(locate(source))
    if not place.is_dir():
        with loading("checkpoint", source):
            from huggingface_hub import snapshot_download

            patterns = [f"{subfolder}/{item}" for item in _WANTED] if subfolder else list(_WANTED)
            place = Path(snapshot_download(source, revision=revision, allow_patterns=patterns))
        revision = place.name
    else:
        revision = None
    folder = place / subfolder if subfolder else place
    path = next((path for name in ("config.json", ADAPTER) if (path := folder / name).is_file()), folder / "config.json")
    try:
        config = json.loads(path.read_text("utf-8"))
        if not isinstance(config, dict):
            raise ValueError("it is not an object")
    except (OSError, ValueError) as error:
        raise UserError(
            f"its {path.name} cannot be read: {error}",
            code="unreadable-model-config",
            where=source,
            try_this="the checkpoint as its authors publish it",
        ) from error
    return Released(source, revision, folder, config)


def pickled(path: Path) -> dict[str, Any]:
    """Load a `torch.save` file safely, if it contains only (nested) mappings of tensors.

    Raises:
        UserError: The file contains other objects, which could execute code, or is damaged.
    """
    import torch

    try:
        value = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise UserError(
            "the file is damaged, or contains more than tensors, and reading it could run code",
            code="unsafe-weights",
            where=str(path),
            try_this="fetch the file again, or use a checkpoint in safetensors format",
        ) from error
    except (OSError, RuntimeError, EOFError, ValueError) as error:
        raise UserError(
            f"the file cannot be read: {error}", code="unreadable-file", where=str(path), try_this="its original files"
        ) from error
    strange = [name for name, item in _leaves(value) if not isinstance(item, torch.Tensor)]
    if strange or not isinstance(value, dict):
        raise UserError(
            f"the file holds more than tensors: {', '.join(strange[:3])}",
            code="unsafe-weights",
            where=str(path),
            try_this="its original files",
        )
    damaged = [name for name, item in _leaves(value) if item.is_floating_point() and not item.isfinite().all()]
    if damaged:
        raise UserError(
            f"{damaged[0]} contains NaN or infinity", code="vectors-not-finite", where=str(path), try_this="fetch the model's files again"
        )
    return value


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(item, f"{name}.{key}" if name else str(key))
    else:
        yield name, value


def adapter_names(tensors: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
    """Rename an adapter's tensors to PEFT's names for an adapter called `name`."""
    results = {}
    for key, item in tensors.items():
        layer, mark, rest = key.removeprefix("decoder.").removeprefix("base_model.model.").partition(".lora_")
        if mark:
            results[f"base_model.model.{layer}.lora_{rest[0]}.{name}.weight"] = item
    return results


def new_rows(ends: Mapping[str, Tensor], base: Any, first: int, count: int, where: str) -> Tensor:
    """Return the embeddings of added tokens at the end of a published embedding, after checking that its other rows equal the
    base's.

    Args:
        ends: Tensors with the embedding and possibly the output layer.
        base: The base model.
        first: Id of the first new token.
        count: Number of added tokens.
        where: Name of the checkpoint, for messages.

    Raises:
        UserError: There are fewer rows, or the base's rows were changed, which is not supported.
    """
    import torch

    table = next((item for name, item in ends.items() if name.endswith(_EMBEDDING)), None)
    if table is None or len(table) != first + count:
        has = "no rows" if table is None else f"{len(table)} rows"
        raise UserError(
            f"the embedding has {has}, but base and new tokens need {first + count}",
            code="embedding-size-mismatch",
            where=where,
            try_this="--base: the model below it, with the rate and length of its config.json",
        )
    pairs = [(table, base.get_input_embeddings().weight)]
    pairs += [(item, base.get_output_embeddings().weight) for name, item in ends.items() if name.endswith(_HEAD)]
    for theirs, own in pairs:
        number = min(first, len(own))
        if theirs.shape[1] != own.shape[1] or not torch.allclose(
            theirs[:number].float(), own[:number].detach().cpu().float(), rtol=1e-2, atol=1e-3
        ):
            raise UserError(
                "its embeddings are not those of the base",
                code="embeddings-base-mismatch",
                where=where,
                try_this="--base: the model that it was trained on",
            )
    return table[first : first + count].float()


def renamed(tensors: Mapping[str, Tensor], names: Mapping[str, str], where: str) -> dict[str, Tensor]:
    """Rename tensors; each is found by the end of its name.

    Raises:
        UserError: A tensor is missing.
    """
    results = {}
    for end, name in names.items():
        matches = [item for key, item in tensors.items() if re.search(rf"(^|\.){re.escape(end)}$", key)]
        if len(matches) != 1:
            raise UserError(
                f"{len(matches)} tensors have a name that ends with {end}",
                code="ambiguous-tensor",
                where=where,
                try_this="the checkpoint as its authors publish it",
            )
        results[name] = matches[0].float()
    return results
