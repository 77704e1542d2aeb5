"""Timing of CLaRa: what is timed, and equal work on memory and on text."""

from __future__ import annotations

import pytest
import torch

from methods.clara.model import Clara
from perf import clara_models
from perf.clara_models import ARCHITECTURES, Stopwatch, Timings, Workload, measure, measure_text, random_clara
from tests.support.errors import raises

WORK = Workload(candidates=4, k=2, words=20, question=5, reply=4, batch=2, queries=4, warm_up=1)
TINY = {
    "vocab_size": 1200,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}


@pytest.fixture(scope="module")
def clara() -> Clara:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clara_models, "ARCHITECTURES", {"tiny": ("Llama", TINY)})
        return random_clara("tiny", 8, "float32", "cpu", max_length=32)


def test_stopwatch_sums_seconds_per_label() -> None:
    ticks = iter(range(100))
    watch = Stopwatch("cpu", clock=lambda: float(next(ticks)))
    with watch("a"):
        pass
    with watch("b"), watch("a"):
        pass
    assert watch.seconds == {"a": 2.0, "b": 3.0}


def test_stopwatch_synchronizes_the_device_before_both_timestamps(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[str] = []
    monkeypatch.setattr(clara_models, "synchronizer", lambda device: lambda: reported.append(f"wait for {device}"))
    watch = Stopwatch("cuda:7", clock=lambda: float(len(reported)) if reported.append("stamp") is None else 0.0)
    with watch("a"):
        reported.append("work")
    assert reported == ["wait for cuda:7", "stamp", "work", "wait for cuda:7", "stamp"]


def test_medians_are_per_batch_and_decoding_includes_prefill() -> None:
    result = Timings(1, {"compression": [0.2, 0.1, 9.0], "prefill": [0.01], "decode": [0.03]}, {"compressed": 100})
    assert result.median_ms("compression") == pytest.approx(200)
    assert result.decoding_ms == pytest.approx(40)
    assert result.tokens_per_second == pytest.approx(500)
    assert result.median_ms("query") == 0


def test_each_part_is_timed_once_per_batch_without_warm_up(clara: Clara) -> None:
    result = measure(clara, WORK)
    assert {part: len(spent) for part, spent in result.seconds.items()} == dict.fromkeys(clara_models.PARTS, 2)
    assert all(item > 0 for spent in result.seconds.values() for item in spent)
    # A document is its words with its two marks and its end; one batch has 2 questions with 4 documents each.
    assert result.tokens["compressed"] == 2 * 4 * (20 + 3)
    text = measure_text(clara, WORK)
    assert set(text.seconds) == {"prefill", "decode"}
    # Text has k documents of 20 words; memory has k times M tokens and the text after each.
    assert text.tokens["prompt"] - result.tokens["prompt"] == 2 * 20 - 2 * (clara.memory_tokens + 1)


def test_timed_reply_equals_the_reply_of_the_model(clara: Clara, monkeypatch: pytest.MonkeyPatch) -> None:
    from methods.clara.prompts import answer

    prompts = [answer("w1 w2", 1), answer("w3 w4 w5", 1)]
    with torch.inference_mode():
        memory = clara.encode(["w7 w8", "w9 w10 w11"]).memory.unsqueeze(1)
        written: list[list[int]] = []
        forward = type(clara.base).forward

        def noted(self: object, *value: object, **named: object) -> object:
            response = forward(self, *value, **named)
            written.append(response.logits[:, -1].argmax(-1).tolist())
            return response

        monkeypatch.setattr(type(clara.base), "forward", noted)
        clara_models._write(clara, prompts, memory, 4, "generator", Stopwatch("cpu"))
        stepwise = [list(row) for row in zip(*written, strict=True)]
        written.clear()
        clara.generate(prompts, memory, 4, batch_size=2)
    assert len(stepwise[0]) == 4
    assert [list(row) for row in zip(*written, strict=True)] == stepwise


def test_architectures_have_the_published_parameter_counts() -> None:
    import transformers

    counts = {}
    for name, (kind, settings) in ARCHITECTURES.items():
        config = getattr(transformers, f"{kind}Config")(**settings, pad_token_id=0, bos_token_id=1, eos_token_id=2)
        with torch.device("meta"):
            model = transformers.AutoModelForCausalLM.from_config(config)
        counts[name] = sum(parameter.numel() for parameter in model.parameters())
    assert counts["mistral-7b"] == 7_241_732_096
    assert counts["phi-4-mini"] == pytest.approx(3.84e9, rel=0.01)


def test_unknown_architecture_is_reported() -> None:
    with raises("unknown-architecture"):
        random_clara("mistral-7c", 4)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["mistral-7b", "phi-4-mini"])
def test_compressed_memory_is_decoded_faster_than_text_on_an_accelerator(name: str) -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    clara = random_clara(name, 16, "bfloat16", "cuda")
    # One question at a time is bound by kernel launches, and the adapter is not merged.
    work = Workload(queries=8, reply=32, batch=4)
    memory, text = measure(clara, work), measure_text(clara, work)
    assert memory.median_ms("prefill") < text.median_ms("prefill")
    assert memory.tokens_per_second > 10_000
