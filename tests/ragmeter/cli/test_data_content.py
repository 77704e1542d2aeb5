"""`ragmeter data`: check, stats, sample, build-corpus and overlap."""

import json
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.registry import load
from benchmarks.verify import Distribution
from ragmeter import conformance
from ragmeter.conformance import Check
from ragmeter.show import histograms

QUESTIONS = 20


@pytest.fixture(scope="session")
def command(module_at):
    return module_at(Path(__file__).with_name("data_command.py"))


@pytest.fixture(autouse=True)
def _isolated(command, monkeypatch, tmp_path):
    command.isolated(monkeypatch, tmp_path)


@pytest.fixture(scope="module")
def native(command, tmp_path_factory) -> Path:
    return command.write_hotpotqa(tmp_path_factory.mktemp("data") / "hotpotqa", QUESTIONS)


@pytest.mark.slow
def test_partial_split_is_red_unless_declared_partial(command, native):
    (red,) = command.shown("check", "hotpotqa:dev", "--set", f"path={native}", code=1)["splits"]
    (size,) = [finding for finding in red["findings"] if finding["status"] == "red"]
    assert f"{QUESTIONS}, the card says 7,405" in size["detail"]
    assert "--partial" in size["detail"]
    assert command.shown("check", "hotpotqa:dev", "--set", f"path={native}", "--partial")["color"] == "green"


@pytest.mark.slow
def test_files_changed_since_recording_are_red(command, native, tmp_path):
    records, copy = tmp_path / "records.json", tmp_path / "dev.json"
    copy.write_bytes(native.read_bytes())
    check = ("check", "hotpotqa:dev", "--set", f"path={copy}", "--partial")
    command.shown(*check, "-o", records)
    assert command.shown(*check, "--against", records)["color"] == "green"
    copy.write_bytes(native.read_bytes() + b"\n")
    result = command.data(*check, "--against", records)
    assert result.exit_code == 1
    assert "dev.json: it is" in " ".join(result.stdout.split())


@pytest.mark.slow
def test_unreadable_record_is_red_with_its_position(command, native, tmp_path):
    bad = tmp_path / "bad.json"
    bad.write_text(native.read_text().replace('"question"', '"quest"', 1))
    result = command.data("check", "hotpotqa:dev", "--set", f"path={bad}", "--partial")
    assert result.exit_code == 1
    assert "field 'question' is missing" in " ".join(result.stdout.split())
    (split,) = command.shown("check", "hotpotqa:dev", "--partial", "--set", f"path={bad}", "--set", "skip_bad=true")["splits"]
    assert split["color"] == "yellow"


@pytest.mark.slow
def test_option_all_checks_available_datasets_and_lists_skipped_ones(command, native, monkeypatch):
    monkeypatch.setenv("RAGMETER_DATA", str(native.parent.parent))
    result = command.shown("check", "--all", "--partial")
    assert [split["reference"] for split in result["splits"]] == ["hotpotqa/distractor:dev"]
    assert any("not on this machine" in reason for reason in result["skipped"])
    assert any("worlds: made here" in reason for reason in result["skipped"])


@pytest.mark.slow
def test_near_duplicates_across_splits_are_found(command, native, tmp_path, monkeypatch):
    folder = tmp_path / "data" / "hotpotqa"
    folder.mkdir(parents=True)
    (folder / native.name).write_bytes(native.read_bytes())
    rows = json.loads(native.read_text())
    for number, row in enumerate(rows):
        row["_id"] = f"t{number}"
        row["question"] = row["question"] + " Tell" if number < 2 else f"Something other {number} altogether?"
    (folder / "hotpot_train_v1.1.json").write_text(json.dumps(rows))
    monkeypatch.setenv("RAGMETER_DATA", str(folder.parent))
    for query in (("--all",), ("hotpotqa:dev", "hotpotqa:train"), ("hotpotqa:dev+train",)):
        result = command.shown("check", *query, "--partial", "--alike", "0.6")
        (pairs,) = [f for split in result["splits"] for f in split["findings"] if "nearly" in f["name"]]
        assert pairs["detail"] == f"2 of {QUESTIONS} are"
        assert pairs["status"] == "yellow"


@pytest.mark.slow
def test_check_requires_either_references_or_all(command):
    assert "neither" in command.refused("check").what
    assert "exclude each other" in command.refused("check", "worlds:test", "--all").what
    assert command.refused("check", "--all", "--set", "skip_bad=true").code == "set-and-config"


