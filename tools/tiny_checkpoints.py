"""`python -m tools.tiny_checkpoints FOLDER`: random checkpoints of layouts that rerankers, compressors and end-to-end systems have.

They rank and answer as dice do, and take a few kilobytes. With them every row of a table runs here as it would with the real
weights: the classes, files, names and types are those, `ragmeter run sark/table1 --profile tiny` looks for them in `tiny/`
where it is called.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from methods.baselines.end_to_end.self_rag import TAGS
from methods.baselines.rq_rag import ANSWER_TOKEN, END_TOKEN, QUERY_TOKENS
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
    "phi4": "Phi3",
    "rq-rag": "Llama",
}
CHATLESS = {"llama", "chatqa", "selfrag", "rq-rag"}
"""Causal models without a chat template; of the class Llama, and their own tokens."""
OWN_TOKENS = {"selfrag": TAGS, "chatqa": (END_OF_TURN,), "rq-rag": (*QUERY_TOKENS, ANSWER_TOKEN, END_TOKEN)}
ADAPTERS: Mapping[str, tuple[str, str]] = {
    "rankllama": ("llama", "SEQ_CLS"),
    "rank-r1": ("qwen2.5", "CAUSAL_LM"),
    "retrobust": ("llama", "CAUSAL_LM"),
    "ddr/Kr_model_for_Llama3_8b": ("llama3", "CAUSAL_LM"),
    "ddr/Gen_model_Llama3_8b": ("llama3", "CAUSAL_LM"),
}
"""Adapters, the base of each, and what they are for."""
MEMORY_MODELS = {"memorag-qwen2": "Qwen2", "memorag-mistral": "Mistral"}
"""Language models with beacons, and their classes."""
BEACONS = {"beacon_window": 32, "beacon_stride": 32, "beacon_attn": "full-coverage", "beacon_pos": "interleave", "beacon_sink_size": 0}
BEACONS |= {"beacon_ratio": [2, 4, 8], "beacon_ratio_mix": "step-random", "beacon_param": ["q", "k", "v"], "beacon_embed_init": "eos"}
BEACONS |= {"beacon_attend_prev": True, "beacon_parallel_window": 1}
CLASSIFIERS = {"bge": ("relevant",), "dpa-rag": ("unaligned", "aligned"), "mnli": ("contradiction", "neutral", "entailment")}
"""Classifiers of pairs, and their labels."""
ENCODERS = {"qwen3-embedding": ("Qwen3", "lasttoken"), "distilbert": ("DistilBert", "cls"), "bge-reranker": ("XLMRoberta", "cls")}
"""Encoders that ARK, GPR and SARK train in the papers, their classes, and which token is a text's vector."""


def tokenizer(chat: bool, more: Sequence[str] = ()) -> Any:
    """Build a byte-level BPE tokenizer with frequent pairs of the rerankers' prompts, so that prompts have a realistic length."""
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
    """Write the tiny test checkpoints that do not exist yet.

    Args:
        folder: Destination; one folder per checkpoint.
        names: Names of checkpoints; None writes all.
    """
    wanted = [*CAUSAL, *MEMORY_MODELS, "flan-t5", *ADAPTERS, *CLASSIFIERS, *ENCODERS] if names is None else names
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
        elif name in MEMORY_MODELS:
            memory_model(target, MEMORY_MODELS[name], tokenizer(chat=True))
        elif name in CLASSIFIERS:
            classifier(target, CLASSIFIERS[name])
        elif name in ENCODERS:
            encoder(target, *ENCODERS[name])
        else:
            causal(target, CAUSAL[name], tokenizer(name not in CHATLESS, OWN_TOKENS.get(name, ())))


def causal(folder: Path, kind: str, tokens: Any) -> None:
    """Write a tiny causal language model of a given class."""
    import torch
    import transformers

    common = {"max_position_embeddings": 32768, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, **SIZES}
    torch.manual_seed(0)
    model = getattr(transformers, f"{kind}ForCausalLM")(getattr(transformers, f"{kind}Config")(vocab_size=len(tokens), **common))
    spread(model)
    model.save_pretrained(folder)
    tokens.save_pretrained(folder)


