"""Training of the pocket model: data, packing, refusal of held-out worlds, and resuming."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.core.random import Draws
from benchmarks.worlds.names import all_words, training_words
from methods.models.pocket import ANSWER, PARAPHRASE, QUESTION, UNANSWERABLE, pocket_path
from tests.support.errors import raises
from tools.tiny_lm.packing import TASKS, Encoder, Packer, chunk
from tools.tiny_lm.tasks import LEVELS, Group, Maker
from tools.tiny_lm.tokens import load
from tools.tiny_lm.train import Place, Run, batches, parse

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def encode() -> Encoder:
    return Encoder(load(pocket_path()))


def groups_of(seed: int = 3, level: int = 3, count: int = 40) -> list[Group]:
    return list(Maker(seed, LEVELS[level]).groups(count))


def run_in(folder: Path, steps: int) -> Run:
    folder.mkdir(exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        if (pocket_path() / name).exists():
            shutil.copy(pocket_path() / name, folder / name)
    options = ["--out", str(folder), "--steps", str(steps), "--threads", "1", "--layers", "2", "--log-seconds", "0"]
    return Run(parse(options))


@pytest.mark.parametrize("seed", [10_000, 19_999, 100_000, 2**30])
def test_held_out_worlds_are_never_used_for_training(seed: int, encode: Encoder) -> None:
    with raises("seed-of-other-split"):
        parse(["--out", "x", "--first-world", str(seed)])
    with raises("seed-of-other-split"):
        chunk(encode, LEVELS[0], seed, 0.1)


def test_training_data_stops_before_the_held_out_worlds(encode: Encoder) -> None:
    position = Place(chunk=9_999, level=0)
    with raises("seed-of-other-split"):
        for _ in batches(encode, position, 0, 0.1, lambda: 0.0):
            pass


def test_words_of_held_out_worlds_never_occur_in_training() -> None:
    held_out = set(all_words()) - set(training_words())
    text = " ".join(" ".join([*group.context, *(f"{b.prompt} {b.target}" for b in group.blocks)]) for group in groups_of())
    used = {word.strip("'s.,?()") for word in text.split()}
    assert not used & held_out
    assert used - set(all_words()), "replaced words are there"


def test_answers_are_in_the_context_unanswerable_or_a_choice() -> None:
    seen = dict.fromkeys(("single", "missing", "closed", "bridge", "comparison"), 0)
    for group in groups_of(count=200):
        context = " ".join(group.context)
        for block in group.blocks:
            seen[block.task] = seen.get(block.task, 0) + 1
            if block.task in ("single", "inverse", "bridge") and block.target not in context:
                # Styles may change the wording of a plain value; names and numbers survive them.
                assert not any(letter.isupper() or letter.isdigit() for letter in block.target), block
            if block.task in ("missing", "closed"):
                assert block.target == UNANSWERABLE
            if block.task == "closed":
                assert not group.context
            if block.task == "question":
                assert block.prompt.startswith(ANSWER)
                assert block.prompt.endswith(QUESTION)
            if block.task == "paraphrase":
                assert block.prompt.endswith(PARAPHRASE)
                assert block.target not in block.prompt
    assert all(seen.values()), seen


@pytest.mark.slow
@pytest.mark.parametrize("level", range(len(LEVELS)))
def test_batches_have_the_shape_of_their_level_and_are_reproducible(level: int, encode: Encoder) -> None:
    item, two = (chunk(encode, LEVELS[level], 5, 0.1) for _ in range(2))
    assert len(item) == len(two) > 0
    for left, right in zip(item, two, strict=True):
        assert left.ids.shape == (LEVELS[level].rows, LEVELS[level].row)
        for name in ("ids", "positions", "group", "block", "target", "weight", "task"):
            assert np.array_equal(getattr(left, name), getattr(right, name)), name
        known = left.target >= 0
        assert (left.weight[known] > 0).all()
        assert (left.task[known & (left.block == 0)] == -1).all()
        assert (left.group[known] >= 0).all()


@pytest.mark.slow
def test_packed_block_is_predicted_as_if_alone_after_its_context(encode: Encoder) -> None:
    """The logits of a packed row equal those of each prompt run separately."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(str(pocket_path()), dtype=torch.float32).eval()
    groups = [group for group in groups_of(count=30) if len(group.blocks) > 2][:4]
    packer = Packer(encode, 1, 1024, Draws("test"))
    batch = next(iter(packer.pack([*groups, *groups_of(seed=4)])))
    with torch.inference_mode():
        packed = model(
            input_ids=torch.from_numpy(batch.ids), position_ids=torch.from_numpy(batch.positions), attention_mask=batch.mask()
        ).logits[0]
        compared = 0
        for number in range(int(batch.group[0].max()) + 1):
            inside = batch.group[0] == number
            for block in range(1, int(batch.block[0][inside].max()) + 1):
                whole = inside & ((batch.block[0] == 0) | (batch.block[0] == block))
                alone = model(input_ids=torch.from_numpy(batch.ids[:, whole])).logits[0]
                positions = torch.from_numpy(np.flatnonzero(whole & (batch.block[0] == block)))
                assert torch.allclose(alone[-len(positions) :], packed[positions], atol=2e-3)
                compared += len(positions)
                targets = batch.target[0][whole]
                assert np.array_equal(targets[:-1][targets[:-1] >= 0][-1:], batch.ids[0, whole][-1:])
    assert compared > 50


