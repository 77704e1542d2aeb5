"""The submission page: absent by default; it checks, previews, and stores the preview on a second click."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from leaderboard import intake
from leaderboard.intake import Draft, hand_over
from leaderboard.pages import submit as submission
from leaderboard.server import _environment, command
from ragmeter import cli
from results.boards.board import boards
from results.boards.systems import CONTAMINATED, IMPLAUSIBLE
from results.errors import UserError
from results.offered import LIMITS, MIB
from results.store import queries
from results.store.redaction import HIDDEN
from results.store.score_queries import metric_ids
from results.store.store import Store
from tests.support.errors import raises

Start = Callable[[Path], Any]


def words(node: Any) -> str:
    return " ".join(node.texts())


def upload(page: Any, predictions: bytes, card: bytes | None = None) -> Any:
    """Upload files and request the check."""
    page.test.file_uploader[0].set_value(("theirs.jsonl", predictions, "application/json"))
    if card is not None:
        page.test.file_uploader[1].set_value(("theirs.yaml", card, "text/yaml"))
    page.test.run()
    page.test.button(key="check").click().run(timeout=120)
    assert not page.test.exception
    return page


def test_server_refuses_submissions_unless_configured(app: Start, sent: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(intake.VARIABLE, raising=False)
    page = app(sent.folder).open("submit")
    assert not page.test.file_uploader
    with pytest.raises(UserError, match="read-only"):
        hand_over(Draft(sent.predictions, sent.card), sent.folder, keep=True)


@pytest.mark.slow
def test_submission_page_states_that_the_server_is_read_only(sent: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    testing = pytest.importorskip("streamlit.testing.v1")
    monkeypatch.delenv(intake.VARIABLE, raising=False)
    monkeypatch.setenv("RAGMETER_STORE", str(sent.folder))
    script = "from leaderboard.pages import submit\nsubmit.render()"
    test = testing.AppTest.from_string(script, default_timeout=60).run()
    response = "".join(element.proto.bytes.decode() for element in test.get("bidi_component"))
    assert "read-only" in response
    assert "--allow-submissions" in response
    assert not test.file_uploader
    assert not test.button


@pytest.mark.parametrize("value", ["", "null", "1", "{}", "[]", "[1]", "not json", '"submit"'])
def test_invalid_command_variable_disables_submissions(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(intake.VARIABLE, value)
    assert intake.submit_command() is None


def test_option_allow_submissions_enables_submissions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    responses: list[Any] = []
    monkeypatch.setattr("leaderboard.server.serve", lambda folder, **value: responses.append(value["submit"]) or 0)
    for extra in ([], ["--allow-submissions"]):
        monkeypatch.setattr(sys, "argv", ["ragmeter", "leaderboard", "--store", str(tmp_path), *extra])
        with pytest.raises(SystemExit):
            cli.main()
    assert responses[0] is None
    assert responses[1][0] == sys.executable
    assert responses[1][-1] == "submit"


def test_server_is_configured_by_environment_without_inherited_permission_or_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(intake.VARIABLE, '["rm"]')
    for name in ("OPENAI_API_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD"):
        monkeypatch.setenv(name, "hunter2")
    closed, opened = _environment(tmp_path), _environment(tmp_path, ["ragmeter", "submit"])
    assert intake.VARIABLE not in closed
    assert json.loads(opened[intake.VARIABLE]) == ["ragmeter", "submit"]
    assert "hunter2" not in {*closed.values(), *opened.values()}
    assert closed["PATH"] == os.environ["PATH"]


def test_upload_size_is_limited_by_the_server() -> None:
    assert "--server.maxUploadSize=0" in command(1, "h", False)
    assert f"--server.maxUploadSize={intake.UPLOAD_MIB}" in command(1, "h", False, uploads=True)


@pytest.mark.usefixtures("allowed")
def test_submission_is_previewed_and_stored_on_the_second_click(app: Start, sent: Any) -> None:
    page = upload(app(sent.folder).open("submit"), sent.predictions, sent.card)
    assert "No errors" in words(page.part("verdict"))
    lines = [words(line) for line in page.part("preview").find(tag="tr")][1:]
    assert lines[0].startswith("half right")
    assert "my-method@1 preview" in lines[1]
    assert [run.method for run in queries.runs(Store(sent.folder))] == ["half right"]

    page.test.button(key="store").click().run(timeout=120)
    assert not page.test.exception
    assert "my-method@1 is on the board" in words(page.part("stored"))
    (result,) = boards(Store(sent.folder))
    rows = {row.run.method: row for row in result.rows}
    assert rows["my-method@1"].run.origin == "submitted"
    for metric, cell in rows["half right"].cells.items():
        mine = rows["my-method@1"].cells[metric].estimate
        # Number and interval of the preview equal those that the board computes after storing.
        shown = "" if mine.insufficient_data else f" [{100 * mine.low:.1f}, {100 * mine.high:.1f}]"
        assert f"{100 * mine.value:.1f}{shown}" in lines[1]
        assert mine.value < cell.estimate.value
    page.test.button(key="another").click().run()
    assert page.has("how")


@pytest.mark.usefixtures("allowed")
def test_check_of_a_stored_submission_says_so_and_refuses_other_answers(app: Start, sent: Any) -> None:
    stored = hand_over(Draft(sent.predictions, sent.card), sent.folder, keep=True)
    page = upload(app(sent.folder).open("submit"), sent.predictions, sent.card)
    assert str(stored.run)[:8] in words(page.part("notes"))
    assert [words(line).count("my-method@1") for line in page.part("preview").find(tag="tr")] == [0, 0, 1]
    upload(page, sent.predictions.replace(b'"no"', b'"yes"'), sent.card)
    assert "resubmission-differs" in words(page.part("findings"))
    assert [button.key for button in page.test.button] == ["check"]


@pytest.mark.usefixtures("allowed")
@pytest.mark.parametrize("order", [("em", "f1"), ("f1", "em")])
def test_preview_ranks_by_the_first_metric_of_the_experiment(app: Start, sent: Any, order: tuple[str, str]) -> None:
    store = Store(sent.folder)
    scored = metric_ids(store, ["ab" * 8])
    listed = [next(metric for metric in scored if metric.startswith(name)) for name in order]
    store.put_experiment("e", "name: e\n", None, None, None, ["ab" * 8], metrics=[listed])
    store.database.close()
    page = upload(app(sent.folder).open("submit"), sent.predictions, sent.card)
    heads = [words(head).lower() for head in page.part("preview").find(tag="th")]
    shown = [name for head in heads for name in ("em", "f1") if head.startswith(name)]
    assert shown == list(order)


@pytest.mark.usefixtures("allowed")
def test_invalid_submission_lists_problems_with_file_and_line(app: Start, sent: Any) -> None:
    first, second, *rest = sent.predictions.decode().splitlines(keepends=True)
    wrong = json.dumps({"question_id": sent.questions[1], "anwser": 1}) + "\n"
    page = upload(app(sent.folder).open("submit"), (first + wrong + first + "".join(rest)).encode(), sent.card)
    assert "cannot be stored" in words(page.part("verdict"))
    response = words(page.part("findings"))
    assert "predictions.jsonl:2: 'anwser' in a row: did you mean 'answer'?" in response
    assert "predictions.jsonl:3" in response
    assert not page.has("preview")
    assert [button.key for button in page.test.button] == ["check"]
    assert second not in response


@pytest.mark.usefixtures("allowed")
def test_unscorable_submission_has_no_preview(app: Start, sent: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real = intake.hand_over

    def without_scores(*value: Any, **options: Any) -> Any:
        return replace(real(*value, **options), preview={})

    monkeypatch.setattr(intake, "hand_over", without_scores)
    page = upload(app(sent.folder).open("submit"), sent.predictions, sent.card)
    assert page.has("preview-note")
    assert not page.has("preview")
    page.test.button(key="store").click().run(timeout=120)
    assert not page.test.exception
    assert "my-method@1 is on the board" in words(page.part("stored"))


@pytest.mark.usefixtures("allowed")
def test_card_error_names_its_line_and_changed_files_require_a_new_check(app: Start, sent: Any) -> None:
    bad = sent.card.replace(b"training_data: []", b"trainig_data: []")
    page = upload(app(sent.folder).open("submit"), sent.predictions, bad)
    response = words(page.part("message"))
    assert "card.yaml:" in response
    assert "did you mean 'training_data'?" in response
    assert str(sent.folder) not in response
    # The reason for the refusal stays until the files change, whatever redraws the page.
    page.test.run()
    assert words(page.part("message")) == response
    assert not page.has("changed")
    page.test.file_uploader[1].set_value(("theirs.yaml", sent.card, "text/yaml")).run()
    assert not page.has("message")
    page.test.run()
    assert "check them again" in words(page.part("changed"))
    upload(page, sent.predictions, sent.card)
    assert page.has("preview")
    assert not page.has("changed")
    page.test.file_uploader[0].set_value(("theirs.jsonl", b"{}\n", "application/json")).run()
    assert not page.has("preview")
    assert page.has("changed")
    assert [button.key for button in page.test.button] == ["check"]


@pytest.mark.usefixtures("allowed")
@pytest.mark.parametrize(
    ("change", "response"),
    [
        ((b"multihop:validation", b"long:validation"), "refused-submission"),
        ((b"limit: 6", b"limit: 5"), "refused-submission"),
        ((b"config: {}", b"config: {worlds: 3}"), "refused-submission"),
    ],
)
def test_submission_for_data_missing_from_the_store_is_refused(sent: Any, change: tuple[bytes, bytes], response: str) -> None:
    card = b"\n".join(line for line in sent.card.splitlines() if not line.startswith(b"dataset_fingerprint"))
    if b"config" in change[0] and change[0] not in card:
        card += b"\nconfig: {}\n"
    assert change[0] in card
    with raises(response):
        hand_over(Draft(sent.predictions, card.replace(*change)), sent.folder, keep=True)
    assert len(queries.runs(Store(sent.folder))) == 1


def test_oversized_upload_is_refused_before_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(intake, "UPLOAD_MIB", 1)
    for predictions, card in ((b"x" * (MIB + 1), b"a: 1"), (b"{}", b"x" * (LIMITS.card_bytes + 1))):
        with pytest.raises(UserError, match="larger than"):
            Draft(predictions, card)
    assert list(tmp_path.iterdir()) == []


def test_predictions_require_a_card_and_a_bundle_does_not() -> None:
    with raises("predictions-without-card"):
        Draft(b"{}", None)
    with raises("card-besides-bundle"):
        Draft(b"PK\3\4", b"a: 1")


def test_uploads_are_stored_privately_under_fixed_names_and_deleted_with_the_session() -> None:
    draft = Draft(b"{}", b"a: 1")
    folder = draft.folder
    assert sorted(path.name for path in folder.iterdir()) == ["card.yaml", "predictions.jsonl"]
    assert folder.stat().st_mode & 0o077 == 0
    assert all(path.stat().st_mode & 0o111 == 0 for path in folder.iterdir())
    del draft
    assert not folder.exists()


def fake(code: str) -> str:
    return json.dumps([sys.executable, "-c", code])


def test_crashed_check_reveals_nothing_about_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for code in (
        "raise ValueError('/secret/path')",
        "print('[]')",
        "print('{')",
        "import os; os.abort()",
        'import sys; sys.exit(\'{"error": {"what": "/secret", "where": null, "try": null}}\')',
    ):
        monkeypatch.setenv(intake.VARIABLE, fake(code))
        with pytest.raises(UserError) as caught:
            hand_over(Draft(b"{}", b"a: 1"), tmp_path, keep=False)
        assert "secret" not in str(caught.value)
        assert caught.value.what == "the check crashed"
    assert "/secret/path" in capfd.readouterr().err


@pytest.mark.slow
def test_check_is_stopped_at_its_time_limit_and_only_one_runs_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "TIME_S", 0.3)
    monkeypatch.setenv(intake.VARIABLE, fake("import time; time.sleep(60)"))
    with raises("check-timeout"):
        hand_over(Draft(b"{}", b"a: 1"), tmp_path, keep=False)
    with intake._turn, raises("submission-check-busy"):
        hand_over(Draft(b"{}", b"a: 1"), tmp_path, keep=False)
    # The lock was released.
    with raises("check-timeout"):
        hand_over(Draft(b"{}", b"a: 1"), tmp_path, keep=False)


def test_check_command_gets_only_fixed_names_and_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import json, os, sys; here = os.getcwd(); "
        "json.dump({'report': {'ok': True, 'said': [sys.argv[1:], os.environ['HF_HUB_OFFLINE'], here]}, "
        "'notes': [], 'run': None}, sys.stdout)"
    )
    monkeypatch.setenv(intake.VARIABLE, fake(code))
    draft = Draft(b"{}", b"a: 1")
    arguments, offline, here = hand_over(draft, tmp_path, keep=False).report["said"]
    assert arguments[:4] == ["check", "predictions.jsonl", "--card", "card.yaml"]
    assert {"--known-boards", "--json"} <= set(arguments)
    assert (offline, Path(here).resolve()) == ("1", draft.folder.resolve())
    assert hand_over(draft, tmp_path, keep=True).report["said"][0][0] == "add"


@pytest.mark.usefixtures("allowed")
def test_api_key_in_a_card_is_not_shown_on_any_page(app: Start, sent: Any) -> None:
    card = sent.card.replace(b"settings: {}", b"settings: {api_key: hunter2, url: 'https://me:hunter2@x.example'}")
    assert card != sent.card
    stored = hand_over(Draft(sent.predictions, card), sent.folder, keep=True)
    page = app(sent.folder).open("runs", run=str(stored.run), experiment="*")
    assert not page.test.exception
    drawn = "".join(element.proto.bytes.decode() for element in page.test.get("bidi_component"))
    assert "my-method@1" in drawn
    assert "hunter2" not in drawn
    assert HIDDEN in drawn


def test_incomparable_result_has_no_rank_in_the_preview(sent: Any) -> None:
    (board,) = boards(Store(sent.folder))
    (metric, *_), (row, *_) = board.metrics, board.rows
    worth = {metric: {"value": 1.0, "low": 0.9, "high": 1.0, "n": 10, "insufficient_data": ""}}

    def places(board: Any, findings: Sequence[str] = (), contamination: Sequence[str] = ()) -> list[tuple[str, str]]:
        listed = [{"code": code, "what": "why"} for code in findings]
        report = {"method": "theirs", "version": "1", "findings": listed, "contamination": contamination}
        node = submission.preview(report, worth, board, [metric], {})
        return [
            (words(next(line.find(tag="th"))), words(next(line.find(tag="td")))) for line in next(node.find(tag="tbody")).find(tag="tr")
        ]

    assert [position for _, position in places(board)] == ["1", "2"]
    assert [position for _, position in places(board, ["empty_answers"])] == ["1", "2"]
    leaked, odd = places(board, contamination=["x"]), places(board, ["empty_answers", "right_without_evidence"])
    for (name, position), mark in ((leaked[1], CONTAMINATED), (odd[1], IMPLAUSIBLE)):
        assert position == "–"
        assert mark in name
    assert leaked[0] == odd[0] == ("half right", "1")
    cells = {name: replace(cell, apart="contaminated: x was trained on") for name, cell in row.cells.items()}
    apart = places(replace(board, rows=(replace(row, cells=cells),)))
    assert [position for _, position in apart] == ["1", "–"]
