"""Generation by local causal models: forced starts, shared prefixes, seeded samples, roles in chat templates."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from methods.models.causal import CausalConfig, CausalModel
from methods.models.causal_logprobs import common_prefix, shared_prefixes
from methods.models.decoding import Sampling
from methods.models.likelihood import by_length
from tests.support.errors import raises

FRONT = "Once upon a time, there was a little girl named Lily. She loved to play outside in the big green park. "
PROMPTS = [FRONT + tail for tail in ("One day,", "Tom", "She saw a big red ball and", "Her mom said, “", "")]


@pytest.fixture(scope="module")
def stories(data_folder: Path) -> str:
    return str(data_folder / "models" / "stories260K")


def model(folder: str, share_prefixes: bool = True, **config: Any) -> CausalModel:
    return CausalModel(CausalConfig(model=folder, **config), "cpu", share_prefixes)


def greedy(loaded: CausalModel, ids: list[int], count: int) -> str:
    """Decode greedily token by token without cache, padding or `generate`."""
    import torch

    written: list[int] = []
    with torch.inference_mode():
        while len(written) < count and loaded.tokenizer.eos_token_id not in written:
            written.append(int(loaded.model(torch.tensor([ids + written])).logits[0, -1].argmax()))
    return loaded.tokenizer.decode(written, skip_special_tokens=True)


@pytest.mark.slow
@pytest.mark.parametrize("share", [True, False])
def test_shared_prefix_is_computed_once_with_equal_results(stories: str, share: bool) -> None:
    loaded = model(stories, share, batch_size=5, max_new_tokens=16)
    passes: list[tuple[int, ...]] = []
    hook = loaded.model.get_input_embeddings().register_forward_pre_hook(lambda _, inputs: passes.append(tuple(inputs[0].shape)))
    written = loaded.generate(PROMPTS)
    hook.remove()
    assert [g.text for g in written] == [greedy(loaded, loaded.encode(prompt), 16) for prompt in PROMPTS]
    assert [g.prompt_tokens for g in written] == [len(loaded.encode(prompt)) for prompt in PROMPTS]
    prefix = common_prefix([loaded.encode(prompt)[:-1] for prompt in PROMPTS])
    assert prefix >= 32
    width = max(len(loaded.encode(prompt)) for prompt in PROMPTS)
    assert passes[:2] == ([(1, prefix), (5, width - prefix)] if share else [(5, width), (5, 1)])


@pytest.mark.slow
def test_shared_prefix_is_not_used_with_sliding_window_attention(tmp_path: Path, tiny_llama: str) -> None:
    import torch
    from transformers import AutoTokenizer, MistralConfig, MistralForCausalLM

    torch.manual_seed(1)
    tokenizer = AutoTokenizer.from_pretrained(tiny_llama)
    tokenizer.save_pretrained(tmp_path)
    shape = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    shape |= {"num_key_value_heads": 2, "vocab_size": len(tokenizer), "initializer_range": 0.3, "sliding_window": 8}
    MistralForCausalLM(MistralConfig(**shape, pad_token_id=0)).save_pretrained(tmp_path)
    loaded = model(str(tmp_path), batch_size=5, max_new_tokens=12)
    expected = [greedy(loaded, loaded.encode(prompt), 12) for prompt in PROMPTS]
    assert [g.text for g in loaded.generate(PROMPTS)] == expected
    assert len(set(expected)) > 1


def cut(heads: list[list[int]]) -> int:
    """Return the maximum of saved tokens: all share their prefix, or rows with the same next token are grouped separately."""
    if len(heads) < 2:
        return 0
    depth = 0
    while all(len(head) > depth for head in heads) and len({head[depth] for head in heads}) == 1:
        depth += 1
    children: dict[int, list[list[int]]] = {}
    for head in heads:
        if len(head) > depth:
            children.setdefault(head[depth], []).append(head)
    return max((len(heads) - 1) * depth, sum(cut(child) for child in children.values()))


@pytest.mark.slow
@given(st.lists(st.tuples(st.lists(st.integers(0, 1), min_size=1, max_size=7), st.integers(0, 7)), max_size=9))
def test_prefix_groups_save_as_many_tokens_as_the_best_tree_cut(drawn: list[tuple[list[int], int]]) -> None:
    sequences = [ids for ids, _ in drawn]
    limits = [min(limit, len(ids) - 1) for ids, limit in drawn]
    groups = shared_prefixes(sequences, limits)
    members = [member for group in groups for member in group.members]
    assert len(members) == len(set(members))
    for group in groups:
        assert len({tuple(sequences[member][: group.prefix]) for member in group.members}) == 1
        assert all(group.prefix <= limits[member] for member in group.members)
    saved = sum((len(group.members) - 1) * group.prefix for group in groups)
    assert saved == cut([ids[:limit] for ids, limit in zip(sequences, limits, strict=True) if limit])


@pytest.mark.slow
def test_a_deep_tree_of_prefixes_is_grouped_without_recursion() -> None:
    sequences = [[7] * n for n in range(1, 3000)]
    (group,) = shared_prefixes(sequences, [len(ids) - 1 for ids in sequences])
    # Sharing p tokens among those at least that long saves most at half the longest.
    assert abs(group.prefix - 1500) <= 1


@given(st.lists(st.integers(0, 50), max_size=30), st.integers(1, 200), st.one_of(st.none(), st.integers(1, 5)), st.integers(0, 20))
def test_batches_contain_every_item_once_within_their_budget(lengths: list[int], budget: int, rows: int | None, fixed: int) -> None:
    batches = by_length(lengths, budget, rows, fixed)
    assert sorted(position for batch in batches for position in batch) == list(range(len(lengths)))
    for batch in batches:
        widest = max(lengths[position] for position in batch)
        assert len(batch) == 1 or len(batch) * (fixed + widest) <= budget
        assert rows is None or len(batch) <= rows
    flat = [lengths[position] for batch in batches for position in batch]
    assert flat == sorted(flat, reverse=True)


def test_batches_with_a_minimum_fill_pad_no_row_by_more_once_they_have_eight() -> None:
    assert by_length([100] * 9 + [76, 74, 20], 10_000, fill=0.75) == [[*range(10)], [10, 11]]
    assert by_length([100] * 3 + [20, 10], 10_000, fill=0.75) == [[0, 1, 2, 3, 4]]


@pytest.mark.slow
def test_sample_depends_only_on_prompt_and_seed(stories: str) -> None:
    sampling = Sampling(temperature=1.0, top_p=0.95, seed=5)
    together = model(stories, batch_size=5, max_new_tokens=12).generate(PROMPTS, sampling=sampling)
    texts = [g.text for g in together]
    loaded = model(stories, batch_size=2, max_new_tokens=12)
    assert [g.text for g in loaded.generate(PROMPTS[::-1], sampling=sampling)][::-1] == texts
    assert [loaded.generate([prompt], sampling=sampling)[0].text for prompt in PROMPTS] == texts
    assert [g.text for g in loaded.generate(PROMPTS, sampling=Sampling(top_p=0.95, seed=6))] != texts
    repeated = loaded.generate([PROMPTS[0]] * 6, sampling=sampling, seeds=[1, 2, 3, 1, 2, 3])
    assert [g.text for g in repeated[:3]] == [g.text for g in repeated[3:]]
    assert len({g.text for g in repeated}) > 1


@pytest.mark.slow
def test_samples_follow_the_models_distribution(stories: str) -> None:
    import torch

    loaded = model(stories, batch_size=256, max_new_tokens=1)
    prompt = "Tom had a big"
    temperature, kept = 0.8, 0.9
    with torch.inference_mode():
        logits = loaded.model(torch.tensor([loaded.encode(prompt)])).logits[0, -1].double()
    shares = (logits / temperature).softmax(-1).numpy()
    order = np.argsort(-shares)
    # The fewest tokens whose shares reach top_p.
    nucleus = order[: int(np.searchsorted(np.cumsum(shares[order]), kept)) + 1]
    expected = {int(token): shares[token] / shares[nucleus].sum() for token in nucleus}
    count = 2048
    drawn = loaded.generate([prompt] * count, sampling=Sampling(temperature, kept), seeds=range(count))
    texts = {loaded.tokenizer.decode([token], skip_special_tokens=True): share for token, share in expected.items()}
    assert len(texts) > 5
    results = Counter(generation.text for generation in drawn)
    assert set(results) <= set(texts)
    for text, share in texts.items():
        # Five standard deviations of a binomial count.
        assert abs(results[text] - count * share) <= 5 * np.sqrt(count * share * (1 - share)) + 1


def test_low_temperature_sampling_equals_greedy_decoding(stories: str) -> None:
    loaded = model(stories, max_new_tokens=8)
    drawn = loaded.generate(PROMPTS, sampling=Sampling(temperature=1e-4))
    assert [g.text for g in drawn] == [g.text for g in loaded.generate(PROMPTS)]
    assert [g.text for g in loaded.generate(PROMPTS, sampling=Sampling(top_k=1))] == [g.text for g in drawn]


def test_invalid_sampling_options_are_refused(tiny_llama: str) -> None:
    for wrong in ({"temperature": 0}, {"top_p": 0}, {"top_k": 0}):
        with pytest.raises(ValueError, match="temperature must be"):
            Sampling(**wrong)
    loaded = model(tiny_llama)
    with pytest.raises(ValueError, match="one per prompt"):
        loaded.generate(["a"], seeds=[1])
    with pytest.raises(ValueError, match="one per prompt"):
        loaded.generate(["a"], sampling=Sampling(), seeds=[1, 2])


MARK = "{% for m in messages %}[{{ m.role }}]{{ m.content | trim }}{% endfor %}[assistant]"
TURNS = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello"},
    {"role": "user", "content": "Who?"},
]


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (MARK, "[system]Be brief.[user]Hi[assistant]Hello[user]Who?[assistant]"),
        (
            "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}" + MARK,
            "[user]Be brief.\n\nHi[assistant]Hello[user]Who?[assistant]",
        ),
        (
            MARK.replace(
                "[{{ m.role }}]{{ m.content | trim }}", "{% if m.role != 'system' %}[{{ m.role }}]{{ m.content | trim }}{% endif %}"
            ),
            "[user]Be brief.\n\nHi[assistant]Hello[user]Who?[assistant]",
        ),
        (
            "{% for m in messages %}[{{ m.role }}]{% for part in m.content %}{{ part.text }}{% endfor %}{% endfor %}[assistant]",
            "[user]Be brief.\n\nHi[assistant]Hello[user]Who?[assistant]",
        ),
        (None, "Be brief.\n\nHi\n\nHello\n\nWho?"),
    ],
    ids=["knows a system role", "refuses it", "drops it", "takes parts", "no template"],
)
def test_system_instruction_is_in_the_prompt_of_every_model(tiny_llama: str, template: str | None, expected: str) -> None:
    loaded = model(tiny_llama)
    loaded.tokenizer.chat_template = template
    assert loaded.render_chat(TURNS) == expected
    assert "Be brief." not in loaded.render_chat(TURNS[1:])
    assert loaded.render("", "Who?") == loaded.render_chat(TURNS[3:])
    assert TURNS[1]["content"] == "Hi"


@pytest.mark.parametrize(
    "template", ["{% for m in messages %}{{ m.content ", "{{ messages[0].content.foo() }}", "Hello", "{{ raise_exception('no') }}"]
)
def test_template_that_fails_or_leaves_out_the_question_is_refused(template: str, tiny_llama: str) -> None:
    loaded = model(tiny_llama)
    loaded.tokenizer.chat_template = template
    with raises("chat-template-failed"):
        loaded.render_chat(TURNS)