@pytest.mark.slow
def test_token_ids_of_blocks_equal_the_ids_of_the_whole_prompt(encode: Encoder) -> None:
    """Training concatenates ids of pieces and inference tokenizes one string; both must agree."""
    tokenizer: Any = load(pocket_path())
    packer = Packer(encode, 1, 4096, Draws("test"))
    checked = set()
    for group in groups_of(count=60):
        for block in group.blocks:
            context = [token for piece in group.context for token in encode(piece)]
            pieces = [encode.bos, *context, *packer.prompt(block), *encode(f" {block.target}")]
            whole = "".join(group.context) + f"{block.prompt} {block.target}"
            assert tokenizer(whole)["input_ids"] == pieces
            checked.add(block.task)
    assert checked >= set(TASKS) - {"copy"}


def test_curriculum_advances_after_mastery_or_a_time_limit() -> None:
    position = Place(copied=2.0)
    position.next_level(0.0)
    assert position.level == -1
    position.copied = 0.1
    position.next_level(0.0)
    assert position.level == 0
    position.next_level(0.01)
    assert position.level == 0
    position.right = 0.95
    position.next_level(0.01)
    assert (position.level, position.right) == (1, 0.0)
    for _ in range(9):
        position.right = 0.95
        position.next_level(0.5)
    assert position.level == 3, "the levels after it wait for their time"
    for _ in range(9):
        position.next_level(0.99, last=4)
    assert position.level == 4, "and the last one is entered where it is asked for"
    position.next_level(0.99)
    assert position.level == len(LEVELS) - 1 == 5


@pytest.mark.slow
def test_last_levels_ask_more_about_missing_passages() -> None:
    def declining(level: int) -> float:
        """Return the share of contexts with several passages that start with at least two questions they do not answer."""
        several = [group for group in Maker(11, LEVELS[level]).groups(200) if len(group.context) >= 4]
        first = [[block.task for block in group.blocks[:2]] for group in several]
        return sum(tasks == ["missing", "missing"] for tasks in first) / len(several)

    assert declining(3) < 0.1 < 0.15 < declining(4) < declining(5) < 0.8
    for group in Maker(12, LEVELS[-1]).groups(100):
        declined = [block.task == "missing" for block in group.blocks]
        assert len(declined) < 6 or not all(declined), "some of it is answered"


@pytest.mark.slow
@pytest.mark.parametrize("used", [1, 4, 9])
def test_batches_after_a_resume_equal_the_uninterrupted_batches(used: int, encode: Encoder) -> None:
    position, straight = Place(level=2), []
    source = batches(encode, position, 20, 0.1, lambda: 0.4)
    for _ in range(used):
        next(source)
    saved = Place(position.chunk, position.batch, position.level, position.right, position.copied)
    for _ in range(4):
        straight.append(next(source).ids)
    resumed = batches(encode, saved, 20, 0.1, lambda: 0.4)
    for wanted in straight:
        assert np.array_equal(next(resumed).ids, wanted)


@pytest.mark.slow
def test_killed_training_resumes_to_the_same_weights(tmp_path: Path) -> None:
    whole = run_in(tmp_path / "whole", 4)
    whole.train()
    broken = run_in(tmp_path / "broken", 4)
    for batch in batches(broken.encode, broken.position, 100, 0.05, broken.progress):
        broken._update(batch)
        broken.step += 1
        if broken.step == 2:
            broken._save()
            break
    again = run_in(tmp_path / "broken", 4)
    assert again.step == 2
    again.train()
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, again.model.state_dict()[name]), name
    lines = [json.loads(line) for line in (tmp_path / "whole" / "training_log.jsonl").read_text("utf-8").splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    assert lines[-1]["loss"] > 0
    assert (tmp_path / "whole" / "model.safetensors").exists()
