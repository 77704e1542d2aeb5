"""Tuning by rows and pairs: losses against closed forms, trained parameters, and resuming."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from benchmarks.core.fingerprint import folder_sha256
from benchmarks.schema import Passage
from methods.api import Services
from methods.baselines.tuned import SystemTuned
from methods.readers.local import PocketReader, PocketReaderConfig
from methods.training import TRAININGS, Silent, TrainingContext
from methods.training.tuning import TUNED, Pair, Row, by_preference, by_weight, dpo, nll

torch = pytest.importorskip("torch")
WORLDS = {"worlds": {"worlds": 1, "questions": 12, "entities": 60, "mix": {"single": 1.0}}}
OTHER = "other"
PASSAGES = (Passage("a", "Lyon", "Lyon was founded by Plancus."), Passage("b", "Bern", "Bern was founded by Berthold."))


def config(**more: Any) -> Any:
    return TRAININGS.get("reader").validate({"preset": "worlds", "data_options": WORLDS, **more})


def context(folder: Path, progress: Any = None) -> TrainingContext:
    return TrainingContext(folder / "work", folder / "checkpoints", Services(device="cpu"), progress or Silent())


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> SystemTuned:
    return SystemTuned(config(), context(tmp_path_factory.mktemp("tuned")), (TUNED, OTHER))


def test_dpo_and_its_gradient_equal_the_closed_form() -> None:
    chosen, rejected = (torch.tensor(values, dtype=torch.float64, requires_grad=True) for values in ([-2.0, -1.0], [-3.0, -0.5]))
    base_chosen, base_rejected = torch.tensor([-2.5, -1.0]), torch.tensor([-2.0, -0.5])
    loss = dpo(chosen, rejected, base_chosen, base_rejected, 0.4)
    # The margins are (-2 + 2.5) - (-3 + 2) = 1.5 and 0.
    assert loss.tolist() == pytest.approx([math.log(1 + math.exp(-0.6)), math.log(2)])
    loss.sum().backward()
    assert chosen.grad.tolist() == pytest.approx([-0.4 / (1 + math.exp(0.6)), -0.2])
    assert rejected.grad.tolist() == pytest.approx([0.4 / (1 + math.exp(0.6)), 0.2])


def test_nll_weights_rows_and_divides_by_tokens() -> None:
    assert float(nll(torch.tensor([-2.0, -6.0]), torch.tensor([1.0, 0.5]), 5.0)) == pytest.approx((2 + 3) / 5)


def test_prompts_equal_the_readers_and_replies_have_an_end_token(tuned: SystemTuned) -> None:
    prompt = tuned.reading("Who founded Lyon?", PASSAGES)
    reader = PocketReader(PocketReaderConfig.model_validate({}), Services(device="cpu"))
    assert prompt is not None
    text = tuned.causal.tokenizer.decode(list(prompt))
    assert text == reader.written("Who founded Lyon?", PASSAGES)
    reply = tuned.reply(prompt, "Plancus")
    assert tuned.causal.tokenizer.decode(list(reply)) == " Plancus</s>"
    assert tuned.causal.tokenizer.decode(list(tuned.reply(prompt, "\nSo"))) == "\nSo</s>"


def test_training_likelihoods_equal_scoring_and_cover_only_replies(tuned: SystemTuned) -> None:
    prompt = tuned.reading("Who founded Lyon?", PASSAGES)
    assert prompt is not None
    items = [(prompt, tuned.reply(prompt, text)) for text in ("Plancus", "Berthold of Zähringen")]
    with torch.no_grad():
        learned = tuned.learned(items, TUNED).tolist()
    assert learned == pytest.approx(tuned.log_likelihoods(items, TUNED), abs=1e-3)
    rows = [Row(*items[0]), Row(*items[1], weight=0.5)]
    with torch.no_grad():
        loss = float(by_weight(tuned, rows, rows))
    tokens = len(items[0][1]) + 0.5 * len(items[1][1])
    assert loss == pytest.approx(-(learned[0] + 0.5 * learned[1]) / tokens, abs=1e-3)


def test_preference_loss_starts_at_log_2_and_only_the_adapter_changes(tuned: SystemTuned) -> None:
    prompt = tuned.reading("Who founded Lyon?", PASSAGES)
    assert prompt is not None
    pair = Pair(prompt, tuned.reply(prompt, "Plancus"), tuned.reply(prompt, "Berthold"))
    tuned.train(TUNED)
    tuned.module.eval()
    loss = by_preference(0.1, 0.0, tuned, [pair], [pair])
    assert float(loss.detach()) == pytest.approx(math.log(2), abs=1e-5)
    loss.backward()
    moved = {name for name, item in tuned.module.named_parameters() if item.grad is not None and item.grad.abs().sum() > 0}
    assert moved
    assert moved <= tuned.adapters.of(TUNED).keys()


def test_two_adapters_are_trained_in_one_step_each_on_its_rows(tuned: SystemTuned) -> None:
    prompt = tuned.reading("Who founded Lyon?", PASSAGES)
    assert prompt is not None
    rows = [Row(prompt, tuned.reply(prompt, "Plancus")), Row(prompt, tuned.reply(prompt, "Berthold"), adapter=OTHER)]
    tuned.train(TUNED, OTHER)
    gradients = {}
    for some in ([rows[0]], [rows[1]], rows):
        tuned.module.zero_grad()
        tuned.module.eval()
        by_weight(tuned, some, rows).backward()
        norms = {name: [item.grad for item in tuned.adapters.of(name).values() if item.grad is not None] for name in (TUNED, OTHER)}
        gradients[len(some), some[0].adapter] = {name: sum(float(item.abs().sum()) for item in own) for name, own in norms.items()}
    assert gradients[1, TUNED][OTHER] == gradients[1, OTHER][TUNED] == 0
    assert gradients[2, TUNED] == pytest.approx({TUNED: gradients[1, TUNED][TUNED], OTHER: gradients[1, OTHER][OTHER]})
    assert min(gradients[2, TUNED].values()) > 0


@dataclass
class Stopping(Silent):
    """Progress that stops the process at a step."""

    at: int
    begun: list[str] = field(default_factory=list)

    def begin(self, what: str, total: int | None = None, done: int = 0) -> None:
        self.begun.append(f"{what} {done}")

    def log(self, figures: Any) -> None:
        self.at -= 1
        if not self.at:
            raise KeyboardInterrupt


@pytest.mark.slow
def test_an_interrupted_training_resumes_with_the_same_weights(tmp_path: Path) -> None:
    options = config(train={"steps": 3, "batch_size": 2, "micro_batch": 2, "save_every": 1})
    factory = TRAININGS.get("reader").factory
    (whole,) = factory(options).run(context(tmp_path / "whole"))
    with pytest.raises(KeyboardInterrupt):
        list(factory(options).run(context(tmp_path / "parts", Stopping(3))))
    progress = Stopping(9)
    (resumed,) = factory(options).run(context(tmp_path / "parts", progress))
    assert progress.begun == ["training reader 2"]
    assert folder_sha256(resumed.folder) == folder_sha256(whole.folder)
    assert resumed.figures == whole.figures
    (again,) = factory(options).run(context(tmp_path / "parts"))
    assert not again.fresh
