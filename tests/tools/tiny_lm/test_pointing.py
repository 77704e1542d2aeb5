"""Attention supervision of the pocket model: pointer positions, and the loss."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.core.random import Draws
from benchmarks.schema import Passage
from methods.models.pocket import GAP, UNANSWERABLE, asking, entry, marker, pocket_path
from tools.tiny_lm.initial import HEADS_THAT_COPY, fresh_model
from tools.tiny_lm.packing import TASKS, Batch, Encoder, Packer
from tools.tiny_lm.pointing import Watched, pointers
from tools.tiny_lm.tasks import LEVELS, Block, Group, Maker
from tools.tiny_lm.tokens import load

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def encode() -> Encoder:
    return Encoder(load(pocket_path()))


def batch_of(encode: Encoder, groups: list[Group], length: int = 256) -> Batch:
    packer = Packer(encode, 1, length, Draws("pointing"))
    filler = [Group(groups[0].context, groups[0].blocks)] * 40
    return next(iter(packer.pack([*groups, *filler])))


TEXT = "Velmar Dosk was born in Port Alba. Velmar Dosk left Port Alba in 1912."
CONTEXT = [marker(1), entry(Passage("p", "Velmar Dosk", TEXT)) + GAP]


def test_pointers_mark_every_mention_of_the_answer_in_its_context(encode: Encoder) -> None:
    born = Block(asking("Where was Velmar Dosk born?"), "Port Alba", "single")
    batch = batch_of(encode, [Group(CONTEXT, [born])])
    result = pointers(batch)
    answer = encode(" Port Alba")
    first = result.positions[0]
    starts = np.flatnonzero(first)
    assert len(starts) == 2
    for start in starts:
        assert batch.ids[0, start : start + len(answer)].tolist() == answer
        assert batch.group[0, start] == batch.group[0, result.columns[0]]
        assert batch.block[0, start] == 0
    # The pointer is read at the token that predicts the first token of the answer.
    assert batch.target[0, result.columns[0]] == answer[0]


def test_unanswerable_questions_point_at_the_first_token(encode: Encoder) -> None:
    blocks = [Block(asking("Who wrote it?"), UNANSWERABLE, task) for task in ("missing", "closed")]
    result = pointers(batch_of(encode, [Group(CONTEXT, blocks)]))
    assert result.positions[:2].sum(axis=1).tolist() == [1, 1]
    assert np.flatnonzero(result.positions[0]).tolist() == np.flatnonzero(result.positions[1]).tolist() == [0]


def test_answers_absent_from_the_context_and_other_tasks_have_no_pointer(encode: Encoder) -> None:
    blocks = [Block(asking("Is it so?"), "yes", "comparison"), Block("Answer: x\nQuestion:", "Who?", "question")]
    assert len(pointers(batch_of(encode, [Group(CONTEXT, blocks)])).rows) == 0


def test_pointers_of_training_batches_mark_their_answers(encode: Encoder) -> None:
    groups = list(Maker(5, LEVELS[3]).groups(20))
    batch = next(iter(Packer(encode, 4, 448, Draws("x")).pack(groups)))
    result = pointers(batch)
    assert len(result.rows) > 20
    for row, column, positions in zip(result.rows, result.columns, result.positions, strict=True):
        task = TASKS[batch.task[row, column]]
        for position in np.flatnonzero(positions):
            assert batch.block[row, position] == 0
            assert batch.group[row, position] == batch.group[row, column]
            if task in ("missing", "closed"):
                assert batch.positions[row, position] == 0
            else:
                assert batch.ids[row, position] == batch.target[row, column]


@pytest.mark.slow
def test_pointing_loss_equals_the_loss_of_the_model_attention(encode: Encoder) -> None:
    model = fresh_model(encode.size, 0, encode.bos, encode.eos, seed=3, layers=3)
    model.config._attn_implementation = "eager"
    batch = next(iter(Packer(encode, 2, 320, Draws("x")).pack(Maker(6, LEVELS[2]).groups(20))))
    wanted, mask = pointers(batch), batch.mask()
    allowed = torch.zeros(mask.shape).masked_fill(~mask, torch.finfo(torch.float32).min)
    with torch.no_grad(), Watched(model) as watched:
        attention = model.model(
            input_ids=torch.from_numpy(batch.ids),
            position_ids=torch.from_numpy(batch.positions),
            attention_mask=allowed,
            output_attentions=True,
            use_cache=False,
        ).attentions[-1]
        missed = watched.missed(mask, wanted)
    assert missed.shape == (len(wanted.rows), HEADS_THAT_COPY)
    for number, (row, column) in enumerate(zip(wanted.rows, wanted.columns, strict=True)):
        on_places = attention[row, :HEADS_THAT_COPY, column][:, torch.from_numpy(wanted.positions[number])].sum(-1)
        assert torch.allclose(torch.exp(-missed[number]), on_places, atol=1e-5)


@pytest.mark.slow
def test_pointing_loss_trains_heads_to_point(encode: Encoder) -> None:
    model = fresh_model(encode.size, 0, encode.bos, encode.eos, seed=4, layers=2)
    batch = next(iter(Packer(encode, 2, 256, Draws("x")).pack(Maker(7, LEVELS[0]).groups(40))))
    wanted, mask = pointers(batch), batch.mask()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    means = []
    for _ in range(25):
        with Watched(model) as watched:
            model.model(
                input_ids=torch.from_numpy(batch.ids), position_ids=torch.from_numpy(batch.positions), attention_mask=mask, use_cache=False
            )
        loss = watched.missed(mask, wanted).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        means.append(float(loss.detach()))
    assert means[-1] < means[0] / 2
