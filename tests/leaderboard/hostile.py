"""A store in which every untrusted text tries to be markup, a formula, a link or a command, and which contains API keys.

For tests of pages and exports.
"""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.registry import load
from benchmarks.styles.mix import styled
from judges.judge import Judge, JudgeCall, Parsed, Score
from judges.metric import parse
from methods.api import Call, Prediction
from results.judging import judgments
from results.store import answer_queries, queries
from results.store.store import FINISHED, Run, Store

SECRET = "sk-proj-Zq7Hostile0Key1Never2Shown3"
HUNTER = "hunter2hunter2"
MARK = "pwned"
SCRIPT = f"<script>window.{MARK}=1</script>"
IMAGE = f'<img src=x onerror="window.{MARK}=1"><svg onload=window.{MARK}=1>'
MARKDOWN = (
    f"![{MARK}](https://evil.example/x.png) [{MARK}](javascript:window.{MARK}=1) <https://evil.example> "
    f":red[{MARK}] :material/home: $\\frac{{{MARK}}}{{2}}$ `{MARK}`"
)
LATEX = f"\\input{{/etc/passwd}} \\write18{{{MARK}}} }}%$&_^~#"
NAMES = (
    f"{SCRIPT}{MARKDOWN}",
    f'=HYPERLINK("https://evil.example","{MARK}")',
    f"+{MARK}|' /C calc'!A0",
    f"-2+3+{MARK}",
    f"@SUM({MARK})",
    f"\t={MARK}",
    f"{IMAGE}{LATEX}",
    f"javascript:window.{MARK}=1",
    f"../../../etc/{MARK}",
    f'"}};window.{MARK}=1;//',
)
"""Names of methods."""
TEXT = f"{SCRIPT}{IMAGE}{MARKDOWN}{LATEX}"
EXPERIMENT = f"experiment {TEXT}"
LINK = f"javascript:window.{MARK}=1"


def add_hostile_content(store: Store, synthetic: ModuleType) -> None:
    """Add hostile content to a store that `synthetic.fill` filled; pages then open with its hostile experiment."""
    _judge(store, synthetic)
    reported = _add_styles(store)
    runs = list(dict.fromkeys(run.run for run in queries.runs(store)))
    # A style page pairs runs of one name.
    names = [NAMES[0] if run in reported else NAMES[number % len(NAMES)] for number, run in enumerate(runs)]
    with store.database.writing() as connection:
        for run, name in zip(runs, names, strict=True):
            connection.execute("UPDATE runs SET method = ? WHERE run = ?", [name, run])
            connection.execute("UPDATE experiment_runs SET method = ? WHERE run = ?", [name, run])
        _fill_text_columns(connection)
    store.put_experiment("restyled", TEXT, None, None, None, reported)
    store.put_experiment(EXPERIMENT, TEXT, TEXT, TEXT, names[0], [run for run in runs if run not in reported])


