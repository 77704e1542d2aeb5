"""The reranker model: a cross-encoder with a two-layer head on its first token.

    z = W2 · Dropout(ReLU(W1 h + b1)) + b2    (paper, equation 4)

It is a `CrossEncoder` of sentence-transformers, composed of modules. The encoder's class is the one in its configuration; the
released files load XLM-R weights into BERT's class, which shifts position ids and changes the scores.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.core.errors import UserError
from methods.models.delta import load_whole
from methods.models.pretrained import device_of, loading
from methods.models.remote_code import check_remote_code, remote_code_refused
from methods.models.weights import locate
from methods.sark.config import ModelConfig, SarkTrainingConfig
from methods.sark.loss import LABELS
from methods.training.adapters import MARK, LoraOptions
from methods.training.stages import card_of

if TYPE_CHECKING:
    from torch import Tensor, nn


METHOD = "sark"
HIDDEN = 256
"""Width of the head's hidden layer (released)."""


def require_checkpoint(model: str, *, where: str) -> None:
    """Check that a model is a SARK checkpoint.

    Args:
        model: A folder.
        where: The option that names it, for the message.

    Raises:
        UserError: It is not a SARK checkpoint.
    """
    card = card_of(model)
    if card is None or card.get("method") != METHOD:
        raise UserError(
            f"{model!r} is not a checkpoint of SARK",
            code="not-checkpoint-sark",
            where=where,
            try_this="a folder that `ragmeter train sark` wrote; for other cross-encoders: cross_encoder",
        )


DROPOUTS = (
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "dropout",
    "attention_dropout",
    "hidden_dropout",
    "embedding_dropout",
    "mlp_dropout",
)
"""Names of the dropout settings in encoders' configurations."""


def new_reranker(config: SarkTrainingConfig, device: str | None) -> Any:
    """Create the untrained reranker: the base's encoder, and a head initialized from the seed.

    With `model.head_of_base`, the base's head is used; if two logits are needed, the first is 0, so that the ranking is the
    base's.

    Raises:
        UserError: The base cannot be loaded, its dropout cannot be set, or it lacks the required head.
    """
    check_remote_code(config.base, False)
    with remote_code_refused(config.base), loading("encoder", config.base), _unreported():
        import torch
        from sentence_transformers import CrossEncoder
        from sentence_transformers.base.modules import Dense, Transformer
        from sentence_transformers.sentence_transformer.modules import Dropout, Pooling

        # An encoder may have parts that its file does not hold, and draws those too.
        torch.manual_seed(config.seed)
        options, hub = config.model, {"revision": config.revision} if config.revision else {}
        options_of_encoder = {
            "transformer_task": "feature-extraction",
            "max_seq_length": options.max_length,
            "model_kwargs": {"dtype": torch.float32, **hub},
            "processor_kwargs": hub,
            "config_kwargs": {**hub, **_dropouts(config)},
        }
        encoder = load_whole(locate(config.base), lambda folder: Transformer(folder, **options_of_encoder))
        _require_room(encoder, options, config.base)
        width = encoder.get_embedding_dimension()
        modules = [
            encoder,
            Pooling(width, "cls"),
            Dense(width, HIDDEN, activation_function=torch.nn.ReLU()),
            Dropout(options.dropout),
            _last(HIDDEN, LABELS[options.head]),
        ]
        if options.match:
            modules.append(_match(encoder, config))
            torch.nn.init.zeros_(modules[HEAD[1]].linear.weight)
        if options.head_of_base:
            _take_head(modules, config)
        if options.lora is not None:
            _adapt(encoder.model, options.lora)
        return CrossEncoder(modules=modules, device=device_of(device)).float()


@contextmanager
def _unreported() -> Iterator[None]:
    """Context manager that suppresses the library's report of unused weights, such as the base's own head."""
    from transformers.utils import logging

    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)


def _last(width: int, labels: int) -> Any:
    from sentence_transformers.base.modules import Dense

    return Dense(width, labels, activation_function=None, module_output_name="scores")


def _adapt(encoder: nn.Module, options: LoraOptions) -> None:
    """Freeze an encoder and add LoRA updates to its linear layers."""
    from peft import LoraConfig, inject_adapter_in_model

    targets = options.targets if isinstance(options.targets, str) else list(options.targets)
    settings = LoraConfig(r=options.r, lora_alpha=options.alpha, lora_dropout=options.dropout, target_modules=targets)
    try:
        inject_adapter_in_model(settings, encoder)
    except ValueError as error:
        raise UserError(
            f"the base cannot be given adapters: {error}",
            code="base-without-adapter-support",
            where="model.lora.targets",
            try_this="all-linear",
        ) from error
    for name, parameter in encoder.named_parameters():
        parameter.requires_grad_(MARK in name)


def merged(model: Any) -> Any:
    """Merge low-rank updates (LoRA) into the model's weights; other models are returned unchanged."""
    from peft.tuners.lora import LoraLayer

    encoder = encoder_of(model)
    for name, layer in list(encoder.named_modules()):
        if isinstance(layer, LoraLayer):
            layer.merge()
            encoder.set_submodule(name, layer.get_base_layer())
    return model


def last_bias(model: Any) -> Tensor:
    """Return the bias of the output layer; its last element belongs to the ranking score."""
    bias: Tensor = model[HEAD[1]].linear.bias.data
    return bias