def memory_model(folder: Path, kind: str, tokens: Any) -> None:
    """Write a tiny language model with beacons in the layout of MemoRAG's authors; its weights are independent of library
    initialization.
    """
    import numpy as np
    import torch
    import transformers
    from safetensors.torch import load_file, save_file

    options = {"max_position_embeddings": 2048, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, **SIZES, **BEACONS}
    window = {"sliding_window": None} if kind == "Mistral" else {}
    config = getattr(transformers, f"{kind}Config")(vocab_size=len(tokens), tie_word_embeddings=False, **options, **window)
    getattr(transformers, f"{kind}ForCausalLM")(config).save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    for name in list(tensors):
        if "self_attn" in name and name.split(".")[-2][0] in "qkv":
            tensors[name.replace("self_attn.", "self_attn.beacon_")] = tensors[name]
    tensors["model.beacon_embed_tokens.weight"] = tensors["model.embed_tokens.weight"][:1]
    drawn = np.random.default_rng(0)
    for name, weight in sorted(tensors.items()):
        values = torch.from_numpy(drawn.standard_normal(tuple(weight.shape)) * 0.2).float()
        tensors[name] = values + 1 if "norm" in name else values
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    tokens.save_pretrained(folder)


def encoder_decoder(folder: Path) -> None:
    """Write a tiny T5."""
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
    """Write a tiny BERT classifier that scores each label of a pair of texts."""
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


