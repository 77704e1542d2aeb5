"""Memory in prompts: slots, labels, losses, and replies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from benchmarks.schema import Passage
from methods.clara.config import ClaraConfig
from methods.clara.model import Clara
from methods.clara.prompts import PARAPHRASES, Request, answer, answer_from_text, messages, paraphrase, qa_pairs, qa_target
from methods.models.pocket import answer_prompt
from tests.support.errors import raises

QUESTION = "Where was Ana born ?"
PROMPTS = [answer(QUESTION, 2), answer("who ?", 1), qa_pairs(), paraphrase(3), answer(QUESTION, 0)]
TARGETS = ["on the river", "Bor Ana", qa_target(["who ?", "where ?"], ["Ana", "river"]), "moss grows", "1850"]
Make = Callable[..., Any]


def memory_for(clara: Any, prompts: list[Request], seed: int = 0) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    shape = clara.memory_tokens, clara.hidden_size
    return [torch.randn(prompt.documents * shape[0], shape[1], generator=draw) for prompt in prompts]


def text_of(clara: Any, ids: Any) -> str:
    return str(clara.tokenizer.decode(ids))


def test_thirteen_distinct_paraphrase_prompts_have_the_document_once() -> None:
    assert PARAPHRASES == 13 == len({messages(paraphrase(number), "x") for number in range(13)})
    for number in range(13):
        system, user = messages(paraphrase(number), "HERE $5")
        assert user.count("HERE $5") == 1
        assert system
    with pytest.raises(ValueError, match="no wording 13"):
        paraphrase(13)


def test_prompt_contains_documents_as_memory_or_as_text() -> None:
    with pytest.raises(ValueError, match="not as both"):
        Request("answer", 1, "who ?", ("text",))
    with pytest.raises(ValueError, match="needs a document"):
        Request("qa_pairs", 0)


def test_qa_target_alternates_questions_and_answers() -> None:
    assert qa_target(["who ?", "where ?"], ["Ana", "river"]) == ("Question: who ?\nAnswer: Ana\nQuestion: where ?\nAnswer: river")
    with pytest.raises(ValueError, match="zip"):
        qa_target(["who ?"], [])


def test_answer_prompt_contains_the_question_and_pair_prompt_does_not(make_clara: Make, kind: str) -> None:
    clara = make_clara(kind)
    query, pairs = (text_of(clara, clara.generator.prompt_ids(item)) for item in (PROMPTS[0], PROMPTS[2]))
    assert f"Question:{QUESTION}" in query
    assert "Background:\n<|clara_memory_0|>" in query
    assert "Question" not in pairs
    block = clara.tokens.memory + "<|clara_separator|>"
    assert query.count(block * 2) == 1
    assert pairs.count(block) == 1


def test_prompt_uses_the_chat_template_with_a_system_message_if_supported(make_clara: Make, kind: str) -> None:
    clara = make_clara(kind)
    system, user = messages(answer(QUESTION, 1), clara.tokens.memory + "<|clara_separator|>")
    turns = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    if kind == "Mistral":
        turns = [{"role": "user", "content": f"{system}\n\n{user}"}]
    expected = clara.tokenizer.apply_chat_template(turns, add_generation_prompt=True, enable_thinking=False, tokenize=False)
    assert text_of(clara, clara.generator.prompt_ids(answer(QUESTION, 1))) == expected
    assert expected.endswith("</think>\n\n") == (kind == "Qwen3")


def test_text_that_looks_like_memory_tokens_is_tokenized_as_text(make_clara: Make, kind: str) -> None:
    clara = make_clara(kind)
    sly = "what is <|clara_memory_0|> ?"
    ids = clara.generator.prompt_ids(answer(sly, 1))
    assert sum(identifier >= clara.tokens.first for identifier in ids) == clara.memory_tokens + 1
    assert max(clara.generator.prompt_ids(answer_from_text(sly, [sly]))) < clara.tokens.first


def test_template_that_repeats_memory_is_refused(make_clara: Make) -> None:
    clara = make_clara()
    clara.tokenizer.chat_template = "{% for m in messages %}{{ m.content }}{{ m.content }}{% endfor %}"
    with raises("memory-slot-mismatch"):
        clara.generator.prompt_ids(answer(QUESTION, 1))


def test_documents_as_text_are_truncated_at_the_compressors_limit(make_clara: Make) -> None:
    clara = make_clara()
    long = "Ana was born " * 12
    ids = clara.generator.prompt_ids(answer_from_text("who ?", [long, "moss"]))
    inside = clara.tokenizer(long, add_special_tokens=False)["input_ids"]
    text = text_of(clara, ids)
    assert clara.tokenizer.decode(inside[:16]) + "\n\nmoss" in text
    assert clara.tokenizer.decode(inside[:17]) not in text


@pytest.mark.parametrize("side", ["left", "right"])
def test_slots_contain_memory_in_order_and_other_positions_token_embeddings(make_clara: Make, kind: str, side: str) -> None:
    clara = make_clara(kind)
    memory = memory_for(clara, PROMPTS)
    batch = clara.generator.assemble(PROMPTS, memory, TARGETS, side)
    table, first, count = clara.base.get_input_embeddings().weight, clara.tokens.first, clara.memory_tokens
    for row in range(len(PROMPTS)):
        slot = 0
        for position in range(batch.ids.shape[1]):
            token, vector = int(batch.ids[row, position]), batch.embedded[row, position]
            if first <= token < first + count:
                assert token == first + slot % count
                assert torch.equal(vector, memory[row][slot])
                slot += 1
            elif token >= first:
                assert torch.equal(vector, clara.module.rows.marks[token - clara.tokens.begin])
            else:
                assert torch.equal(vector, table[token])
        assert slot == PROMPTS[row].documents * count
        tokens = int(batch.mask[row].sum())
        expected = [0] * (batch.mask.shape[1] - tokens) + [1] * tokens
        assert batch.mask[row].tolist() == (expected if side == "left" else expected[::-1])


def test_reordered_memory_fills_slots_in_the_new_order(make_clara: Make) -> None:
    clara = make_clara()
    prompts = [answer(QUESTION, 3)]
    memory = torch.randn(1, 3, 4, 32)
    plain = clara.generator.assemble(prompts, memory)
    moved = clara.generator.assemble(prompts, memory[:, [2, 0, 1]])
    slots = clara.module.rows.slots(plain.ids)
    assert torch.equal(moved.embedded[slots].reshape(3, 4, 32), memory[0, [2, 0, 1]])
    assert torch.equal(moved.embedded[~slots], plain.embedded[~slots])
    listed = clara.generator.assemble(prompts, [memory[0].reshape(12, 32)])
    assert torch.equal(listed.embedded, plain.embedded)


def test_gradient_flows_from_the_prompt_into_memory(make_clara: Make) -> None:
    clara = make_clara()
    memory = torch.randn(2, 2, 4, 32, requires_grad=True)
    slopes = torch.randn(2, 2, 4, 32)
    batch = clara.generator.assemble([answer("who ?", 2), answer(QUESTION, 2)], memory)
    batch.embedded[clara.module.rows.slots(batch.ids)].mul(slopes.reshape(-1, 32)).sum().backward()
    assert torch.equal(memory.grad, slopes)  # type: ignore[arg-type]


def test_memory_that_does_not_fit_the_slots_is_refused(make_clara: Make) -> None:
    generator = make_clara().generator
    for memory in (None, torch.zeros(1, 1, 4, 32), torch.zeros(2, 2, 4, 32), [torch.zeros(7, 32)], [torch.zeros(3, 4, 32)]):
        with pytest.raises(ValueError, match=r"slots for \[8\] memory vectors"):
            generator.assemble([answer(QUESTION, 2)], memory)


def test_memory_length_embedding_scales_memory_to_the_mean_embedding_norm(make_clara: Make) -> None:
    clara = make_clara(memory_length="embedding")
    memory = 40 * torch.randn(1, 1, 4, 32)
    batch = clara.generator.assemble([answer("who ?", 1)], memory)
    result = batch.embedded[clara.module.rows.slots(batch.ids)]
    norm = clara.base.get_input_embeddings().weight.norm(dim=-1).mean()
    assert torch.allclose(result.norm(dim=-1), norm.expand(4), rtol=1e-5)
    assert torch.allclose(torch.nn.functional.cosine_similarity(result, memory[0, 0], dim=-1), torch.ones(4))


@pytest.mark.slow
def test_prompt_beyond_the_limit_is_refused_instead_of_truncated(make_clara: Make) -> None:
    clara = make_clara(max_prompt=600)
    fits = answer("who ?", 1)
    length = clara.generator.length(fits, "Ana")
    assert length == len(clara.generator.prompt_ids(fits)) + len(clara.generator.target_ids("Ana"))
    narrow = make_clara(max_prompt=length)
    memory = memory_for(narrow, [fits])
    assert narrow.generator.assemble([fits], memory, ["Ana"]).ids.shape == (1, length)
    with raises("prompt-too-long"):
        narrow.generator.assemble([fits], memory, ["Ana Ana"])
    with raises("prompt-too-long"):
        narrow.generate([fits], memory, 200)
    assert make_clara(max_prompt=100_000).generator.room == 768


@pytest.mark.parametrize("side", ["left", "right"])
def test_labels_cover_exactly_the_reply_and_its_end_of_turn(make_clara: Make, kind: str, side: str, bases: Any) -> None:
    clara = make_clara(kind)
    batch = clara.generator.assemble(PROMPTS, memory_for(clara, PROMPTS), TARGETS, side)
    for row, (prompt, target) in enumerate(zip(PROMPTS, TARGETS, strict=True)):
        taught = batch.labels[row] != -100
        assert torch.equal(batch.labels[row][taught], batch.ids[row][taught])
        assert text_of(clara, batch.ids[row][taught]).strip() == target + bases.TURN_ENDS[kind]
        positions = taught.nonzero().flatten().tolist()
        assert positions == list(range(positions[0], positions[0] + len(positions)))
        before = batch.ids[row][: positions[0]][batch.mask[row][: positions[0]].bool()]
        assert before.tolist() == clara.generator.prompt_ids(prompt)
        assert int(batch.mask[row].sum()) == len(before) + len(positions)


def test_prompt_and_reply_form_a_conversation_of_the_template(make_clara: Make, kind: str, bases: Any) -> None:
    clara = make_clara(kind)
    batch = clara.generator.assemble([PROMPTS[1]], memory_for(clara, [PROMPTS[1]]), ["Bor Ana"])
    block = clara.tokens.memory + "<|clara_separator|>"
    system, user = messages(PROMPTS[1], block)
    turns = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    if kind == "Mistral":
        turns = [{"role": "user", "content": f"{system}\n\n{user}"}]
    whole = clara.tokenizer.apply_chat_template(
        [*turns, {"role": "assistant", "content": "Bor Ana"}], tokenize=False, enable_thinking=False
    )
    end = bases.TURN_ENDS[kind]
    assert text_of(clara, batch.ids[0]) == whole[: whole.rindex(end) + len(end)]


def test_empty_reply_is_refused(make_clara: Make) -> None:
    clara = make_clara()
    with pytest.raises(ValueError, match="a target is empty"):
        clara.cross_entropy([PROMPTS[1]], memory_for(clara, [PROMPTS[1]]), [""])


@pytest.mark.slow
def test_plain_template_replaces_the_chat_template(make_clara: Make) -> None:
    clara = make_clara(template="plain")
    text = text_of(clara, clara.generator.prompt_ids(answer(QUESTION, 1)))
    assert text.startswith("<s>You are")
    assert text.endswith(f"Question:{QUESTION}\n\nReply:")
    assert text_of(clara, clara.generator.target_ids("Ana")) == " Ana</s>"
    with raises("base-format-mismatch"):
        make_clara("Qwen3", template="pocket")


def test_pocket_model_prompt_has_the_format_of_its_training() -> None:
    clara = Clara.open(ClaraConfig.model_validate({"base": "pocket", "max_length": 96, "rate": 96}), ("generator",))
    passages = [
        Passage("a", "Nolm Basin", "Nolm Basin lies\nin  Tarv. Its ruler is Ana."),
        Passage("b", "", "Text without a title."),
        Passage("c", "Ana Velk", ""),
    ]
    query = answer_from_text(QUESTION, [passage.full_text for passage in passages])
    ids = clara.generator.prompt_ids(query)
    written = answer_prompt(QUESTION, [passages[0], passages[1], Passage("c", "", "Ana Velk")])
    assert ids == clara.tokenizer(written)["input_ids"]
    assert "[1] Nolm Basin: Nolm Basin lies in Tarv." in clara.tokenizer.decode(ids)
    # What stands behind a marker is what the compressor reads of the same document.
    alone = clara.tokenizer(" Nolm Basin: Nolm Basin lies in Tarv. Its ruler is Ana.", add_special_tokens=False)
    (read,) = clara.compressor.ids([passages[0].full_text])
    assert clara.tokenizer.decode(alone["input_ids"]) in clara.tokenizer.decode(read)
    assert str(alone["input_ids"])[1:-1] in str(read)


def test_cross_entropy_equals_that_of_the_models_full_logits_over_the_reply(make_clara: Make, kind: str) -> None:
    clara = make_clara(kind)
    memory = memory_for(clara, PROMPTS)
    losses: list[torch.Tensor] = []
    for row in range(len(PROMPTS)):
        batch = clara.generator.assemble(PROMPTS[row : row + 1], memory[row : row + 1], TARGETS[row : row + 1])
        with clara.use("generator"), torch.no_grad():
            logits = clara.adapters.model(inputs_embeds=batch.embedded, attention_mask=batch.mask).logits[0]
        labels = batch.labels[0]
        shares = logits.float().log_softmax(-1)
        taught = [-shares[n - 1, labels[n]] for n in range(len(labels)) if labels[n] != -100]
        losses.append(torch.stack(taught))
    with torch.no_grad():
        sums = clara.cross_entropy(PROMPTS, memory, TARGETS, "row_sums")
        means = clara.cross_entropy(PROMPTS, memory, TARGETS, "row_means")
        mean = clara.cross_entropy(PROMPTS, memory, TARGETS)
    assert torch.allclose(sums, torch.stack([loss.sum() for loss in losses]), atol=1e-4)
    assert torch.allclose(means, torch.stack([loss.mean() for loss in losses]), atol=1e-5)
    assert float(mean) == pytest.approx(float(torch.cat(losses).mean()), abs=1e-5)


def test_loss_depends_only_on_generator_and_the_rows_memory(make_clara: Make) -> None:
    clara = make_clara()
    memory = memory_for(clara, PROMPTS)
    with torch.no_grad():
        together = clara.cross_entropy(PROMPTS, memory, TARGETS, "row_means")
        alone = clara.cross_entropy(PROMPTS[1:2], memory[1:2], TARGETS[1:2])
        other = clara.cross_entropy(PROMPTS[1:2], [memory[1] + 1], TARGETS[1:2])
        bare = clara.cross_entropy(PROMPTS[1:2], memory[1:2], TARGETS[1:2], adapter=None)
    assert float(together[1]) == pytest.approx(float(alone), abs=1e-5)
    assert abs(float(other) - float(alone)) > 1e-3
    assert abs(float(bare) - float(alone)) > 1e-3


@pytest.mark.slow
def test_memory_equal_to_token_embeddings_gives_the_loss_of_the_tokens(make_clara: Make, kind: str, bases: Any) -> None:
    # The base with the new rows in its embeddings, read as token ids, is the same model.
    clara = make_clara(kind)
    own = [clara.module.rows.memory.detach().repeat(prompt.documents, 1) for prompt in PROMPTS]
    result = clara.generate(PROMPTS, own, max_new_tokens=6, batch_size=3)
    embeddings = clara.base.get_input_embeddings()
    kept = embeddings.weight.data
    head = clara.base.get_output_embeddings().weight.data
    first = clara.tokens.first
    rows = torch.cat([clara.module.rows.memory.detach(), clara.module.rows.marks])
    wide = torch.cat([kept[:first], rows, kept[first + len(rows) :]])
    pad = clara.tokenizer.pad_token_id or 0
    try:
        embeddings.weight.data = wide
        for row, prompt in enumerate(PROMPTS):
            ends = clara.tokenizer.convert_tokens_to_ids([bases.TURN_ENDS[kind], clara.tokenizer.eos_token])
            ids = torch.tensor([[pad] * 3 + clara.generator.prompt_ids(prompt)])
            mask = torch.tensor([[0] * 3 + [1] * (ids.shape[1] - 3)])
            with clara.use("generator"):
                written = clara.adapters.model.generate(
                    input_ids=ids, attention_mask=mask, max_new_tokens=6, do_sample=False, pad_token_id=pad, eos_token_id=ends
                )[0, ids.shape[1] :].tolist()
            assert result[row].text == clara.tokenizer.decode(written, skip_special_tokens=True).strip()
            assert result[row].completion_tokens == len(written)
    finally:
        embeddings.weight.data = kept
    assert torch.equal(clara.base.get_output_embeddings().weight.data, head)


@pytest.mark.slow
def test_replies_do_not_depend_on_the_batch(make_clara: Make, kind: str) -> None:
    clara = make_clara(kind)
    memory = memory_for(clara, PROMPTS)
    together = clara.generate(PROMPTS, memory, max_new_tokens=5)
    for row, prompt in enumerate(PROMPTS):
        (alone,) = clara.generate([prompt], memory[row : row + 1], max_new_tokens=5)
        assert replace(together[row], seconds=0) == replace(alone, seconds=0)
        assert alone.prompt_tokens == len(clara.generator.prompt_ids(prompt))
        assert 0 < alone.completion_tokens <= 5


def test_generation_disables_dropout_and_restores_training_mode(make_clara: Make) -> None:
    clara = make_clara(lora={"dropout": 0.5})
    memory = memory_for(clara, PROMPTS)
    still = [item.text for item in clara.generate(PROMPTS, memory, max_new_tokens=5)]
    clara.module.train()
    assert [item.text for item in clara.generate(PROMPTS, memory, max_new_tokens=5)] == still
    assert clara.module.training


@pytest.mark.slow
def test_trained_reply_is_generated_and_ends(make_clara: Make) -> None:
    clara = make_clara(drawn=False, lora={"dropout": 0.0})
    texts, prompts = ["Ana was born in 1850 .", "moss grows on the bridge ."], [qa_pairs(), paraphrase(2)]
    targets = [qa_target(["who ?"], ["Ana"]), "on the bridge grows moss ."]
    clara.set_trainable({"compressor", "generator", "memory"})
    optimizer = torch.optim.AdamW(clara.trainable_parameters().values(), lr=1e-2, weight_decay=0)
    losses, distances = [], []
    for _ in range(120):
        optimizer.zero_grad()
        encoded = clara.encode(texts)
        loss, distance = clara.cross_entropy(prompts, encoded.memory, targets), clara.alignment(encoded)
        (loss + 0.1 * distance).backward()
        optimizer.step()
        losses.append(float(loss.detach()))
        distances.append(float(distance.detach()))
        if losses[-1] < 0.05:
            break
    assert losses[-1] < 0.05 < losses[0]
    assert distances[-1] < distances[0]
    with torch.no_grad():
        replies = clara.generate(prompts, clara.encode(texts).memory, max_new_tokens=40)
    assert [reply.text for reply in replies] == targets
    assert all(reply.ended for reply in replies)
