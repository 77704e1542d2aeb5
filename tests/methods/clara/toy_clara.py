"""A CLaRa over a tiny Mistral of random weights, on a vocabulary of keys and values."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from methods.clara.config import ClaraConfig, ClaraTrainingConfig
from methods.clara.model import Clara
from methods.clara.objective import StageTrainer
from methods.clara.rows import InstructionRow, JointRow, ScpRow
from methods.clara.stages import prepare
from methods.training import Silent
from methods.training.loop import LoopPlace

KEYS = [f"key{number}" for number in range(12)]
VALUES = [f"value{number}" for number in range(12)]
FRAME = ["Question:", "Answer:", "\n", "of", "what", "is", "the", "Background:", "Reply:"]
SPECIAL = ["<unk>", "<s>", "</s>", "<pad>"]


def tokenizer() -> Any:
    """Make a tokenizer with one token per word; all unknown words are the same token."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {word: number for number, word in enumerate([*SPECIAL, *FRAME, *KEYS, *VALUES])}
    raw = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=raw, unk_token="<unk>", bos_token="<s>", eos_token="</s>", pad_token="<pad>")


def save_base(folder: Path, kind: str = "Mistral", hidden: int = 32) -> str:
    """Save a base with random weights, large enough to predict a token with certainty."""
    import transformers

    words = tokenizer()
    torch.manual_seed(3)
    value = {"head_dim": hidden // 4} if kind == "Qwen3" else {}
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=len(words),
        hidden_size=hidden,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=2 * hidden,
        max_position_embeddings=512,
        initializer_range=0.15,
        tie_word_embeddings=False,
        pad_token_id=3,
        bos_token_id=1,
        eos_token_id=2,
        **value,
    )
    model = getattr(transformers, f"{kind}ForCausalLM")(config)
    torch.nn.init.normal_(model.lm_head.weight, std=0.35)
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    return str(folder)


def model_config(base: str, **more: Any) -> ClaraConfig:
    """Documents of eight tokens in two memory vectors."""
    lora = {"r": 4, "alpha": 8, "dropout": 0.0, **more.pop("lora", {})}
    options = {"base": base, "max_length": 8, "rate": 4, "template": "plain", "memory_init": "spread", "k": 2, **more}
    return ClaraConfig.model_validate({**options, "lora": lora})


def document(number: int) -> str:
    """Write a document that gives a key its value; values are random, so no rule predicts them."""
    return f"{KEYS[number % 12]} is {VALUES[(7 * number + number // 12) % 12]}"


def scp_rows(count: int = 12) -> list[ScpRow]:
    """Make rows of which half ask for the pair and half for the document."""
    rows = []
    for number in range(count):
        key, _, value = document(number).split()
        if number % 2:
            rows.append(ScpRow("paraphrase", document(number), (), (f"the {value} of {key}",), f"p{number}"))
        else:
            rows.append(ScpRow("qa", document(number), (f"what is {key}",), (value,), f"q{number}"))
    return rows


def instruction_rows(count: int = 8) -> list[InstructionRow]:
    """Make rows with two documents each, of which the first has the answer."""
    rows = []
    for number in range(count):
        key, _, value = document(number).split()
        texts = (document(number), document(number + 1))
        rows.append(InstructionRow(f"what is {key}", texts, value, value, f"i{number}"))
    return rows


def joint_rows(count: int = 8, documents: int = 4) -> list[JointRow]:
    """Make rows with a number of candidates and the positive at varying positions."""
    rows = []
    for number in range(count):
        key, _, value = document(number).split()
        texts = [document(number + other) for other in range(documents)]
        position = number % documents
        texts[0], texts[position] = texts[position], texts[0]
        rows.append(JointRow(f"j{number}", f"what is {key}", tuple(texts), value, (position,), (value,)))
    return rows


def trainer(config: ClaraTrainingConfig, stage: Any, clara: Clara, rows: Sequence[Any], folder: Path) -> StageTrainer:
    """Return a stage that is ready to run."""
    ready = prepare(config, stage, clara, rows, folder / "documents", Silent())
    place = LoopPlace(folder / "train", "same", Silent())
    return StageTrainer(stage, clara.module, ready.objective, ready.rows, ready.train, config, place)


def rows_of(stage: str) -> list[Any]:
    made = {"scp": scp_rows, "instruction": instruction_rows}
    return list(made.get(stage, joint_rows)())


def state(clara: Clara) -> dict[str, Any]:
    return {name: item.detach().clone() for name, item in clara.module.state_dict().items()}
