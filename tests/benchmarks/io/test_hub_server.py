"""The loopback hub, used by `datasets` and `huggingface_hub` themselves."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.registry import load
from tests.support.hub_server import HubServer, Repository

README = b"""---
configs:
- config_name: distractor
  data_files:
  - split: validation
    path: distractor/validation-*
---
"""
LOAD = """
import json, datasets
rows = datasets.load_dataset("hotpotqa/hotpot_qa", "distractor", split="validation")
print(json.dumps(list(rows)))
"""


def parquet(rows):
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), sink)
    return sink.getvalue()


def row(number):
    return {
        "id": f"h{number}",
        "question": f"Where was Ada {number} born?",
        "answer": "Zoll",
        "type": "bridge",
        "level": "hard",
        "supporting_facts": {"title": [f"Ada {number}"], "sent_id": [0]},
        "context": {"title": [f"Ada {number}", "Zoll"], "sentences": [["Ada was born in Zoll."], ["Zoll is a town."]]},
    }


@pytest.mark.slow
def test_load_dataset_and_the_loader_read_equal_rows(tmp_path):
    rows = [row(number) for number in range(7)]
    files = {
        "README.md": README,
        "distractor/validation-00000-of-00002.parquet": parquet(rows[:4]),
        "distractor/validation-00001-of-00002.parquet": parquet(rows[4:]),
    }
    with HubServer({"hotpotqa/hotpot_qa": Repository(files, page=2)}).as_hub(tmp_path):
        done = subprocess.run([sys.executable, "-c", LOAD], capture_output=True, text=True, check=True)
        benchmark = load("hotpotqa:dev", {"revision": "main"})
    assert json.loads(done.stdout) == rows
    assert [q.id for q in benchmark.questions] == [row["id"] for row in rows]
    assert [q.text for q in benchmark.questions] == [row["question"] for row in rows]


def test_model_is_fetched_completely(tmp_path):
    from huggingface_hub import HfApi, snapshot_download

    files = {"config.json": b"{}", "model.safetensors": b"\0" * 5000, "sub/vocab.txt": b"a\nb\n"}
    server = HubServer({}, {"owner/model": Repository(files)})
    with server.as_hub(tmp_path) as url:
        folder = Path(snapshot_download("owner/model"))
        entries = list(HfApi(endpoint=url).list_repo_tree("owner/model"))
    assert {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()} == files
    assert [entry.path for entry in entries] == ["config.json", "model.safetensors", "sub"]
