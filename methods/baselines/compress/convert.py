"""Convert published checkpoints of soft compressors to ragmeter's format (`ragmeter train checkpoints convert`)."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from benchmarks.core.errors import first_error, in_words
from methods.baselines.compress.soft import ENCODER, LANGUAGE_MODEL, System, system_of
from methods.models.adapters import adapted
from methods.models.pretrained import load_pretrained
from methods.training.adapters import MARK as LORA
from methods.training.released import ADAPTER, ADAPTERS, CONVERTER, ENDS, Released, adapter_names, keep_prompts, new_rows, pickled, renamed

if TYPE_CHECKING:
    from torch import Tensor

    from methods.baselines.compress.model import SoftModel

PCC_DECODER = "BroAlanTaps/PCC-Decoder-Llama3-8B-Instruct"
"""PCC's published decoder: Llama 3 with embeddings of three added tokens."""
ENCODER_LENGTH = 512
"""Maximum input of COCOM's light encoder (BERT), in tokens."""
AS_PUBLISHED = ("autocompressor", "cocom", "oscar", "pisco", "xrag")
"""Layouts that use the published prompts; all but OSCAR also format passages as the authors' code does."""
_TOKENIZER = ("tokenizer*", "special_tokens*", "vocab*", "merges.txt", "added_tokens.json", "chat_template*", "generation_config.json")


def convert(source: Released, folder: Path, base: str | None, options: Mapping[str, Any], device: str | None = None) -> System:
    """Convert a published checkpoint.

    Args:
        source: The published checkpoint.
        folder: Output folder, which must not exist.
        base: Base model, replacing the one that the checkpoint names.
        options: System options that override the checkpoint's.
        device: Device of the models.

    Raises:
        UserError: The checkpoint has an unsupported layout, or does not fit its base model.
    """
    from methods.baselines.compress.model import SoftModel

    layout = source.layout
    options_of, tensors_of = _LAYOUTS[layout]
    encoding = {"encoding": "published"} if layout in AS_PUBLISHED else {}
    options = {**encoding, **options_of(source), **({"base": base} if base else {}), **options}
    try:
        system = system_of(layout, options)
    except ValidationError as error:
        first = first_error(error)
        raise source.refused(f"{first['loc'][0]}: {in_words(first)}", "--set KEY=VALUE") from None
    draft = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    try:
        if layout == "autocompressor":
            _language_model(source, draft / LANGUAGE_MODEL)
        if layout == "pcc":
            _encoder(source, system.config.encoder, draft / ENCODER)
        model = SoftModel(system, device, draft)
        model.take(tensors_of(source, model), source.source)
        model.save(draft)
        keep_prompts(source, draft, layout)
        (draft / "README.md").write_text(_readme(source, system), "utf-8")
        draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return system


def _memory_options(source: Released) -> dict[str, Any]:
    """Return the options of PISCO or COCOM; PISCO's separate encoder is not supported."""
    rank = source.number("lora_r", 16)
    own = source.config.get("compr_model_name")
    if own and source.layout == "pisco":
        raise source.refused("it encodes with a separate model, which cannot be converted", "naver/pisco-mistral")
    return {
        "base": source.option("decoder_model_name"),
        "max_length": source.number("doc_max_length", ENCODER_LENGTH if own else 128),
        "rate": source.number("compr_rate"),
        "shared": not source.config.get("different_mem_tokens", False),
        "separator": bool(source.config.get("sep", False)),
        "lora": {"r": rank, "alpha": 2.0 * rank},
        **({"encoder": own} if own and source.layout == "cocom" else {}),
    }


def _summary_options(source: Released) -> dict[str, Any]:
    if (kind := source.config.get("model_type")) != "llama":
        what, remedy = f"an AutoCompressor over {kind} is not read: its positions are special", "princeton-nlp/AutoCompressor-Llama-2-7b-6k"
        raise source.refused(what, remedy)
    return {"base": source.source, "memory_tokens": source.number("summary_length")}


def _encoder_options(source: Released) -> dict[str, Any]:
    """Return the options of PCC. Lite is an encoder, Large an adapter with memory tokens; the name gives the rate."""
    rate = re.search(r"(\d+)x", source.source)
    below = source.option("base_model_name_or_path") if (source.folder / ADAPTER).is_file() else source.source
    return {"encoder": below, "base": PCC_DECODER, **({"rate": int(rate[1])} if rate else {})}


