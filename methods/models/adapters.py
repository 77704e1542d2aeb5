"""Check PEFT adapters, and merge them into the weights of their base."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.core.errors import UserError
from methods.models.complete import check_finite
from methods.models.pretrained import loading
from methods.models.weights import locate, split_hub_id


def adapted(model: Any, adapter: str, *, where: str, head: str | None = None) -> Any:
    """Merge a PEFT adapter into a model's weights and return the model.

    Args:
        model: A `transformers` model.
        adapter: A folder or hub id; in a repository with several adapters, `owner/name/folder`.
        where: The option that names it.
        head: A module that the adapter must contain completely, such as `score`.

    Raises:
        UserError: It cannot be read, was made for another base, lacks the head, cannot be merged, or its weights are not finite.
    """
    with loading("adapter", adapter):
        from peft import PeftConfig, get_peft_model
        from peft.utils.save_and_load import get_peft_model_state_dict, load_peft_weights, set_peft_model_state_dict

        source = _adapter_folder(adapter)
        settings = PeftConfig.from_pretrained(source)
        its_base = settings.base_model_name_or_path  # PEFT overwrites it with that of the model
        weights = {_adapter_key(name): weight for name, weight in load_peft_weights(source, device="cpu").items()}
    if settings.is_prompt_learning:
        kind = getattr(settings.peft_type, "value", settings.peft_type)
        what = f"the adapter {adapter!r} is of the kind {kind}, which extends the prompt and changes no weights"
        raise UserError(what, code="adapter-not-mergeable", where=where, try_this="an adapter that changes weights, such as LoRA")
    loaded = str(getattr(model, "name_or_path", "") or "")
    if its_base and _names_another(its_base, loaded):
        raise _foreign(adapter, its_base, f"it is on {loaded}", where)
    if head is not None and not any(f".{head}." in name for name in weights):
        raise _headless(adapter, head, where)
    with warnings.catch_warnings():
        # PEFT warns that the base is in another folder than in training, and accesses it by an old name.
        warnings.simplefilter("ignore")
        try:
            embeddings = _fitted_embeddings(model, weights)
            made = get_peft_model(model, settings)
            expected = embeddings | {name: tuple(weight.shape) for name, weight in get_peft_model_state_dict(made).items()}
        except (ValueError, AttributeError) as error:
            raise _foreign(adapter, its_base, str(error), where) from error
    there = {name: tuple(weight.shape) for name, weight in weights.items()}
    if there != expected:
        name = min(name for name in there.keys() | expected.keys() if there.get(name) != expected.get(name))
        says = f"{name} is {there.get(name) or 'missing'}, and the base wants {expected.get(name) or 'none'}"
        raise _foreign(adapter, its_base, says, where)
    set_peft_model_state_dict(made, weights)
    _untie(made)
    merged = made.merge_and_unload()
    check_finite(merged, adapter, "adapter")
    return merged


def _fitted_embeddings(model: Any, weights: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Give a base as many token vectors as its adapter, if the adapter was saved with its own for further tokens.

    Returns:
        Names and shapes of the base's whole embedding layers that the adapter contains.
    """
    layers = {path: part for path, part in model.named_modules() if part in (model.get_input_embeddings(), model.get_output_embeddings())}
    names = {f"base_model.model.{path}.{own}weight": part for path, part in layers.items() for own in ("", "base_layer.")}
    rows = {len(weights[name]) for name in names.keys() & weights.keys()}
    if len(rows) == 1 and rows != {model.get_input_embeddings().weight.shape[0]}:
        model.resize_token_embeddings(*rows, mean_resizing=False)
    return {name: tuple(part.weight.shape) for name, part in names.items() if name in weights}


def _untie(made: Any) -> None:
    """Give each adapted layer a weight of its own: merging into one that input and output layer share would change both."""
    from peft.tuners.tuners_utils import BaseTunerLayer
    from torch.nn import Parameter

    users = Counter(id(weight) for _, weight in made.named_parameters(remove_duplicate=False))
    for layer in made.modules():
        weight = getattr(layer.get_base_layer(), "weight", None) if isinstance(layer, BaseTunerLayer) else None
        if weight is not None and users[id(weight)] > 1:
            layer.get_base_layer().weight = Parameter(weight.detach().clone(), requires_grad=False)
            made.base_model.model.config.tie_word_embeddings = False


