"""The option `llm:`: local weights have the interface of an endpoint, and their replies depend only on the prompt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from benchmarks.core.errors import described
from methods.api import Services
from methods.flow import ordered
from methods.models.causal import CausalConfig, CausalModel
from methods.models.chat import ChatModel
from methods.models.decoding import Sampling
from methods.models.llm import LLM, chats, defaults, hosted, llm_hash, open_llm, with_chats
from methods.models.local_llm import LocalBackend, LocalConfig
from methods.presets import laid_over
from methods.registry import Component
from tests.support.errors import raises


def opened(config: LocalConfig, **options: Any) -> ChatModel:
    return open_llm(config, Services(**{"device": "cpu", **options}), role="r")


ASKED = [[{"role": "system", "content": "s"}, {"role": "user", "content": "word " * (3 * n + 1)}] for n in range(9)]


def test_llm_option_is_an_endpoint_or_local_and_errors_name_the_wrong_key() -> None:
    class Config(BaseModel):
        llm: Annotated[LLM, defaults(temperature=0.7, max_tokens=512, stop=("\n",))]

    endpoint, local = Config(llm={"model": "m", "max_tokens": 9}), Config(llm={"local": "folder"})  # type: ignore[arg-type]
    assert (endpoint.llm.temperature, endpoint.llm.max_tokens, endpoint.llm.parameters) == (0.7, 9, {"top_p": 1.0, "stop": ["\n"]})  # type: ignore[union-attr]
    assert (local.llm.temperature, local.llm.max_tokens, local.llm.stop) == (0.7, 512, ("\n",))  # type: ignore[union-attr]
    for config in (endpoint, local):
        assert Config.model_validate(config.model_dump()) == config
    with pytest.raises(ValidationError) as caught:
        Config(llm={"local": "folder", "base_url": "http://x"})  # type: ignore[arg-type]
    assert described(caught.value)[0] == "llm.base_url"
    assert isinstance(TypeAdapter(LLM).validate_python({"local": "a", "adapter": "b"}), LocalConfig)


@pytest.mark.slow
def test_local_replies_do_not_depend_on_the_batch(tiny_llama: str) -> None:
    model = opened(LocalConfig(local=tiny_llama, max_tokens=12, batch_size=2))
    plain = CausalModel(CausalConfig(model=tiny_llama, max_new_tokens=12, batch_size=1), "cpu")
    alone = [plain.generate([plain.render_chat(messages)])[0].text.strip() for messages in ASKED]
    assert [reply.text for reply in ordered(model.ask, ASKED, 9)] == alone
    longer = opened(LocalConfig(local=tiny_llama, max_tokens=30, batch_size=2))
    assert longer._backend.weights is model._backend.weights, "loaded once"  # type: ignore[attr-defined]
    # Two options and many questions in one batch: each has its own longest reply.
    replies = ordered(lambda item: item[0].ask(item[1]), [(who, m) for m in ASKED for who in (model, longer)], 18)
    assert [reply.text for reply in replies[::2]] == alone
    assert all(reply.completion_tokens <= 30 for reply in replies)
    assert max(reply.completion_tokens for reply in replies[::2]) <= 12


def test_samples_depend_only_on_prompt_seed_and_repetition(tiny_llama: str) -> None:
    def drawn(seed: int, repetition: int, count: int) -> list[str]:
        model = opened(LocalConfig(local=tiny_llama, max_tokens=8, temperature=1.0), seed=seed)
        return [reply.text for reply in ordered(lambda m: model.ask(m, repetition=repetition), ASKED[:count], 9)]

    assert drawn(1, 0, 3) == drawn(1, 0, 9)[:3]
    assert len({tuple(drawn(*which, 3)) for which in ((1, 0), (1, 1), (2, 0))}) == 3
    assert Sampling(1.0, seed=1).seeds(["0\0p"]) != Sampling(1.0, seed=1).seeds(["1\0p"])


def test_too_long_prompt_fails_alone_stop_strings_cut_and_json_is_requested_in_the_prompt(tiny_llama: str) -> None:
    model = opened(LocalConfig(local=tiny_llama, max_tokens=8, max_prompt_tokens=200))
    long, short = ordered(model.ask, [[{"role": "user", "content": "word " * 900}], ASKED[0]], 2)
    assert (long.calls, long.text) == (0, "")
    assert long.failed is not None
    assert short.failed is None
    cut = opened(LocalConfig(local=tiny_llama, max_tokens=8, stop=(short.text[3],)))
    assert ordered(cut.ask, [ASKED[0]], 1)[0].text == short.text[:3].partition(short.text[3])[0].strip()

    class Verdict(BaseModel):
        good: bool

    roomy = opened(LocalConfig(local=tiny_llama, max_tokens=8))
    plain, shaped = (ordered(lambda m, s=s: roomy.ask(m, shape=s), [ASKED[0]], 1)[0] for s in (None, Verdict))  # type: ignore[misc]
    assert shaped.prompt_tokens > plain.prompt_tokens


def test_adapter_changes_replies_and_fingerprint(tiny_llama: str, tmp_path: Path) -> None:
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(1)
    adapted = get_peft_model(AutoModelForCausalLM.from_pretrained(tiny_llama), LoraConfig(r=2, target_modules=["q_proj", "v_proj"]))
    for name, weight in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=2.0)
    adapted.save_pretrained(str(tmp_path))
    config = LocalConfig(local=tiny_llama, max_tokens=12, adapter=str(tmp_path))
    plain = config.model_copy(update={"adapter": None})
    assert llm_hash(config) != llm_hash(plain)
    texts = [[r.text for r in ordered(opened(c).ask, ASKED, 9)] for c in (config, plain)]
    assert texts[0] != texts[1]
    bare = CausalModel(CausalConfig(model=tiny_llama, max_new_tokens=12), "cpu")
    bare.model = adapted.eval()
    assert texts[0] == [bare.generate([bare.render_chat(messages)])[0].text.strip() for messages in ASKED]


@pytest.mark.parametrize("file", ["chat_template.jinja", "tokenizer_config.json"])
def test_adapter_with_another_chat_template_than_its_base_is_refused(file: str, tiny_llama: str, tmp_path: Path) -> None:
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer

    get_peft_model(AutoModelForCausalLM.from_pretrained(tiny_llama), LoraConfig(r=2, target_modules=["q_proj"])).save_pretrained(tmp_path)
    config = LocalConfig(local=tiny_llama, adapter=str(tmp_path))

    def save(template: str | None) -> None:
        json_ = file == "tokenizer_config.json"
        (tmp_path / file).write_text(json.dumps({"chat_template": template}) if json_ else template or "", "utf-8")

    own = AutoTokenizer.from_pretrained(tiny_llama).chat_template
    save(f"{own or ''}\n")
    opened(config)._backend.weights  # type: ignore[attr-defined]  # noqa: B018
    save("{% for m in messages %}### {{ m['content'] }}{% endfor %}")
    with raises("adapter-template-differs"):
        opened(config.model_copy(update={"batch_size": 3}))._backend.weights  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize(("kind", "code"), [("damaged", "vectors-not-finite"), ("prompt", "adapter-not-mergeable")])
def test_adapter_with_damaged_weights_or_without_any_is_refused(kind: str, code: str, tiny_llama: str, tmp_path: Path) -> None:
    from peft import LoraConfig, PromptTuningConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    prompt = PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2)
    settings = prompt if kind == "prompt" else LoraConfig(r=2, target_modules=["q_proj"])
    adapted = get_peft_model(AutoModelForCausalLM.from_pretrained(tiny_llama), settings)
    if kind == "damaged":
        next(weight for name, weight in adapted.named_parameters() if "lora_B" in name).data[0, 0] = float("nan")
    adapted.save_pretrained(str(tmp_path))
    with raises(code):
        opened(LocalConfig(local=tiny_llama, adapter=str(tmp_path)))._backend.weights  # type: ignore[attr-defined]  # noqa: B018


def test_system_accepts_endpoint_and_local_models(tiny_llama: str, tiny_encoder: str) -> None:
    dense = {"model": tiny_encoder}
    local = Component.of("hyde", {"llm": {"local": tiny_llama, "max_tokens": 6}, "samples": 2, "dense": dense})
    other = Component.of("hyde", {"llm": {"model": "m", "key_variable": None}, "samples": 2, "dense": dense})
    assert local.fingerprint != other.fingerprint
    assert isinstance(open_llm(local.config.llm, role="r")._backend, LocalBackend)  # type: ignore[attr-defined]
    assert not isinstance(open_llm(other.config.llm, role="r")._backend, LocalBackend)  # type: ignore[attr-defined]
    assert local.build(Services(device="cpu"))._writer.in_flight == 64


def test_llm_of_another_kind_replaces_that_of_the_preset() -> None:
    preset = {"labels": {"llm": {"model": "m", "base_url": "http://a/v1", "max_tokens": 9}}}

    def laid(**llm: object) -> object:
        return laid_over(preset, {"labels": {"llm": llm}})["labels"]["llm"]

    assert laid(scripted="worlds/multihop:test") == {"scripted": "worlds/multihop:test", "max_tokens": 9}
    assert laid(model="n") == {"model": "n", "base_url": "http://a/v1", "max_tokens": 9}
    assert laid(base_url="http://b/v1") == {"model": "m", "base_url": "http://b/v1", "max_tokens": 9}


def test_endpoint_models_of_components_within_options_are_found_and_changed() -> None:
    writing = {"id": "hyde", "config": {"llm": {"model": "inner", "concurrency": 3}}}
    hosted_one = {"id": "hosted_dense", "config": {"model": "vectors", "base_url": "http://127.0.0.1:9/v1", "key_variable": "MY_KEY"}}
    fused = {"id": "hybrid", "config": {"retrievers": ["bm25", writing, hosted_one]}}
    options: Any = Component.of("self_ask", {"llm": {"model": "outer"}, "retriever": fused}).config
    assert sorted((config.model, config.concurrency) for config in chats(options)) == [("inner", 3), ("outer", 16)]
    assert [config.served for config in hosted(options)] == ["vectors at http://127.0.0.1:9/v1"]
    assert with_chats(options, lambda config: config) is options
    new = with_chats(options, lambda config: config.model_copy(update={"revision": f"of {config.model}"}))
    assert sorted(str(config.revision) for config in chats(new)) == ["of inner", "of outer"]
    assert new.retriever.config == {
        "retrievers": ["bm25", {"id": "hyde", "config": {"llm": {**writing["config"]["llm"], "revision": "of inner"}}}, hosted_one]  # type: ignore[index]
    }
    # Default options are stated, if one of them changes.
    default: Any = Component.of("hybrid", {"retrievers": ["bm25", {"id": "lightrag", "config": {"llm": {"model": "m"}}}]}).config
    assert [config.revision for config in chats(with_chats(default, lambda config: config.model_copy(update={"revision": "r"})))] == ["r"]
