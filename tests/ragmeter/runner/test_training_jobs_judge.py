"""A training that requests an answer judge gets one; methods import none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks.core.errors import Broke
from benchmarks.schema import Question
from judges.llm.ask import LLMJudgeConfig
from methods.api import Services
from methods.flow import each
from methods.sark.config import SarkDataConfig
from methods.training import Silent, TrainedStage, TrainingConfig, TrainingContext, TrainingEntry
from ragmeter.runner.training_jobs import TrainingJob, judge_for
from results.store.store import Store
from tests.support.errors import raises


class Options(SarkDataConfig, TrainingConfig):
    """Options of a training that creates SARK's rows."""


def options(**labels: Any) -> Options:
    return Options.model_validate({"labels": labels})


def test_training_without_a_judge_option_has_no_judge() -> None:
    assert judge_for(TrainingConfig(), None, None) is None
    assert judge_for(options(), None, None) is None


def test_requested_judge_gives_verdicts_on_answers() -> None:
    judge = judge_for(options(judge="rule_match"), None, None)
    assert judge is not None
    query = Question("q", "How many episodes?", ("seven episodes",))
    assert each(judge, "verdicts", [query] * 2, ["Seven episodes.", "a red boat"]) == ["Match", "Mismatch"]


def test_judge_fingerprint_covers_what_affects_its_verdicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LLMJudgeConfig, "reach", lambda config, cache: None)
    prompt = tmp_path / "judge.txt"
    model = {"model": "m", "key_variable": None}
    asks = {"llm": model, "prompt": str(prompt)}

    def fingerprint_of(**labels: Any) -> str:
        judge = judge_for(options(**labels), None, None)
        assert judge is not None
        return judge.fingerprint

    prompt.write_text("$question $gold $answer", "utf-8")
    first = fingerprint_of(judge="match", judge_options=asks)
    assert fingerprint_of(judge="match", judge_options={**asks, "llm": {**model, "usd_per_million_prompt_tokens": 3}}) == first
    others = {fingerprint_of(judge="rule_match"), fingerprint_of(judge="match", judge_options={**asks, "exact": "strict"})}
    prompt.write_text("$question $gold $answer!", "utf-8")
    others.add(fingerprint_of(judge="match", judge_options=asks))
    assert len(others | {first}) == 4


@pytest.mark.parametrize(
    ("labels", "response"),
    [
        ({"judge": "nobody"}, "unknown-judge"),
        ({"judge": "style"}, "unknown-measure"),
        ({"judge": "rule_match", "judge_options": {"spam": 1}}, "unknown-option"),
        ({"judge": "match"}, "missing-option"),
    ],
)
def test_unavailable_judge_is_refused(labels: Mapping[str, Any], response: str) -> None:
    with raises(response):
        judge_for(options(**labels), None, None)


def test_unreachable_judge_endpoint_is_reported_before_the_first_request() -> None:
    nowhere = {"llm": {"model": "m", "base_url": "http://127.0.0.1:9/v1", "key_variable": None, "attempts": 1}}
    with pytest.raises(Broke):
        judge_for(options(judge="match", judge_options=nowhere), None, None)


def test_training_receives_its_judge(tmp_path: Path) -> None:
    seen: list[Services] = []

    class Curious:
        def __init__(self, config: Options) -> None:
            pass

        def run(self, context: TrainingContext) -> Iterator[TrainedStage]:
            seen.append(context.services)
            yield from ()

    entry = TrainingEntry("curious", 1, "", (), Curious, Options, None, {}, None)
    for config in (options(), options(judge="rule_match")):
        TrainingJob(entry, config, Store(tmp_path / "store")).run(Silent())
    without, with_one = seen
    assert without.judge is None
    assert with_one.judge is not None
    assert each(with_one.judge, "verdicts", [Question("q", "?", ("Ann",))], ["Ann"]) == ["Match"]
