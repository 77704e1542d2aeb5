"""Measure the pocket model on held-out worlds by real greedy generation.

`python -m tools.tiny_lm.evaluate [--model FOLDER] [--questions N] [--json FILE]` prints a table. Goals: the
answer from the gold passage >= 0.90 exact match, from the right passage among five >= 0.75, without a passage <= 0.05,
and "unanswerable" said where no passage answers >= 0.80 of the time.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.core.random import Draws
from benchmarks.schema import Passage
from benchmarks.styles.rules import STYLES, RuleRewriter
from benchmarks.text import em, is_abstention
from benchmarks.worlds.questions import Asker, Distractors, WorldQuestion
from benchmarks.worlds.text import articles
from benchmarks.worlds.world import generate
from methods.models.pocket import answer_prompt, paraphrase_prompt, pocket_path, question_prompt

GOALS: dict[str, tuple[str, float]] = {
    "gold passage": (">=", 0.90),
    "one of five": (">=", 0.75),
    "closed book": ("<=", 0.05),
    "no passage answers": (">=", 0.80),
}


@dataclass(frozen=True, slots=True)
class Item:
    """Prompt with the rule by which its reply is scored.

    Attributes:
        task: Name of the task (row of the table).
        prompt: The prompt, without the beginning-of-sequence token.
        right: Returns whether a reply is correct.
        out_of_vocabulary: Whether the answer contains a word that training worlds never use.
    """

    task: str
    prompt: str
    right: Callable[[str], bool]
    out_of_vocabulary: bool = False


@dataclass(frozen=True, slots=True)
class Score:
    """Row of the table: task, number of questions, share of correct replies, and the goal if there is one."""

    task: str
    questions: int
    share: float
    goal: str = ""
    met: bool | None = None


def items(seed: int, count: int) -> Iterator[Item]:
    """Yield prompts about one held-out world.

    Args:
        seed: Seed of a validation or test world.
        count: Questions per task.
    """
    from benchmarks.worlds.names import training_words

    world = generate(seed)
    library, draws = articles(world), Draws("pocket evaluation", seed)
    chooser, rewriter = Distractors(world, library), RuleRewriter(world.split)
    known = set(training_words())
    inventions = {word for entity in world.entities for word in entity.words} - known

    def passages(rows: Sequence[int]) -> list[Passage]:
        return [library.texts[row].passage for row in rows]

    def is_gold(query: WorldQuestion) -> Callable[[str], bool]:
        golds = [form for answer in query.answers for form in (answer, *query.aliases.get(answer, ()))]
        return lambda reply: em(reply, golds) == 1.0

    asker = Asker(world, world.facts, draws)
    for query in asker.ask(count, mix={"single": 1.0}):
        evidence = [library.where[fact.row][0] for fact in query.facts]
        out_of_vocabulary = any(word in inventions for answer in query.answers for word in answer.split())
        yield Item("gold passage", answer_prompt(query.text, passages(evidence)), is_gold(query), out_of_vocabulary)
        five = chooser.choose(query, 5, draws)
        yield Item("one of five", answer_prompt(query.text, passages(five)), is_gold(query), out_of_vocabulary)
        ten = chooser.choose(query, 10, draws)
        yield Item("one of ten", answer_prompt(query.text, passages(ten)), is_gold(query))
        yield Item("closed book", answer_prompt(query.text), is_gold(query))
        without = [row for row in chooser.choose(query, 6, draws) if row not in evidence][:5]
        yield Item("no passage answers", answer_prompt(query.text, passages(without)), is_abstention)
        style = draws.pick(STYLES)
        styled = [item for item in rewriter.rewrite(passages(evidence), style) if item is not None]
        yield Item("gold passage, unseen style", answer_prompt(query.text, styled), is_gold(query))
        fact = query.facts[0]
        asks = [template.format(h=fact.head.text) for template in fact.relation.asks]
        wanted = {template.format(h=name) for template in fact.relation.asks for name in (fact.head.text, *fact.head.aliases)}
        if query.answers[0] != fact.head.name:
            prompt = question_prompt(query.answers[0], passages(evidence))
            yield Item("question for an answer", prompt, frozenset(wanted).__contains__)
        others = frozenset(asks[1:])
        yield Item("paraphrase", paraphrase_prompt(asks[0]), others.__contains__)
    for kind in ("bridge", "comparison"):
        for query in Asker(world, world.facts, draws).ask(count, mix={kind: 1.0}):
            rows = list(dict.fromkeys(library.where[fact.row][0] for fact in query.facts))
            yield Item(f"{kind}, its passages", answer_prompt(query.text, passages(rows)), is_gold(query))
            rows = chooser.choose(query, 5, draws)
            yield Item(f"{kind}, among five", answer_prompt(query.text, passages(rows)), is_gold(query))


def measure(folder: Path, seeds: Sequence[int], count: int, batch_size: int = 32) -> list[Score]:
    """Generate replies with a model and score them on held-out worlds.

    Args:
        folder: Folder of the model.
        seeds: Seeds of held-out worlds.
        count: Questions per task and world.
        batch_size: Number of prompts per batch.

    Returns:
        One row per task, goals first.
    """
    from methods.models.causal import CausalConfig, CausalModel

    config = CausalConfig(model=str(folder), revision=None, dtype=None, max_new_tokens=24, max_prompt_tokens=None, batch_size=batch_size)
    model = CausalModel(config)
    queries = [item for seed in seeds for item in items(seed, count)]
    replies = model.generate([model.render("", item.prompt) for item in queries])
    right: dict[str, list[bool]] = {task: [] for task in GOALS}
    for item, reply in zip(queries, replies, strict=True):
        correct = item.right(reply.text.strip())
        right.setdefault(item.task, []).append(correct)
        if item.out_of_vocabulary:
            right.setdefault(f"{item.task}, out-of-vocabulary words", []).append(correct)
    return [_score(task, result) for task, result in right.items()]


def _score(task: str, results: Sequence[bool]) -> Score:
    share = sum(results) / len(results)
    if task not in GOALS:
        return Score(task, len(results), share)
    sign, bound = GOALS[task]
    return Score(task, len(results), share, f"{sign} {bound:.2f}", share >= bound if sign == ">=" else share <= bound)


def table(scores: Sequence[Score]) -> str:
    """Render the scores as a Markdown table."""
    lines = ["| task | questions | share right | goal | met |", "| --- | ---: | ---: | --- | --- |"]
    for score in scores:
        met = "" if score.met is None else "yes" if score.met else "no"
        lines.append(f"| {score.task} | {score.questions} | {score.share:.3f} | {score.goal} | {met} |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tools.tiny_lm.evaluate", description=__doc__)
    parser.add_argument("--model", type=Path, default=pocket_path())
    parser.add_argument("--first-world", type=int, default=100_000, help="seed of the first held-out world")
    parser.add_argument("--worlds", type=int, default=4)
    parser.add_argument("--questions", type=int, default=50, help="per task and world")
    parser.add_argument("--json", type=Path, default=None, help="file for the rows as JSON")
    options = parser.parse_args(arguments)
    seeds = range(options.first_world, options.first_world + options.worlds)
    started = time.perf_counter()
    scores = measure(options.model, seeds, options.questions)
    print(table(scores))
    print(f"{sum(s.questions for s in scores)} scores in {time.perf_counter() - started:.0f} s")
    if options.json is not None:
        weights = options.model / "model.safetensors"
        digest = hashlib.sha256(weights.read_bytes()).hexdigest()
        rows = {"weights_sha256": digest, "worlds": list(seeds), "scores": [asdict(score) for score in scores]}
        options.json.write_text(json.dumps(rows, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
