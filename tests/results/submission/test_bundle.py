"""Bundles and templates: what goes in comes out, and nothing else gets in."""

from __future__ import annotations

import io
import json
import random
import stat
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import registry, settings
from benchmarks.core.errors import UserError
from benchmarks.registry import Benchmark
from benchmarks.settings import Setting
from judges.metric import parse as parse_metric
from methods.api import Evidence, Prediction, Usage
from methods.baselines.controls import gold_text
from results.offered import LIMITS, MIB
from results.submission.bundle import MEMBERS, Manifest, open_bundle, write_bundle, write_template
from results.submission.card import Card, parse_card
from results.submission.rows import PROMPT
from results.submission.validate import Target, validate
from tests.support.errors import raises

METRICS = [parse_metric("em"), parse_metric("recall@5")]
CARD = b"method: {name: mine, version: '1'}\nbenchmark: worlds/multihop:validation\nsetting: distractor\nlimit: 6\ntraining_data: []\n"


@pytest.fixture(scope="module")
def world() -> Benchmark:
    return registry.load("worlds/multihop:validation").limited(6)


@pytest.fixture(scope="module")
def target(world: Benchmark) -> Target:
    return Target(world, settings.apply("distractor", world, 0))


@pytest.fixture(scope="module")
def card() -> Card:
    return parse_card(CARD, "card.yaml")


def predictions(world: Benchmark) -> list[Prediction]:
    notes = {"mine": {"deep": [1, 2.5, None]}, PROMPT: [{"role": "user", "content": "Ä \u2028 \n?"}]}
    return [
        Prediction(
            q.id,
            gold_text(q),
            tuple(Evidence(e, 0.1 * n) for n, e in enumerate(q.evidence)),
            Usage(3, 2, 1, 1, {"read": 0.1}, 5, 0.25),
            notes,
        )
        for q in world.questions
    ]


@pytest.fixture
def bundle(tmp_path: Path, world: Benchmark, card: Card) -> Path:
    path = tmp_path / "b.zip"
    write(path, world, card)
    return path


def write(path: Path, world: Benchmark, card: Card, **changes: Any) -> Manifest:
    facts: dict[str, Any] = {
        "run": "r1",
        "origin": "submitted",
        "dataset": "worlds/multihop:validation",
        "dataset_fingerprint": world.fingerprint,
        "versions": {"ragmeter": "1"},
        "metrics": {"em(rules=squad)#v2": 1.0, "other#v1": None},
    }
    return write_bundle(path, card, predictions(world), **(facts | changes))


def test_what_goes_in_comes_out_exactly(bundle: Path, world: Benchmark, target: Target, card: Card) -> None:
    with open_bundle(bundle) as opened:
        assert opened.card == card
        assert opened.manifest.dataset_fingerprint == world.fingerprint
        with opened.predictions() as source:
            report = validate(opened.card, source, target, file="p", metrics=METRICS)
        assert report.ok, report.lines()
        assert list(report.predictions) == predictions(world)
        assert opened.differences(report.means) == []
        assert opened.differences(report.means | {"em(rules=squad)#v2": 0.5}) == [
            "em(rules=squad)#v2: scored here 0.500000, the bundle states 1.000000"
        ]


def test_equal_content_gives_equal_bytes(bundle: Path, world: Benchmark, card: Card) -> None:
    again = bundle.with_name("again.zip")
    write(again, world, card)
    assert again.read_bytes() == bundle.read_bytes()


def test_a_file_that_is_there_is_not_overwritten(bundle: Path, world: Benchmark, card: Card) -> None:
    with raises("output-exists"):
        write(bundle, world, card)
    with raises("bad-bundle-name"):
        write(bundle.with_suffix(".tar"), world, card)


