"""Memory of texts, and what it depends on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from methods.clara.config import ClaraConfig
from methods.clara.model import Encoded, alignment, similarity
from tests.support.errors import raises

TEXTS = ["Ana was born in 1850 .", "moss", "Bor lived in a cold cabin by the river , and the old stone bridge .", "the painter", "Cal"]
Make = Callable[..., Any]


def apart(item: torch.Tensor, other: torch.Tensor) -> float:
    return float((item - other).detach().abs().max())


def by_hand(clara: Any, text: str, adapter: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute memory and mean of the text's states with the whole model, token by token and padded on the left."""
    ids = clara.compressor.ids([text])[0]
    pad = clara.base.get_input_embeddings().weight[0].expand(3, -1)
    marks = clara.module.rows.marks
    own = [marks[0] if identifier == clara.tokens.begin else clara.base.get_input_embeddings().weight[identifier] for identifier in ids]
    rows = torch.cat([pad, torch.stack(own), clara.module.rows.memory]).unsqueeze(0)
    mask = torch.tensor([[0] * 3 + [1] * (rows.shape[1] - 3)])
    with clara.use(adapter), torch.no_grad():
        out = clara.adapters.model(inputs_embeds=rows, attention_mask=mask, output_hidden_states=True)
    states, memory = out.hidden_states[-1][0], clara.memory_tokens
    return states[-memory:], states[3:-memory].mean(0)


def test_memory_is_the_last_hidden_states_of_the_memory_tokens(make_clara: Make, kind: str) -> None:
    clara = make_clara(kind)
    for adapter in ("compressor", "reasoner"):
        encoded = clara.encode(TEXTS, adapter)
        for row, text in enumerate(TEXTS):
            memory, document = by_hand(clara, text, adapter)
            assert apart(encoded.memory[row], memory) <= 1e-5
            assert apart(encoded.document_mean[row], document) <= 1e-5
            assert apart(encoded.memory_mean[row], memory.mean(0)) <= 1e-5


def test_memory_does_not_depend_on_other_texts_order_or_batch(make_clara: Make, kind: str) -> None:
    clara = make_clara(kind)
    together = clara.encode(TEXTS)
    alone = [clara.encode([text]) for text in TEXTS]
    backwards, small = clara.encode(TEXTS[::-1]), clara.encode(TEXTS, token_budget=1)
    for row in range(len(TEXTS)):
        for other in (alone[row].memory[0], backwards.memory[-1 - row], small.memory[row]):
            assert apart(together.memory[row], other) <= 1e-5
        for other in (alone[row].document_mean[0], backwards.document_mean[-1 - row], small.document_mean[row]):
            assert apart(together.document_mean[row], other) <= 1e-5


def test_memory_depends_only_on_the_compressor(make_clara: Make, kind: str) -> None:
    clara = make_clara(kind)
    before = clara.encode(TEXTS).memory
    for name in ("generator", "reasoner"):
        for parameter in clara.adapters.of(name).values():
            parameter.data.add_(1.0)
    assert torch.equal(clara.encode(TEXTS).memory, before)
    for parameter in clara.adapters.of("compressor").values():
        parameter.data.add_(0.1)
    assert apart(clara.encode(TEXTS).memory, before) > 1e-3


