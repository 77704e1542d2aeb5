"""Train the pocket model from scratch on train worlds: `python -m tools.tiny_lm.train --out FOLDER`.

The run can be killed and started again with the same command: model, optimizer, place in the data and curriculum
come back from the last checkpoint, and the batches that follow are the same. It ends after `--steps` steps, or earlier
where `--minutes` are given; the learning rate falls over the last part of whichever ends first.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.worlds.world import require_training_seed
from tools.tiny_lm import tokens
from tools.tiny_lm.initial import LAYERS, fresh_model
from tools.tiny_lm.packing import TASKS, Batch, Encoder, chunk
from tools.tiny_lm.pointing import WEIGHT as POINTING
from tools.tiny_lm.pointing import Watched, pointers
from tools.tiny_lm.tasks import LEVELS
from tools.tiny_lm.workers import Workers

TOKENIZER_WORLDS = range(4)
_CHECKPOINT, _LOG = "checkpoint.pt", "training_log.jsonl"
_ADVANCE_AT = 0.9
_COPIES_AT = 0.5
_CORRECTIONS = 3
_LATEST = (0.06, 0.2, 0.42, 0.83, 0.9, 2.0)
"""A level ends when its questions are answered so well, or at this share of the run."""


@dataclass(slots=True)
class Place:
    """Position of a training run in its data.

    Attributes:
        chunk: Number of the current training world.
        batch: Number of its batches used so far.
        level: Step of the curriculum at the start of the chunk; -1 while copying is being learned.
        right: Running share of answers with every token correct.
        copied: Running loss of copying.
    """

    chunk: int = 0
    batch: int = 0
    level: int = -1
    right: float = 0.0
    copied: float = 10.0

    def next_level(self, progress: float, last: int = len(LEVELS) - 1) -> None:
        """Advance to the next level once the current one is mastered or its time is over; only between chunks.

        Levels after the fourth start by time only.
        """
        if self.level < 0:
            self.level = 0 if self.copied < _COPIES_AT else -1
            return
        mastered = self.right > _ADVANCE_AT and self.level < _CORRECTIONS
        if self.level < last and (mastered or progress > _LATEST[self.level]):
            self.level += 1
            self.right = 0.0


def batches(
    encode: Encoder, position: Place, first_world: int, copied: float, progress: Any, last: int = len(LEVELS) - 1
) -> Iterator[Batch]:
    """Yield batches from a position on, and advance the position before each one.

    Raises:
        UserError: The next world's seed would belong to validation or test worlds.
    """
    while True:
        seed = require_training_seed(first_world + position.chunk)
        made = chunk(encode, LEVELS[max(0, position.level)], seed, copied if position.level >= 0 else 1.0)
        for number in range(position.batch, len(made)):
            position.batch = number + 1
            yield made[number]
        position.chunk, position.batch = position.chunk + 1, 0
        position.next_level(progress(), last)


class Run:
    """Training run of the pocket model in a folder.

    Args:
        options: Command-line options.
        workers: Processes that train together; None: only this one.
    """

    def __init__(self, options: argparse.Namespace, workers: Workers | None = None) -> None:
        import torch

        self.workers = workers or Workers(1, [])

        self.options = options
        self.folder = Path(options.out)
        self.folder.mkdir(parents=True, exist_ok=True)
        torch.set_num_threads(options.threads)
        if not (self.folder / "tokenizer.json").exists():
            tokens.train(TOKENIZER_WORLDS).save_pretrained(str(self.folder))
        self.tokenizer = tokens.load(self.folder)
        self.encode = Encoder(self.tokenizer)
        ids = (self.tokenizer.pad_token_id, self.encode.bos, self.encode.eos)
        self.model = fresh_model(len(self.tokenizer), *ids, options.seed, options.layers)
        self.model.train()
        decayed = [p for p in self.model.parameters() if p.dim() > 1]
        rest = [p for p in self.model.parameters() if p.dim() < 2]
        groups = [{"params": decayed, "weight_decay": 0.02}, {"params": rest, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=options.rate, betas=(0.9, 0.98), fused=True)
        self.position, self.step, self.cost = Place(), 0, 0.0
        self.precision = torch.bfloat16 if options.precision == "bfloat16" else torch.float32
        self._resume()
        self._started = time.monotonic() - self.cost
        self._share = 0.0
        self._clock()

    def _clock(self) -> None:
        """Read the clock; all processes go by the first one's."""
        share = self.step / self.options.steps
        if self.options.minutes:
            share = max(share, (time.monotonic() - self._started) / (60 * self.options.minutes))
        self._share = self.workers.summed([share if self.workers.first else 0.0])[0]

    def progress(self) -> float:
        """Return the finished share of the run."""
        return self._share

    def rate(self) -> float:
        """Return the current learning rate: short warm-up, constant, then decay to almost zero."""
        fall = min(1.0, max(0.02, (1 - self.progress()) / self.options.fall))
        return self.options.rate * min(1.0, (self.step + 1) / 40) * fall

    def train(self) -> None:
        """Train to the end; an interrupted run resumes."""
        saved = logged = time.monotonic()
        sums: dict[str, list[float]] = {}
        stream = batches(self.encode, self.position, self.options.first_world, self.options.copied, self.progress, self.options.last_level)
        while self.progress() < 1:
            batch = [next(stream) for _ in range(self.workers.count)][self.workers.rank]
            loss, scores = self._update(batch)
            for name, value in {"loss": (float(loss), 1.0), **scores}.items():
                total = sums.setdefault(name, [0.0, 0.0])
                total[0] += value[0]
                total[1] += value[1]
            self.step += 1
            self._clock()
            now = time.monotonic()
            self.cost = now - self._started
            if self.workers.first and (now - logged > self.options.log_seconds or self.step == self.options.steps):
                self._log(sums)
                logged, sums = now, {}
            if self.workers.first and now - saved > self.options.save_seconds:
                self._save()
                saved = now
        if self.workers.first:
            self._save()
            export(self.model, self.folder)

    def _update(self, batch: Batch) -> tuple[float, dict[str, tuple[float, float]]]:
        """One step; the loss, and per task how many of how many answers were right in every token."""
        import torch

        target = torch.from_numpy(batch.target)
        chosen = target >= 0
        mask, wanted_places = batch.mask(), pointers(batch)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.precision == torch.bfloat16):
            with Watched(self.model) as watched:
                states = self.model.model(
                    input_ids=torch.from_numpy(batch.ids),
                    position_ids=torch.from_numpy(batch.positions),
                    attention_mask=mask,
                    use_cache=False,
                ).last_hidden_state[chosen]
            logits = self.model.lm_head(states).float()
            missed = watched.missed(mask, wanted_places)
        wanted = target[chosen]
        each = torch.nn.functional.cross_entropy(logits, wanted, reduction="none")
        weight = torch.from_numpy(batch.weight)[chosen]
        loss = (each * weight).sum() / weight.sum()
        if len(missed):
            loss = loss + POINTING * missed.mean()
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate()
        loss.backward()
        self.workers.average_gradients(self.model.parameters())
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        scores = self._scores(batch, chosen.numpy(), logits.detach(), wanted, each.detach())
        result = float(missed.detach().neg().exp().mean()) if len(missed) else 0.0
        scores["pointed"] = (result * len(missed), float(len(missed)) or 1e-9)
        return float(loss.detach()), scores

    def _scores(self, batch: Batch, chosen: np.ndarray, logits: Any, wanted: Any, each: Any) -> dict[str, tuple[float, float]]:
        right = (logits.argmax(-1) == wanted).numpy()
        task = batch.task[chosen]
        rows = np.broadcast_to(np.arange(len(batch.ids))[:, None], batch.ids.shape)
        keys = (rows * 4096 + batch.group * 64 + batch.block)[chosen]
        counts: list[float] = []  # per task: answers that are right, answers
        for number in range(len(TASKS)):
            here = task == number
            answers, which = np.unique(keys[here], return_inverse=True)
            wrong = np.bincount(which, weights=~right[here], minlength=len(answers))
            counts += [float((wrong == 0).sum()), float(len(answers))]
        copy = each[task == TASKS.index("copy")]
        counts = self.workers.summed([*counts, float(copy.sum()), float(len(copy))])
        position = self.position
        if counts[-1]:
            copied = counts[-2] / counts[-1]
            position.copied = 0.9 * position.copied + 0.1 * copied if position.copied < 9 else copied
        scores = {name: (counts[2 * number], counts[2 * number + 1]) for number, name in enumerate(TASKS) if counts[2 * number + 1]}
        single = scores.get("single")
        if single is not None:
            position.right = 0.97 * position.right + 0.03 * single[0] / single[1]
        return scores

    def _log(self, sums: dict[str, list[float]]) -> None:
        line = {
            "step": self.step,
            "minutes": round(self.cost / 60, 2),
            "world": self.options.first_world + self.position.chunk,
            "level": self.position.level,
            "rate": round(self.rate(), 6),
            **{name: round(total / count, 4) for name, (total, count) in sums.items()},
        }
        with open(self.folder / _LOG, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        print(json.dumps(line), flush=True)

    def _save(self) -> None:
        import torch

        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "place": asdict(self.position),
            "step": self.step,
            "spent": self.cost,
            "random": torch.get_rng_state(),
        }
        new = self.folder / f"{_CHECKPOINT}.new"
        torch.save(state, new)
        os.replace(new, self.folder / _CHECKPOINT)

    def _resume(self) -> None:
        import torch

        path = self.folder / _CHECKPOINT
        if not path.exists():
            return
        state = torch.load(path, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.position = Place(**state["place"])
        self.step, self.cost = state["step"], state["spent"]
        torch.set_rng_state(state["random"])
        log = self.folder / _LOG
        if self.workers.first and log.exists():
            # What was logged after the checkpoint will be done, and logged, again.
            lines = log.read_text("utf-8").splitlines(keepends=True)
            log.write_text("".join(line for line in lines if json.loads(line)["step"] <= self.step), "utf-8")


def export(model: Any, folder: Path) -> None:
    """Write the model as bf16 safetensors with its configuration, without changing the model in memory."""
    import copy

    import torch

    stored = copy.deepcopy(model).to(torch.bfloat16)
    stored.generation_config.do_sample = False
    stored.generation_config.max_new_tokens = 24
    stored.save_pretrained(str(folder))


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.tiny_lm.train", description=__doc__)
    parser.add_argument("--out", required=True, help="folder of the run: checkpoint, log, tokenizer, weights")
    parser.add_argument("--steps", type=int, default=8000, help="longest run")
    parser.add_argument("--minutes", type=float, default=None, help="end earlier, after so much time")
    parser.add_argument("--rate", type=float, default=2e-3, help="highest learning rate")
    parser.add_argument("--fall", type=float, default=0.7, help="share of the run over which the rate falls")
    parser.add_argument("--copied", type=float, default=0.05, help="share of random texts to copy")
    parser.add_argument("--last-level", type=int, default=3, choices=range(len(LEVELS)), help="of the curriculum")
    parser.add_argument("--first-world", type=int, default=100, help="seed of the first train world")
    parser.add_argument("--seed", type=int, default=0, help="decides the first weights")
    parser.add_argument("--layers", type=int, default=LAYERS)
    parser.add_argument("--workers", type=int, default=1, help="processes; each step takes a batch for each")
    parser.add_argument("--threads", type=int, default=2, help="threads of each process")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--log-seconds", type=float, default=20)
    parser.add_argument("--save-seconds", type=float, default=120)
    options = parser.parse_args(arguments)
    require_training_seed(options.first_world)
    return options


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    value = sys.argv[1:] if arguments is None else arguments
    options = parse(value)
    workers = Workers(options.workers, value)
    run = Run(options, workers)
    if workers.first:
        with open(run.folder / "command.txt", "a", encoding="utf-8") as file:
            start = f"  # from step {run.step}" if run.step else ""
            file.write(f"python -m tools.tiny_lm.train {shlex.join(value)}{start}\n")
    run.train()
    workers.wait()


if __name__ == "__main__":
    main()