def _layers_options(source: Released) -> dict[str, Any]:
    """Return the options of OSCAR with the base's first layers as encoder; other variants are not supported."""
    config, below = source.config, source.option("compr_base_model_name")
    if config.get("compr_every_n_layer") or config.get("lora_compressor") or below != source.option("decoder_model_name"):
        what = "its encoder is not the first layers of its base, trained as a whole: others are not read"
        raise source.refused(what, "a checkpoint of OSCAR's N-Layers")
    more = {"layers": source.number("compr_n_layers"), "norm": bool(config.get("compr_rms_norm", False)), "shared": False}
    return {**_memory_options(source), **more, "connector": config["compr_mlp_hidden_dim"] if config.get("compr_use_mlp", True) else None}


_KINDS = ("weight", "bias")


def _two_layers(first: str, second: str, ours: str) -> dict[str, str]:
    pairs = ((first, "first"), (second, "second"))
    return {f"{theirs}.{kind}": f"parts.{ours}.{name}.{kind}" for theirs, name in pairs for kind in _KINDS}


_PROJECTOR = _two_layers("projector.projector.0", "projector.projector.2", "projector")
_CONVERTER = {"RMSNorm.weight": "parts.converter.norm.weight", **_two_layers("dense_in", "dense_out", "converter")}


def _found(source: Released, names: Mapping[str, str]) -> dict[str, Tensor]:
    """Return tensors under ragmeter's names, each found by the end of its name."""
    return renamed(source.tensors(lambda name: name.endswith(tuple(names))), names, source.source)


def _convert_rows(source: Released, model: SoftModel, ends: Mapping[str, Tensor], count: int | None = None) -> dict[str, Tensor]:
    """Return the embeddings of `count` memory tokens and three marks, which follow the base's tokens."""
    count = (1 if model.config.shared else model.config.memory_tokens) if count is None else count
    rows = new_rows(ends, model.base, len(model.plain_tokenizer), count + 3, source.source)
    return {"parts.memory.weight": rows[:count], "parts.marks.weight": rows[count:]}


def _adapters(source: Released, **names: str) -> dict[str, Tensor]:
    """Return a file's adapters under ragmeter's names."""
    there = pickled(source.folder / ADAPTERS)
    results: dict[str, Tensor] = {}
    for theirs, ours in names.items():
        if theirs not in there:
            raise source.refused(f"{ADAPTERS} has no {theirs}")
        results |= {f"language_model.{name}": item for name, item in adapter_names(there[theirs], ours).items()}
    return results


def _fill(source: Released, model: SoftModel, states: Mapping[str, Tensor], spare: tuple[str, ...], what: str, remedy: str) -> None:
    """Load weights into the encoder; those whose names contain one of `spare` may be missing."""
    missing, foreign = model.encoder.load_state_dict(states, strict=False)
    if foreign or not all(any(part in name for part in spare) for name in missing):
        raise source.refused(what, remedy)


def _pisco(source: Released, model: SoftModel) -> dict[str, Tensor]:
    rows = _convert_rows(source, model, pickled(source.folder / ENDS))
    return rows | _adapters(source, encoder_adapter="encoder", decoder_adapter="decoder")


def _oscar(source: Released, model: SoftModel) -> dict[str, Tensor]:
    """Load OSCAR's encoder into the model, and return its memory-token embeddings."""
    import torch

    folder, first, count = source.folder / "compressor", len(model.plain_tokenizer), model.config.memory_tokens
    own = _convert_rows(source, model, pickled(source.folder / ENDS), count if source.config.get("different_mem_tokens", False) else 1)
    states = {name.removeprefix("custom_model."): item.float() for name, item in pickled(folder / "compressor.pth").items()}
    table = states.pop("model.embed_tokens.weight")
    states.pop("lm_head.weight", None)
    what, remedy = "its encoder is not of its base's layers", "--base: the model below it"
    if len(table) != first + count:
        raise source.refused(what, remedy)
    _fill(source, model, states, ("embed_tokens", "lm_head", "model.norm.weight"), what, remedy)
    with torch.no_grad():
        model.encoder.get_input_embeddings().weight[:first].copy_(table[:first])
    network = pickled(folder / "mlp.pth") if model.config.connector else {}
    connector = {f"parts.connector.{name}": item.float() for name, item in network.items()}
    return own | _adapters(source, decoder_adapter="decoder") | connector | {"parts.memory.weight": table[first:]}


