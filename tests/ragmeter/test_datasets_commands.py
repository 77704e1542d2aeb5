"""`ragmeter datasets`: what is listed, fetched, verified, measured, shown, built and compared, as people meet it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from benchmarks import hub_errors
from benchmarks.datasets import hotpotqa
from benchmarks.errors import UserError
from benchmarks.fingerprint import file_sha256
from benchmarks.registry import DATASETS, load
from benchmarks.sources import records
from benchmarks.stats import Distribution
from benchmarks.worlds.native import write_native
from ragmeter import histograms
from ragmeter.cli import app
from ragmeter.testing.hub_server import HubServer, Repository

QUESTIONS = 20
MAIN = '{"revision": "main"}'
"""The hub of these tests knows no pinned commit."""


@pytest.fixture(autouse=True)
def _alone(monkeypatch, tmp_path):
    """No local data, no waiting for a hub, and an environment that each test gets back."""
    monkeypatch.delenv("RAGMETER_DATA", raising=False)
    monkeypatch.setenv("RAGMETER_OFFLINE", "0")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "no-hub"))
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setattr(hub_errors, "WAIT_S", 0.0)


@pytest.fixture(scope="module")
def native(tmp_path_factory) -> Path:
    """HotpotQA's dev file, written from a world."""
    folder = tmp_path_factory.mktemp("data") / "hotpotqa"
    folder.mkdir()
    path = folder / "hotpot_dev_distractor_v1.json"
    write_native(load("worlds/multihop:test", {"questions": 3 * QUESTIONS}), "hotpotqa", path)
    path.write_text(json.dumps(json.loads(path.read_text())[:QUESTIONS]))
    return path


@pytest.fixture
def rows(native) -> bytes:
    """The same in the hub's rows."""
    found = []
    for record in records(native):
        fields = dict(record.fields)
        facts, context = fields["supporting_facts"], fields["context"]
        fields |= {
            "id": fields.pop("_id"),
            "supporting_facts": {"title": [title for title, _ in facts], "sent_id": [number for _, number in facts]},
            "context": {"title": [title for title, _ in context], "sentences": [texts for _, texts in context]},
        }
        found.append(json.dumps(fields))
    return "\n".join(found).encode() + b"\n"


@pytest.fixture
def server(rows):
    return HubServer({hotpotqa.CARD.hub_id: Repository({"distractor/validation.jsonl": rows})})


def datasets(*arguments):
    """The command's result; errors are those of the command."""
    return CliRunner().invoke(app, ["datasets", *map(str, arguments)])


def said(*arguments, code=0):
    result = datasets(*arguments, "--json")
    assert result.exit_code == code, result.exception or result.stderr
    return json.loads(result.stdout)


def refused(*arguments) -> UserError:
    result = datasets(*arguments)
    assert isinstance(result.exception, UserError), result.stdout
    return result.exception


