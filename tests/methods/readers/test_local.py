"""Local language models: results do not depend on batches, and the question is never truncated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.schema import Passage, Query
from methods.api import FAILED, Context, Services
from methods.models.causal import CausalConfig, CausalModel
from methods.registry import Component
from tests.support.errors import raises

PROMPTS = ["Once upon a time", "Tom", "The little dog ran to the park and saw a big red", "Lily likes", "One day, " * 9]


@pytest.fixture(scope="module", params=["tiny_llama", pytest.param("stories260K", marks=pytest.mark.slow)])
def folder(request: pytest.FixtureRequest) -> str:
    if request.param == "tiny_llama":
        return str(request.getfixturevalue("tiny_llama"))
    return str(Path(request.getfixturevalue("data_folder")) / "models" / "stories260K")


def model(folder: str, **config: Any) -> CausalModel:
    return CausalModel(CausalConfig(model=folder, **config), "cpu")


def greedy(loaded: CausalModel, prompt: str, count: int) -> list[int]:
    """Decode greedily token by token without cache, padding or `generate`, including the end token."""
    import torch

    ids = loaded.encode(prompt)
    written: list[int] = []
    with torch.inference_mode():
        while len(written) < count and loaded.tokenizer.eos_token_id not in written:
            written.append(int(loaded.model(torch.tensor([ids + written])).logits[0, -1].argmax()))
    return written


def by_hand(loaded: CausalModel, prompt: str, count: int) -> tuple[str, int]:
    written = greedy(loaded, prompt, count)
    return loaded.tokenizer.decode(written, skip_special_tokens=True), len(written)


@pytest.mark.slow
def test_batches_of_any_size_generate_the_output_of_a_token_by_token_loop(folder: str) -> None:
    expected = None
    for size in (1, 2, 5):
        loaded = model(folder, batch_size=size, max_new_tokens=24)
        expected = expected or [by_hand(loaded, prompt, 24) for prompt in PROMPTS]
        written = loaded.generate(PROMPTS)
        assert [(generation.text, generation.completion_tokens) for generation in written] == expected
        assert [generation.prompt_tokens for generation in written] == [len(loaded.encode(p)) for p in PROMPTS]
    assert expected is not None
    assert len({text for text, _ in expected}) > 1


def test_absolute_positions_do_not_count_padding(tmp_path: Path, tiny_llama: str) -> None:
    import torch
    from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel

    torch.manual_seed(1)
    tokenizer = AutoTokenizer.from_pretrained(tiny_llama)
    tokenizer.save_pretrained(tmp_path)
    size = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 256, "vocab_size": len(tokenizer)}
    GPT2LMHeadModel(GPT2Config(**size, bos_token_id=1, eos_token_id=2)).save_pretrained(tmp_path)
    loaded = model(str(tmp_path), batch_size=5, max_new_tokens=12)
    assert [g.text for g in loaded.generate(PROMPTS)] == [by_hand(loaded, prompt, 12)[0] for prompt in PROMPTS]


def test_generation_of_a_row_ends_at_its_end_token(tiny_llama: str) -> None:
    loaded = model(tiny_llama, batch_size=5, max_new_tokens=16)
    written = [greedy(loaded, prompt, 16) for prompt in PROMPTS]
    end = written[0][2]
    loaded._ends = [end]
    for generation, tokens in zip(loaded.generate(PROMPTS), written, strict=True):
        position = tokens.index(end) if end in tokens else None
        assert generation.completion_tokens == (16 if position is None else position + 1)
        assert generation.text == loaded.tokenizer.decode(tokens[:position], skip_special_tokens=True)


def test_prompt_longer_than_the_context_is_refused(tiny_llama: str) -> None:
    loaded = model(tiny_llama, max_prompt_tokens=16)
    assert loaded.room == 16
    with pytest.raises(ValueError, match="1 to 16 fit"):
        loaded.generate(["x" * 40])


def test_model_without_room_for_a_prompt_is_refused(tiny_llama: str) -> None:
    with raises("max-new-tokens-too-large"):
        model(tiny_llama, max_new_tokens=1024)


def test_instruction_is_in_the_user_message_if_the_template_has_no_system_role(tiny_llama: str) -> None:
    loaded = model(tiny_llama)
    assert loaded.render("Be brief.", "Who?") == "<s>[user]Be brief.\n\nWho?[assistant]"
    ids = loaded.encode(loaded.render("Be brief.", "Who?"))
    assert ids.count(loaded.tokenizer.bos_token_id) == 1


def test_model_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    with raises("load-failed"):
        model(str(tmp_path))
    with raises("no-model-folder"):
        Component.of("causal", {"model": str(tmp_path / "none")}).preflight()


def test_damaged_weights_are_named(tmp_path: Path, tiny_llama: str) -> None:
    for file in Path(tiny_llama).iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "model.safetensors").write_bytes(b"cut off")
    with raises("damaged-weights"):
        model(str(tmp_path))


def reader(folder: str, **config: Any) -> Any:
    options = {"model": folder, "max_new_tokens": 8, **config}
    return Component.of("causal", options).build(Services(device="cpu"))


def passages(count: int) -> tuple[Passage, ...]:
    return tuple(Passage(f"p{n}", f"Title {n}", f"Tom had {n} red balls. " * 3) for n in range(count))


@pytest.mark.slow
def test_answers_do_not_depend_on_the_batch(folder: str) -> None:
    queries = [Query(f"q{n}", f"What did Tom see {'and hear ' * n}?") for n in range(7)]
    contexts = [Context(query.id, passages(n % 4)) for n, query in enumerate(queries)]
    local = reader(folder, batch_size=3)
    together = local.read(queries, contexts)
    alone = [local.read([q], [c])[0] for q, c in zip(queries, contexts, strict=True)]
    assert together == alone
    assert all(a.usage.prompt_tokens > 0 and a.usage.model_calls == 1 for a in together)
    assert local.read(queries[::-1], contexts[::-1]) == together[::-1]


def test_passages_are_dropped_from_the_end_until_the_prompt_fits(tiny_llama: str) -> None:
    local = reader(tiny_llama)
    for count in range(12):
        prompt = local._fit("What did Tom see?", passages(count))
        shown = [n for n in range(count) if f"Title {n}:" in prompt]
        assert shown == list(range(len(shown)))
        assert "Question: What did Tom see?" in prompt
        assert len(local._model.encode(prompt)) <= local._model.room
        if len(shown) < count:
            longer = local._rendered("What did Tom see?", passages(len(shown) + 1))
            assert len(local._model.encode(longer)) > local._model.room
    assert 0 < len(shown) < 11


def test_too_long_first_passage_is_truncated_and_the_question_kept(tiny_llama: str) -> None:
    local = reader(tiny_llama)
    long = Passage("p", "Title", " ".join(f"word{n}" for n in range(500)))
    prompt = local._fit("What did Tom see?", [long])
    assert "[1] Title: word0 word1 " in prompt
    assert "word499" not in prompt
    assert "Question: What did Tom see?" in prompt
    assert local._model.room - 10 <= len(local._model.encode(prompt)) <= local._model.room


def test_question_too_long_for_the_model_fails_without_others(tiny_llama: str) -> None:
    queries = [Query("q0", "Who?"), Query("q1", "why " * 400)]
    good, bad = reader(tiny_llama).read(queries, [Context("q0", passages(1)), Context("q1", passages(1))])
    assert FAILED not in good.notes
    assert bad.text == ""
    assert "longer than the model's context" in bad.notes[FAILED]
