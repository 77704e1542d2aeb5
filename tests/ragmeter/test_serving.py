"""The example under `examples/serving`: both servers serve the experiment's model, and the experiment runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ragmeter import experiment
from ragmeter.runner.experiment import How, run_experiment
from results.store import queries
from results.store.store import Store
from tests.support.vllm import VLLM

pytest.importorskip("openai")
pytest.importorskip("bm25s")
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "serving"


def read(name: str) -> Any:
    return yaml.safe_load((EXAMPLE / name).read_text())


@pytest.mark.slow
def test_serving_example_runs_with_its_options(tmp_path: Path) -> None:
    options = read("vllm.yaml")
    server = VLLM(options["served-model-name"], max_model_len=options["max-model-len"])
    (config,) = read("ray-serve.yaml")["applications"][0]["args"]["llm_configs"]
    assert config["model_loading_config"] == {"model_id": server.model, "model_source": options["model"]}
    assert config["engine_kwargs"]["max_model_len"] == server.max_model_len
    text, address = (EXAMPLE / "experiment.yaml").read_text(), f"http://localhost:{options['port']}/v1"
    assert text.count(address) == 1
    with server.running() as url:
        run_experiment(experiment.parse(text.replace(address, url), "x.yaml"), Store(tmp_path), How(), talk=False)
    rows = queries.runs(Store(tmp_path), "served")
    assert [row.status for row in rows] == ["finished", "finished"]
    assert all(request.body["chat_template_kwargs"] == {"enable_thinking": False} for request in server.requests)
    assert sum(server.cached) > 0  # the instructions, at least
