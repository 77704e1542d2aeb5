"""Set up tokenizers so that padding changes nothing: an input in a batch gives what it gives alone."""

from __future__ import annotations

from typing import Any

from benchmarks.core.errors import UserError
from methods.models.complete import position_table


def fit_padding(model: Any, name: str, noun: str, tokenizer: Any = None) -> None:
    """Correct the padding of a loaded model that reads batches.

    - A tokenizer without a padding token gets one that ends no input.
    - Models with a table of positions count padding on the left, so their inputs are padded on the right.
    - A classifier of a language model reads the last token that is not its configuration's padding token, so configuration and
      tokenizer get the same one.

    Args:
        model: A torch module that contains a `transformers` model.
        name: What the options call the model.
        noun: What errors call its kind.
        tokenizer: Its tokenizer; None for that of `model`.

    Raises:
        UserError: No token can be used for padding.
    """
    from transformers import PreTrainedModel

    tokenizer = getattr(model, "tokenizer", None) if tokenizer is None else tokenizer
    if not callable(tokenizer):
        return
    if tokenizer.pad_token is None:
        tokenizer.pad_token = _padding_token(tokenizer, name, noun)
    table = position_table(model)
    # With a padding index (RoBERTa), positions count only the tokens. `LogitScore` reads the last column.
    last = any(type(part).__name__ == "LogitScore" for part in model.modules())
    if table is not None and table.padding_idx is None and not last:
        tokenizer.padding_side = "right"
    for part in model.modules():
        # Classifiers of language models have a layer `score`; others read the first token, or a token of their own.
        if isinstance(part, PreTrainedModel) and type(part).__name__.endswith("ForSequenceClassification") and hasattr(part, "score"):
            configured = part.config.pad_token_id
            if configured is not None and 0 <= configured < len(tokenizer):
                tokenizer.pad_token = tokenizer.convert_ids_to_tokens(configured)
            else:
                tokenizer.pad_token = _padding_token(tokenizer, name, noun)
                part.config.pad_token_id = tokenizer.pad_token_id


def _padding_token(tokenizer: Any, name: str, noun: str) -> str:
    """Return a token that does not end inputs, the tokenizer's own padding token if possible."""
    last = tokenizer("probe")["input_ids"][-1:]
    for token in (tokenizer.pad_token, tokenizer.eos_token, tokenizer.unk_token, tokenizer.bos_token):
        if token is not None and tokenizer.convert_tokens_to_ids([token]) != last:
            return str(token)
    raise UserError(
        f"the tokenizer of the {noun} {name!r} has no padding token",
        code="no-padding-token",
        where=f"model {name!r}",
        try_this="set pad_token in its tokenizer_config.json",
    )