def members(bundle: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(bundle) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rewritten(bundle: Path, change: Callable[[dict[str, bytes]], None]) -> Path:
    content = members(bundle)
    change(content)
    path = bundle.with_name("changed.zip")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    return path


def refused(path: Path) -> str:
    with pytest.raises(UserError) as caught, open_bundle(path):
        pass
    assert str(path) in str(caught.value.where)
    return caught.value.what


@pytest.mark.parametrize(
    "name",
    [
        "../evil.txt",
        "/etc/passwd",
        "a/b.txt",
        "..\\evil",
        "C:\\evil",
        "card.yaml/",
        "x.py",
        "__MACOSX/._card.yaml",
        "CARD.YAML",
        "predictions.jsonl\u202e",
    ],
)
def test_a_bundle_holds_its_three_files_and_nothing_else(bundle: Path, name: str, tmp_path: Path) -> None:
    path = rewritten(bundle, lambda content: content.update({name: b"x"}))
    before = sorted(tmp_path.rglob("*"))
    assert "nothing else" in refused(path)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name", MEMBERS[1:])
def test_a_bundle_without_card_or_predictions_is_refused(bundle: Path, name: str) -> None:
    assert f"lacks {name}" in refused(rewritten(bundle, lambda content: content.pop(name)))


def test_a_filled_in_template_that_was_packed_by_hand_is_a_bundle(bundle: Path) -> None:
    def by_hand(content: dict[str, bytes]) -> None:
        del content["manifest.json"]
        content["questions.jsonl"] = b"{}"

    with open_bundle(rewritten(bundle, by_hand)) as opened:
        assert opened.manifest is None
        assert opened.differences({"em": 1.0}) == []


def test_a_changed_file_is_noticed(bundle: Path) -> None:
    def more(content: dict[str, bytes]) -> None:
        content["predictions.jsonl"] += b"{}\n"

    def other(content: dict[str, bytes]) -> None:
        content["predictions.jsonl"] = content["predictions.jsonl"].replace(b"0.25", b"0.52")

    def card(content: dict[str, bytes]) -> None:
        content["card.yaml"] = content["card.yaml"].replace(b"mine", b"mina")

    assert "longer than its manifest says" in refused(rewritten(bundle, more))
    assert "SHA-256" in refused(rewritten(bundle, other))
    assert "SHA-256" in refused(rewritten(bundle, card))


def test_a_manifest_that_is_none_is_refused(bundle: Path) -> None:
    def manifest(data: bytes) -> Path:
        return rewritten(bundle, lambda content: content.update({"manifest.json": data}))

    assert "this is not JSON" in refused(manifest(b"{"))
    assert "this is not JSON" in refused(manifest(b"[" * 500_000))
    stated = json.loads(members(bundle)["manifest.json"])
    assert "dataset_fingerprint" in refused(manifest(json.dumps(stated | {"dataset_fingerprint": "x"}).encode()))
    assert "run_this: is not a known key" in refused(manifest(json.dumps(stated | {"run_this": "rm"}).encode()))
    assert "does not list" in refused(manifest(json.dumps(stated | {"files": {}}).encode()))
    assert "differ in setting" in refused(manifest(json.dumps(stated | {"setting": "corpus"}).encode()))
    assert "longer than" in refused(manifest(random.Random(0).randbytes(MIB).hex().encode()))


def entry(bundle: Path, name: str, **fields: Any) -> Path:
    """The bundle with one member's directory entry changed."""
    path = bundle.with_name("entry.zip")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, data in members(bundle).items():
            info = zipfile.ZipInfo(member)
            info.compress_type = zipfile.ZIP_DEFLATED
            if member == name:
                for field, value in fields.items():
                    setattr(info, field, value)
            archive.writestr(info, data)
    return path


def test_links_devices_and_other_packings_are_refused(bundle: Path) -> None:
    assert "link or a device" in refused(entry(bundle, "card.yaml", external_attr=(stat.S_IFLNK | 0o777) << 16))
    assert "link or a device" in refused(entry(bundle, "card.yaml", external_attr=(stat.S_IFCHR | 0o777) << 16))
    assert "not compressed with deflate" in refused(entry(bundle, "card.yaml", compress_type=zipfile.ZIP_LZMA))
    assert "not compressed with deflate" in refused(entry(bundle, "card.yaml", compress_type=zipfile.ZIP_BZIP2))
    raw = bytearray(bundle.read_bytes())
    flags = raw.index(b"PK\x01\x02") + 8
    raw[flags] |= 1
    path = bundle.with_name("encrypted.zip")
    path.write_bytes(raw)
    assert "encrypted" in refused(path)


def test_a_name_twice_is_refused(bundle: Path) -> None:
    path = bundle.with_name("twice.zip")
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members(bundle).items():
            archive.writestr(name, data)
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("card.yaml", b"x")
    assert "twice" in refused(path)


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda raw: b"", "not a zip archive"),
        (lambda raw: b"{}" * 50, "not a plain zip archive"),
        (lambda raw: raw[:-30], "not a plain zip archive"),
        (lambda raw: raw[: len(raw) // 2] + raw[-22:], "zip"),
        (lambda raw: raw[:-2] + b"\x05\x00hello", "comment"),
        (lambda raw: raw[:-22] + b"PK\x06\x07" + b"\0" * 16 + raw[-22:], "ZIP64"),
        (lambda raw: raw[:60] + bytes(byte ^ 0x5A for byte in raw[60:200]) + raw[200:], ""),
    ],
)
def test_a_damaged_archive_is_a_clear_refusal(bundle: Path, make: Callable[[bytes], bytes], what: str) -> None:
    path = bundle.with_name("damaged.zip")
    path.write_bytes(make(bundle.read_bytes()))
    assert what in refused(path)


