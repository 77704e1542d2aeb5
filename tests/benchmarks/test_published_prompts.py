"""Published prompts: fetched from a loopback server, read from sources without executing them, and verified."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from benchmarks import published_prompts
from benchmarks.published_prompts import Published, digest, download, path_of, registry, texts_in, texts_of
from tests.support.errors import raises

SOURCE = """
import nothing_that_is_installed
raise SystemExit("a source is never executed")

class Reranker:
    sep: str = "\\n"
    both = {"prefix": "a" "b", "suffix": "c"}

    def __init__(self, prompt=None):
        self.prompt = "one {query}\\n"
        if prompt:
            self.prompt = prompt

    def start(self, kind, shown):
        if kind == "a":
            return {True: "with", False: "without"}[shown]
        return {True: "x", False: "y"}[shown]

    def asked(self, queries):
        wordings = ["one", "two {0}"]
        made = [self.words.start + "[" + query + "]" for query in queries]

    def written(self, query, text):
        return "Query: " + f"{query} {{kept}} {text}\\n"

def conversation(query, passages):
    if not passages:
        text = f"none {query}"
    else:
        text = f"some {query}"
    messages = []
    for rank, content in passages:
        messages.append({"role": "user", "content": f"[{rank}] {content}"})
        messages.append({"role": "assistant", "content": "seen"})
    messages.append({"role": "user", "content": last(query)})
    return [{"content": "first"}, {"content": f"second {query}"}]
"""
PISCO = """
raise SystemExit
class COCOM:
    def blend(self, question):
        prompt_system = "Be brief."
        prompt_user = f"Read {docs}: {question}"
