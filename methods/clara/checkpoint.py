"""Read and write checkpoints: model options, one PEFT folder per adapter, and the embeddings of the memory tokens.

    clara.json              options, adapters, and a hash of the base
    compressor/ generator/ reasoner/    each loads by plain `PeftModel.from_pretrained(base, folder)`
    memory.safetensors      memory [M, h], and marks [2, h]

The base model is not included; loading checks that it is the one used in training.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from benchmarks.core.errors import UserError
from methods.clara.config import ADAPTERS, TEXT, Adapter, ClaraConfig, ClaraTrainingConfig
from methods.clara.released import ClaraReleasedConfig
from methods.models.weights import CLARA_POCKET, has_hash, locate, weights_hash
from methods.training.adapters import Adapters
from methods.training.stages import read_card, write_json
from methods.work import Checkpoint, Lengths, Needs

if TYPE_CHECKING:
    from methods.training.soft_prompts import MemoryRows

CONFIG, ROWS = "clara.json", "memory.safetensors"
LAYOUT = 1
"""Layout version of the folder; increase it if the contents change."""


def model_of(model: str, lengths: Lengths) -> ClaraConfig | None:
    """Return the model options of a checkpoint, or of one that is still to be trained; None if the name is neither."""
    training = lengths.training(model)
    if isinstance(training, ClaraTrainingConfig):
        return trained_model(training, lengths)
    if isinstance(training, ClaraReleasedConfig):
        return training.model
    try:
        return read_config(require_checkpoint(model, where="model"))[0]
    except UserError:
        return None


def trained_model(config: ClaraTrainingConfig, lengths: Lengths) -> ClaraConfig:
    """Return the model options of a training; options that are not set come from the checkpoint that it starts from."""
    if config.start is None or "model" in config.model_fields_set:
        return config.model
    return model_of(config.start, lengths) or config.model


def needs(config: Any) -> Needs:
    """Return the base model of a checkpoint, or the configured base; for a checkpoint that does not exist here, its folder."""
    try:
        base = read_config(require_checkpoint(config.model, where="model"))[0]
    except UserError:
        return Needs((Checkpoint(config.model, getattr(config, "revision", None), config.dtype),))
    return Needs((Checkpoint(base.base, base.revision, config.dtype or base.dtype),))


def save(adapters: Adapters, rows: MemoryRows, config: ClaraConfig, folder: Path) -> None:
    """Write a checkpoint; equal models produce identical files.

    Args:
        adapters: Adapters to write.
        rows: Embeddings of the memory tokens.
        config: Model options.
        folder: Output folder, created if missing.
    """
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    adapters.model.save_pretrained(str(folder), selected_adapters=list(adapters.names), save_embedding_layers=False)
    # PEFT writes its own card, and its settings list layers in random order and contain its version.
    (folder / "README.md").unlink(missing_ok=True)
    for name in adapters.names:
        path = folder / name / "adapter_config.json"
        settings = json.loads(path.read_text("utf-8"))
        settings.pop("peft_version", None)
        settings["target_modules"] = sorted(settings["target_modules"])
        path.write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n", "utf-8")
    save_file({name: item.detach().cpu().contiguous() for name, item in rows.state_dict().items()}, str(folder / ROWS))
    write_json(
        folder / CONFIG,
        {
            "layout": LAYOUT,
            "config": config.model_dump(mode="json"),
            "adapters": list(adapters.names),
            "base_hash": weights_hash(config.base, config.revision),
        },
    )


def read_config(folder: Path) -> tuple[ClaraConfig, tuple[Adapter, ...]]:
    """Read a checkpoint's model options and the list of its adapters.

    Returns:
        Model options and adapter names.

    Raises:
        UserError: The folder is not a checkpoint of CLaRa, or its base is not the one it was trained on.
    """
    path = folder / CONFIG
    if not path.is_file():
        raise UserError(
            "this is not a checkpoint of CLaRa",
            code="not-checkpoint-clara",
            where=str(folder),
            try_this="a folder that `ragmeter train clara` wrote",
        )
    card = read_card(path)
    try:
        if card["layout"] != LAYOUT:
            raise UserError(
                f"this checkpoint has layout {card['layout']}; {LAYOUT} is read",
                code="checkpoint-layout-mismatch",
                where=str(path),
                try_this="train it again with this version",
            )
        config, base_hash = ClaraConfig.model_validate(card["config"]), card["base_hash"]
        names = tuple(adapter for adapter in ADAPTERS if adapter in card["adapters"])
    except (KeyError, TypeError, ValidationError) as error:
        raise UserError(
            f"the checkpoint is damaged: {error}", code="checkpoint-damaged", where=str(path), try_this="its original files"
        ) from error
    if not has_hash(config.base, config.revision, base_hash):
        raise UserError(
            f"the base {config.base!r} is not the one that this checkpoint was trained on",
            code="checkpoint-base-mismatch",
            where=str(path),
            try_this="restore the original base, or train again",
        )
    return config, names


def texts_only(adapters: Sequence[str]) -> bool:
    """Return whether a checkpoint with these adapters reads documents as text: it has a generator and no compressor."""
    return tuple(adapters) == TEXT


def restore(adapters: Adapters, rows: MemoryRows, folder: Path) -> None:
    """Load a checkpoint's weights into a model; trainability stays unchanged.

    Raises:
        UserError: A file is missing or damaged, or its tensors do not match the model.
    """
    import torch
    from peft import get_peft_model_state_dict
    from safetensors.torch import load_file

    device = str(rows.memory.device)
    wanted = [(folder / ROWS, dict(rows.state_dict()))]
    for name in adapters.names:
        own = get_peft_model_state_dict(adapters.model, adapter_name=name, save_embedding_layers=False)
        wanted.append((folder / name / "adapter_model.safetensors", own))
    for path, own in wanted:
        try:
            result = load_file(str(path), device=device)
        except Exception as error:
            raise UserError(
                f"a file cannot be read: {error}", code="unreadable-file", where=str(path), try_this="its original files"
            ) from error
        if {key: item.shape for key, item in result.items()} != {key: item.shape for key, item in own.items()}:
            raise UserError(
                "the file has other tensors than the model", code="tensor-names-mismatch", where=str(path), try_this="its own base"
            )
        with torch.no_grad():
            for key, item in own.items():
                item.copy_(result[key])


def require_checkpoint(model: str, *, where: str) -> Path:
    """Return the folder of a CLaRa checkpoint.

    Args:
        model: A folder, or the name of the shipped adapters.
        where: The option that names it, for the message.

    Raises:
        UserError: It is not a CLaRa checkpoint.
    """
    folder = Path(locate(model))
    if not (folder / CONFIG).is_file():
        raise UserError(
            f"{model!r} is not a checkpoint of CLaRa",
            code="not-checkpoint-clara",
            where=where,
            try_this=f"a folder that `ragmeter train clara` wrote, or {CLARA_POCKET}, which ships",
        )
    return folder
