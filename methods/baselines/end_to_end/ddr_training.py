"""Train RAG-DDR (`ragmeter train rag_ddr`): reader and refiner by DPO on which of their own outputs lead to correct answers.

First the reader: among replies sampled with and without passages, a correct one is preferred to a wrong one, given the prompt
with passages. Then the refiner, using the new reader: YES is preferred for the passage with which alone the reader answers
best, and NO for the one with which it answers worst. The reference model is the base without an adapter.

Source: Li et al. 2025, RAG-DDR (arXiv:2410.13509), and its code: five temperatures from 0.5 to 0.9; the preferred reply is one
without passages if possible, and the rejected one then one with passages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import Field

from benchmarks.core.errors import UserError
from benchmarks.core.random import Draws
from methods.baselines.rerank.ddr_refiner import NAME as REFINER_PROMPT
from methods.baselines.rerank.prompts import PROMPTS, Writer
from methods.baselines.tuned import PRESETS, Example, StageCost, SystemTuned, TunedTraining, made_of, once, tuned_needs, tuned_work
from methods.models.decoding import Sampling
from methods.models.weights import weights_hash
from methods.prompts import OURS
from methods.training import TrainingContext, register_training
from methods.training.stages import PreparedRun
from methods.training.tuning import TUNED, Pair, StepOptions, TuningConfig, by_preference, tuning

READER, REFINER = "reader", "refiner"
YES, NO = "YES", "NO"


class DdrTrainingConfig(TuningConfig):
    """Options of RAG-DDR's training."""

    temperatures: tuple[float, ...] = Field(
        (0.5, 0.6, 0.7, 0.8, 0.9), min_length=1, description="temperatures at which replies are sampled; paper: .5 to .9"
    )
    top_p: float = Field(0.8, gt=0, le=1, description="top-p for sampling; released 0.8")
    beta: float = Field(0.1, gt=0, description="beta of DPO: how strongly it keeps the model near the base; paper: 0.1")
    sft: float = Field(
        0.0, ge=0, description="ours: weight of the likelihood of the better reply, for bases that do not follow instructions"
    )
    passage_tokens: int = Field(1024, ge=1, description="tokens of a passage that the refiner is shown")
    prompt: str = Field(OURS, description="the refiner's prompt: `ours`, `published` or a template file")
    train: StepOptions = StepOptions.model_validate({"learning_rate": 5e-5, "batch_size": 8})


@dataclass(frozen=True, slots=True)
class Reply:
    """A sampled reply: its text, whether passages were shown, and its reward (None if unknown)."""

    text: str
    passages: bool
    reward: float | None


def reader_pair(replies: Sequence[Reply], draws: Draws) -> tuple[Reply, Reply] | None:
    """Select the preferred and the rejected reply; None if all rewards are equal."""
    rewards = [reply.reward for reply in replies if reply.reward is not None]
    if not rewards or max(rewards) == min(rewards):
        return None
    best, worst = ([reply for reply in replies if reply.reward == reward] for reward in (max(rewards), min(rewards)))
    draws.shuffle(best)
    draws.shuffle(worst)
    chosen = next((reply for reply in best if not reply.passages), best[0])
    others = [reply for reply in worst if reply.passages] if not chosen.passages else []
    return chosen, (others or worst)[0]


def refiner_pairs(rewards: Sequence[float | None], draws: Draws) -> list[tuple[int, str, str]]:
    """Select a passage to keep and one to drop, each with the preferred and the rejected verdict; [] if all rewards are equal."""
    known = [reward for reward in rewards if reward is not None]
    if not known or max(known) == min(known):
        return []
    best, worst = ([n for n, reward in enumerate(rewards) if reward == wanted] for wanted in (max(known), min(known)))
    return [(draws.pick(best), YES, NO), (draws.pick(worst), NO, YES)]


def _costs(config: DdrTrainingConfig) -> list[StageCost]:
    """Return the stages' costs; each pair takes three passes: both replies with gradient, and without an adapter."""
    draws = 2 * len(config.temperatures)
    return [
        StageCost(READER, config.train, config.k, reads=3, calls=draws, shown=config.k / 2),
        StageCost(REFINER, config.train, 1, rows=2, reads=3, calls=config.retrieved, shown=1),
    ]


