"""Arithmetic of plans, compared with closed forms and with built indexes and models."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from benchmarks.corpus import Corpus
from benchmarks.schema import Passage
from judges.judge import Judge
from methods.api import Services
from methods.baselines import postings
from methods.models.causal import CausalConfig
from methods.models.chat_config import ChatConfig
from methods.models.counting import CHARACTERS_PER_TOKEN
from methods.models.weights import MissingWeights, locate
from methods.registry import Component
from methods.work import CHARACTERS, Checkpoint, Lengths, Needs, Once, Sample, Use, Work, ask, encode, index, learn, steps, total, unknown
from ragmeter.plan.gpus import GPUS, Gpu, memory, operations, seconds
from ragmeter.runner.sizes import ModelSize, config_parameters, named_parameters, size_of

BARE = ModelSize("x", 1e9, "name")
ROUND = Gpu("round", 80, half=1e12, single=1e11, bandwidth=1e12 / 1.2)
"""Hardware with round numbers: half a teraflop per second in 16 bits at a utilization of 0.5, and half a terabyte per second."""
counts = st.floats(0, 1e12, allow_nan=False)
works = st.builds(
    lambda calls, encoded, usd, why: Work((Use("m", calls=calls, encoded=encoded),), usd=usd, unknown=tuple(dict.fromkeys(why))),
    counts,
    counts,
    counts,
    st.lists(st.text(max_size=3)),
)


def taken(use: Use, size: ModelSize = BARE) -> float:
    return seconds(use, size, ROUND, 0.5)


def chat_of(**options: object) -> ChatConfig:
    return ChatConfig.model_validate(options)


def causal_of(**options: object) -> CausalConfig:
    return CausalConfig.model_validate({"model": "m-1b", "max_new_tokens": 7, "batch_size": 5, **options})


def test_read_token_takes_two_flops_per_parameter_and_trained_token_six() -> None:
    assert operations(BARE, 1000, 10) == 2e9 * 1000
    assert taken(Use("x", encoded=1000, length=10)) == pytest.approx(2e12 / 0.5e12)
    assert taken(Use("x", trained=1000, length=10)) == pytest.approx(6e12 / 0.5e12)
    # Without tensor cores, time grows in proportion to the lower peak.
    assert taken(Use("x", dtype="float32", trained=1000, length=10)) == pytest.approx(6e12 / 0.05e12)


def test_attention_flops_equal_a_naive_loop_over_positions() -> None:
    size = replace(BARE, parameters=0.0, layers=3, width=8)
    length = 2000
    # Scores and sums: two products of `width` with each position that is seen, two operations each.
    seen = sum(4 * 8 * (position + 1) for position in range(length))
    assert operations(size, length, length, causal=True) == pytest.approx(3 * seen, rel=1e-3)
    assert operations(size, length, length, causal=False) == 3 * 4 * 8 * length * length


def test_decoding_reads_all_weights_once_per_token_and_batch() -> None:
    # 10 texts of 7 tokens, 5 at a time: 14 passes over 2 GB at half a terabyte a second.
    use = Use("x", calls=10, completion=70, length=100, batch=5)
    assert taken(use) == pytest.approx(14 * 2e9 / 0.5e12)
    shaped = replace(BARE, layers=2, kv_width=50)
    kept = 2 * 2 * 50 * (100 + 3.5) * 2  # keys and values, layers, width, context and half of the reply, bytes
    assert taken(use, shaped) == pytest.approx(14 * (2e9 + 5 * kept) / 0.5e12)
    # A batch larger than the remaining questions is not faster.
    assert taken(replace(use, batch=64)) == taken(replace(use, batch=10))
    assert taken(Use("x", batch=5)) == 0.0


def test_memory_includes_weights_and_kv_cache_or_training_state() -> None:
    shaped = replace(BARE, layers=2, kv_width=50)
    assert memory(Use("x", encoded=5), shaped) == 2e9
    assert memory(Use("x", dtype="float32", encoded=5), shaped) == 4e9
    assert memory(Use("x", trained=5), shaped) == 16e9
    assert memory(Use("x", trained=5, adapted=True), shaped) == 2e9
    assert memory(Use("x", calls=10, completion=70, length=100, batch=5), shaped) == 2e9 + 5 * 2 * 2 * 2 * 50 * 107


def test_training_adds_layer_traffic_and_a_pass_for_recomputed_activations() -> None:
    shaped = replace(BARE, layers=4, width=100)
    bare, use = operations(shaped, 1000, 10) / 0.5e12, Use("x", trained=1000, length=10)
    one = bare + 1000 * 4 * 100 * 450 / 0.5e12
    assert taken(use, shaped) == pytest.approx(3 * one)
    assert taken(replace(use, checkpointed=True), shaped) == pytest.approx(4 * one)
    assert taken(Use("x", encoded=1000, length=10), shaped) == pytest.approx(bare + 1000 * 4 * 100 * 100 / 0.5e12)


def test_local_model_has_launch_overhead_per_layer_and_token_but_a_server_has_none() -> None:
    shaped = replace(BARE, layers=100)
    here = Use("x", calls=1, completion=50, length=1)
    assert taken(here, shaped) == pytest.approx(50 * 100 * 8e-4)
    assert taken(replace(here, where="served"), shaped) == pytest.approx(50 * 2e9 / 0.5e12)


def test_activation_memory_covers_the_tokens_held_at_once() -> None:
    shaped = replace(BARE, layers=4, width=100)
    use = Use("x", trained=5, held=10)
    assert memory(use, shaped) == 16e9 + 96 * 4 * 100 * 10
    assert memory(replace(use, checkpointed=True), shaped) == 16e9 + (96 + 4 * 4) * 100 * 10
    assert memory(replace(use, adapted=True), shaped) == 2e9 + 96 * 4 * 100 * 10


def test_endpoint_without_prices_has_unknown_cost() -> None:
    priced = ask(chat_of(model="m", usd_per_million_prompt_tokens=2, usd_per_million_completion_tokens=8), 1000, 500, 100)
    assert priced.usd == pytest.approx(1000 * (500 * 2 + 100 * 8) / 1e6)
    assert [priced.count(name) for name in ("calls", "prompt", "completion")] == [1000, 500_000, 100_000]
    assert not priced.unknown
    assert "dollars of m" in ask(chat_of(model="m"), 10, 5).unknown[0]


def test_local_judge_computes_here_and_costs_nothing() -> None:
    config = Judge.of("match", {"llm": {"local": "pocket", "max_tokens": 5}}).config
    work = config.work(Lengths("d", 3), 3, 10)
    assert [(use.model, use.where, use.calls, use.completion) for use in work.uses] == [("pocket", "here", 3, 15)]
    assert not work.unknown
    assert [item.model for item in config.needs.checkpoints] == ["pocket"]


def test_own_endpoint_takes_the_time_of_its_gpu() -> None:
    (served,) = ask(chat_of(model="some/thing-1b", key_variable=None, concurrency=5, max_tokens=7), 10, 100).uses
    (here,) = ask(causal_of(), 10, 100).uses
    assert (served.where, here.where) == ("served", "here")
    # Without a shape there is no attention: 1,000 tokens read, 14 passes over the weights.
    assert taken(served) == taken(here) == pytest.approx(2e9 * 1000 / 0.5e12 + 14 * 2e9 / 0.5e12)


def test_memory_tokens_are_counted_separately_and_take_reading_time() -> None:
    soft, plain = ask(causal_of(), 10, 100, memory=40), ask(causal_of(), 10, 100)
    assert (soft.count("prompt"), soft.count("memory")) == (1000, 400)
    assert taken(soft.uses[0]) == taken(plain.uses[0])


def test_scripted_llm_and_no_llm_use_no_gpu() -> None:
    class Script:
        scripted, max_tokens = "worlds/multihop:test", 9

    assert ask(None, 10, 5) == ask(causal_of(), 0, 5) == Work()
    (use,) = ask(Script(), 10, 5).uses
    assert (use.where, use.completion) == ("away", 90)


@settings(max_examples=25)
@given(st.lists(works, max_size=4), st.floats(0, 100))
def test_total_is_the_sum_and_keeps_every_unknown(several: list[Work], factor: float) -> None:
    summed = total(several)
    assert summed.usd == pytest.approx(math.fsum(item.usd for item in several))
    assert summed.count("calls") == pytest.approx(math.fsum(item.count("calls") for item in several))
    assert set(summed.unknown) == {reason for item in several for reason in item.unknown}
    assert (summed * factor).count("encoded") == pytest.approx(summed.count("encoded") * factor)
    assert (summed * factor).unknown == summed.unknown


def test_one_time_work_is_not_multiplied() -> None:
    work = index(Work(bytes=5)) * 3 + unknown("x")
    assert (work.bytes, [item.work.bytes for item in work.once]) == (0, [5])
    assert work.keyed_by("key", "part").once == (Once(Work(bytes=5), "key", "part"),)


@given(st.integers(0, 10_000), st.integers(1, 300), st.integers(1, 10))
def test_step_count_equals_a_naive_batch_count(rows: int, batch: int, epochs: int) -> None:
    counted = sum(1 for _ in range(epochs) for _ in range(0, rows, batch))
    assert steps(rows, batch, epochs) == counted


def test_texts_are_truncated_to_the_context_length() -> None:
    config = Checkpoint("m", dtype="float16")
    (use,) = encode(config, 10, 300).uses
    assert (use.encoded, use.length, use.dtype) == (3000, 300, "float16")
    (cut,) = learn(Component.of("dense", {"max_length": 128}).config, 10, 300, "bf16").uses
    assert (cut.trained, cut.length, cut.dtype) == (1280, 128, "bfloat16")


def test_token_estimate_equals_the_endpoint_estimate() -> None:
    assert CHARACTERS == CHARACTERS_PER_TOKEN


def test_gpu_sizes_are_24_80_and_141_gb() -> None:
    assert [gpu.gigabytes for gpu in GPUS] == [24, 80, 141]


def words_of(number: int, each: int) -> list[Passage]:
    generator = np.random.default_rng(0)
    vocabulary = ["".join(map(chr, generator.integers(97, 123, 5))) for _ in range(2000)]
    return [Passage(str(row), "", " ".join(generator.choice(vocabulary, each))) for row in range(number)]


@pytest.mark.parametrize("name", ["bm25", pytest.param("dense", marks=pytest.mark.slow)])
def test_planned_disk_is_the_peak_of_building_an_index(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passages = words_of(1500 if name == "bm25" else 60, 60)
    corpus = Corpus.of(passages)
    each = float(np.mean([len(passage.text) / CHARACTERS for passage in passages]))
    lengths = Lengths("data", 0, (), len(corpus), each, size=size_of)
    component = Component.of(name)
    (planned,) = component.work(lengths).once
    folder = tmp_path / "index"
    used = []

    def measured(target: Path, **options: Any) -> None:
        """Measure the disk in use before a finished run of BM25 is removed."""
        used.append(sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()))
        shutil.rmtree(target, **options)

    monkeypatch.setattr(postings, "shutil", SimpleNamespace(rmtree=measured))
    component.build(Services(artifacts=tmp_path / "artifacts")).index(corpus, folder)
    used.append(sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()))
    assert planned.part is component
    assert planned.work.bytes == pytest.approx(max(used), rel=0.25)


def test_work_of_a_composed_component_is_the_sum_of_its_parts() -> None:
    lengths = Lengths("data", 10, (Sample("x" * 40, (), "", 20),), 1000, 50, size=size_of)
    parts = [Component.of(name).work(lengths) for name in ("bm25", "dense")]
    both = Component.of("hybrid").work(lengths)
    assert both.count("encoded") == total(parts).count("encoded") == 100
    assert [item.work for item in both.once] == [item.work for part in parts for item in part.once]
    assert Component.of("hybrid").needs == Component.of("dense").needs


def refused(model: str) -> str | None:
    try:
        Component.of("dense", {"model": model}).preflight()
    except MissingWeights as error:
        return str(error)
    return None


def test_unavailable_weights_are_refused_before_the_first_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("RAGMETER_OFFLINE", "0")
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setattr("methods.models.weights._logged_in", lambda: False)
    assert refused("minilm") is None
    assert refused("who/knows") is None
    licensed = refused("meta-llama/Llama-3.1-8B-Instruct")
    assert licensed is not None
    assert "accept its license (Llama Community)" in licensed
    monkeypatch.setattr("methods.models.weights._logged_in", lambda: True)
    assert refused("meta-llama/Llama-3.1-8B-Instruct") is None
    monkeypatch.setenv("RAGMETER_OFFLINE", "1")
    assert "hf download who/knows" in str(refused("who/knows"))
    snapshot = tmp_path / "models--who--knows" / "snapshots" / "1"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    assert refused("who/knows") is None


def test_needs_are_merged_and_keep_each_model_once() -> None:
    one = Needs((Checkpoint("a"),), gpu_gb=3)
    both: Any = one + Needs((Checkpoint("a"), Checkpoint("b")), ("chat",))
    assert both == Needs((Checkpoint("a"), Checkpoint("b")), ("chat",), gpu_gb=3)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("x/Thing-7B-v2", 7e9),
        ("x/thing_0.6b", 0.6e9),
        ("stella_en_400M_v5", 400e6),
        ("x/Llama-3.1-8B-Instruct", 8e9),
        ("x/Mixtral-8x7B", None),
        ("x/thing", None),
        ("7b/thing", None),
        ("x/7b-of-13b", None),
        ("x/base-v2", None),
    ],
)
def test_parameter_count_is_read_from_the_model_name_or_unknown(name: str, parameters: float | None) -> None:
    assert named_parameters(name) == parameters


def test_model_size_reports_its_source(tmp_path: Path) -> None:
    known = {"minilm": "header", "BAAI/bge-m3": "table", "who/knows-3b": "name", "who/knows": "unknown"}
    assert {name: size_of(name).source for name in known} == known
    (tmp_path / "config.json").write_text(
        json.dumps(
            {
                "architectures": ["XForCausalLM"],
                "hidden_size": 4,
                "num_hidden_layers": 2,
                "vocab_size": 10,
                "intermediate_size": 8,
                "num_attention_heads": 2,
                "num_key_value_heads": 1,
            }
        )
    )
    alone = size_of(str(tmp_path))
    # Two layers of q, o (4×4 each), k, v (4×2 each) and three matrices 4×8; two tables 10×4.
    assert (alone.source, alone.parameters) == ("config", 2 * (32 + 16 + 96) + 80)
    assert (alone.width, alone.layers, alone.kv_width) == (4, 2, 2)


def test_parameters_are_counted_from_the_header_without_loading_weights(tmp_path: Path) -> None:
    config = {"hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 1, "vocab_size": 5}
    (tmp_path / "config.json").write_text(json.dumps(config))
    save_file({"a": np.zeros((3, 4), np.float16), "b": np.zeros(7, np.float32)}, tmp_path / "model.safetensors")
    result = size_of(str(tmp_path))
    assert (result.source, result.parameters) == ("header", 19)
    # An encoder's embeddings are looked up, not multiplied with.
    assert (result.embedding, result.computing) == (20, -1)


@pytest.mark.parametrize("model", ["minilm", "pocket"])
def test_parameters_from_the_config_are_within_one_percent_of_the_weights(model: str) -> None:
    config = json.loads((Path(locate(model)) / "config.json").read_text("utf-8"))
    computed, counted = config_parameters(config), size_of(model).parameters
    assert computed is not None
    assert counted is not None
    assert computed == pytest.approx(counted, rel=0.01)


def test_real_small_model_is_sized_from_its_files(data_folder: Path) -> None:
    size = size_of(str(data_folder / "models" / "stories260K"))
    assert (size.parameters, size.source) == (260_032, "header")


def test_adapter_parameters_equal_the_peft_count() -> None:
    # Mistral-7B, rank 16 on all linear layers: 41,943,040 by hand from its config.json (inner size 14,336).
    exact = 32 * 16 * (2 * (4096 + 4096) + 2 * (4096 + 1024) + 3 * (4096 + 14336))
    assert exact == 41_943_040
    estimated = size_of("mistralai/Mistral-7B-Instruct-v0.2").adapters(16)
    assert estimated is not None
    assert exact <= estimated <= 1.1 * exact
