"""`ragmeter data` and `ragmeter data download`: listings, details, downloads and sizes declared by the hub."""

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.core.fingerprint import file_sha256
from benchmarks.datasets import hotpotqa
from benchmarks.records import records
from benchmarks.registry import DATASETS
from ragmeter.cli import app, data
from tests.support.hub_server import HubServer, Repository

QUESTIONS = 20
MAIN = "revision=main"
"""Revision of these tests' hub, which has no pinned commit."""


@pytest.fixture(scope="session")
def command(module_at):
    return module_at(Path(__file__).with_name("data_command.py"))


@pytest.fixture(autouse=True)
def _isolated(command, monkeypatch, tmp_path):
    command.isolated(monkeypatch, tmp_path)


@pytest.fixture(scope="module")
def native(command, tmp_path_factory) -> Path:
    return command.write_hotpotqa(tmp_path_factory.mktemp("data") / "hotpotqa", QUESTIONS)


@pytest.fixture
def rows(native) -> bytes:
    """Return the same questions as hub rows."""
    results = []
    for record in records(native):
        fields = dict(record.fields)
        facts, context = fields["supporting_facts"], fields["context"]
        fields |= {
            "id": fields.pop("_id"),
            "supporting_facts": {"title": [title for title, _ in facts], "sent_id": [number for _, number in facts]},
            "context": {"title": [title for title, _ in context], "sentences": [texts for _, texts in context]},
        }
        results.append(json.dumps(fields))
    return "\n".join(results).encode() + b"\n"


@pytest.fixture
def server(rows):
    return HubServer({hotpotqa.CARD.hub_id: Repository({"distractor/validation.jsonl": rows})})


@pytest.mark.slow
def test_command_data_lists_every_dataset_with_license_sizes_and_availability(command):
    listed = command.shown()
    assert listed == command.shown("list")
    assert [item["id"] for item in listed] == [entry.id for entry in DATASETS]
    by_id = {item["id"]: item for item in listed}
    assert {position["state"] for position in by_id["worlds"]["here"]} == {"made here"}
    assert {position["state"] for position in by_id["hotpotqa"]["here"]} == {"absent"}
    shown = command.data().stdout
    for entry in DATASETS:
        assert entry.id in shown
        assert entry.card.license.split()[0] in shown


@pytest.mark.slow
def test_show_reports_the_source_of_each_split(command, native, monkeypatch):
    monkeypatch.setenv("RAGMETER_DATA", str(native.parent.parent))
    here = {position["reference"]: position for position in command.shown("list", "hotpotqa")["here"]}
    assert here["hotpotqa/distractor:dev"]["state"] == "local"
    assert here["hotpotqa/distractor:dev"]["paths"] == [str(native)]
    assert here["hotpotqa/distractor:dev"]["questions"] == 7405
    assert here["hotpotqa/distractor:train"]["state"] == "absent"
    assert here["hotpotqa/distractor:train"]["hub"] == hotpotqa.CARD.hub_id
    text = command.data("list", "hotpotqa").stdout
    assert str(native) in "".join(text.split())
    assert "skip_bad" in text


@pytest.mark.slow
def test_command_data_with_a_name_shows_the_dataset(command):
    assert command.shown("hotpotqa") == command.shown("list", "hotpotqa")
    assert CliRunner().invoke(app, ["data", "--json", "hotpotqa"]).stdout == command.data("hotpotqa", "--json").stdout
    assert "distractor" in command.data("hotpotqa").stdout


def test_subset_is_shown_with_its_splits_and_settings(command):
    shown = command.shown("worlds/long:test")
    assert [position["reference"] for position in shown["here"]] == [f"worlds/long:{split}" for split in ("train", "validation", "test")]
    assert (shown["subsets"], shown["settings"][0], shown["subset_settings"]) == (["long"], "document", {})
    assert len({position["reference"].partition(":")[0] for position in command.shown("worlds")["here"]}) > 1
    assert "multihop" in command.refused("worlds/multhop").try_this


@pytest.mark.parametrize("name", [entry.id for entry in DATASETS])
def test_dataset_names_are_not_taken_for_misspelled_commands(command, name, monkeypatch):
    monkeypatch.setattr(data, "show_dataset", lambda reference, common: common.emit(reference, list))
    assert command.shown(name) == name