def _match(encoder: Any, config: SarkTrainingConfig) -> nn.Module:
    """Build the module that adds matching scores.

    Raises:
        UserError: The encoder has no token types for query and passage.
    """
    from sentence_transformers import SentenceTransformer

    from methods.models.token_match import EmbedderMatch, TokenMatch

    base = config.base
    if "token_type_ids" not in encoder.tokenizer.model_input_names:
        raise UserError(
            f"{base!r} has no types of tokens",
            code="tokenizer-without-types",
            where="model.match",
            try_this="an encoder like BERT, or leave it out",
        )
    # With the base's head, the base's own module replaces this one.
    if config.model.match == "embedder" and not config.model.head_of_base:
        return EmbedderMatch(load_whole(locate(base), lambda folder: SentenceTransformer(folder, device="cpu", revision=config.revision)))
    return TokenMatch()


HEAD = (2, 4)
"""Positions of the head's two layers among the modules."""


def _take_head(modules: list[nn.Module], config: SarkTrainingConfig) -> None:
    """Copy the base's head to the new head, and take its module that adds matching scores."""
    import torch

    from methods.models.token_match import EmbedderMatch, load_cross_encoder

    base = config.base
    mine = [modules[place] for place in HEAD]
    folder = Path(locate(base))
    theirs = (
        list(load_whole(str(folder), lambda path: load_cross_encoder(path, device="cpu"))) if (folder / "modules.json").is_file() else []
    )
    heads = [theirs[place] for place in HEAD] if len(theirs) == len(modules) else []
    shapes = [(own.linear.in_features, their.linear.in_features) for own, their in zip(mine, heads, strict=False)]
    other_match = bool(heads) and isinstance(theirs[-1], EmbedderMatch) != (config.model.match == "embedder")
    if not shapes or any(own != their for own, their in shapes) or other_match:
        raise UserError(
            f"{base!r} has no classification head with {mine[-1].linear.in_features} inputs and model.match: {config.model.match}",
            code="head-size-mismatch",
            where="model.head_of_base",
            try_this="a checkpoint that `ragmeter train sark` made, or leave it out",
        )
    with torch.no_grad():
        if len(modules) > HEAD[1] + 1:
            modules[-1] = theirs[-1]
        for own, their in zip(mine, heads, strict=True):
            for name, value in their.linear.state_dict().items():
                target = own.linear.get_parameter(name)
                target.zero_()
                target[-len(value) :].copy_(value)


def _dropouts(config: SarkTrainingConfig) -> dict[str, float]:
    """Return the changes to the encoder's dropout configuration."""
    share = config.model.backbone_dropout
    if share is None:
        return {}
    from transformers import AutoConfig

    result = AutoConfig.from_pretrained(locate(config.base), revision=config.revision or "main")
    changes = {name: share for name in DROPOUTS if isinstance(getattr(result, name, None), int | float)}
    if not changes:
        raise UserError(
            f"{config.base!r} does not name its dropout fields",
            code="dropout-unknown",
            where="model.backbone_dropout",
            try_this="--set model.backbone_dropout=null, which keeps it unchanged",
        )
    return changes


def _require_room(encoder: Any, options: ModelConfig, base: str) -> None:
    """Check that the encoder's positions suffice for the longest pair."""
    table = _position_table(encoder.model)
    if table is None:
        return
    before = 0 if table.padding_idx is None else table.padding_idx + 1
    if options.max_length > table.num_embeddings - before:
        raise UserError(
            f"{base!r} reads pairs of at most {table.num_embeddings - before} tokens, and max_length is {options.max_length}",
            code="pair-length-mismatch",
            where="model.max_length",
            try_this=f"--set model.max_length={table.num_embeddings - before}",
        )


def _position_table(encoder: nn.Module) -> nn.Module | None:
    for name, module in encoder.named_modules():
        if name.rpartition(".")[2] == "position_embeddings" and hasattr(module, "num_embeddings"):
            return module
    return None


def encoder_of(model: Any) -> nn.Module:
    """Return the reranker's encoder (the `transformers` model below the head)."""
    return model[0].model


def last_layer(model: Any) -> nn.Module:
    """Return the encoder's last layer.

    Raises:
        UserError: The encoder has no layers.
    """
    from torch.nn import ModuleList

    stacks = [part for part in encoder_of(model).modules() if isinstance(part, ModuleList) and len(part)]
    if not stacks:
        raise UserError(
            "the encoder has no layers",
            code="encoder-without-layers",
            where="loss.lambda_params",
            try_this="--set loss.lambda_params=backbone",
        )
    return max(stacks, key=len)[-1]


def one_score(model: Any) -> Any:
    """Return the model with only the ranking score (the second of two logits)."""
    import torch
    from sentence_transformers import CrossEncoder

    modules, last = list(model), model[HEAD[1]]
    if last.out_features == 1:
        return model
    single = _last(last.in_features, 1)
    with torch.no_grad():
        single.linear.weight.copy_(last.linear.weight[1:])
        single.linear.bias.copy_(last.linear.bias[1:])
    modules[HEAD[1]] = single
    return CrossEncoder(modules=modules, device=str(model.device))


def save(model: Any, folder: Path) -> None:
    """Save the model as a folder that `CrossEncoder(path)` loads."""
    one_score(merged(model)).save_pretrained(str(folder), create_model_card=False)
