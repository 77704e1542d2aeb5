"""Language models of the classes that CLaRa supports: random weights, a word-level vocabulary, chat templates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

KINDS = ("Mistral", "Llama", "Phi3", "Qwen3")
WORDS = """the old stone bridge moss grows on north side of a painter lived in cold cabin by river who where was born
year 1850 1921 Ana Bor Cal Dun Question Answer Background : , . ? ! you are helpful assistant and or what"""
SPECIAL = {
    "Mistral": ("<unk>", "<s>", "</s>", "[INST]", "[/INST]"),
    "Llama": ("<pad>", "<s>", "</s>", "<|start|>", "<|eot|>"),
    "Phi3": ("<pad>", "<s>", "</s>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"),
    "Qwen3": ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"),
}
TEMPLATES = {
    # No system role, as Mistral 7B v0.2 has it.
    "Mistral": "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]"
    "{% elif m.role == 'assistant' %} {{ m.content }}{{ eos_token }}{% else %}"
    "{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}",
    "Llama": "{{ bos_token }}{% for m in messages %}<|start|>{{ m.role }}\n\n{{ m.content | trim }}<|eot|>{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n\n{% endif %}",
    "Phi3": "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}",
    # Thinks aloud unless it is disabled.
    "Qwen3": "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}<think>\n\n</think>\n\n"
    "{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}",
}
TURN_ENDS = {"Mistral": "</s>", "Llama": "<|eot|>", "Phi3": "<|end|>", "Qwen3": "<|im_end|>"}


def tokenizer(kind: str) -> Any:
    """Make a tokenizer of words and their bytes that keeps white space, so that decoding restores the text."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [word for word in dict.fromkeys(WORDS.split()) if len(word) > 1]
    entries = dict.fromkeys([*SPECIAL[kind], *letters, *words, *(f"Ġ{word}" for word in words)])
    raw = Tokenizer(models.BPE({entry: n for n, entry in enumerate(entries)}, [], ignore_merges=True))
    split = pre_tokenizers.Split(Regex(r" ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"), "isolated")
    raw.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(False, use_regex=False)])
    raw.decoder = decoders.ByteLevel()
    raw.add_special_tokens([AddedToken(item, special=True, normalized=False) for item in SPECIAL[kind]])
    if kind != "Qwen3":
        begin = [("<s>", raw.token_to_id("<s>"))]
        raw.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=begin)
    options: dict[str, str | None] = {"eos_token": "</s>", "bos_token": "<s>", "pad_token": "<pad>"}
    if kind == "Mistral":
        options |= {"pad_token": None, "unk_token": "<unk>"}
    if kind == "Qwen3":
        options = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    result = PreTrainedTokenizerFast(tokenizer_object=raw, **{name: item for name, item in options.items() if item})
    result.chat_template = TEMPLATES[kind]
    return result


def save(folder: Path, kind: str, padded_vocabulary: int = 0) -> str:
    """Write a base of a class.

    Args:
        folder: Where to.
        kind: Its class.
        padded_vocabulary: Rows of its embeddings that no token has, as Phi-3 and Qwen3 have them.
    """
    import torch
    import transformers

    words = tokenizer(kind)
    torch.manual_seed(5)
    ids = {"pad_token_id": words.pad_token_id or 0, "bos_token_id": words.bos_token_id}
    options: dict[str, dict[str, Any]] = {"Mistral": {"sliding_window": None}, "Qwen3": {"head_dim": 8}}
    more = options.get(kind, {})
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=len(words) + padded_vocabulary,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=64,
        max_position_embeddings=768,
        initializer_range=0.15,
        eos_token_id=words.eos_token_id,
        **ids,
        **more,
    )
    model = getattr(transformers, f"{kind}ForCausalLM")(config)
    torch.nn.init.normal_(model.get_output_embeddings().weight, std=0.35)
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    return str(folder)