@pytest.mark.slow
def test_two_matching_files_are_reported_as_ambiguous(command, native, monkeypatch, tmp_path):
    folder = tmp_path / "data" / "hotpotqa"
    folder.mkdir(parents=True)
    for name in ("hotpot_dev_distractor_a.json", "hotpot_dev_distractor_b.json"):
        (folder / name).write_bytes(native.read_bytes())
    monkeypatch.setenv("RAGMETER_DATA", str(folder.parent))
    (dev,) = [item for item in command.shown("list", "hotpotqa")["here"] if item["reference"] == "hotpotqa/distractor:dev"]
    assert dev["state"] == "unclear"
    assert "several files" in dev["problem"]
    result = command.shown("check", "hotpotqa:dev", code=1)
    assert result["splits"][0]["color"] == "red"


@pytest.mark.slow
def test_fetch_reports_files_sizes_hashes_and_commit_and_caches_them(command, server, rows, tmp_path):
    with server.as_hub(tmp_path):
        (item,) = command.shown("download", "hotpotqa:dev", "--revision", "main")
        (file,) = item["files"]
        assert file["bytes"] == len(rows)
        assert file["sha256"] == file_sha256(Path(file["path"]))
        assert item["revision"] == server.repositories["datasets"][hotpotqa.CARD.hub_id].branches["main"]
        assert not item["pinned"]
        (again,) = command.shown("download", "hotpotqa:dev", "--revision", item["revision"])
        assert again["pinned"]
        reported = command.data("download", "hotpotqa:dev", "--revision", "main", "-q")
        assert f"{file['sha256']}  {file['name']}" in reported.stdout
        assert f"--revision {item['revision']}" in " ".join(reported.stderr.split())


@pytest.mark.slow
def test_show_reports_cached_files_of_the_pinned_commit(command, server, tmp_path):
    card = hotpotqa.CARD
    repository = server.repositories["datasets"][card.hub_id]
    repository.commits[card.revision] = repository.commits[repository.branches["main"]]
    with server.as_hub(tmp_path):
        assert {position["state"] for position in command.shown("list", "hotpotqa")["here"]} == {"absent"}
        command.shown("download", "hotpotqa:dev")
        states = {position["reference"]: position["state"] for position in command.shown("list", "hotpotqa")["here"]}
        assert states.pop("hotpotqa/distractor:dev") == "cached"
        assert set(states.values()) == {"absent"}
        (verified,) = command.shown("check", "hotpotqa:dev", "--partial")["splits"]
        assert (verified["state"], verified["color"], verified["questions"]) == ("cached", "green", QUESTIONS)


@pytest.mark.slow
def test_hub_errors_are_reported_unchanged(command, server, rows, tmp_path):
    with server.as_hub(tmp_path):
        assert "no revision 'v9'" in command.refused("download", "hotpotqa:dev", "--revision", "v9").what
        assert "has no file" in command.refused("download", "hotpotqa:train", "--revision", "main").what
    gated = HubServer({hotpotqa.CARD.hub_id: Repository({"distractor/validation.jsonl": rows}, gated=True)})
    with gated.as_hub(tmp_path / "gated"):
        assert "gated" in command.refused("download", "hotpotqa:dev", "--revision", "main").what


@pytest.mark.slow
def test_fetch_refuses_datasets_that_are_not_on_the_hub(command):
    assert "nothing to fetch" in command.refused("download", "worlds:test").what
    error = command.refused("download", "nq/kilt:dev")
    assert "not on the hub" in error.what
    assert "nq/open:train" in error.try_this


@pytest.mark.slow
def test_corrupted_download_leaves_no_file(command, rows, tmp_path):
    import gzip

    name = "distractor/validation.jsonl.gz"
    server = HubServer({hotpotqa.CARD.hub_id: Repository({name: gzip.compress(rows)})})
    server.faults.altered.add(name)
    with server.as_hub(tmp_path):
        command.refused("download", "hotpotqa:dev", "--revision", "main")
        assert not list((tmp_path / "hub").rglob("*validation*"))
        server.faults.altered.clear()
        assert command.shown("download", "hotpotqa:dev", "--revision", "main")[0]["files"][0]["name"] == name


