"""Published layouts: a converted random checkpoint computes what the original does; pickles of other objects than tensors are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.core.errors import UserError
from methods.baselines.compress.convert import convert
from methods.baselines.compress.model import SoftModel
from methods.training.released import pickled, released

pytestmark = pytest.mark.slow
LAYOUTS = ("autocompressor", "xrag", "cocom", "cocom-light", "pcc", "pcc-large", "pisco", "oscar")
TEXT, QUESTION = "The old stone bridge was built by a painter.", "Who built it?"


def ours(folder: Path, name: str, target: Path, **options: Any) -> SoftModel:
    """Convert a published checkpoint and load it."""
    below = {"xrag": folder / "llama", "pcc": folder / "pcc-decoder", "pcc-large": folder / "pcc-decoder"}.get(name)
    convert(released(str(folder / name)), target, str(below) if below else None, options, "cpu")
    return SoftModel.load(target, "cpu")


@pytest.mark.parametrize("name", LAYOUTS)
def test_converted_checkpoint_of_each_layout_gives_the_original_memory(name: str, checkpoints: Path, tmp_path: Path) -> None:
    more: dict[str, dict[str, Any]] = {"xrag": {"retriever": str(checkpoints / "encoder")}, "pcc": {"rate": 64}, "pcc-large": {"rate": 64}}
    options = more.get(name, {})
    model = ours(checkpoints, name, tmp_path / name, **options)
    with torch.inference_mode():
        (memory,) = model.encode([TEXT], [QUESTION])
    assert len(memory) == {
        "xrag": 1,
        "cocom-light": -(-(len(model.encoder_tokenizer(TEXT)["input_ids"])) // 16) if name == "cocom-light" else 0,
    }.get(name, model.system.count(model, TEXT))
    with torch.inference_mode():
        expected = by_hand(checkpoints, name, model)
    torch.testing.assert_close(memory, expected, atol=1e-4, rtol=1e-3)
    assert (tmp_path / name / "weights.safetensors").is_file()
    assert not list((tmp_path / name).rglob("*.bin"))


def by_hand(folder: Path, name: str, model: SoftModel) -> torch.Tensor:
    """Compute the memory of the text from the published tensors without ragmeter's classes."""
    from peft import PeftModel
    from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer

    raw = folder / name
    if name == "xrag":
        from safetensors.torch import load_file
        from sentence_transformers import SentenceTransformer

        vector = torch.from_numpy(SentenceTransformer(str(folder / "encoder"), device="cpu").encode([TEXT]))
        own = {
            key.removeprefix("projector.projector."): item
            for key, item in load_file(raw / "model.safetensors").items()
            if "projector" in key
        }
        inner = torch.nn.functional.gelu(vector @ own["0.weight"].T + own["0.bias"])
        return inner @ own["2.weight"].T + own["2.bias"]
    words = AutoTokenizer.from_pretrained(raw if name in ("pcc", "pcc-large", "autocompressor") else folder / "llama")
    ids = words(TEXT, add_special_tokens=False)["input_ids"]
    if name == "autocompressor":
        tensors = torch.load(raw / "pytorch_model.bin")
        base = AutoModelForCausalLM.from_pretrained(folder / "llama")
        base.load_state_dict({key: item for key, item in tensors.items() if "summary" not in key})
        vectors = torch.cat([base.get_input_embeddings()(torch.tensor(ids)), tensors["embed_summary.weight"]])
        return base.model(inputs_embeds=vectors[None]).last_hidden_state[0, -4:]
    if name == "oscar":
        tensors, network = torch.load(raw / "compressor" / "compressor.pth"), torch.load(raw / "compressor" / "mlp.pth")
        own = {key.removeprefix("custom_model."): item for key, item in tensors.items()}
        small = AutoModelForCausalLM.from_pretrained(folder / "llama", num_hidden_layers=1)
        small.load_state_dict({key: item for key, item in own.items() if "embed" not in key}, strict=False)
        small.model.norm = torch.nn.Identity()
        read = words(f"\nQuery:\n{QUESTION}Document:\n{TEXT}", add_special_tokens=False)["input_ids"]
        vectors = own["model.embed_tokens.weight"][[*read, *range(len(words), len(words) + 8)]]
        states = small.model(inputs_embeds=vectors[None]).last_hidden_state[0, -8:]
        return torch.relu(states @ network["0.weight"].T + network["0.bias"]) @ network["2.weight"].T + network["2.bias"]
    if name.startswith("pcc"):
        tensors = torch.load(raw / "memory_converter.bin")
        encoder: Any = AutoModelForCausalLM.from_pretrained(folder / "pcc-encoder" if name == "pcc-large" else raw)
        if name == "pcc-large":
            encoder = PeftModel.from_pretrained(encoder, raw)
        read = [*ids, *words.convert_tokens_to_ids([f"<mem_{n}>" for n in range(4)])]
        states = encoder(torch.tensor([read]), output_hidden_states=True).hidden_states[-1][0, -4:]
        normed = states * torch.rsqrt(states.pow(2).mean(-1, keepdim=True) + 1e-6) * tensors["RMSNorm.weight"]
        inner = torch.nn.functional.gelu(normed @ tensors["dense_in.weight"].T + tensors["dense_in.bias"])
        return inner @ tensors["dense_out.weight"].T + tensors["dense_out.bias"]
    if name == "cocom-light":
        tensors = torch.load(raw / "pytorch_model.bin")
        encoder = AutoModel.from_pretrained(folder / "encoder")
        encoder.load_state_dict({key.removeprefix("compr.model."): item for key, item in tensors.items() if key.startswith("compr.model.")})
        read = AutoTokenizer.from_pretrained(folder / "encoder")(TEXT, pad_to_multiple_of=16, padding=True, return_tensors="pt")
        states = encoder(**read).last_hidden_state[0]
        groups = states.reshape(-1, 16 * states.shape[1])
        return groups @ tensors["compr.linear.weight"].T + tensors["compr.linear.bias"]
    # PISCO and COCOM: the whole resized base with the adapter in it, as the authors' code runs it.
    adapter = folder / f"{name}-peft"
    base = AutoModelForCausalLM.from_pretrained(folder / "llama")
    words.add_special_tokens({"additional_special_tokens": [*(f"<MEM{n}>" for n in range(8)), "<AE>", "<ENC>", "<SEP>"]})
    base.resize_token_embeddings(len(words))
    table = torch.load(raw / "decoder_first_last_layers.pth")["model.embed_tokens.weight"] if name == "pisco" else None
    if table is None:
        table = torch.load(raw / "pytorch_model.bin")["decoder.base_model.model.model.embed_tokens.weight"]
    base.get_input_embeddings().weight.copy_(table)
    tuned: Any = PeftModel.from_pretrained(base, adapter)
    read = words("<ENC><s>" + TEXT + "</s>" + "".join(f"<MEM{n}>" for n in range(8)), add_special_tokens=False)["input_ids"]
    return tuned.base_model.model.model(torch.tensor([read])).last_hidden_state[0, -8:]


