"""The shipped pocket model: an ordinary folder, small, with the accuracy on held-out worlds that its card states."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.schema import Passage, Query
from benchmarks.worlds.names import all_words, training_words
from methods.api import Context, Services
from methods.models.causal import CausalConfig, CausalModel
from methods.models.pocket import MARKERS, answer_prompt, context, paraphrase_prompt, pocket_path, question_prompt
from methods.registry import Component
from tools.tiny_lm.evaluate import GOALS, measure
from tools.tiny_lm.tokens import load

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

PASSAGES = [
    Passage("a", "Port Velmar", "Port Velmar lies on the coast.\n It has 12,345 inhabitants."),
    Passage("b", "", "Founded in 1759, it’s “old” — naïve, even."),
]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return load(pocket_path())


def test_pocket_model_loads_with_plain_transformers() -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(str(pocket_path()))
    assert type(model).__name__ == "LlamaForCausalLM"
    assert model.config.tie_word_embeddings
    assert 1e6 <= sum(p.numel() for p in model.parameters()) <= 8e6
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    assert len(transformers.AutoTokenizer.from_pretrained(str(pocket_path()))) == model.config.vocab_size


def test_pocket_model_is_small_and_has_card_log_and_command() -> None:
    files = {path.name: path.stat().st_size for path in pocket_path().iterdir()}
    assert sum(files.values()) <= 16_000_000
    wanted = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert wanted | {"README.md", "training_log.jsonl", "command.txt"} <= set(files)
    command = (pocket_path() / "command.txt").read_text("utf-8")
    assert command.startswith("python -m ")
    assert "tiny_lm.train --out FOLDER" in command
    steps = [json.loads(line)["step"] for line in (pocket_path() / "training_log.jsonl").read_text("utf-8").splitlines()]
    assert steps == sorted(steps)
    assert len(steps) > 10


def test_training_words_are_one_token_and_years_two(tokenizer: Any) -> None:
    def size(text: str) -> int:
        return len(tokenizer(text, add_special_tokens=False)["input_ids"])

    assert all(size(f" {word}") == 1 for word in training_words())
    assert all(size(f" {year}") == 2 for year in range(1000, 2100))
    out_of_vocabulary = set(all_words()) - set(training_words())
    assert max(size(f" {word}") for word in out_of_vocabulary) <= 7
    assert all(size(marker) == 1 for marker in MARKERS)


@pytest.mark.parametrize(
    "prompt",
    [
        answer_prompt("Who penned “The Velmar”?"),
        answer_prompt("Where is it?", PASSAGES),
        question_prompt("12,345 inhabitants", PASSAGES),
        paraphrase_prompt("How old is it?"),
    ],
)
def test_prompt_round_trips_through_tokens_and_template(prompt: str, tokenizer: Any) -> None:
    ids = tokenizer(prompt)["input_ids"]
    assert ids[0] == tokenizer.bos_token_id
    assert tokenizer.bos_token_id not in ids[1:]
    assert tokenizer.decode(ids[1:]) == prompt
    model = CausalModel(CausalConfig(model=str(pocket_path())), "cpu")
    assert model.encode(model.render("", prompt)) == ids


def test_passages_are_formatted_as_numbered_lines_with_titles() -> None:
    assert context(PASSAGES) == (
        "[1] Port Velmar: Port Velmar lies on the coast. It has 12,345 inhabitants.\n\n[2] Founded in 1759, it’s “old” — naïve, even.\n\n"
    )
    assert answer_prompt("Who?", PASSAGES[1:]).endswith("even.\n\nQuestion: Who?\nAnswer:")


@pytest.mark.slow
def test_pocket_reader_answers_offline_in_the_trained_format(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    reader = Component.of("pocket").build(Services(device="cpu"))
    name = training_words()[:3]
    text = f"{name[0]} {name[1]} was born in Port {name[2]}."
    reported = Passage("p", f"{name[0]} {name[1]}", text)
    question = f"From which spot on the map did {name[0]} {name[1]} come originally?"
    many = tuple(Passage(f"p{i}", reported.title, text) for i in range(60))
    queries = [Query("1", question), Query("2", question), Query("3", question)]
    answers = reader.read(queries, [Context("1", (reported,)), Context("2"), Context("3", many)])
    assert answers[0].text == f"Port {name[2]}"
    assert answers[1].text == "unanswerable"
    assert 200 < answers[2].usage.prompt_tokens <= 424, "passages that do not fit are left out"
    tokenizer = load(pocket_path())
    assert answers[0].usage.prompt_tokens == len(tokenizer(answer_prompt(question, [reported]))["input_ids"])


def test_changed_model_changes_the_fingerprint(tmp_path: Path) -> None:
    shipped = Component.of("pocket")
    (tmp_path / "config.json").write_text("{}", "utf-8")
    assert shipped.fingerprint != Component.of("pocket", {"model": str(tmp_path)}).fingerprint


def test_shipped_evaluation_belongs_to_the_shipped_weights_and_meets_its_goals() -> None:
    card = json.loads((pocket_path() / "evaluation.json").read_text("utf-8"))
    weights = (pocket_path() / "model.safetensors").read_bytes()
    assert card["weights_sha256"] == hashlib.sha256(weights).hexdigest()
    assert len(weights) <= 16 * 2**20
    stated = {row["task"]: row for row in card["scores"]}
    assert {task: stated[task]["met"] for task in GOALS} == dict.fromkeys(GOALS, True)
    assert all(seed >= 100_000 for seed in card["worlds"])


@pytest.mark.soak
def test_accuracy_on_held_out_worlds_equals_the_model_card() -> None:
    """Uses a small sample of test worlds and allows for its sampling error of about 0.05."""
    results = {score.task: score for score in measure(pocket_path(), [100_010, 100_011], 40)}
    card = json.loads((pocket_path() / "evaluation.json").read_text("utf-8"))
    stated = {row["task"]: row["share"] for row in card["scores"]}
    for task in GOALS:
        assert results[task].questions == 80
        assert abs(results[task].share - stated[task]) <= 0.15, task
    assert results["closed book"].share <= 0.05