def encoder(folder: Path, kind: str, pooling: str) -> None:
    """An encoder of a class, as sentence-transformers reads it."""
    import torch
    import transformers
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from tokenizers.processors import TemplateProcessing

    tokens = tokenizer(chat=False)
    if pooling == "cls":
        tokens.add_special_tokens({"mask_token": "<mask>"})
    ends = [(token, tokens.convert_tokens_to_ids(token)) for token in ("<s>", "</s>")]
    tokens.backend_tokenizer.post_processor = TemplateProcessing(single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=ends)
    torch.manual_seed(0)
    sizes = {**SIZES, "max_position_embeddings": 1024, "pad_token_id": 0}
    if kind == "DistilBert":
        sizes |= {"dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 4}
    model = getattr(transformers, f"{kind}Model")(getattr(transformers, f"{kind}Config")(vocab_size=len(tokens), **sizes))
    spread(model)
    tokens.cls_token, tokens.sep_token, tokens.model_max_length = "<s>", "</s>", 512
    model.save_pretrained(folder)
    tokens.save_pretrained(folder)
    SentenceTransformer(modules=[Transformer(str(folder)), Pooling(32, pooling)]).save(str(folder))


def adapter(base: Path, folder: Path, task: str, labels: int = 1, seed: int = 1, more: Sequence[str] = ()) -> None:
    """Write a LoRA adapter of a base in PEFT's layout; for a classifier, with its score head."""
    import torch
    import transformers
    from peft import LoraConfig, get_peft_model

    kind, options = ("AutoModelForCausalLM", {}) if task == "CAUSAL_LM" else ("AutoModelForSequenceClassification", {"num_labels": labels})
    torch.manual_seed(seed)
    model = getattr(transformers, kind).from_pretrained(base, dtype=torch.float32, **options)
    made: Any = get_peft_model(model, LoraConfig(task_type=task, r=4, lora_alpha=8, target_modules=[*LAYERS, *more]))
    with torch.no_grad():
        for name, weight in made.named_parameters():
            if "lora_B" in name or "lora_embedding" in name or "score" in name:
                weight.normal_(std=0.5)
    made.save_pretrained(str(folder))


LAYERS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
MEMORY = [*(f"<MEM{number}>" for number in range(8)), "<AE>", "<ENC>", "<SEP>"]


def published(folder: Path) -> None:
    """Write random checkpoints in each published layout, with their base models."""
    import json

    import torch
    from safetensors.torch import save_file

    folder = folder.absolute()
    make(folder, ["llama"])
    sentence_encoder(folder / "encoder")
    _classifiers(folder)
    base = _causal(folder / "llama")
    width, draw = base.config.hidden_size, torch.Generator().manual_seed(4)

    def drawn(*shape: int) -> Any:
        return torch.randn(*shape, generator=draw) * 0.3

    def write(name: str, config: dict[str, Any], **files: dict[str, Any]) -> None:
        (folder / name).mkdir(exist_ok=True)
        if config:
            (folder / name / "config.json").write_text(json.dumps(config))
        for file, tensors in files.items():
            torch.save(tensors, folder / name / {"model": "pytorch_model.bin"}.get(file, file.replace("__", ".")))

    llama = {name: item.clone() for name, item in base.state_dict().items()}
    tokens = _tokenizer(folder / "llama")
    summaries = {**llama, "embed_summary.weight": drawn(4, width)}
    write("autocompressor", {**base.config.to_dict(), "architectures": ["LlamaAutoCompressorModel"], "summary_length": 4}, model=summaries)
    tokens.save_pretrained(folder / "autocompressor")
    tokens.chat_template = CHAT  # the bases of all others have one
    tokens.save_pretrained(folder / "llama")
    (folder / "xrag").mkdir(exist_ok=True)
    (folder / "xrag" / "config.json").write_text(json.dumps({**base.config.to_dict(), "retriever_hidden_size": 32}))
    projector = {
        f"projector.projector.{at}.{kind}": drawn(width, *([32] * (kind == "weight"))) for at in (0, 2) for kind in ("weight", "bias")
    }
    save_file({**llama, **projector}, str(folder / "xrag" / "model.safetensors"))
    _pcc(folder, width, drawn)

    table = torch.cat([llama["model.embed_tokens.weight"], drawn(len(MEMORY), width)])
    ends = {"model.embed_tokens.weight": table, "lm_head.weight": torch.cat([llama["lm_head.weight"], drawn(len(MEMORY), width)])}
    common = {"decoder_model_name": str(folder / "llama"), "doc_max_length": 128, "compr_rate": 16, "lora_r": 4, "sep": True}
    for name in ("pisco", "cocom"):
        adapter(folder / "llama", folder / f"{name}-peft", "CAUSAL_LM", seed=len(name))
    own = {name: _lora(folder / f"{name}-peft") for name in ("pisco", "cocom")}
    adapters = {"encoder_adapter": own["pisco"], "decoder_adapter": own["cocom"]}
    memory = {**common, "different_mem_tokens": True, "compr_model_name": None}
    write("pisco", {**memory, "model_type": "COCOM"}, adapters__pth=adapters, decoder_first_last_layers__pth=ends)
    swapped = {"encoder_adapter": own["cocom"], "decoder_adapter": own["pisco"]}
    stages = {"clara-base": swapped, "clara": adapters, "clara-e2e": {**adapters, "query_reasoner_adapter": own["cocom"]}}
    for name, there in stages.items():
        write(name, {**memory, "model_type": "CLaRa"}, adapters__pth=there, decoder_first_last_layers__pth=ends)
    first_layers = {"compr_model_name": "mistral_trimmed", "compr_n_layers": 1, "compr_base_model_name": common["decoder_model_name"]}
    layers = {**memory, **first_layers, "compr_use_mlp": True, "compr_mlp_hidden_dim": 48}
    write("oscar", layers, adapters__pth={"decoder_adapter": own["cocom"]}, decoder_first_last_layers__pth=ends)
    encoder = {name: item + drawn(*item.shape) for name, item in llama.items() if "layers.1" not in name and name != "model.norm.weight"}
    encoder["model.embed_tokens.weight"] = torch.cat([encoder["model.embed_tokens.weight"], drawn(8, width)])
    connector = {"0.weight": drawn(48, width), "0.bias": drawn(48), "2.weight": drawn(width, 48), "2.bias": drawn(width)}
    write("oscar/compressor", {}, compressor__pth={f"custom_model.{name}": item for name, item in encoder.items()}, mlp__pth=connector)
    whole = {f"decoder.base_model.model.{name}": item for name, item in ends.items()}
    whole |= {f"decoder.base_model.model.{name}".replace(".weight", ".default.weight"): item for name, item in own["cocom"].items()}
    write("cocom", {**memory, "model_type": "COCOM"}, model=whole)
    light = {f"compr.model.{name}": item for name, item in _bert(folder / "encoder").state_dict().items()}
    light |= {"compr.linear.weight": drawn(width, 16 * 32), "compr.linear.bias": drawn(width)}
    single = torch.cat([llama["model.embed_tokens.weight"], table[-4:]])
    light |= {name: item for name, item in whole.items() if "lora_" in name}
    light["decoder.base_model.model.model.embed_tokens.weight"] = single
    write("cocom-light", {**memory, "model_type": "COCOM", "compr_model_name": str(folder / "encoder")}, model=light)


GOLDEN = {
    "zephyr": "rank-zephyr/checkpoint",
    "qwen3": "qwen3-reranker/checkpoint",
    "selfrag": "self-rag/checkpoint",
    "published/autocompressor": "autocompressor/legacy-true/checkpoint",
    "published/pisco": "pisco/legacy-true/checkpoint",
    "published/cocom": "cocom/checkpoint",
    "published/clara-base": "clara/Base/checkpoint",
    "published/clara": "clara/Instruct/checkpoint",
    "published/clara-e2e": "clara/E2E/checkpoint",
}
"""Checkpoints of `published` and `make`, and what the authors' own classes saved in their place."""
GOLDEN_BASES = {"published/pisco": "pisco/legacy-true/base", "published/cocom": "cocom/base"}
GOLDEN_BASES |= dict.fromkeys(("published/clara-base", "published/clara", "published/clara-e2e"), "clara/base-legacy-true")


def replace_by(folder: Path, golden: Path) -> list[str]:
    """Replace tiny checkpoints by those that the authors' own classes saved, and return their names.

    Args:
        folder: Folder that `make` and `published` wrote.
        golden: A folder with the layout of `GOLDEN`.
    """
    import json

    replaced = [name for name, source in GOLDEN.items() if (golden / source).is_dir()]
    for name in replaced:
        shutil.rmtree(folder / name, ignore_errors=True)
        shutil.copytree(golden / GOLDEN[name], folder / name)
        if (base := GOLDEN_BASES.get(name)) is not None:
            path = folder / name / "config.json"
            path.write_text(json.dumps({**json.loads(path.read_text()), "decoder_model_name": str(golden / base)}))
    return replaced


def _pcc(folder: Path, width: int, drawn: Any) -> None:
    """A GPT-2 with 64 memory tokens (Lite), an adapter on a Llama with them (Large), converters, the decoder with three new tokens."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    words = _tokenizer(folder / "llama")
    words.add_special_tokens({"additional_special_tokens": [f"<mem_{number}>" for number in range(64)]})
    large = _causal(folder / "llama")
    large.resize_token_embeddings(len(words))
    large.save_pretrained(folder / "pcc-encoder")
    words.save_pretrained(folder / "pcc-encoder")
    adapter(folder / "pcc-encoder", folder / "pcc-large", "CAUSAL_LM", more=["embed_tokens", "lm_head"])
    words.save_pretrained(folder / "pcc-large")
    sizes = {"n_embd": 24, "n_layer": 2, "n_head": 4, "bos_token_id": 1, "eos_token_id": 2, "initializer_range": 0.2}
    torch.manual_seed(2)
    GPT2LMHeadModel(GPT2Config(vocab_size=len(words), n_positions=512, **sizes)).save_pretrained(folder / "pcc")
    words.save_pretrained(folder / "pcc")
    for name, own in (("pcc", 24), ("pcc-large", width)):
        sides = {
            f"dense_{side}.{kind}": drawn(width, *([inner] * (kind == "weight")))
            for side, inner in (("in", own), ("out", width))
            for kind in ("weight", "bias")
        }
        torch.save({"RMSNorm.weight": drawn(own), **sides}, folder / name / "memory_converter.bin")
    decoder, tokens = _causal(folder / "llama"), _tokenizer(folder / "llama")
    tokens.add_special_tokens({"additional_special_tokens": ["<mem>", "</mem>", "<ae>"]})
    decoder.resize_token_embeddings(len(tokens))
    with torch.no_grad():
        decoder.get_input_embeddings().weight.add_(0.1)
    decoder.save_pretrained(folder / "pcc-decoder")
    tokens.save_pretrained(folder / "pcc-decoder")


def sentence_encoder(folder: Path) -> None:
    """Write a tiny BERT with mean pooling in sentence-transformers' layout."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    raw = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    raw.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    letters, inner = [chr(code) for code in range(33, 127)], "".join(chr(code) for code in range(48, 123) if chr(code).isalnum())
    trainer = trainers.WordPieceTrainer(vocab_size=400, initial_alphabet=letters, special_tokens=specials, show_progress=False)
    raw.train_from_iterator([f"{letter}{inner}" for letter in inner], trainer)
    raw.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), specials, strict=True))
    words = PreTrainedTokenizerFast(tokenizer_object=raw, model_max_length=512, **names)
    torch.manual_seed(3)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = BertModel(BertConfig(vocab_size=len(words), max_position_embeddings=512, **sizes))
    spread(model)
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    transformer = Transformer(str(folder))
    SentenceTransformer(modules=[transformer, Pooling(32)]).save(str(folder))