def test_generated_worlds_are_green(command):
    (world,) = command.shown("check", "worlds/multihop:test", "--set", "questions=12")["splits"]
    assert world["color"] == "green"


def test_declared_setting_of_generated_data_must_apply(command, monkeypatch):
    checks = [Check("setting a applies", True), Check("setting b applies", False, "it lacks something")]
    monkeypatch.setattr(conformance, "check_settings", lambda benchmark: checks)
    (world,) = command.shown("check", "worlds/multihop:test", "--set", "questions=12", code=1)["splits"]
    assert [item["name"] for item in world["findings"] if item["status"] == "red"] == ["setting b applies"]


@pytest.mark.slow
def test_samples_folder_is_completely_green(command, data_folder, monkeypatch):
    monkeypatch.setenv("RAGMETER_DATA", str(data_folder))
    result = command.shown("check", "--all", "--partial")
    assert {split["reference"]: split["color"] for split in result["splits"] if split["color"] != "green"} == {
        "ultradomain/mix-queries:all": "yellow"
    }
    families = {split["reference"].partition(":")[0].partition("/")[0] for split in result["splits"]}
    assert families >= {"hotpotqa", "2wikimultihopqa", "musique", "nq", "longbench", "ultradomain", "webqsp", "cwq"}


@pytest.mark.slow
def test_stats_report_counts_and_lengths(command, native):
    result = command.shown("stats", "hotpotqa:dev", "--set", f"path={native}")
    benchmark = load("hotpotqa:dev", {"path": str(native)})
    assert result["counts"]["questions"] == QUESTIONS
    assert result["counts"]["passages"] == len(benchmark.corpus)
    assert result["words"]["questions"]["n"] == QUESTIONS
    assert result["per_question"]["candidates"]["quantiles"]["1"] == 10
    assert sum(result["types"].values()) == QUESTIONS
    text = command.data("stats", "hotpotqa:dev", "--set", f"path={native}").stdout
    assert "passages" in text
    assert "█" not in text


def test_terminal_histogram_has_a_bar_for_every_nonempty_bin():
    console = Console(width=100, record=True, force_terminal=False)
    with console.capture() as captured:
        histograms.draw({"x": Distribution.of([1] * 80 + [2])}, console)
    first, second = captured.get().splitlines()[1:]
    assert first.count("█") == histograms.BAR
    assert first.endswith(" 80")
    assert second.split()[1:] == ["▌", "1"]


@pytest.mark.slow
def test_plots_are_drawn_in_the_terminal_or_written_to_a_file(command, native, tmp_path):
    assert "█" in command.data("stats", "hotpotqa:dev", "--set", f"path={native}", "--plot").stdout
    pytest.importorskip("altair")
    page = tmp_path / "plot.html"
    assert command.shown("stats", "hotpotqa:dev", "--set", f"path={native}", "-o", page)["plot"] == str(page)
    assert "words of passages" in page.read_text()


@pytest.mark.parametrize("suffix", [".svg", ".png"])
def test_images_are_written_if_a_renderer_is_installed(command, native, tmp_path, suffix):
    pytest.importorskip("altair")
    pytest.importorskip("vl_convert", reason="vl-convert-python renders pictures and is not installed")
    path = tmp_path / f"plot{suffix}"
    command.shown("stats", "hotpotqa:dev", "--set", f"path={native}", "-o", path)
    assert path.read_bytes()[:4] in (b"<svg", b"\x89PNG")


@pytest.mark.slow
def test_undrawable_plot_error_lists_possible_plots(command, native, tmp_path, monkeypatch):
    assert ".html" in command.refused("stats", "hotpotqa:dev", "--set", f"path={native}", "-o", tmp_path / "x.pdf").what
    monkeypatch.setattr(histograms.importlib.util, "find_spec", lambda name: None if name == "vl_convert" else 1)
    assert "plot.html" in command.refused("stats", "hotpotqa:dev", "--set", f"path={native}", "-o", tmp_path / "plot.svg").try_this
    monkeypatch.setattr(histograms.importlib.util, "find_spec", lambda name: None)
    error = command.refused("stats", "hotpotqa:dev", "--set", f"path={native}", "-o", tmp_path / "plot.html")
    assert "[leaderboard]" in error.try_this