def _cocom(source: Released, model: SoftModel) -> dict[str, Tensor]:
    own = source.tensors(lambda name: LORA in name or name.startswith("compr.") or name.endswith(("embed_tokens.weight", "lm_head.weight")))
    result = {f"language_model.{name}": item for name, item in adapter_names(own, "both").items()}
    ends = {name: item for name, item in own.items() if LORA not in name and not name.startswith("compr.")}
    if not model.config.encoder:
        return result | _convert_rows(source, model, ends)
    states = {name.removeprefix("compr.model."): item for name, item in own.items() if name.startswith("compr.model.")}
    _fill(source, model, states, ("pooler", "position_ids"), "the encoder's weights are not those of its class", "--set encoder=…")
    linear = renamed(own, {f"compr.linear.{kind}": f"parts.linear.{kind}" for kind in _KINDS}, source.source)
    return result | linear | {"parts.marks.weight": _convert_rows(source, model, ends, 1)["parts.marks.weight"]}


def _pcc(source: Released, model: SoftModel) -> dict[str, Tensor]:
    def find_rows(words: Any, of: Any, names: list[str], what: str) -> Tensor:
        ids = words.convert_tokens_to_ids(names)
        if None in ids or words.unk_token_id in ids:
            raise source.refused(f"the {what}'s tokenizer lacks {names[0]}", f"--base {PCC_DECODER}")
        return of.get_input_embeddings().weight.detach()[ids].cpu().float()

    memory = [f"<mem_{number}>" for number in range(model.config.memory_tokens)]
    return renamed(pickled(source.folder / CONVERTER), _CONVERTER, source.source) | {
        "parts.memory.weight": find_rows(model.encoder_tokenizer, model.encoder, memory, "encoder"),
        "parts.marks.weight": find_rows(model.plain_tokenizer, model.base, ["<mem>", "</mem>", "<ae>"], "base"),
    }


_LAYOUTS: Mapping[str, tuple[Callable[[Released], dict[str, Any]], Callable[[Released, SoftModel], dict[str, Tensor]]]] = {
    "pisco": (_memory_options, _pisco),
    "cocom": (_memory_options, _cocom),
    "oscar": (_layers_options, _oscar),
    "xrag": (lambda source: {}, lambda source, model: _found(source, _PROJECTOR)),
    "autocompressor": (_summary_options, lambda source, model: _found(source, {"embed_summary.weight": "parts.summary.weight"})),
    "pcc": (_encoder_options, _pcc),
}
"""Converters per layout: options from the configuration, and tensors under ragmeter's names."""


def _language_model(source: Released, folder: Path) -> None:
    """Write an AutoCompressor's language model as an ordinary Llama checkpoint."""
    from safetensors.torch import save_file

    _files(source, folder, [])
    config = {**source.config, "architectures": ["LlamaForCausalLM"]}
    config.pop("auto_map", None)
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    weights = source.tensors(lambda name: "embed_summary" not in name and not name.endswith("rotary_emb.inv_freq"))
    save_file({name: item.contiguous() for name, item in weights.items()}, str(folder / "model.safetensors"), {"format": "pt"})


def _encoder(source: Released, below: str, folder: Path) -> None:
    """Write the encoder of PCC: Lite unchanged, Large with its adapter merged into the base."""
    if not (source.folder / ADAPTER).is_file():
        _files(source, folder, [*source.folder.glob("*.safetensors"), *source.folder.glob("pytorch_model*.bin")])
        return
    from transformers import AutoTokenizer

    for path in source.folder.glob("adapter_model*.bin"):
        pickled(path)
    _files(source, folder, [])
    _, model = load_pretrained("encoder", "AutoModelForCausalLM", below, None, "auto", "cpu", own=True)
    model.resize_token_embeddings(len(AutoTokenizer.from_pretrained(folder)))
    adapted(model, str(source.folder), where="encoder").save_pretrained(folder)


def _files(source: Released, folder: Path, weights: list[Path]) -> None:
    """Copy tokenizer, configuration and weights; pickled weights are checked first."""
    folder.mkdir(parents=True)
    for path in {item for pattern in _TOKENIZER for item in source.folder.glob(pattern)} | {source.folder / "config.json", *weights}:
        if path.suffix == ".bin":
            pickled(path)
        if path.is_file():
            shutil.copyfile(path, folder / path.name)


def _readme(source: Released, system: System) -> str:
    at = f" at revision {source.revision}" if source.revision else ""
    return (
        f"---\nbase_model: {system.config.base}\n---\n\n# {system.name} as published\n\nConverted from `{source.source}`{at}. "
        "Its license is that of the original at this revision.\n"
    )