"""
CONFIG = 'user = """\nGiven {query}:\n"""\n'
TEXTS = {
    "sep": "\n",
    "prefix": "ab",
    "start": "without",
    "wordings": ["one", "two {0}"],
    "made": "{self.words.start}[{query}]",
    "prompt": "one {query}\n",
    "written": "Query: {query} {{kept}} {text}\n",
    "none": "none {question}",
    "each": "[{rank}] {passage}",
    "second": "second {query}",
    "listed": "x: 1\n",
    "user": "Given {query}:\n",
}


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Published]:
    folder = tmp_path / "served" / "owner" / "name" / "c0ffee"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "code.py").write_text(SOURCE)
    (folder / "p.yaml").write_text("listed: |\n  x: 1\n")
    (folder / "p.toml").write_text(CONFIG)
    code = {"file": "src/code.py"}
    made = Published.model_validate(
        {
            "repository": "owner/name",
            "commit": "c0ffee",
            "license": "MIT",
            "local": "own/prompt.json",
            "sha256": digest(TEXTS),
            "texts": {
                "sep": {**code, "python": "Reranker.sep"},
                "prefix": {**code, "python": "Reranker.both.prefix"},
                "prompt": {**code, "python": "Reranker.__init__.self.prompt"},
                "start": {**code, "python": "Reranker.start.return#0.False", "local": "of.start"},
                "wordings": {**code, "python": "Reranker.asked.wordings"},
                "made": {**code, "python": "Reranker.asked.made"},
                "written": {**code, "python": "Reranker.written.return"},
                "none": {**code, "python": "conversation.text#0", "names": {"query": "question"}},
                "each": {**code, "python": "conversation.messages()#0.content", "names": {"content": "passage"}},
                "second": {**code, "python": "conversation.return.1.content"},
                "listed": {"file": "p.yaml", "yaml": "listed"},
                "user": {"file": "p.toml", "toml": "user"},
            },
        }
    )
    monkeypatch.setattr(published_prompts, "registry", lambda: {"own": made})
    monkeypatch.setenv("RAGMETER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("RAGMETER_DATA", str(tmp_path / "data"))
    for name in ("RAGMETER_OFFLINE", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path / "served"))) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        monkeypatch.setenv("RAGMETER_GITHUB", f"http://127.0.0.1:{server.server_port}")
        yield made
        server.shutdown()


def test_prompt_is_fetched_once_and_the_data_folder_is_searched_first(
    entry: Published, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with raises("published-prompt-missing"):
        texts_of("own", fetch=False)
    monkeypatch.setenv("RAGMETER_OFFLINE", "1")
    with raises("published-prompt-missing"):
        texts_of("own")
    monkeypatch.delenv("RAGMETER_OFFLINE")
    assert texts_of("own") == TEXTS
    (item,) = download("prompts/own")
    assert item["license"] == "MIT"
    assert Path(item["path"]) == path_of("own")
    monkeypatch.setenv("RAGMETER_GITHUB", "http://127.0.0.1:9")
    assert texts_of("own") == TEXTS
    local = tmp_path / "data" / "prompts" / entry.local
    local.parent.mkdir(parents=True)
    local.write_text(json.dumps({**TEXTS, "further": "key", "of": {"start": TEXTS["start"]}}))
    assert path_of("own") == local
    assert texts_of("own") == TEXTS
    local.write_text(json.dumps({**TEXTS, "sep": "; "}))
    with raises("missing-prompt", where=str(local)):
        texts_of("own")
    local.write_text(json.dumps({name: text for name, text in TEXTS.items() if name != "sep"}))
    assert path_of("own") != local  # it lacks a text
    assert texts_of("own") == TEXTS


def test_prompt_text_may_be_a_list_element_or_in_another_local_file(
    entry: Published, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = {name: place.model_dump(by_alias=True) for name, place in entry.texts.items()}
    moved["sep"]["local"], moved["prompt"]["local"] = "turns.1.content", "more.json#of.0"
    changed = Published.model_validate({**entry.model_dump(by_alias=True), "texts": moved})
    monkeypatch.setattr(published_prompts, "registry", lambda: {"own": changed})
    local = tmp_path / "data" / "prompts" / entry.local
    local.parent.mkdir(parents=True)
    own = {name: text for name, text in TEXTS.items() if name not in ("sep", "prompt", "start")}
    local.write_text(json.dumps({**own, "of": {"start": TEXTS["start"]}, "turns": [{}, {"content": TEXTS["sep"]}]}))
    assert path_of("own") != local
    local.with_name("more.json").write_text(json.dumps({"of": [TEXTS["prompt"]]}))
    assert path_of("own") == local
    assert texts_of("own", fetch=False) == TEXTS


def test_missing_or_changed_prompt_is_refused_and_not_cached(entry: Published, tmp_path: Path) -> None:
    folder = tmp_path / "served" / "owner" / "name" / "c0ffee"
    (folder / "src" / "code.py").write_text(SOURCE.replace("one {query}", "two {query}"))
    with raises("missing-prompt"):
        texts_of("own")
    (folder / "src" / "code.py").write_text(SOURCE.replace("self.prompt", "self.text"))
    with raises("published-prompt-place"):
        texts_of("own")
    (folder / "src" / "code.py").unlink()
    with raises("published-prompt-missing"):
        texts_of("own")
    assert not path_of("own").exists()
    with raises("unknown-prompt"):
        download("prompts/none")
    assert download("worlds/multihop:test") == []


def test_fetching_all_prompts_reports_those_that_failed(entry: Published, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = entry.model_copy(update={"commit": "gone"})
    monkeypatch.setattr(published_prompts, "registry", lambda: {"own_gone": gone, "own": entry, "other": entry})
    for reference in ("prompts", "prompts/own"):
        with raises("published-prompt-missing") as caught:
            download(reference)
        assert "own_gone" in str(caught.value)
        assert path_of("own").exists()
    assert [item["reference"] for item in download("prompts/other")] == ["prompts/other"]


def test_prompts_in_checkpoint_code_are_read_without_executing_it(tmp_path: Path) -> None:
    assert texts_in("cocom", tmp_path) is None
    for name, text in (("modeling_bad.py", "def ("), ("modelling_other.py", "a = 1"), ("modelling_pisco.py", PISCO)):
        (tmp_path / name).write_text(text)
    texts, path = texts_in("pisco", tmp_path) or ({}, Path())
    assert path.name == "modelling_pisco.py"
    assert texts == {"system": "Be brief.", "user": "Read {docs}: {question}"}


def test_registered_prompts_equal_the_local_files(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not (data_folder / "prompts").is_dir():
        pytest.skip(f"published prompts not found at {data_folder}/prompts")
    monkeypatch.setenv("RAGMETER_DATA", str(data_folder))
    for name, item in registry().items():
        if not item.texts:
            assert texts_of(name, fetch=False) == item.layout
            continue
        if name == "hipporag2_facts":  # the data folder does not have the file with its form, so it is fetched
            assert path_of(name).suffix == ".json"
            assert data_folder not in path_of(name).parents
            continue
        assert path_of(name) == data_folder / "prompts" / item.local
        assert digest(texts_of(name, fetch=False)) == item.sha256
