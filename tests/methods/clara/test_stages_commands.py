"""Every stage of CLaRa on the command line, on worlds and the shipped model, for a few steps each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmarks.core.errors import UserError
from ragmeter.cli import app
from tests.support.errors import raises

pytest.importorskip("torch")
SHORT = [
    part
    for setting in (
        "validate_on.questions=2",
        # Documents of all questions are encoded before the joint stages begin.
        "data.options.worlds.questions=24",
        "data.options.worlds.candidates=4",
        "validation.options.worlds.questions=4",
        *(f"{stage}.train.{what}" for stage in ("scp", "instruction", "supervised", "joint") for what in ("steps=2", "batch_size=2")),
    )
    for part in ("--set", setting)
]


def train(store: Path, *options: str) -> Any:
    """Return the stages of `ragmeter train clara --json`, or raise its error."""
    done = CliRunner().invoke(app, ["train", "clara", "--preset", "demo", "--store", str(store), "--device", "cpu", "--json", *options])
    if isinstance(done.exception, UserError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout[done.stdout.index("{") :])["stages"]


@pytest.mark.slow
def test_every_stage_is_trained_by_name_and_starts_from_the_previous_one(tmp_path: Path) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    from methods.models.weights import locate

    store = tmp_path / "store"
    (pretrained,) = train(store, *SHORT, "--stage", "scp")
    joint = train(store, *SHORT, "--stage", "joint")
    assert [item["stage"] for item in joint] == ["scp", "instruction", "joint"]
    assert joint[0]["sha256"] == pretrained["sha256"]
    start = next(path.parent for path in store.rglob("clara.json") if path.parent.name == "instruction")
    supervised = train(store, *SHORT, "--set", "stages=[supervised]", "--set", f"start={start}")
    assert [item["stage"] for item in supervised] == ["supervised"]
    last = next(path.parent for path in store.rglob("clara.json") if path.parent.name == "joint")
    base = AutoModelForCausalLM.from_pretrained(locate("pocket"))
    for name in ("compressor", "generator", "reasoner"):
        adapted = PeftModel.from_pretrained(base, str(last / name), adapter_name=name)
        assert any(f".{name}." in key for key in adapted.state_dict())


@pytest.mark.slow
def test_architecture_without_a_chat_template_is_trained_by_name(tmp_path: Path, base_folders: dict[str, str]) -> None:
    import transformers

    base = tmp_path / "gpt2"
    tokenizer = transformers.AutoTokenizer.from_pretrained(base_folders["Llama"])
    tokenizer.chat_template = None
    tokenizer.save_pretrained(base)
    config = transformers.GPT2Config(vocab_size=len(tokenizer), n_embd=32, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=2)
    transformers.GPT2LMHeadModel(config).save_pretrained(base)
    short = [*SHORT, "--set", "model.max_length=16", "--set", "skip_long=true"]
    stages = train(tmp_path / "store", *short, "--base", str(base))
    assert [item["stage"] for item in stages] == ["scp", "instruction", "joint"]
    folder = stages[-1]["path"]
    assert json.loads((Path(folder) / "clara.json").read_text())["config"]["base"] == str(base)
    with raises("checkpoint-of-other-base"):
        train(tmp_path / "store", "--preset", "paper", "--base", "pocket", "--set", f"start={folder}")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--stage", "supervised"], "training-stages-mismatch"),
        (["--stage", "instruction", "--set", "joint.init=scp"], "training-stages-mismatch"),
    ],
)
def test_stage_that_the_options_omit_is_refused(options: list[str], message: str, tmp_path: Path) -> None:
    with raises(message):
        train(tmp_path / "store", *options)
    assert not (tmp_path / "store" / "checkpoints").exists()


def test_what_own_data_lose_in_training_is_counted(tmp_path: Path) -> None:
    long = " ".join(f"word{number}" for number in range(200))
    rows = [
        {
            "question": f"Who wrote book {number}?",
            "answers": [f"Ann {number}"][: number < 3],
            "passages": [f"Ann {number}.", f"{long} {number}"],
        }
        for number in range(5)
    ]
    path = tmp_path / "own.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"answers": ["lost"]}]))
    settings = {
        "stages": "[instruction]",
        "scp.rows.mix": "none",
        "model.max_length": 64,
        "model.rate": 10,
        "data.instruction": "[files:train]",
        "data.options.files.path": path,
        "data.options.files.skip_bad": "true",
    }
    words = ["train", "clara", "--base", "pocket", "--store", str(tmp_path / "store"), "--device", "cpu", "--json", "--prepare"]
    words += [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    for reads in ("memory", "text"):
        done = CliRunner().invoke(app, [*words, "--set", f"reads={reads}"])
        assert done.exit_code == 0, done.output
        figures = json.loads(done.stdout[done.stdout.index("{") :])["figures"]
        expected = {"rows": 3, "documents_cut": 3, "questions_without_answer": 2, "records_skipped": 1}
        assert {name: figures[name] for name in expected} == expected


def test_rows_without_a_choice_are_counted_or_refused(tmp_path: Path, tiny_clara: str) -> None:
    def rows(name: str, *positives: list[int]) -> str:
        docs = [f"Book {number} was written by Ann {number}." for number in range(2)]
        each = [{"question": f"{number}?", "docs": docs, "answer": "Ann", "pos_index": right} for number, right in enumerate(positives)]
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in each))
        return str(path)

    def figures(stage: str, path: str) -> Any:
        words = ["train", "clara", "--store", str(tmp_path / "store"), "--device", "cpu", "--json", "--prepare"]
        settings = f"stages=[{stage}]", f"start={tiny_clara}", "data.joint=[clara_stages/e2e_training_nq_with_pos:train]"
        words += [part for value in (*settings, f"data.options.clara_stages.path={path}") for part in ("--set", value)]
        done = CliRunner().invoke(app, words)
        if isinstance(done.exception, UserError):
            raise done.exception
        return json.loads(done.stdout[done.stdout.index("{") :])["figures"]

    mixed = figures("supervised", rows("mixed.jsonl", [0], [], [0, 1]))
    assert (mixed["rows"], mixed["rows_without_positive"], mixed["rows_without_negative"]) == (1, 1, 1)
    assert figures("joint", rows("joint.jsonl", [0], [1]))["rows_without_choice"] == 2
    with raises("no-training-row"):
        figures("supervised", rows("all.jsonl", [0, 1]))