def _fill_text_columns(connection: Any) -> None:
    """Put hostile text and keys into every column with user text."""
    described = {
        TEXT: TEXT,
        "reader": {"api_key": HUNTER, "url": LINK, "prompt": TEXT},
        "note": f"uses {SECRET}",
        "id": "m",
        "base_url": f"https://me:{HUNTER}@evil.example/v1",
    }
    card = {
        "method": {"name": NAMES[0], "version": TEXT, "url": LINK, "paper": TEXT, "open_weights": True},
        "settings": {"password": HUNTER},
        "training_data": [{"reference": TEXT, "name": TEXT}],
        "notes": TEXT,
        "submission": {"contamination": [TEXT], "findings": []},
    }
    method = {
        "id": "bm25",
        "version": 1,
        "summary": TEXT,
        "paper": f"{TEXT} arXiv:2401.00001",
        "kind": TEXT,
        "training_data": [TEXT],
        "presets": {TEXT: {"token": HUNTER}},
    }
    connection.execute(
        "UPDATE runs SET description = ?, provenance = ?, error = ?",
        [json.dumps(described), json.dumps({"data": described}), f"{TEXT} {SECRET}"],
    )
    connection.execute("UPDATE runs SET card = ?, origin = 'submitted' WHERE method = ?", [json.dumps(card), NAMES[0]])
    connection.execute(
        "INSERT INTO environments VALUES ('theirs', ?)", [json.dumps({"python": TEXT, "HF_TOKEN": HUNTER, "git": {"commit": TEXT}})]
    )
    connection.execute("UPDATE runs SET environment = 'theirs'")
    connection.execute("UPDATE predictions SET failed = ? WHERE failed IS NOT NULL", [f"{TEXT} {SECRET}"])
    connection.execute(
        "UPDATE predictions SET answer = ?, notes = ? WHERE failed IS NULL AND length(answer) % 2 = 0",
        [TEXT, json.dumps({TEXT: TEXT, "authorization": HUNTER})],
    )
    connection.execute("UPDATE questions SET text = text || ?, golds = [?], type = ?", [TEXT, TEXT, TEXT])
    connection.execute("UPDATE passages SET title = ?, text = ?, sentences = [?]", [TEXT, TEXT, TEXT])
    connection.execute("UPDATE metrics SET definition = ?, source = ?", [TEXT, f"{TEXT} {LINK}"])
    connection.execute("UPDATE scores SET unscored = ? WHERE unscored IS NOT NULL", [f"{TEXT} {SECRET}"])
    connection.execute("UPDATE judge_calls SET unscored = ?, model = ? WHERE unscored IS NOT NULL", [f"{TEXT} {SECRET}", TEXT])
    connection.execute("DELETE FROM methods")
    connection.execute("INSERT INTO methods VALUES ('bm25', 1, ?)", [json.dumps(method)])
    connection.execute(
        "INSERT INTO checkpoints VALUES (?, 'bm25', 1, ?, ?, [], [?], '/nowhere', TIMESTAMP '2026-01-01 00:00:00')",
        ["ab" * 32, TEXT, json.dumps({"token": HUNTER}), TEXT],
    )
    for fingerprint, text in connection.execute("SELECT fingerprint, card FROM datasets").fetchall():
        hostile = json.loads(text) | {"title": TEXT, "description": TEXT, "license": TEXT, "citation": TEXT, "homepage": LINK}
        connection.execute(
            "UPDATE datasets SET card = ?, notes = ? WHERE fingerprint = ?", [json.dumps(hostile), json.dumps({TEXT: TEXT}), fingerprint]
        )


def _judge(store: Store, synthetic: ModuleType) -> None:
    judge = Judge.of("match", {"llm": {"model": NAMES[0]}, "repetitions": 1})
    judgments.put_judge(store, judge)
    for run in queries.runs(store, synthetic.EXPERIMENT)[:3]:
        requests = [row.question for row in answer_queries.questions(store, run.dataset_fingerprint)]
        calls = [[JudgeCall("match", 0, "k", Parsed(None, TEXT), TEXT, 1, 1, 0.1, 0.0)] for _ in requests]
        scores = [dict.fromkeys(("accuracy", "partial", "mismatch"), Score(None, TEXT)) for _ in requests]
        judgments.put_judgments(store, run.run, judge, requests, calls, scores)


def _add_styles(store: Store) -> list[str]:
    """Add runs over one base in two styles, for the style page."""
    base, metric, runs = load("worlds/multihop:test").limited(4), parse("em"), []
    store.put_cards([], [metric])
    for position, share in enumerate((0.0, 1.0)):
        benchmark = styled(base, mix={"informal": share})
        store.put_benchmark(benchmark, benchmark.fingerprint)
        run = Run(f"{position}" * 16, "restyled", "m", "retriever", {}, benchmark.name, benchmark.fingerprint, "distractor", 0, 4, {})
        store.start(run)
        calls = (Call(TEXT, TEXT, f"{TEXT} {SECRET}", f"{TEXT} {SECRET}"),)
        responses = [Prediction(question.id, TEXT, calls=calls) for question in benchmark.questions]
        store.append(run.run, responses, {str(metric): np.array([1.0, 0, 1, 0])})
        store.end(run.run, FINISHED)
        runs.append(run.run)
    return runs