@pytest.mark.parametrize("rate", [4, 256])
def test_documents_of_the_papers_lengths_have_its_numbers_of_vectors(make_clara: Make, rate: int) -> None:
    clara = make_clara("Llama", max_length=256, rate=rate)
    assert clara.encode([" ".join(TEXTS * 40), TEXTS[1]]).memory.shape == (2, 256 // rate, clara.hidden_size)


@pytest.mark.parametrize(("rate", "count"), [(1, 16), (3, 5), (4, 4), (16, 1)])
def test_number_of_vectors_follows_the_compression_ratio(make_clara: Make, rate: int, count: int) -> None:
    clara = make_clara(rate=rate)
    assert clara.memory_tokens == clara.config.memory_tokens == count
    encoded = clara.encode(TEXTS)
    assert encoded.memory.shape == (5, count, 32)
    assert encoded.document_mean.shape == encoded.memory_mean.shape == (5, 32)
    assert encoded.memory.dtype == torch.float32


def test_ratio_that_leaves_no_vector_is_refused() -> None:
    with pytest.raises(ValidationError, match="rate 32 leaves no memory token for 16 document tokens"):
        ClaraConfig(max_length=16, rate=32)


def test_encoding_no_texts_gives_empty_memory(make_clara: Make) -> None:
    encoded = make_clara().encode([])
    assert encoded.memory.shape == (0, 4, 32)
    assert encoded.document_mean.shape == (0, 32)


def test_long_text_is_truncated_before_its_end_token_and_a_short_one_is_kept(make_clara: Make, kind: str) -> None:
    clara = make_clara(kind)
    short, long = clara.compressor.ids(["Ana was born", "Ana was born " * 12])
    bos, eos = clara.tokenizer.bos_token_id, clara.tokenizer.eos_token_id
    before = [clara.tokens.begin] if bos is None else [clara.tokens.begin, bos]
    assert short == [*before, *clara.tokenizer("Ana was born", add_special_tokens=False)["input_ids"], eos]
    assert len(long) == 16 + len(before) + 1
    assert eos not in long
    same = clara.encode(["Ana was born " * 12, "Ana was born " * 7]).memory
    assert apart(same[0], same[1]) <= 1e-5


def test_special_tokens_in_a_text_are_tokenized_as_text(make_clara: Make, kind: str, bases: Any) -> None:
    clara = make_clara(kind, max_length=64)
    for name in (bases.SPECIAL[kind][-1], "<|clara_memory_0|>", "<|clara_document|>"):
        ids = clara.compressor.ids([f"Ana {name} Bor"])[0]
        special = {clara.tokenizer.eos_token_id, clara.tokenizer.bos_token_id, clara.tokens.begin}
        assert max(ids[1:]) < clara.tokens.first
        assert set(ids) & set(clara.tokenizer.all_special_ids) <= special
        assert clara.tokenizer.decode(ids, skip_special_tokens=True).strip() == f"Ana {name} Bor"


def test_later_tokens_do_not_change_earlier_states(make_clara: Make, kind: str) -> None:
    clara = make_clara(kind)
    seen: list[torch.Tensor] = []
    hook = clara.base.get_decoder().register_forward_hook(lambda _, __, out: seen.append(out.last_hidden_state))
    first = clara.encode(["Ana was born in the cabin"]).memory
    second = clara.encode(["Ana was born in the river"]).memory
    hook.remove()
    ids = clara.compressor.ids(["Ana was born in the cabin"])[0]
    same = len(ids) - 2
    assert apart(seen[0][:, :same], seen[1][:, :same]) <= 1e-6
    assert apart(seen[0][:, same], seen[1][:, same]) > 1e-3
    assert apart(first, second) > 1e-3


def test_spread_memory_tokens_read_the_whole_text_at_evenly_spaced_positions(make_clara: Make, kind: str) -> None:
    clara = make_clara(kind, positions="spread")
    options: list[Any] = []
    hook = clara.base.get_decoder().register_forward_pre_hook(lambda _, __, kw: options.append(kw), with_kwargs=True)
    texts = ["Ana was born in 1850", "Bor was born in 1850"]
    encoded = clara.encode(texts)
    hook.remove()
    length = len(clara.compressor.ids(texts)[0])
    positions = options[0]["position_ids"][0].tolist()
    assert positions[:length] == list(range(length))
    assert positions[length:] == sorted(positions[length:])
    assert positions[-1] <= length
    # The first word reaches the last vector: no mask has cut the row where its positions start again.
    assert apart(encoded.memory[0], encoded.memory[1]) > 1e-3
    assert apart(encoded.memory[0, -1], encoded.memory[1, -1]) > 1e-3
    assert apart(clara.encode([*texts, "moss"]).memory[:2], encoded.memory) <= 1e-5
    assert apart(make_clara(kind).encode(texts).memory, encoded.memory) > 1e-3


def test_alignment_loss_is_the_squared_distance_of_means(make_clara: Make) -> None:
    document, memory = torch.tensor([[1.0, 2.0], [0.0, 0.0]]), torch.tensor([[[3.0, 1.0], [1.0, 1.0]]] * 2)
    encoded = Encoded(memory, document, memory.mean(1))
    # Means of memory are (2, 1): distances 1 + 1 and 4 + 1, over two documents, and over the width.
    assert float(alignment(encoded, "sum")) == pytest.approx((2 + 5) / 2)
    assert float(alignment(encoded)) == pytest.approx((2 + 5) / 4)
    equal = torch.full((3, 4, 5), 0.7)
    assert float(alignment(Encoded(equal, equal[:, 0], equal.mean(1)))) == pytest.approx(0, abs=1e-12)
    clara = make_clara()
    item, other = clara.encode(TEXTS[:2]), clara.encode(TEXTS[:2], token_budget=1)
    assert float(clara.alignment(item)) == pytest.approx(float(clara.alignment(other)), rel=1e-5)


def test_alignment_loss_has_a_gradient_for_both_means(make_clara: Make) -> None:
    clara = make_clara()
    encoded = clara.encode(TEXTS)
    parts = [item.detach().requires_grad_() for item in (encoded.document_mean, encoded.memory_mean)]
    alignment(Encoded(encoded.memory, *parts)).backward()
    assert torch.equal(parts[0].grad, -parts[1].grad)  # type: ignore[operator, arg-type]
    assert float(parts[0].grad.abs().sum()) > 0  # type: ignore[union-attr]


def test_scores_are_cosine_similarities_of_flattened_memory() -> None:
    generator = torch.Generator().manual_seed(0)
    queries = torch.randn(3, 2, 4, generator=generator, dtype=torch.float64)
    memory = torch.randn(3, 5, 2, 4, generator=generator, dtype=torch.float64)
    scores = similarity(queries, memory)
    for b in range(3):
        for d in range(5):
            q, m = queries[b].flatten().numpy(), memory[b, d].flatten().numpy()
            expected = float(q @ m / ((q @ q) ** 0.5 * (m @ m) ** 0.5))
            assert float(scores[b, d]) == pytest.approx(expected, abs=1e-12)
    assert float(scores.abs().max()) <= 1
    assert torch.allclose(similarity(queries * 3, memory * 0.1), scores, atol=1e-12)
    assert torch.allclose(similarity(queries, memory[0]), similarity(queries, memory[:1].expand(3, -1, -1, -1)))


def test_scores_are_float32_for_any_dtype_of_memory() -> None:
    queries, memory = torch.randn(2, 2, 4).bfloat16(), torch.randn(2, 3, 2, 4).half()
    with torch.autocast("cpu", torch.bfloat16):
        scores = similarity(queries, memory)
    assert scores.dtype == torch.float32
    assert torch.equal(scores, similarity(queries.float(), memory.float()))


def test_question_equal_to_a_document_has_cosine_1_with_equal_adapters(make_clara: Make, kind: str) -> None:
    clara = make_clara(kind)
    documents = clara.encode(TEXTS).memory
    other = clara.similarity(clara.encode(TEXTS, "reasoner").memory, documents)
    clara.adapters.copy("compressor", "reasoner")
    scores = clara.similarity(clara.encode(TEXTS, "reasoner").memory, documents)
    assert torch.allclose(scores.diagonal(), torch.ones(5), atol=1e-6)
    assert not torch.allclose(other.diagonal(), torch.ones(5), atol=1e-2)


def test_base_with_too_few_positions_for_a_document_is_refused(make_clara: Make) -> None:
    with raises("document-too-long") as caught:
        make_clara(max_length=700, rate=10)
    assert caught.value.where == "max_length"


def test_bfloat16_base_gives_float32_memory(make_clara: Make) -> None:
    clara = make_clara(dtype="bfloat16")
    encoded = clara.encode(TEXTS)
    assert clara.base.get_input_embeddings().weight.dtype == torch.bfloat16
    assert encoded.memory.dtype == encoded.document_mean.dtype == torch.float32
    assert clara.module.rows.memory.dtype == torch.float32
    full = make_clara().encode(TEXTS).memory
    assert float(torch.nn.functional.cosine_similarity(encoded.memory.flatten(1), full.flatten(1)).min()) > 0.99