def test_every_single_byte_flip_is_refused_or_harmless(bundle: Path, card: Card) -> None:
    raw = bundle.read_bytes()
    path = bundle.with_name("flip.zip")
    content = members(bundle)
    for position in range(0, len(raw), 7):
        path.write_bytes(raw[:position] + bytes([raw[position] ^ 0xFF]) + raw[position + 1 :])
        try:
            with open_bundle(path) as opened, opened.predictions() as source:
                assert (opened.card, source.read()) == (card, content["predictions.jsonl"])
        except UserError:
            continue


def test_a_directory_of_millions_of_files_is_refused_unread(bundle: Path) -> None:
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 65535, 65535, 2**31, 0, 0)
    path = bundle.with_name("many.zip")
    path.write_bytes(b"\0" * 1000 + end)
    assert "65535 files" in refused(path)


@pytest.mark.slow
def test_zip_bombs_are_refused_with_little_memory(bundle: Path) -> None:
    bomb = bundle.with_name("bomb.zip")
    content = members(bundle)
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("manifest.json", "card.yaml"):
            archive.writestr(name, content[name])
        with archive.open("predictions.jsonl", "w") as sink:
            for _ in range(64):
                sink.write(b"\0" * MIB)
    what, grown = refused_apart(bomb)
    assert "zip bomb" in what
    assert grown < 16, f"{grown} MiB"
    # The same with a directory that lies about the size.
    raw = bytearray(bomb.read_bytes())
    at = raw.rindex(b"PK\x01\x02") + 24
    raw[at : at + 4] = struct.pack("<L", 9)
    bomb.write_bytes(raw)
    what, grown = refused_apart(bomb)
    assert what
    assert grown < 16, f"{grown} MiB"
    assert "larger than" in refused_with(bundle, bundle_bytes=100)
    assert "unpacks to more than" in refused_with(bundle, file_bytes=100)


_PROBE = """
import pathlib, resource, sys
from benchmarks.core.errors import UserError
from results.submission.bundle import open_bundle
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    with open_bundle(pathlib.Path(sys.argv[1])):
        sys.exit("it was taken")
except UserError as error:
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024, error.what)
"""


