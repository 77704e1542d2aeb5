"""The arithmetic of plans against closed forms, on examples that fit on the back of an envelope."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from benchmarks.core.errors import UserError
from methods.models.endpoint import ChatConfig
from methods.models.weights import locate
from methods.training.adapters import LoraOptions
from ragmeter.plan.cost import DEVICES, Assumptions, Calls, Cost, DeviceClass, asked, here, operations, total, unknown
from ragmeter.plan.training import adapter_parameters, steps_of
from ragmeter.sizes import ModelSize, config_parameters, named_parameters, size_of

BARE = ModelSize("x", 1e9, "name")
ROUND = Assumptions(DeviceClass("round", half=1e12, single=1e11, bandwidth=1e12), utilization=0.5, bandwidth=0.5)
"""Half a teraflop a second is reached in 16 bits, and half a terabyte."""
counts = st.floats(0, 1e12, allow_nan=False)
costs = st.builds(Cost, counts, counts, gpu_seconds=counts, usd=counts, unknown=st.lists(st.text(max_size=3)).map(tuple))


def chat_of(**options: object) -> ChatConfig:
    return ChatConfig.model_validate(options)


def test_a_token_read_takes_two_operations_a_parameter_and_one_learned_from_six() -> None:
    assert operations(BARE, 1000, 10) == 2e9 * 1000
    assert ROUND.reading(BARE, 1000, 10, "bfloat16") == pytest.approx(2e12 / 0.5e12)
    assert ROUND.training(BARE, 1000, 10, "bfloat16") == pytest.approx(6e12 / 0.5e12)
    # Without tensor cores it takes as much longer as the peak is lower.
    assert ROUND.training(BARE, 1000, 10, "float32") == pytest.approx(6e12 / 0.05e12)


def test_attention_adds_what_a_naive_loop_over_positions_counts() -> None:
    size = replace(BARE, parameters=0.0, layers=3, width=8)
    length = 2000
    # Scores and sums: two products of `width` with each position that is seen, two operations each.
    seen = sum(4 * 8 * (position + 1) for position in range(length))
    assert operations(size, length, length, causal=True) == pytest.approx(3 * seen, rel=1e-3)
    assert operations(size, length, length, causal=False) == 3 * 4 * 8 * length * length


def test_writing_reads_all_weights_once_a_token_and_batch() -> None:
    # 10 texts of 7 tokens, 5 at a time: 14 passes over 2 GB at half a terabyte a second.
    assert ROUND.writing(BARE, 10, 7, 100, 5, "bfloat16") == pytest.approx(14 * 2e9 / 0.5e12)
    shaped = replace(BARE, layers=2, kv_width=50)
    kept = 2 * 2 * 50 * 100 * 2  # keys and values, layers, width, context, bytes
    assert ROUND.writing(shaped, 10, 7, 100, 5, "bfloat16") == pytest.approx(14 * (2e9 + 5 * kept) / 0.5e12)
    assert ROUND.writing(BARE, 0, 7, 100, 5, "bfloat16") == 0.0


def test_a_batch_larger_than_what_is_left_is_no_faster() -> None:
    assert ROUND.writing(BARE, 3, 7, 0, 64, "bfloat16") == ROUND.writing(BARE, 3, 7, 0, 3, "bfloat16")


@given(st.sampled_from(sorted(DEVICES)), st.floats(0.01, 1))
def test_hours_go_with_one_over_the_utilization(name: str, share: float) -> None:
    whole, part = Assumptions.of(name, 1.0), Assumptions.of(name, share)
    item, other = (each.reading(BARE, 1e6, 1, "bfloat16") for each in (whole, part))
    assert other == pytest.approx(item / share)


@pytest.mark.parametrize(("device", "share"), [("h1000", None), (None, 0.0), (None, 1.5), (None, -1.0)])
def test_a_device_that_does_not_exist_and_a_share_that_is_none_are_refused(device: str | None, share: float | None) -> None:
    with pytest.raises(UserError):
        Assumptions.of(device, share)


def test_an_endpoint_with_prices_costs_dollars() -> None:
    chat = chat_of(model="m", usd_per_million_prompt_tokens=2, usd_per_million_completion_tokens=8)
    cost = asked(Calls(1000, prompt=500, completion=100), chat, ROUND)
    assert cost.usd == pytest.approx(1000 * (500 * 2 + 100 * 8) / 1e6)
    assert (cost.calls, cost.prompt_tokens, cost.completion_tokens) == (1000, 500_000, 100_000)
    assert not cost.unknown


def test_an_endpoint_without_prices_has_unknown_dollars_and_its_tokens() -> None:
    cost = asked(Calls(10, 5, 1), chat_of(model="m"), ROUND)
    assert cost.prompt_tokens == 50
    assert "dollars of m" in cost.unknown[0]


def test_an_endpoint_of_ones_own_takes_the_time_of_the_gpu_behind_it() -> None:
    chat = chat_of(model="some/thing-1b", key_variable=None, concurrency=5)
    cost = asked(Calls(10, 100, 7), chat, ROUND)
    assert cost.gpu_seconds == cost.usd == 0
    assert cost.served_seconds == pytest.approx(2e9 * 1000 / 0.5e12 + 14 * 2e9 / 0.5e12)
    assert here(Calls(10, 100, 7), BARE, None, 5, ROUND).gpu_seconds == pytest.approx(cost.served_seconds)


def test_nobody_asked_costs_nothing() -> None:
    assert asked(Calls(0, 100, 7), chat_of(model="m"), ROUND) == Cost()


def test_a_model_of_unknown_size_keeps_its_tokens_and_says_so() -> None:
    cost = here(Calls(10, 100, 7), ModelSize("mystery"), None, 5, ROUND)
    assert (cost.prompt_tokens, cost.gpu_seconds) == (1000, 0)
    assert cost.unknown == ("GPU hours of mystery: its size is unknown",)


def test_soft_tokens_are_counted_apart_and_read_all_the_same() -> None:
    soft = Calls(10, prompt=100, completion=0, memory=40)
    assert (soft.cost.prompt_tokens, soft.cost.memory_tokens) == (600, 400)
    whole = here(Calls(10, prompt=100, completion=0), BARE, None, 5, ROUND)
    assert here(soft, BARE, None, 5, ROUND).gpu_seconds == whole.gpu_seconds


@given(st.lists(costs, max_size=5))
def test_a_total_is_the_sum_and_forgets_nothing_unknown(several: list[Cost]) -> None:
    summed = total(several)
    assert summed.usd == pytest.approx(math.fsum(item.usd for item in several))
    assert set(summed.unknown) == {reason for item in several for reason in item.unknown}
    assert len(set(summed.unknown)) == len(summed.unknown)


def test_many_times_unknown_is_unknown() -> None:
    assert unknown("x").times(3).unknown == ("x",)
    assert Cost(usd=2, disk=5).times(3) == Cost(usd=6, disk=15)


@given(st.integers(0, 10_000), st.integers(1, 300), st.integers(1, 10))
def test_steps_are_those_of_batches_counted_one_by_one(rows: int, batch: int, epochs: int) -> None:
    counted = sum(1 for _ in range(epochs) for _ in range(0, rows, batch))
    assert steps_of(rows, batch, epochs) == counted


# -- sizes ----------------------------------------------------------------------------------------------------------


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
def test_a_name_tells_a_size_or_nothing(name: str, parameters: float | None) -> None:
    assert named_parameters(name) == parameters


def test_a_size_says_where_it_is_from(tmp_path: Path) -> None:
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


def test_the_header_of_weights_is_counted_without_them(tmp_path: Path) -> None:
    config = {"hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 1, "vocab_size": 5}
    (tmp_path / "config.json").write_text(json.dumps(config))
    save_file({"a": np.zeros((3, 4), np.float16), "b": np.zeros(7, np.float32)}, tmp_path / "model.safetensors")
    result = size_of(str(tmp_path))
    assert (result.source, result.parameters) == ("header", 19)
    # An encoder's embeddings are looked up, not multiplied with.
    assert (result.embedding, result.computing) == (20, -1)


@pytest.mark.parametrize("model", ["minilm", "pocket"])
def test_a_config_tells_what_the_weights_hold_within_one_percent(model: str) -> None:
    config = json.loads((Path(locate(model)) / "config.json").read_text("utf-8"))
    computed, counted = config_parameters(config), size_of(model).parameters
    assert computed is not None
    assert counted is not None
    assert computed == pytest.approx(counted, rel=0.01)


def test_a_real_small_model_is_sized_from_its_files(data_folder: Path) -> None:
    size = size_of(str(data_folder / "models" / "stories260K"))
    assert (size.parameters, size.source) == (260_032, "header")


def test_adapters_of_a_published_model_have_as_many_parameters_as_peft_counts() -> None:
    # Mistral-7B, rank 16 on all linear layers: 41,943,040 by hand from its config.json (inner size 14,336).
    exact = 32 * 16 * (2 * (4096 + 4096) + 2 * (4096 + 1024) + 3 * (4096 + 14336))
    assert exact == 41_943_040
    estimated = adapter_parameters(LoraOptions.model_validate({}), size_of("mistralai/Mistral-7B-Instruct-v0.2"))
    assert estimated is not None
    assert exact <= estimated <= 1.1 * exact
