"""Saving and loading checkpoints: bit-identical, readable by plain PEFT; and the pocket model as a base."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import folder_sha256
from methods.clara.checkpoint import read_config, require_checkpoint
from methods.clara.config import ADAPTERS, ClaraConfig
from methods.clara.model import Clara
from methods.clara.prompts import answer, answer_from_text, paraphrase, qa_pairs, qa_target
from methods.models import pocket
from methods.training.stages import card_of
from tests.support.errors import raises

TEXTS = ["Ana was born in 1850 .", "moss grows on the old stone bridge ."]
PROMPTS = [answer("who ?", 1), qa_pairs()]
Make = Callable[..., Any]


@pytest.fixture
def trained(make_clara: Make, kind: str) -> Any:
    clara = make_clara(kind, rate=8, tau=0.05)
    clara.module.rows.memory.data.add_(torch.randn(2, 32, generator=torch.Generator().manual_seed(1)))
    return clara


def test_saved_checkpoint_loads_bit_identical(trained: Any, tmp_path: Path) -> None:
    trained.save(tmp_path / "one")
    again = Clara.load(tmp_path / "one", "cpu")
    assert again.config == trained.config
    assert again.trainable_parameters() == {}
    for (name, item), (other_name, other) in zip(trained.module.state_dict().items(), again.module.state_dict().items(), strict=True):
        assert name == other_name
        assert torch.equal(item, other), name
    for adapter in (*ADAPTERS, None):
        assert torch.equal(again.encode(TEXTS, adapter).memory, trained.encode(TEXTS, adapter).memory)
    memory = trained.encode(TEXTS).memory
    loss = trained.cross_entropy(PROMPTS, memory, ["Ana", "moss"])
    assert torch.equal(again.cross_entropy(PROMPTS, memory, ["Ana", "moss"]), loss)


@pytest.mark.slow
def test_checkpoint_files_are_reproducible_without_base_weights_or_local_paths(
    trained: Any, tmp_path: Path, base_folders: dict[str, str]
) -> None:
    trained.save(tmp_path / "one")
    Clara.load(tmp_path / "one", "cpu").save(tmp_path / "two")
    assert folder_sha256(tmp_path / "one") == folder_sha256(tmp_path / "two")
    files = {path.relative_to(tmp_path / "one").as_posix() for path in (tmp_path / "one").rglob("*") if path.is_file()}
    inside = {f"{name}/adapter_{part}" for name in ADAPTERS for part in ("config.json", "model.safetensors")}
    assert files == {"clara.json", "memory.safetensors", *inside}
    settings = json.loads((tmp_path / "one" / "compressor" / "adapter_config.json").read_text())
    assert settings["target_modules"] == sorted(settings["target_modules"])
    assert "peft_version" not in settings


@pytest.mark.slow
def test_every_adapter_loads_with_plain_peft(trained: Any, tmp_path: Path) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    trained.save(tmp_path)
    for name in ADAPTERS:
        base = AutoModelForCausalLM.from_pretrained(trained.config.base, dtype=torch.float32)
        plain = PeftModel.from_pretrained(base, str(tmp_path / name)).eval()
        ids = torch.tensor([[5, 9, 20, 33, 7]])
        with torch.no_grad(), trained.use(name):
            assert torch.equal(plain(input_ids=ids).logits, trained.adapters.model(input_ids=ids).logits)
        with torch.no_grad(), trained.use(None):
            assert not torch.equal(plain(input_ids=ids).logits, trained.adapters.model(input_ids=ids).logits)


def test_model_may_have_a_subset_of_the_adapters(make_clara: Make, base_folders: dict[str, str], tmp_path: Path) -> None:
    config = ClaraConfig(base=base_folders["Llama"], max_length=16, rate=4)
    Clara.open(config, ("compressor", "generator"), "cpu").save(tmp_path)
    again = Clara.load(tmp_path, "cpu")
    assert again.adapters.names == ["compressor", "generator"]
    with pytest.raises(KeyError, match="reasoner"):
        again.encode(TEXTS, "reasoner")


def test_checkpoint_of_another_base_is_refused(base_folders: dict[str, str], tmp_path: Path) -> None:
    base = shutil.copytree(base_folders["Llama"], tmp_path / "base")
    Clara.open(ClaraConfig(base=str(base), max_length=16, rate=4), device="cpu").save(tmp_path / "one")
    assert read_config(tmp_path / "one")[1] == ADAPTERS
    shutil.copyfile(Path(base_folders["Qwen3"]) / "model.safetensors", base / "model.safetensors")
    with raises("checkpoint-base-mismatch"):
        Clara.load(tmp_path / "one", "cpu")


def test_folder_without_a_checkpoint_is_refused(make_clara: Make, tmp_path: Path) -> None:
    with raises("not-checkpoint-clara"):
        Clara.load(tmp_path, "cpu")
    with raises("not-checkpoint-clara") as caught:
        require_checkpoint(str(tmp_path), where="model")
    assert caught.value.where == "model"
    make_clara().save(tmp_path)
    assert require_checkpoint(str(tmp_path), where="model") == tmp_path
    reported = json.loads((tmp_path / "clara.json").read_text())
    for damaged, message in (({"layout": 9}, "has layout 9"), ({"config": {"rate": "x"}}, "is damaged")):
        (tmp_path / "clara.json").write_text(json.dumps(reported | damaged))
        with pytest.raises(UserError, match=message):
            Clara.load(tmp_path, "cpu")


@pytest.mark.slow
def test_damaged_and_foreign_weights_are_refused(make_clara: Make, tmp_path: Path) -> None:
    make_clara().save(tmp_path / "one")
    make_clara(lora={"r": 2}).save(tmp_path / "two")
    path = tmp_path / "one" / "generator" / "adapter_model.safetensors"
    shutil.copyfile(tmp_path / "two" / "generator" / "adapter_model.safetensors", path)
    with raises("tensor-names-mismatch") as caught:
        Clara.load(tmp_path / "one", "cpu")
    assert caught.value.where == str(path)
    # Cut short, as a copy is that was interrupted.
    path.write_bytes(path.read_bytes()[:-100])
    with raises("unreadable-file"):
        Clara.load(tmp_path / "one", "cpu")


@pytest.fixture(scope="module")
def small() -> Clara:
    return Clara.open(ClaraConfig(base="pocket", max_length=64, rate=16), device="cpu", seed=1)


@pytest.mark.slow
def test_pocket_model_prompts_have_its_own_format(small: Clara) -> None:
    block = small.tokens.memory
    read = [small.tokenizer.decode(small.generator.prompt_ids(item)) for item in (*PROMPTS, paraphrase(4))]
    assert read[0] == f"<s>[1]{block}\n\nQuestion: who ?\nAnswer:"
    assert read[1] == f"<s>[1]{block}\n\nQuestion:"
    assert read[2] == f"<s>[1]{block}\n\nParaphrase:"
    two = small.tokenizer.decode(small.generator.prompt_ids(answer("who ?", 2)))
    assert two == f"<s>[1]{block}\n\n[2]{block}\n\nQuestion: who ?\nAnswer:"
    pairs = small.tokenizer.decode(small.generator.target_ids(qa_target(["who ?", "where ?"], ["Ana", "Bor"])))
    assert pairs == " who ?\nAnswer: Ana\nQuestion: where ?\nAnswer: Bor</s>"
    assert small.tokenizer.decode(small.generator.target_ids("Ana")) == " Ana</s>"


@pytest.mark.slow
def test_text_prompt_of_the_pocket_model_equals_that_of_its_reader(small: Clara) -> None:
    from benchmarks.schema import Passage

    passages = [Passage("a", "Bridge", "It  is old ."), Passage("b", "", "Moss .")]
    texts = [f"{passage.title}: {passage.text}" if passage.title else passage.text for passage in passages]
    for query, value in ((answer_from_text("who ?", texts), passages), (answer("who ?", 0), [])):
        expected = small.tokenizer(pocket.answer_prompt("who ?", value))["input_ids"]
        assert small.generator.prompt_ids(query) == expected


def test_pocket_model_without_adapters_answers_like_its_reader(small: Clara) -> None:
    from methods.models.causal import CausalConfig, CausalModel

    texts = ["Velmar Dosk: Velmar Dosk was born in 1850.", "The bridge is old."]
    question = "When was Velmar Dosk born?"
    plain = CausalModel(CausalConfig(model="pocket", max_new_tokens=8), "cpu")
    query = f"{pocket.context([])}[1] {texts[0]}\n\n[2] {texts[1]}\n\n{pocket.asking(question)}"
    expected = plain.generate([plain.render("", query)])[0]
    (result,) = small.generate([answer_from_text(question, texts)], None, 8, adapter=None)
    assert result.text == expected.text.strip()
    assert result.prompt_tokens == expected.prompt_tokens


def test_compressor_tokenizes_the_first_word_of_a_title_as_one_token(small: Clara) -> None:
    # A title stands before a colon, as the pocket model was trained to read passages.
    plain = small.tokenizer(" The old bridge: fell.", add_special_tokens=False)
    ids = small.compressor.ids(["The old  bridge\nfell."])[0]
    assert ids == [small.tokens.begin, small.tokenizer.bos_token_id, *plain["input_ids"], small.tokenizer.eos_token_id]


@pytest.mark.slow
def test_pocket_checkpoint_names_its_base_without_a_local_path(small: Clara, tmp_path: Path) -> None:
    small.save(tmp_path)
    for path in tmp_path.rglob("*.json"):
        assert str(Path(pocket.__file__).parent) not in path.read_text()
    assert json.loads((tmp_path / "generator" / "adapter_config.json").read_text())["base_model_name_or_path"] == "pocket"
    again = Clara.load(tmp_path, "cpu")
    assert torch.equal(again.encode(TEXTS).memory, small.encode(TEXTS).memory)


def test_damaged_card_of_a_checkpoint_is_not_to_be_deleted(tmp_path: Path) -> None:
    (tmp_path / "clara.json").write_text('{"layout": 1', "utf-8")
    (tmp_path / "ragmeter.json").write_text("{", "utf-8")
    for read in (read_config, lambda folder: card_of(str(folder))):
        with raises("unreadable-checkpoint-file"):
            read(tmp_path)