def test_sample_prints_records_with_marked_gold(command, native):
    results = command.shown("sample", "hotpotqa:dev", "--set", f"path={native}", "--count", 2, "--seed", 3)
    assert results == command.shown("sample", "hotpotqa:dev", "--set", f"path={native}", "--count", 2, "--seed", 3)
    assert len(results) == 2
    assert results != command.shown("sample", "hotpotqa:dev", "--set", f"path={native}", "--count", 2, "--seed", 4)
    text = " ".join(command.data("sample", "hotpotqa:dev", "--set", f"path={native}", "--count", 2, "--seed", 3).stdout.split())
    for record in results:
        assert record["question"] in text
        assert record["answers"][0] in text
        gold = [passage for passage in record["passages"] if passage["gold"]]
        assert {passage["id"] for passage in gold} == set(record["evidence"])
        for passage in gold:
            assert f"gold {passage['title']}:" in text
    assert text.count("gold ") >= sum(len(record["evidence"]) for record in results)
    assert f"2 of {QUESTIONS}" in text


@pytest.mark.slow
def test_corpus_is_built_once_and_an_existing_one_kept(command, tmp_path):
    dump = tmp_path / "psgs.tsv"
    dump.write_text("id\ttext\ttitle\n" + "".join(f"{i}\ttext {i}\ttitle\n" for i in range(30)))
    target = tmp_path / "corpus"
    built = command.shown("build-corpus", dump, "-o", target, "--layout", "dpr")
    assert (built["passages"], built["layout"], built["was_there"]) == (30, "dpr", False)
    again = command.shown("build-corpus", dump, "-o", target)
    assert again["was_there"]
    assert again["fingerprint"] == built["fingerprint"]
    reported = command.data("build-corpus", dump, "-o", tmp_path / "other")
    assert "30 passages" in reported.stdout
    assert "built" in reported.stdout


@pytest.mark.slow
def test_wrong_layout_or_bad_record_stops_the_build_early(command, tmp_path):
    dump = tmp_path / "psgs.tsv"
    dump.write_text("id\ttext\ttitle\n1\tx\ty\nbroken\n")
    assert "dpr" in command.refused("build-corpus", dump, "-o", tmp_path / "c", "--layout", "dprr").try_this
    assert not (tmp_path / "c").exists()
    assert "line 3" in command.refused("build-corpus", dump, "-o", tmp_path / "c").where
    for text, lacking in (
        ("id\tbody\n1\tx\n", "no column text and no column title, only id, body"),
        ("id\ttext\tname\n", "no column title"),
    ):
        (tmp_path / "header.tsv").write_text(text)
        assert lacking in command.refused("build-corpus", tmp_path / "header.tsv", "-o", tmp_path / "h").what
    assert command.shown("build-corpus", dump, "-o", tmp_path / "d", "--skip-bad")["bad"] == 1
    assert "line 3" in command.data("build-corpus", dump, "-o", tmp_path / "d", "--skip-bad").stdout


@pytest.mark.slow
def test_overlap_reports_every_question_with_its_position(command, native, tmp_path):
    rows = json.loads(native.read_text())
    train = tmp_path / "train.jsonl"
    train.write_text("".join(json.dumps({"prompt": row["question"]}) + "\n" for row in rows[:3]))
    query = ("overlap", "--train", train, "--eval", "hotpotqa:dev", "--set", f"path={native}")
    output = tmp_path / "overlaps.csv"
    result = command.shown(*query, "--output", output)
    (summary,) = result["summary"]["sets"]
    assert (summary["questions"], summary["question_all"]) == (QUESTIONS, 3)
    assert [item["first"] for item in result["questions"][:3]] == [f"{train}:{line}" for line in (1, 2, 3)]
    lines = output.read_text().splitlines()
    assert lines[0].startswith("reference,question_id,question,words,whole,share,first,question_found")
    assert len(lines) == QUESTIONS + 1
    for name in ("o.json", "o.jsonl"):
        command.shown(*query, "--output", tmp_path / name)
    as_lines = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    assert as_lines == json.loads((tmp_path / "o.json").read_text()) == result["questions"]
    reported = command.data(*query).stdout
    assert "fewer than 13 words" in " ".join(reported.split())
    assert reported.count("100%") == 3


@pytest.mark.slow
def test_overlap_refuses_unreadable_input_and_unwritable_output(command, native, tmp_path):
    queries = ("--eval", "hotpotqa:dev", "--set", f"path={native}")
    assert command.refused("overlap", "--train", tmp_path / "no", *queries).code == "missing-file"
    train = tmp_path / "t.txt"
    train.write_text("x")
    assert ".csv" in command.refused("overlap", "--train", train, *queries, "--output", tmp_path / "o.xml").what