@register_training(
    "rag_ddr",
    summary="RAG-DDR: DPO of the reader on its own samples, then of the refiner on the effect of each passage on the new reader",
    stages=(READER, REFINER),
    config=DdrTrainingConfig,
    paper="Li et al. 2025, RAG-DDR (arXiv:2410.13509)",
    presets={"worlds": PRESETS["rag_ddr"], "paper": PRESETS["rag_ddr-paper"]},
    work=tuned_work(_costs),
    needs=tuned_needs,
)
class DdrTraining(TunedTraining):
    """Training of RAG-DDR: DPO of the reader, then of the refiner of passages."""

    stages = (READER, REFINER)

    def begin(self, stage: str, data: Sequence[Example], before: Mapping[str, Path], where: tuple[Any, Any, str]) -> PreparedRun:
        config, context = self.config, where[0]
        tuned = SystemTuned(config, context, (TUNED, READER))
        pairs = self._reader_pairs(tuned, data, context) if stage == READER else self._refiner_pairs(tuned, data, context, before[READER])
        if not pairs:
            raise UserError(
                f"no question gives the {stage} a better and a worse output",
                code="no-preference",
                where="data",
                try_this="a base that answers some of the questions, or more data",
            )
        tuned.train(TUNED)
        loss = partial(by_preference, config.beta, config.sft)
        figures = {"questions": float(len(data))}
        title = f"A {stage} trained as RAG-DDR's is"
        return tuning(tuned, stage, config.train, pairs, len(pairs), *where, loss=loss, figures=figures, title=title)

    def _reader_pairs(self, tuned: SystemTuned, data: Sequence[Example], context: TrainingContext) -> list[Pair]:
        config = self.config

        def drawn(some: Sequence[Example]) -> list[list[list[Any]]]:
            results: list[list[list[Any]]] = [[] for _ in some]
            for number, temperature in enumerate(config.temperatures):
                sampling = Sampling(temperature, config.top_p, seed=config.seed * len(config.temperatures) + number)
                for shown in (False, True):
                    prompts = [tuned.reading(item.text, item.passages[: config.k] if shown else ()) for item in some]
                    written = iter(tuned.write([prompt for prompt in prompts if prompt is not None], None, sampling))
                    texts = [next(written) if prompt is not None else "" for prompt in prompts]
                    rewards = tuned.rewards([(item.question, text) for item, text in zip(some, texts, strict=True)])
                    for own, text, reward in zip(results, texts, rewards, strict=True):
                        own.append([text, shown, reward])
            return results

        key = made_of(config, config.temperatures, config.top_p, config.seed)
        kept = once(context.work / "draws.jsonl", data, key, drawn, context.progress, "drawing replies")
        pairs = []
        for example, replies in zip(data, kept, strict=True):
            pair = reader_pair([Reply(*reply) for reply in replies if reply[0]], Draws("rag_ddr", config.seed, example.question.id))
            prompt = tuned.reading(example.text, example.passages[: config.k])
            if pair and prompt is not None:
                pairs.append(Pair(prompt, tuned.reply(prompt, pair[0].text), tuned.reply(prompt, pair[1].text)))
        return pairs

    def _refiner_pairs(self, tuned: SystemTuned, data: Sequence[Example], context: TrainingContext, reader: Path) -> list[Pair]:
        config = self.config
        tuned.load(READER, reader)

        def tried(some: Sequence[Example]) -> list[list[float | None]]:
            requests = [(item, passage) for item in some for passage in item.passages]
            answers = tuned.answers([(item.text, [passage]) for item, passage in requests], READER)
            rewards = iter(tuned.rewards([(item.question, text) for (item, _), text in zip(requests, answers, strict=True)]))
            return [[next(rewards) for _ in item.passages] for item in some]

        key = made_of(config, weights_hash(str(reader)))
        kept = once(context.work / "alone.jsonl", data, key, tried, context.progress, "reading passages one by one")
        write = Writer(PROMPTS[REFINER_PROMPT].load(config.prompt), tuned.counter, tuned.causal.room, passage_tokens=config.passage_tokens)
        pairs = []
        for example, rewards in zip(data, kept, strict=True):
            for number, better, worse in refiner_pairs(rewards, Draws("rag_ddr", config.seed, example.question.id)):
                messages = write(example.text, [write.shown(example.passages[number])], ["1"])
                if messages is not None:
                    prompt = tuned.asking(messages)
                    pairs.append(Pair(prompt, tuned.reply(prompt, better), tuned.reply(prompt, worse)))
        return pairs
