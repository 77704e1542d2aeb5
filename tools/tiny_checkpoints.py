"""`python -m tools.tiny_checkpoints FOLDER`: random checkpoints of the layouts that rerankers and end-to-end systems are published in.

They rank and answer as dice do, and take a few kilobytes. With them every row of a table runs here as it would with the real
weights: the classes, files, names and types are those, `ragmeter run sark/table1 --profile tiny` looks for them in `tiny/`
where it is called.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from methods.baselines.end_to_end.self_rag import TAGS
from methods.readers.end_to_end import END_OF_TURN

CHAT = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}</s>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
WORDS = ("yes", "no", "true", "false", "Passage", "<think>", "</think>", "Ġtrue", "Ġfalse")
"""Tokens that are read off single logits."""
CAUSAL = {
    "llama": "Llama",
    "llama3": "Llama",
    "chatqa": "Llama",
    "selfrag": "Llama",
    "zephyr": "Mistral",
    "qwen2.5": "Qwen2",
    "qwen3": "Qwen3",
}
CHATLESS = {"llama", "chatqa", "selfrag"}
"""Causal models without a chat template; of the class Llama, and their own tokens."""
OWN_TOKENS = {"selfrag": TAGS, "chatqa": (END_OF_TURN,)}
ADAPTERS: Mapping[str, tuple[str, str]] = {
    "rankllama": ("llama", "SEQ_CLS"),
    "rank-r1": ("qwen2.5", "CAUSAL_LM"),
    "retrobust": ("llama", "CAUSAL_LM"),
    "ddr/Kr_model_for_Llama3_8b": ("llama3", "CAUSAL_LM"),
    "ddr/Gen_model_Llama3_8b": ("llama3", "CAUSAL_LM"),
}
"""Adapters, the base of each, and what they are for."""
CLASSIFIERS = {"bge": ("relevant",), "dpa-rag": ("unaligned", "aligned"), "mnli": ("contradiction", "neutral", "entailment")}
"""Classifiers of pairs, and their labels."""


def tokenizer(chat: bool, more: Sequence[str] = ()) -> Any:
    """Bytes, and pairs of them that are frequent in the rerankers' prompts, so that these are about as long as in real ones."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    prompts = sorted((files("methods.baselines.rerank") / "templates").iterdir(), key=lambda path: path.name)
    specials = ["<pad>", "<s>", "</s>"]
    trainer = trainers.BpeTrainer(vocab_size=1000, initial_alphabet=alphabet, special_tokens=specials, show_progress=False)
    raw.train_from_iterator([path.read_text("utf-8") for path in prompts], trainer)
    made = PreTrainedTokenizerFast(tokenizer_object=raw, bos_token="<s>", eos_token="</s>", pad_token="<pad>")
    made.add_tokens([AddedToken(word.replace("Ġ", " "), normalized=False) for word in (*WORDS, *more)])
    made.chat_template = CHAT if chat else None
    return made


def make(folder: Path, names: Sequence[str] | None = None) -> None:
    """Write the checkpoints that are not there.

    Args:
        folder: Gets a folder of each.
        names: Some of them; None: all.
    """
    wanted = [*CAUSAL, "flan-t5", *ADAPTERS, *CLASSIFIERS] if names is None else names
    for name in wanted:
        target = folder / name
        if target.exists():
            continue
        if name in ADAPTERS:
            base, task = ADAPTERS[name]
            make(folder, [base])
            adapter(folder / base, target, task)
        elif name == "flan-t5":
            encoder_decoder(target)
        elif name in CLASSIFIERS:
            classifier(target, CLASSIFIERS[name])
        else:
            causal(target, CAUSAL[name], tokenizer(name not in CHATLESS, OWN_TOKENS.get(name, ())))


def causal(folder: Path, kind: str, tokens: Any) -> None:
    """A causal language model of a class."""
    import torch
    import transformers

    common = {"max_position_embeddings": 32768, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, **SIZES}
    torch.manual_seed(0)
    model = getattr(transformers, f"{kind}ForCausalLM")(getattr(transformers, f"{kind}Config")(vocab_size=len(tokens), **common))
    spread(model)
    model.save_pretrained(folder)
    tokens.save_pretrained(folder)


def encoder_decoder(folder: Path) -> None:
    """A T5."""
    import torch
    from transformers import T5Config, T5ForConditionalGeneration

    tokens = tokenizer(chat=False)
    torch.manual_seed(0)
    options = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0}
    model = T5ForConditionalGeneration(T5Config(vocab_size=len(tokens), n_positions=32768, eos_token_id=2, pad_token_id=0, **options))
    spread(model)
    model.save_pretrained(folder)
    tokens.save_pretrained(folder)


def classifier(folder: Path, labels: Sequence[str]) -> None:
    """A BERT that gives each label of a pair a score."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    tokens = tokenizer(chat=False)
    torch.manual_seed(0)
    options: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    names = {"id2label": dict(enumerate(labels)), "label2id": {name: number for number, name in enumerate(labels)}}
    model = BertForSequenceClassification(BertConfig(vocab_size=len(tokens), pad_token_id=0, **options, **names))
    spread(model)
    model.save_pretrained(folder)
    tokens.model_max_length = 512
    tokens.save_pretrained(folder)


def adapter(base: Path, folder: Path, task: str, labels: int = 1) -> None:
    """A low-rank adapter of a base as PEFT saves it; for a classifier with the score head in it."""
    import torch
    import transformers
    from peft import LoraConfig, get_peft_model

    kind, options = ("AutoModelForCausalLM", {}) if task == "CAUSAL_LM" else ("AutoModelForSequenceClassification", {"num_labels": labels})
    torch.manual_seed(1)
    model = getattr(transformers, kind).from_pretrained(base, dtype=torch.float32, **options)
    layers = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    made: Any = get_peft_model(model, LoraConfig(task_type=task, r=4, lora_alpha=8, target_modules=layers))
    with torch.no_grad():
        for name, weight in made.named_parameters():
            if "lora_B" in name or "score" in name:
                weight.normal_(std=0.5)
    made.save_pretrained(str(folder))


def spread(model: Any) -> None:
    """Make weights large enough that other inputs give clearly other outputs."""
    import torch

    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.mul_(6.0)


def main(argv: Sequence[str] | None = None) -> int:
    """Write all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    make(parser.parse_args(argv).folder)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