@pytest.mark.slow
def test_offline_mode_uses_only_the_cache(command, server, tmp_path):
    with server.as_hub(tmp_path):
        assert "not in the cache" in command.refused("download", "hotpotqa:dev", "--revision", "main", "--offline").what
        os.environ["RAGMETER_OFFLINE"] = os.environ["HF_HUB_OFFLINE"] = "0"
        (online,) = command.shown("download", "hotpotqa:dev", "--revision", "main")
        query = server.requests.total()
        assert command.shown("download", "hotpotqa:dev", "--revision", "main", "--offline") == [online]
        assert server.requests.total() == query


def test_run_has_an_offline_option(server, tmp_path, call):
    experiment = tmp_path / "x.yaml"
    experiment.write_text("name: x\nbenchmarks: [{id: hotpotqa, split: dev}]\nmethods: [{id: bm25}]\nmetrics: [em]\n")
    with server.as_hub(tmp_path / "home"):
        # A plan needs no network: it lists the files to download.
        done = call("run", str(experiment), "--dry-run", "--store", str(tmp_path / "store"))
        assert "ragmeter data download hotpotqa/distractor:dev" in " ".join((done.out + done.err).split())
        done = call("run", str(experiment), "--offline", "--store", str(tmp_path / "store"))
        assert done.code != 0
        assert "not in the cache" in " ".join(done.err.split())
        assert server.requests.total() == 0


STATES = """---
dataset_info:
  config_name: distractor
  features:
  - name: id
    dtype: string
  splits:
  - name: validation
    num_bytes: 1
    num_examples: {rows}
---
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stated", "status", "says"),
    [
        (QUESTIONS, "green", f"{QUESTIONS}"),
        (QUESTIONS + 3, "yellow", f"{QUESTIONS} here, {QUESTIONS + 3} stated of distractor/validation: 3 fewer; "),
        (QUESTIONS - 4, "yellow", f"{QUESTIONS} here, {QUESTIONS - 4} stated of distractor/validation: 4 more; "),
    ],
)
def test_declared_repository_size_is_checked_and_both_numbers_shown(command, rows, tmp_path, stated, status, says):
    pytest.importorskip("datasets")
    files = {"distractor/validation.jsonl": rows, "README.md": STATES.format(rows=stated).encode()}
    with HubServer({hotpotqa.CARD.hub_id: Repository(files)}).as_hub(tmp_path / "home"):
        (split,) = json.loads(command.data("check", "hotpotqa:dev", "--json", "--set", MAIN).stdout)["splits"]
        (partial,) = json.loads(command.data("check", "hotpotqa:dev", "--json", "--partial", "--set", MAIN).stdout)["splits"]
    (result,) = [item for item in split["findings"] if item["name"] == "as many records as the repository states"]
    assert result["status"] == status
    assert result["detail"].startswith(says)
    (result,) = [item for item in partial["findings"] if item["name"] == "as many records as the repository states"]
    assert result["status"] == ("note" if stated > QUESTIONS else status)


@pytest.mark.slow
def test_repository_without_a_readme_is_reported_as_unchecked(command, server, tmp_path):
    with server.as_hub(tmp_path / "home"):
        (split,) = json.loads(command.data("check", "hotpotqa:dev", "--json", "--set", MAIN).stdout)["splits"]
    (result,) = [item for item in split["findings"] if item["name"] == "as many records as the repository states"]
    assert (result["status"], result["detail"][:12]) == ("note", "not checked:")


def test_data_errors_have_the_common_format_and_exit_code(tmp_path, call, monkeypatch):
    done = call("data", "hotpotq")
    assert (done.code, done.err.splitlines()[0]) == (2, "error: unknown dataset 'hotpotq'")
    assert "did you mean 'hotpotqa'?" in done.err
    done = call("data", "chek")
    assert (done.code, "did you mean 'check'?" in done.err) == (2, True)
    monkeypatch.setenv("RAGMETER_DATA", str(tmp_path))
    done = call("data", "check", "hotpotqa:dev", "--offline", "--json")
    assert done.code == 1
    assert json.loads(done.out)["color"] == "red"


def test_help_lists_the_commands(call):
    shown = call("data", "--help").out
    for name in (
        "list",
        "download",
        "check",
        "stats",
        "sample",
        "build-corpus",
        "overlap",
        "restyle",
        "mix",
        "style-quality",
        "pretraining-rows",
        "questions",
    ):
        assert f" {name} " in shown