def _classifiers(folder: Path) -> None:
    """LLMLingua-2 (a class of each token), DSLR (one of the whole) and Provence (a DeBERTa with both), with the encoder's tokenizer."""
    import torch
    import transformers
    from safetensors.torch import load_file, save_file

    words = _tokenizer(folder / "encoder")
    sizes = {"vocab_size": len(words), "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    kinds = {
        "llmlingua2": ("BertForTokenClassification", 2),
        "dslr": ("BertForSequenceClassification", 1),
        "provence": ("DebertaV2ForSequenceClassification", 1),
    }
    for number, (name, (kind, labels)) in enumerate(kinds.items()):
        torch.manual_seed(number)
        options = transformers.DebertaV2Config if name == "provence" else transformers.BertConfig
        model = getattr(transformers, kind)(options(**sizes, num_labels=labels, max_position_embeddings=512))
        spread(model)
        model.save_pretrained(folder / name)
        words.save_pretrained(folder / name)
    path = str(folder / "provence" / "model.safetensors")
    head = {"token_classifier.weight": torch.randn(2, 32), "token_classifier.bias": torch.zeros(2)}
    save_file({**load_file(path), **head}, path, {"format": "pt"})


def _causal(folder: Path) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def _tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


def _bert(folder: Path) -> Any:
    from transformers import AutoModel

    return AutoModel.from_pretrained(folder)


def _lora(folder: Path) -> dict[str, Any]:
    """An adapter's tensors as a language model of transformers hands them out."""
    from safetensors.torch import load_file

    return {name.removeprefix("base_model.model."): item for name, item in load_file(folder / "adapter_model.safetensors").items()}


def spread(model: Any) -> None:
    """Scale weights up, so that different inputs give clearly different outputs."""
    import torch

    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.mul_(6.0)


def main(argv: Sequence[str] | None = None) -> int:
    """Write all tiny checkpoints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--golden", type=Path, help="Folder of checkpoints that the authors' classes saved; they replace ours.")
    options = parser.parse_args(argv)
    make(options.folder)
    published(options.folder / "published")
    if options.golden is not None:
        print("of the authors' classes:", ", ".join(replace_by(options.folder, options.golden)) or "none")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