def ragmeter(*arguments, **environment):
    command = [sys.executable, "-m", "ragmeter.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, check=False)


# --- list and show -----------------------------------------------------------------------------------------------


def test_the_bare_noun_lists_every_dataset_with_licence_sizes_and_whereabouts():
    listed = said()
    assert listed == said("list")
    assert [one["id"] for one in listed] == [entry.id for entry in DATASETS]
    by_id = {one["id"]: one for one in listed}
    assert {place["state"] for place in by_id["worlds"]["here"]} == {"made here"}
    assert {place["state"] for place in by_id["hotpotqa"]["here"]} == {"absent"}
    shown = datasets().stdout
    for entry in DATASETS:
        assert entry.id in shown
        assert entry.card.licence.split()[0] in shown


def test_show_says_where_each_split_would_be_read_from_now(native, monkeypatch):
    monkeypatch.setenv("RAGMETER_DATA", str(native.parent.parent))
    here = {place["reference"]: place for place in said("show", "hotpotqa")["here"]}
    assert here["hotpotqa/distractor:dev"]["state"] == "local"
    assert here["hotpotqa/distractor:dev"]["paths"] == [str(native)]
    assert here["hotpotqa/distractor:dev"]["questions"] == 7405
    assert here["hotpotqa/distractor:train"]["state"] == "absent"
    assert here["hotpotqa/distractor:train"]["hub"] == hotpotqa.CARD.hub_id
    text = datasets("show", "hotpotqa").stdout
    assert str(native) in "".join(text.split())
    assert "skip_bad" in text


def test_a_name_alone_shows_the_dataset():
    assert said("hotpotqa") == said("show", "hotpotqa")
    assert CliRunner().invoke(app, ["datasets", "--json", "hotpotqa"]).stdout == datasets("hotpotqa", "--json").stdout
    assert "distractor" in datasets("hotpotqa").stdout


def test_a_mistyped_name_or_verb_is_guessed():
    assert "hotpotqa" in refused("hotpotq").try_this
    assert "verify" in refused("verfy").try_this


def test_two_files_that_could_be_meant_are_said_to_be_unclear(native, monkeypatch, tmp_path):
    folder = tmp_path / "data" / "hotpotqa"
    folder.mkdir(parents=True)
    for name in ("hotpot_dev_distractor_a.json", "hotpot_dev_distractor_b.json"):
        (folder / name).write_bytes(native.read_bytes())
    monkeypatch.setenv("RAGMETER_DATA", str(folder.parent))
    (dev,) = [one for one in said("show", "hotpotqa")["here"] if one["reference"] == "hotpotqa/distractor:dev"]
    assert dev["state"] == "unclear"
    assert "several files" in dev["said"]
    result = said("verify", "hotpotqa:dev", code=1)
    assert result["splits"][0]["colour"] == "red"


# --- fetch -------------------------------------------------------------------------------------------------------


def test_fetch_names_files_sizes_hashes_and_the_commit_and_then_they_are_cached(server, rows, tmp_path):
    with server.as_hub(tmp_path):
        (one,) = said("fetch", "hotpotqa:dev", "--revision", "main")
        (file,) = one["files"]
        assert file["bytes"] == len(rows)
        assert file["sha256"] == file_sha256(Path(file["path"]))
        assert one["revision"] == server.repositories["datasets"][hotpotqa.CARD.hub_id].branches["main"]
        assert not one["pinned"]
        (again,) = said("fetch", "hotpotqa:dev", "--revision", one["revision"])
        assert again["pinned"]
        told = datasets("fetch", "hotpotqa:dev", "--revision", "main", "-q")
        assert f"{file['sha256']}  {file['name']}" in told.stdout
        assert f"--revision {one['revision']}" in " ".join(told.stderr.split())


def test_show_knows_what_the_cache_holds_of_the_pinned_commit(server, tmp_path):
    card = hotpotqa.CARD
    repository = server.repositories["datasets"][card.hub_id]
    repository.commits[card.revision] = repository.commits[repository.branches["main"]]
    with server.as_hub(tmp_path):
        assert {place["state"] for place in said("show", "hotpotqa")["here"]} == {"absent"}
        said("fetch", "hotpotqa:dev")
        states = {place["reference"]: place["state"] for place in said("show", "hotpotqa")["here"]}
        assert states.pop("hotpotqa/distractor:dev") == "cached"
        assert set(states.values()) == {"absent"}
        (verified,) = said("verify", "hotpotqa:dev", "--partial")["splits"]
        assert (verified["state"], verified["colour"], verified["questions"]) == ("cached", "green", QUESTIONS)


def test_what_the_hub_refuses_is_said_as_the_hub_module_says_it(server, rows, tmp_path):
    with server.as_hub(tmp_path):
        assert "no revision 'v9'" in refused("fetch", "hotpotqa:dev", "--revision", "v9").what
        assert "has no file" in refused("fetch", "hotpotqa:train", "--revision", "main").what
    gated = HubServer({hotpotqa.CARD.hub_id: Repository({"distractor/validation.jsonl": rows}, gated=True)})
    with gated.as_hub(tmp_path / "gated"):
        assert "gated" in refused("fetch", "hotpotqa:dev", "--revision", "main").what


def test_what_is_not_on_the_hub_cannot_be_fetched():
    assert "nothing to fetch" in refused("fetch", "worlds:test").what
    error = refused("fetch", "nq/kilt:dev")
    assert "not on the hub" in error.what
    assert "nq/open:train" in error.try_this


def test_a_transfer_that_arrives_altered_leaves_nothing_behind(rows, tmp_path):
    import gzip

    name = "distractor/validation.jsonl.gz"
    server = HubServer({hotpotqa.CARD.hub_id: Repository({name: gzip.compress(rows)})})
    server.faults.altered.add(name)
    with server.as_hub(tmp_path):
        refused("fetch", "hotpotqa:dev", "--revision", "main")
        assert not list((tmp_path / "hub").rglob("*validation*"))
        server.faults.altered.clear()
        assert said("fetch", "hotpotqa:dev", "--revision", "main")[0]["files"][0]["name"] == name


def test_offline_uses_the_cache_alone_and_asks_nobody(server, tmp_path):
    with server.as_hub(tmp_path):
        assert "not in the cache" in refused("fetch", "hotpotqa:dev", "--revision", "main", "--offline").what
        os.environ["RAGMETER_OFFLINE"] = os.environ["HF_HUB_OFFLINE"] = "0"
        from huggingface_hub import constants

        constants.HF_HUB_OFFLINE = False
        (online,) = said("fetch", "hotpotqa:dev", "--revision", "main")
        asked = server.requests.total()
        assert said("fetch", "hotpotqa:dev", "--revision", "main", "--offline") == [online]
        assert server.requests.total() == asked


def test_offline_is_an_option_of_running_too(server, tmp_path):
    experiment = tmp_path / "x.yaml"
    experiment.write_text("name: x\nbenchmarks: [{id: hotpotqa, split: dev}]\nmethods: [{id: bm25}]\nmetrics: [em]\n")
    with server.as_hub(tmp_path / "home"):
        done = ragmeter("run", experiment, "--offline", "--store", tmp_path / "store")
        assert done.returncode != 0
        assert "the network is forbidden (offline)" in " ".join(done.stderr.split())
        # A plan needs no network at all: it says what is to be fetched.
        done = ragmeter("plan", experiment, "--check", "--store", tmp_path / "store")
        assert done.returncode == 2
        assert "ragmeter datasets fetch hotpotqa/distractor:dev" in " ".join(done.stdout.split())
        assert server.requests.total() == 0


# --- verify ------------------------------------------------------------------------------------------------------


def test_a_cut_of_a_split_is_red_until_it_is_said_to_be_one(native):
    (red,) = said("verify", "hotpotqa:dev", "--path", native, code=1)["splits"]
    (size,) = [finding for finding in red["findings"] if finding["status"] == "red"]
    assert f"{QUESTIONS}, the card says 7,405" in size["detail"]
    assert "--partial" in size["detail"]
    assert said("verify", "hotpotqa:dev", "--path", native, "--partial")["colour"] == "green"


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


@pytest.mark.parametrize(
    ("stated", "status", "says"),
    [
        (QUESTIONS, "green", f"{QUESTIONS}"),
        (QUESTIONS + 3, "yellow", f"{QUESTIONS} here, {QUESTIONS + 3} stated of distractor/validation: 3 fewer; "),
        (QUESTIONS - 4, "yellow", f"{QUESTIONS} here, {QUESTIONS - 4} stated of distractor/validation: 4 more; "),
    ],
)
def test_what_the_repository_states_of_its_size_is_checked_and_both_numbers_told(rows, tmp_path, stated, status, says):
    pytest.importorskip("datasets")
    files = {"distractor/validation.jsonl": rows, "README.md": STATES.format(rows=stated).encode()}
    with HubServer({hotpotqa.CARD.hub_id: Repository(files)}).as_hub(tmp_path / "home"):
        (split,) = json.loads(datasets("verify", "hotpotqa:dev", "--json", "--config", MAIN).stdout)["splits"]
        (partial,) = json.loads(datasets("verify", "hotpotqa:dev", "--json", "--partial", "--config", MAIN).stdout)[
            "splits"
        ]
    (found,) = [one for one in split["findings"] if one["name"] == "as many records as the repository states"]
    assert found["status"] == status
    assert found["detail"].startswith(says)
    (found,) = [one for one in partial["findings"] if one["name"] == "as many records as the repository states"]
    assert found["status"] == ("note" if stated > QUESTIONS else status)


def test_a_repository_without_a_readme_is_said_not_to_be_checked(server, tmp_path):
    with server.as_hub(tmp_path / "home"):
        (split,) = json.loads(datasets("verify", "hotpotqa:dev", "--json", "--config", MAIN).stdout)["splits"]
    (found,) = [one for one in split["findings"] if one["name"] == "as many records as the repository states"]
    assert (found["status"], found["detail"][:12]) == ("note", "not checked:")


def test_files_that_changed_since_they_were_recorded_are_red(native, tmp_path):
    records, copy = tmp_path / "records.json", tmp_path / "dev.json"
    copy.write_bytes(native.read_bytes())
    verify = ("verify", "hotpotqa:dev", "--path", copy, "--partial")
    said(*verify, "--record", records)
    assert said(*verify, "--against", records)["colour"] == "green"
    copy.write_bytes(native.read_bytes() + b"\n")
    result = datasets(*verify, "--against", records)
    assert result.exit_code == 1
    assert "dev.json: it is" in " ".join(result.stdout.split())


def test_a_record_that_cannot_be_read_is_red_and_names_its_place(native, tmp_path):
    bad = tmp_path / "bad.json"
    bad.write_text(native.read_text().replace('"question"', '"quest"', 1))
    result = datasets("verify", "hotpotqa:dev", "--path", bad, "--partial")
    assert result.exit_code == 1
    assert "field 'question' is missing" in " ".join(result.stdout.split())
    (split,) = said(
        "verify", "hotpotqa:dev", "--partial", "--config", json.dumps({"path": str(bad), "skip_bad": True})
    )["splits"]
    assert split["colour"] == "yellow"


def test_all_verifies_what_is_here_and_says_what_it_skips(native, monkeypatch):
    monkeypatch.setenv("RAGMETER_DATA", str(native.parent.parent))
    found = said("verify", "--all", "--partial")
    assert [split["reference"] for split in found["splits"]] == ["hotpotqa/distractor:dev"]
    assert any("not on this machine" in reason for reason in found["skipped"])
    assert any("worlds: made here" in reason for reason in found["skipped"])


def test_questions_of_one_split_that_are_nearly_in_another_are_found(native, tmp_path, monkeypatch):
    folder = tmp_path / "data" / "hotpotqa"
    folder.mkdir(parents=True)
    (folder / native.name).write_bytes(native.read_bytes())
    rows = json.loads(native.read_text())
    for number, row in enumerate(rows):
        row["_id"] = f"t{number}"
        row["question"] = row["question"] + " Tell" if number < 2 else f"Something other {number} altogether?"
    (folder / "hotpot_train_v1.1.json").write_text(json.dumps(rows))
    monkeypatch.setenv("RAGMETER_DATA", str(folder.parent))
    for asked in (("--all",), ("hotpotqa:dev", "hotpotqa:train"), ("hotpotqa:dev+train",)):
        found = said("verify", *asked, "--partial", "--alike", "0.6")
        (pairs,) = [f for split in found["splits"] for f in split["findings"] if "nearly" in f["name"]]
        assert pairs["detail"] == f"2 of {QUESTIONS} are"
        assert pairs["status"] == "yellow"


def test_verify_wants_references_or_all_and_not_both():
    assert "neither" in refused("verify").what
    assert "both" in refused("verify", "worlds:test", "--all").what
    assert "of one dataset" in refused("verify", "--all", "--config", '{"skip_bad": true}').what


def test_generated_worlds_verify_green():
    options = json.dumps({"questions": 12})
    (world,) = said("verify", "worlds/multihop:test", "--config", options)["splits"]
    assert world["colour"] == "green"


def test_the_samples_folder_is_green_as_a_whole(data_folder, monkeypatch):
    monkeypatch.setenv("RAGMETER_DATA", str(data_folder))
    found = said("verify", "--all", "--partial")
    assert {split["reference"]: split["colour"] for split in found["splits"] if split["colour"] != "green"} == {}
    families = {split["reference"].partition(":")[0].partition("/")[0] for split in found["splits"]}
    assert families >= {"hotpotqa", "2wikimultihopqa", "musique", "nq", "longbench", "ultradomain", "webqsp", "cwq"}


# --- stats and sample --------------------------------------------------------------------------------------------


def test_stats_count_and_measure(native):
    found = said("stats", "hotpotqa:dev", "--path", native)
    benchmark = load("hotpotqa:dev", {"path": str(native)})
    assert found["counts"]["questions"] == QUESTIONS
    assert found["counts"]["passages"] == len(benchmark.corpus)
    assert found["words"]["questions"]["n"] == QUESTIONS
    assert found["per_question"]["candidates"]["quantiles"]["1"] == 10
    assert sum(found["types"].values()) == QUESTIONS
    text = datasets("stats", "hotpotqa:dev", "--path", native).stdout
    assert "passages" in text
    assert "█" not in text


def test_a_terminal_histogram_has_a_bar_for_what_is_there():
    console = Console(width=100, record=True, force_terminal=False)
    with console.capture() as captured:
        histograms.draw({"x": Distribution.of([1] * 80 + [2])}, console)
    first, second = captured.get().splitlines()[1:]
    assert first.count("█") == histograms.BAR
    assert first.endswith(" 80")
    assert second.split()[1:] == ["▌", "1"]


def test_plots_are_drawn_in_the_terminal_or_a_file(native, tmp_path):
    assert "█" in datasets("stats", "hotpotqa:dev", "--path", native, "--plot", "terminal").stdout
    pytest.importorskip("altair")
    page = tmp_path / "plot.html"
    assert said("stats", "hotpotqa:dev", "--path", native, "--plot", page)["plot"] == str(page)
    assert "words of passages" in page.read_text()


@pytest.mark.parametrize("suffix", [".svg", ".png"])
def test_pictures_are_drawn_where_something_renders_them(native, tmp_path, suffix):
    pytest.importorskip("altair")
    pytest.importorskip("vl_convert", reason="vl-convert-python renders pictures and is not installed")
    path = tmp_path / f"plot{suffix}"
    said("stats", "hotpotqa:dev", "--path", native, "--plot", path)
    assert path.read_bytes()[:4] in (b"<svg", b"\x89PNG")


def test_a_plot_that_cannot_be_drawn_says_what_can(native, tmp_path, monkeypatch):
    assert ".html" in refused("stats", "hotpotqa:dev", "--path", native, "--plot", tmp_path / "x.pdf").what
    monkeypatch.setattr(histograms.importlib.util, "find_spec", lambda name: None if name == "vl_convert" else 1)
    assert "plot.html" in refused("stats", "hotpotqa:dev", "--path", native, "--plot", tmp_path / "plot.svg").try_this
    monkeypatch.setattr(histograms.importlib.util, "find_spec", lambda name: None)
    error = refused("stats", "hotpotqa:dev", "--path", native, "--plot", tmp_path / "plot.html")
    assert "ragmeter[leaderboard]" in error.try_this


def test_sample_prints_records_with_their_gold_marked(native):
    found = said("sample", "hotpotqa:dev", "--path", native, "-n", 2, "--seed", 3)
    assert found == said("sample", "hotpotqa:dev", "--path", native, "-n", 2, "--seed", 3)
    assert len(found) == 2
    assert found != said("sample", "hotpotqa:dev", "--path", native, "-n", 2, "--seed", 4)
    text = " ".join(datasets("sample", "hotpotqa:dev", "--path", native, "-n", 2, "--seed", 3).stdout.split())
    for record in found:
        assert record["question"] in text
        assert record["answers"][0] in text
        gold = [passage for passage in record["passages"] if passage["gold"]]
        assert {passage["id"] for passage in gold} == set(record["evidence"])
        for passage in gold:
            assert f"gold {passage['title']}:" in text
    assert text.count("gold ") >= sum(len(record["evidence"]) for record in found)
    assert f"2 of {QUESTIONS}" in text


# --- corpus ------------------------------------------------------------------------------------------------------


def test_a_corpus_is_built_and_one_that_is_there_is_left_alone(tmp_path):
    dump = tmp_path / "psgs.tsv"
    dump.write_text("id\ttext\ttitle\n" + "".join(f"{i}\ttext {i}\ttitle\n" for i in range(30)))
    target = tmp_path / "corpus"
    built = said("corpus", dump, target, "--layout", "dpr")
    assert (built["passages"], built["layout"], built["was_there"]) == (30, "dpr", False)
    again = said("corpus", dump, target)
    assert again["was_there"]
    assert again["fingerprint"] == built["fingerprint"]
    told = datasets("corpus", dump, tmp_path / "other")
    assert "30 passages" in told.stdout
    assert "built" in told.stdout


def test_a_wrong_layout_or_a_bad_record_is_an_error_before_the_end(tmp_path):
    dump = tmp_path / "psgs.tsv"
    dump.write_text("id\ttext\ttitle\n1\tx\ty\nbroken\n")
    assert "dpr" in refused("corpus", dump, tmp_path / "c", "--layout", "dprr").try_this
    assert not (tmp_path / "c").exists()
    assert "line 3" in refused("corpus", dump, tmp_path / "c").where
    assert said("corpus", dump, tmp_path / "d", "--skip-bad")["bad"] == 1
    assert "line 3" in datasets("corpus", dump, tmp_path / "d", "--skip-bad").stdout


# --- contamination -----------------------------------------------------------------------------------------------


def test_contamination_reports_every_question_and_where_it_was_found(native, tmp_path):
    rows = json.loads(native.read_text())
    train = tmp_path / "train.jsonl"
    train.write_text("".join(json.dumps({"prompt": row["question"]}) + "\n" for row in rows[:3]))
    asked = ("contamination", "--train", train, "--eval", "hotpotqa:dev", "--path", native)
    output = tmp_path / "overlaps.csv"
    found = said(*asked, "--output", output)
    (summary,) = found["summary"]["sets"]
    assert (summary["questions"], summary["question_all"]) == (QUESTIONS, 3)
    assert [one["first"] for one in found["questions"][:3]] == [f"{train}:{line}" for line in (1, 2, 3)]
    lines = output.read_text().splitlines()
    assert lines[0].startswith("reference,question_id,question,words,whole,share,first,question_found")
    assert len(lines) == QUESTIONS + 1
    for name in ("o.json", "o.jsonl"):
        said(*asked, "--output", tmp_path / name)
    as_lines = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    assert as_lines == json.loads((tmp_path / "o.json").read_text()) == found["questions"]
    told = datasets(*asked).stdout
    assert "fewer than 13 words" in " ".join(told.split())
    assert told.count("100%") == 3


def test_contamination_refuses_what_it_cannot_read_or_write(native, tmp_path):
    asked = ("--eval", "hotpotqa:dev", "--path", native)
    assert "no such training file" in refused("contamination", "--train", tmp_path / "no", *asked).what
    train = tmp_path / "t.txt"
    train.write_text("x")
    assert ".csv" in refused("contamination", "--train", train, *asked, "--output", tmp_path / "o.xml").what


# --- as a process ------------------------------------------------------------------------------------------------


def test_errors_are_shown_in_the_style_of_the_house(tmp_path):
    done = ragmeter("datasets", "hotpotq")
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == "error: unknown dataset 'hotpotq'"
    done = ragmeter("datasets", "verify", "hotpotqa:dev", "--offline", "--json", RAGMETER_DATA=str(tmp_path))
    assert done.returncode == 1
    assert json.loads(done.stdout)["colour"] == "red"


def test_help_lists_the_verbs():
    shown = ragmeter("datasets", "--help", NO_COLOR="1").stdout
    for verb in ("list", "show", "fetch", "verify", "stats", "sample", "corpus", "contamination"):
        assert f" {verb} " in shown
