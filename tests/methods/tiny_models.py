"""Models of real classes with random weights, saved in published layouts."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

WORDS = """a the in of is was where who which town river moss grows on north side stone bridge painter lived born year
long cold old new cabin built by not query passage : represent this sentence for searching relevant passages instruct
given web search retrieve that answer evidence documents document retrieval . , ? ! - [ ] un ##used ##0"""
TEXTS = [
    "the old stone bridge",
    "moss grows on the north side of the stone",
    "a painter",
    "the painter lived in a cold cabin by the river , built in the year of the long bridge",
    "where was the painter born ?",
    "old",
]


def tokenizer(style: str = "bert", length: int = 64) -> Any:
    """Make a word-level tokenizer that adds the special tokens of BERT, XLM-R, Qwen3-Embedding or Mistral."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    names = {
        "bert": {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"},
        "xlmr": {"bos": "<s>", "pad": "<pad>", "eos": "</s>", "unk": "<unk>", "cls": "<s>", "sep": "</s>"},
        "qwen3": {"pad": "<|endoftext|>", "eos": "<|im_end|>", "unk": "<unk>"},
        "mistral": {"unk": "<unk>", "bos": "<s>", "eos": "</s>", "pad": "</s>"},
    }[style]
    letters = [*"abcdefghijklmnopqrstuvwxyz0123456789"]
    pieces = [*WORDS.split(), *letters, *(f"##{letter}" for letter in letters), "[unused0]", "[unused1]"]
    vocabulary = {token: number for number, token in enumerate(dict.fromkeys([*names.values(), *pieces]))}
    raw = Tokenizer(models.WordPiece(vocabulary, unk_token=names["unk"]))
    raw.normalizer = normalizers.BertNormalizer(lowercase=True)
    raw.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    single, pair = {
        "bert": ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1"),
        "xlmr": ("<s> $A </s>", "<s> $A </s> </s> $B </s>"),
        "qwen3": ("$A <|endoftext|>", "$A $B <|endoftext|>"),
        "mistral": ("<s> $A </s>", "<s> $A </s> $B </s>"),
    }[style]
    specials = [(token, vocabulary[token]) for token in dict.fromkeys(names.values()) if token in f"{single}{pair}"]
    raw.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=specials)
    options = {f"{kind}_token": token for kind, token in names.items()}
    inputs = ["input_ids", "attention_mask", *(["token_type_ids"] if style == "bert" else [])]
    side = "left" if style in {"qwen3", "mistral"} else "right"
    return PreTrainedTokenizerFast(tokenizer_object=raw, model_max_length=length, model_input_names=inputs, padding_side=side, **options)


def config(kind: str, size: int, **more: Any) -> Any:
    """Make a tiny configuration of a class: hidden size 32, two layers."""
    import transformers

    shared = {"vocab_size": size, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    shared |= {"intermediate_size": 48, "max_position_embeddings": 80, **more}
    return getattr(transformers, f"{kind}Config")(**shared)


def save(folder: Path, style: str, model: Any, length: int = 64) -> Path:
    """Write model and tokenizer."""
    model.save_pretrained(folder)
    tokenizer(style, length).save_pretrained(folder)
    return folder


def scaled(model: Any, by: float = 5.0) -> Any:
    """Scale weights so that different inputs give clearly different outputs."""
    import torch

    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(by)
    return model.eval()


def layout(folder: Path, size: int, modules: list[tuple[str, str, dict[str, Any]]], prompts: dict[str, str]) -> None:
    """Turn a folder into a SentenceTransformer's: modules next to the transformer, and prompts."""
    listed = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
    for number, (path, kind, settings) in enumerate(modules, start=1):
        listed.append({"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"})
        (folder / path).mkdir()
        (folder / path / "config.json").write_text(json.dumps(settings))
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": size, "do_lower_case": False}))
    (folder / "config_sentence_transformers.json").write_text(json.dumps({"prompts": prompts}))


def pooling(mode: str) -> tuple[str, str, dict[str, Any]]:
    """Write the pooling module of a layout with the old keys of published files."""
    kinds = {"cls": "cls_token", "mean": "mean_tokens", "lasttoken": "lasttoken"}
    settings = {f"pooling_mode_{name}": kind == mode for kind, name in kinds.items()}
    return "1_Pooling", "Pooling", {"word_embedding_dimension": 32, **settings}


def masked_language_model(kind: str = "Bert", dropout: float = 0.0) -> Any:
    """Make a masked language model over the words of `tokenizer()`."""
    import torch
    import transformers

    torch.manual_seed(0)
    size = len(tokenizer())
    if kind == "DistilBert":
        options = transformers.DistilBertConfig(
            vocab_size=size, dim=32, n_layers=2, n_heads=4, hidden_dim=48, dropout=dropout, attention_dropout=dropout
        )
    else:
        options = config(kind, size, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    return scaled(getattr(transformers, f"{kind}ForMaskedLM")(options), 3.0)


def colbert(folder: Path) -> Path:
    """Save `HF_ColBERT`: BERT under the prefix `bert.`, the projection as `linear.weight`, settings in a file."""
    import torch
    from safetensors.torch import save_file
    from transformers import BertModel

    torch.manual_seed(0)
    model = scaled(BertModel(config("Bert", 200)))
    save(folder, "bert", model)
    weights = {f"bert.{name}": value.contiguous() for name, value in model.state_dict().items()}
    save_file({**weights, "linear.weight": torch.randn(16, 32)}, folder / "model.safetensors", {"format": "pt"})
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**settings, "architectures": ["HF_ColBERT"]}))
    metadata = {
        "query_token_id": "[unused0]",
        "doc_token_id": "[unused1]",
        "query_maxlen": 32,
        "doc_maxlen": 60,
        "mask_punctuation": True,
        "attend_to_mask_tokens": False,
    }
    (folder / "artifact.metadata").write_text(json.dumps(metadata))
    return folder


THINKING_TEMPLATE = (
    "{%- for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n"
    "{%- if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
"""The start of a reply in Qwen3's template: an empty thought if thinking is switched off, else the model begins one itself."""


def thinker(folder: Path, template: str = THINKING_TEMPLATE) -> Path:
    """Save a Qwen3 whose next token depends only on the last one: it thinks "hm hm hm", then answers "Lyon for sure"."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

    chain = ["assistant", "<think>", "hm1", "hm2", "hm3", "</think>", "Lyon", "for", "sure", "<|im_end|>"]
    vocabulary = {token: number for number, token in enumerate(["<unk>", "<|endoftext|>", "<|im_start|>", *chain])}
    raw = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    raw.add_tokens(["<think>", "</think>"])
    raw.add_special_tokens(["<|im_start|>", "<|im_end|>", "<|endoftext|>"])
    tokens = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<|im_end|>", pad_token="<|endoftext|>", unk_token="<unk>")
    tokens.chat_template = template
    options = {"num_key_value_heads": 2, "head_dim": 8, "tie_word_embeddings": False, "eos_token_id": vocabulary["<|im_end|>"]}
    model = Qwen3ForCausalLM(config("Qwen3", len(vocabulary), **{**options, "max_position_embeddings": 512}))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.zero_()
        model.model.embed_tokens.weight[:, : len(vocabulary)] = torch.eye(len(vocabulary))
        for before, after in pairwise(chain):
            model.lm_head.weight[vocabulary[after], vocabulary[before]] = 1.0
    model.save_pretrained(folder)
    tokens.save_pretrained(folder)
    return folder