def refused_apart(path: Path) -> tuple[str, int]:
    """Why a bundle is refused in a process of its own, and the MiB of memory that it took."""
    done = subprocess.run([sys.executable, "-c", _PROBE, str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    grown, what = done.stdout.split(" ", 1)
    return what, int(grown)


def refused_with(path: Path, **limits: int) -> str:
    with pytest.raises(UserError) as caught, open_bundle(path, replace(LIMITS, **limits)):
        pass
    return caught.value.what


def test_a_sparse_terabyte_is_refused_by_its_size(tmp_path: Path) -> None:
    path = tmp_path / "huge.zip"
    with open(path, "wb") as sink:
        sink.truncate(2**40)
    assert "larger than 256 MiB" in refused(path)


def test_what_a_user_of_an_open_bundle_raises_is_not_blamed_on_the_bundle(bundle: Path) -> None:
    with pytest.raises(RuntimeError, match="mine"), open_bundle(bundle):
        raise RuntimeError("mine")


def test_a_template_holds_questions_without_gold_and_a_card_without_training_data(tmp_path: Path, world: Benchmark, target: Target) -> None:
    files = write_template(tmp_path / "t", target, Setting.parse("distractor"), limit=6, passages=True)
    assert [path.name for path in files] == ["card.yaml", "predictions.jsonl", "questions.jsonl", "passages.jsonl", "candidates.jsonl"]
    card, empty, questions, passages, candidates = (path.read_text("utf-8") for path in files)
    assert empty == ""
    with raises("key-missing", where="card.yaml"):
        parse_card(card.encode(), "card.yaml")  # nobody has declared training data yet
    result = parse_card(card.replace("# training_data: []", "training_data: []").encode(), "card.yaml")
    assert (result.benchmark, result.limit, result.dataset_fingerprint) == ("worlds/multihop:validation", 6, world.fingerprint)
    queries = [json.loads(line) for line in questions.splitlines()]
    assert queries == [{"id": question.query_id, "text": question.text} for question in world.questions]
    reported = [json.loads(line) for line in candidates.splitlines()]
    assert [item["candidates"] for item in reported] == [list(question.candidates or ()) for question in world.questions]
    assert {item["id"] for item in map(json.loads, passages.splitlines())} == set(world.corpus.ids)
    # Native ids can spell out the hops; neither they nor the answers may be in what is handed out.
    for question in world.questions:
        assert question.id not in questions + candidates + card
    known = {key for item in (*queries, *reported) for key in item}
    assert known == {"id", "text", "candidates", "document_id", "topic_entities"}


def test_a_template_overwrites_nothing(tmp_path: Path, target: Target) -> None:
    (tmp_path / "predictions.jsonl").write_text("work of weeks")
    with raises("output-exists"):
        write_template(tmp_path, target, Setting.parse("distractor"))
    assert [path.name for path in tmp_path.iterdir()] == ["predictions.jsonl"]
    assert (tmp_path / "predictions.jsonl").read_text() == "work of weeks"


def test_a_template_of_options_reads_back_to_the_same_data(tmp_path: Path) -> None:
    options = {"seed": 10003, "questions": 5, "mix": {"single": 1.0}}
    world = registry.load("worlds/multihop:validation", options)
    target = Target(world, settings.apply("distractor", world, 0))
    card_file, *_ = write_template(tmp_path, target, Setting.parse("distractor"), config=options)
    card = parse_card(card_file.read_bytes().replace(b"# training_data: []", b"training_data: []"), "card.yaml")
    from results.submission.card import dataset_options

    assert registry.load(card.benchmark, dataset_options(card)).fingerprint == card.dataset_fingerprint


@pytest.mark.slow
def test_reading_submissions_imports_neither_pickle_loaders_nor_models() -> None:
    code = (
        "import sys; import results.submission.validate, results.submission.bundle, results.submission.storing\n"
        "print([name for name in ('torch', 'transformers', 'streamlit', 'pandas') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_bundle_is_read_as_a_stream_of_rows(bundle: Path) -> None:
    with open_bundle(bundle) as opened, opened.predictions() as source:
        assert len(list(io.TextIOWrapper(source, "utf-8", newline="\n"))) == 6