def check_adapter(adapter: str, base: str, *, where: str, head: str | None = None) -> None:
    """Check, without loading anything, that a folder contains a PEFT adapter for a base; one that is not local passes.

    Args:
        adapter, where, head: As in `adapted`.
        base: A folder or hub id.

    Raises:
        UserError: The folder lacks an adapter's files, the settings cannot be read or name another base, or the head is missing.
    """
    folder = Path(adapter).expanduser()
    if not folder.is_dir():
        return
    settings = folder / "adapter_config.json"
    files = [folder / name for name in ("adapter_model.safetensors", "adapter_model.bin") if (folder / name).is_file()]
    if not settings.is_file() or not files:
        missing = settings.name if not settings.is_file() else "adapter_model.safetensors"
        whole = " (it holds a whole model)" if (folder / "config.json").is_file() else ""
        raise UserError(
            f"the folder {adapter!r} contains no PEFT adapter: {missing} is missing{whole}",
            code="not-an-adapter",
            where=where,
            try_this="a folder with adapter_config.json and adapter_model.safetensors",
        )
    try:
        its_base = json.loads(settings.read_text("utf-8")).get("base_model_name_or_path")
    except (OSError, ValueError, AttributeError) as error:
        raise UserError(f"the settings of the adapter cannot be read: {error}", code="unreadable-adapter", where=str(settings)) from None
    if its_base and _names_another(str(its_base), locate(base)):
        raise _foreign(adapter, its_base, f"it is on {base}", where)
    if head is not None and files[0].suffix == ".safetensors":
        from safetensors import safe_open

        with loading("adapter", adapter), safe_open(files[0], "np") as tensors:
            names = list(tensors.keys())
        if not any(f".{head}." in _adapter_key(name) for name in names):
            raise _headless(adapter, head, where)


def require_own_template(adapter: str, tokenizer: Any, *, where: str) -> None:
    """Refuse an adapter whose folder has another chat template than its base: it was trained on other prompts than it would get.

    Args:
        adapter: A folder or hub id; only a folder is checked.
        tokenizer: The base's tokenizer, which renders the prompts.
        where: The option that names it.

    Raises:
        UserError: The templates differ.
    """
    folder = Path(locate(adapter))
    file, settings = folder / "chat_template.jinja", folder / "tokenizer_config.json"
    template = None
    if file.is_file():
        template = file.read_text("utf-8")
    elif settings.is_file():
        with loading("tokenizer", adapter):
            template = json.loads(settings.read_text("utf-8")).get("chat_template")
    if isinstance(template, str) and template.strip() != str(tokenizer.chat_template or "").strip():
        raise UserError(
            f"the adapter {adapter!r} has another chat template than its base, whose template is the one that is used",
            code="adapter-template-differs",
            where=where,
            try_this="put the adapter's tokenizer files into the base's folder; or remove its template, if it was not trained with it",
        )


def _headless(adapter: str, head: str, where: str) -> UserError:
    return UserError(
        f"the adapter {adapter!r} contains no weights of {head}",
        code="adapter-holds-no-weights",
        where=where,
        try_this="an adapter that was trained for ranking",
    )


def _adapter_folder(adapter: str) -> str:
    """Return a folder or hub id. An adapter in a folder of a repository, which PEFT does not find, is downloaded first."""
    source = locate(adapter)
    repository, folder = split_hub_id(source)
    if not folder or Path(source).is_dir():
        return source
    from huggingface_hub import snapshot_download

    return str(Path(snapshot_download(repository, allow_patterns=f"{folder}/*")) / folder)


def _adapter_key(name: str) -> str:
    """Return the current PEFT name of an adapter's weight; older versions kept the adapter's name or a mark of whole modules."""
    return name.replace(".modules_to_save.", ".").replace(".default.", ".")


def _names_another(its_base: str, loaded: str) -> bool:
    """Return whether two hub ids name different models, regardless of the publisher; folders may contain any model."""
    ids = [name.partition("/") for name in (its_base, loaded)]
    if any(not owner or not name or "/" in name or Path(f"{owner}/{name}").exists() for owner, _, name in ids):
        return False
    return ids[0][2].casefold() != ids[1][2].casefold()


def _foreign(adapter: str, made_for: str | None, why: str, where: str) -> UserError:
    hint = f": it was made for {made_for}" if made_for else ""
    return UserError(
        f"the adapter {adapter!r} does not fit this base ({why.splitlines()[0]})",
        code="adapter-base-mismatch",
        where=where,
        try_this=f"its own base{hint}",
    )