def test_clara_is_read_by_the_same_importer(checkpoints: Path, tmp_path: Path) -> None:
    from methods.clara.convert import convert as convert_clara
    from methods.clara.model import Clara

    convert_clara(released(str(checkpoints / "clara")), tmp_path / "clara", str(checkpoints / "llama"), {}, "cpu")
    clara = Clara.load(tmp_path / "clara", "cpu")
    pisco = ours(checkpoints, "pisco", tmp_path / "pisco")
    with torch.inference_mode():
        # The two checkpoints hold the same tensors.
        torch.testing.assert_close(clara.encode([TEXT]).memory[0], pisco.encode([TEXT])[0], atol=1e-4, rtol=1e-3)


def test_folder_that_is_not_such_a_checkpoint_is_refused(checkpoints: Path, tmp_path: Path) -> None:
    class Harmful:
        def __reduce__(self) -> tuple[Any, ...]:
            return print, ("run",)

    for value in ({"a": Harmful()}, {"a": torch.zeros(1), "b": "text"}, [torch.zeros(1)]):
        torch.save(value, tmp_path / "x.pth")
        with pytest.raises(UserError, match="more than tensors"):
            pickled(tmp_path / "x.pth")
    # Another base: its embeddings are not those below the checkpoint.
    from transformers import AutoModelForCausalLM, AutoTokenizer

    other = AutoModelForCausalLM.from_pretrained(checkpoints / "llama")
    with torch.no_grad():
        other.get_input_embeddings().weight[7] += 0.1
    for part in (other, AutoTokenizer.from_pretrained(checkpoints / "llama")):
        part.save_pretrained(tmp_path / "other")
    with pytest.raises(UserError, match="not those of the base"):
        convert(released(str(checkpoints / "pisco")), tmp_path / "no", str(tmp_path / "other"), {}, "cpu")
    assert not (tmp_path / "no").exists()
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    with pytest.raises(UserError, match="not laid out as"):
        _ = released(str(tmp_path)).layout
