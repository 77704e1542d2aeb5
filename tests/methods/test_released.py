"""Released systems from raw text: token ids, vectors, scores and texts equal those of the authors' own code.

What the authors' code made of the same texts is data of its own (`golden/` in the folder of real samples), which is skipped
visibly if it is missing.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.corpus import Corpus
from benchmarks.published_prompts import registry
from benchmarks.schema import Passage, Query
from methods.api import Context, Services
from methods.baselines.compress.convert import convert
from methods.baselines.compress.model import SoftModel
from methods.baselines.compress.recomp import SUMMARY
from methods.baselines.end_to_end import self_ask
from methods.baselines.end_to_end.search_r1 import TEMPLATES
from methods.baselines.end_to_end.self_ask import released_step, released_text
from methods.baselines.end_to_end.self_rag import SelfRagConfig, TagModel, augmented, instruction
from methods.baselines.hyde import PROMPT as HYDE
from methods.baselines.rerank.log_odds import LogOddsReranker
from methods.baselines.rerank.prompts import PROMPTS, Writer
from methods.baselines.rerank.rank1 import Rank1
from methods.baselines.rerank.rankllama import RankLlama, RankLlamaConfig
from methods.baselines.rerank.replies import LABELS
from methods.clara.convert import convert as convert_clara
from methods.clara.model import Clara
from methods.models.causal import CausalModel, Generation
from methods.models.encoder import Encoder
from methods.models.encoder_config import EncoderConfig
from methods.models.late_interaction import M3Config, M3Encoder
from methods.models.likelihood import TextEncoder
from methods.models.local_llm import started
from methods.models.pretrained import llama_tokenizer
from methods.prompts import Messages, shipped
from methods.readers.end_to_end import InContextRalmConfig, RalmPrompt, chatqa_prompt
from methods.registry import Component
from methods.training.pieces import embedded
from methods.training.released import released
from tests.support.errors import raises

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors.torch")
load_file, save_file = safetensors.load_file, safetensors.save_file


@pytest.fixture(scope="module")
def golden(data_folder: Path) -> Path:
    """Return the folder of outputs of the authors' code."""
    folder = data_folder / "golden"
    if not folder.is_dir():
        pytest.skip(f"outputs of the authors' code not found at {folder}")
    return folder


@pytest.fixture(autouse=True)
def _prompts(monkeypatch: pytest.MonkeyPatch, data_folder: Path) -> None:
    monkeypatch.setenv("RAGMETER_DATA", str(data_folder))


IDS, TEXTS, NUMBERS = "ids", "texts", "numbers"
RESULTS: dict[str, dict[str, tuple[int, int]]] = {}
"""Cases that are equal, and all cases, by system and kind."""
PAGE, MARK = Path(__file__).parents[2] / "docs" / "_site" / "released.md", "<!-- table of tests/methods/test_released.py -->"
WITH_FIXTURES = {
    **dict.fromkeys(("qwen3_reranker", "mxbai_reranker", "rank1", "rankzephyr", "reasonrank", "rank_r1", "rank_r1_v02", "setwise"), ""),
    **dict.fromkeys(("search_r1", "rankgpt", "ddr_refiner", "hyde"), ""),
    "in_context_ralm": "ic_ralm",
    "retrobust": "none: the layout of its training",
    "recomp_abstractive": "as built in",
    "chatqa": "none: the format of its model card",
    "self_rag": "as built in",
    "rankllama": "none: the layout of its model card",
    "llmlingua2": "none",
    **dict.fromkeys(("autocompressor", "pisco", "cocom", "xrag"), ""),
    "cocom-light": "cocom",
    "clara": "clara_answer",
    **dict.fromkeys(("bge_m3", "recomp_extractive", "dpa_rag"), "none"),
    "qwen3-embedding": "as built in",
}
"""Systems with fixtures, and the name of their prompt if it differs, or the page's text instead of a published prompt."""
LICENSES = {"chatqa": "its model card (nvidia/Llama3-ChatQA-1.5-8B): Llama 3 community license"}
"""Licenses that are not in the registry."""
OTHERS = {
    "`ddr_generator`": f"{registry()['ddr_generator'].source} | {registry()['ddr_generator'].license} | no fixture | no fixture |",
    "`oscar`": f"{registry()['oscar'].source} | {registry()['oscar'].license} | no fixture | no fixture |",
    "dataset `longbench`": f"{registry()['longbench'].source} | {registry()['longbench'].license} | no fixture | no fixture |",
    "PCC, Jina v3, Stella": "ours, or as built in | – | no fixture | no fixture |",
    **{
        f"`{system}`": f"{registry()[name].source.partition(',')[0]} (preset `released`) | {registry()[name].license} "
        f"| {messages} | {numbers} |"
        for system, name, messages, numbers in (
            ("graphrag", "graphrag_extraction", "messages equal", "order of relations and reports"),
            ("lightrag", "lightrag_extraction", "messages equal", "order of relations and passages"),
            ("hipporag", "hipporag_triples", "messages equal", "no fixture"),
            ("hipporag2", "hipporag2_triples", "messages equal", "graph and ranks"),
        )
    },
    "`memorag`, `memory: beacons`": "qhjqhj00/MemoRAG at 67a88db0, memorag/prompt.py | Apache-2.0 | not compared | 4 of 4 |",
}
"""Further systems, and their line of the table."""


def record(system: str, kind: str, equal: int, of: int) -> None:
    """Keep how many cases of a system are equal."""
    before = RESULTS.setdefault(system, {}).get(kind, (0, 0))
    RESULTS[system][kind] = (before[0] + equal, before[1] + of)


def read(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


def build(identifier: str, **config: Any) -> Any:
    return Component.of(identifier, config).build(Services(device="cpu"))


def sigmoid(odds: float) -> float:
    return 1 / (1 + math.exp(-odds))


def tokenizer_of(folder: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


def encoder(identifier: str, tokenizer: Any, **config: Any) -> Any:
    """Make a log-odds reranker that encodes with one of the real tokenizers and has no weights."""
    component = Component.of(identifier, {"model": "none", **config})
    kind = Rank1 if identifier == "rank1" else component.entry.factory  # the factory of Rank1 also serves endpoints
    made = kind.__new__(kind)
    model = SimpleNamespace(config=SimpleNamespace(max_position_embeddings=32768))
    LogOddsReranker.__init__(made, component.config, Services(device="cpu"), (tokenizer, model))
    return made


LEFT_OUT = "\u0120prefer", 10702
"""The only token of Qwen2.5 that is in the fixtures but not in their reduced tokenizer."""


def with_token(tokenizer: Any, token: str, number: int) -> Any:
    """Return a byte-level tokenizer that also joins two of its tokens to a further one."""
    from tokenizers import Tokenizer

    state = json.loads(tokenizer.backend_tokenizer.to_str())
    head, tail = tokenizer.tokenize(token.replace("\u0120", " "))
    state["model"]["vocab"][token] = number
    state["model"]["merges"].append([head, tail])
    made = type(tokenizer)(tokenizer_object=Tokenizer.from_str(json.dumps(state)))
    made.chat_template = tokenizer.chat_template
    return made


LOG_ODDS = {
    "qwen3_reranker": ("qwen3_reranker", "qwen3-reranker"),
    "mxbai_reranker": ("mxbai_v2", "mxbai-rerank-v2"),
    "rank1": ("rank1", "rank1"),
}


@pytest.mark.parametrize("identifier", LOG_ODDS)
def test_log_odds_rerankers_encode_the_published_token_ids(golden: Path, identifier: str) -> None:
    data = read(golden / "ids" / f"{LOG_ODDS[identifier][0]}.json")
    tokenizer = tokenizer_of(golden / "ids" / "tokenizers" / data["tokenizer"])
    if identifier == "mxbai_reranker":
        tokenizer = with_token(tokenizer, *LEFT_OUT)
    for case in data["cases"]:
        options = {key: case[key] for key in ("instruction", "max_length") if case.get(key) is not None}
        (ids,) = encoder(identifier, tokenizer, **options).encoded(case["query"], [case["passage"]])
        assert ids == case["ids"]
    record(identifier, IDS, len(data["cases"]), len(data["cases"]))


@pytest.mark.parametrize("identifier", LOG_ODDS)
def test_log_odds_rerankers_give_the_published_scores(golden: Path, identifier: str) -> None:
    folder = golden / "released" / LOG_ODDS[identifier][1]
    data, logits = read(folder / "expected.json"), load_file(folder / "expected.safetensors") if identifier == "rank1" else {}
    made: dict[str | None, Any] = {}
    for number, case in enumerate(data["cases"]):
        instruction = case.get("instruction")
        if instruction not in made:
            options = ({"instruction": instruction} if instruction else {}) | ({"max_new_tokens": 8} if identifier == "rank1" else {})
            made[instruction] = build(identifier, model=str(folder / "checkpoint"), dtype="float32", **options)
        (row,) = made[instruction].encoded(case["query"], [case["passage"]])
        assert row == case["ids"]
        if "score" in case:
            odds = made[instruction].scored([tuple(row)])[tuple(row)]
            assert (odds if identifier == "mxbai_reranker" else sigmoid(odds)) == pytest.approx(case["score"], abs=1e-5)
        if "greedy_ids" in case:
            (written,) = made[instruction]._writer.generate([row])
            assert list(written.tokens[: len(case["greedy_ids"])]) == case["greedy_ids"]
            assert_close(last_logits(made[instruction].model, row), logits[f"logits_{number}"])
    record(identifier, NUMBERS, len(data["cases"]), len(data["cases"]))


def passages_of(golden: Path, ids: list[str]) -> list[Passage]:
    """Return passages of the fixtures by their ids."""
    known = {item["id"]: Passage(item["id"], item["title"], item["text"]) for item in read(golden / "ids" / "inputs.json")["passages"]}
    return [known[identifier] for identifier in ids]


def last_logits(model: Any, ids: Sequence[int]) -> Any:
    """Return the logits of a model after some ids."""
    with torch.inference_mode():
        return model(torch.tensor([list(ids)])).logits[0, -1].float()


def assert_close(ours: Any, expected: Any, tolerance: float = 1e-4) -> None:
    """Assert that a tensor equals the published one; the tolerance is relative to its norm."""
    assert ours.shape == expected.shape
    assert float((ours - expected).norm() / expected.norm()) < tolerance


class Unlimited:
    """Counter that accepts prompts of any length."""

    name = fingerprint = "none"

    def count(self, messages: object) -> int:
        return 0


def encoded(tokenizer: Any, messages: Messages) -> list[int]:
    """Return the ids of a conversation as local models encode it."""
    model = CausalModel.__new__(CausalModel)
    model.tokenizer, model.text_encoder = tokenizer, TextEncoder(tokenizer)
    turns, start = started(messages)
    return model.encode(model.render_chat(turns) + start)


LISTWISE = ("rankzephyr", "rank_zephyr"), ("reasonrank", "reasonrank")


@pytest.mark.parametrize(("name", "file"), LISTWISE)
def test_listwise_rerankers_encode_the_published_token_ids(golden: Path, name: str, file: str) -> None:
    data = read(golden / "ids" / f"{file}.json")
    tokenizer = tokenizer_of(golden / "ids" / "tokenizers" / data["tokenizer"])
    tokenizer.chat_template = data["chat_template"]
    for case in data["cases"]:
        write = Writer(PROMPTS[name].load(), Unlimited(), plain_references=True, passage_words=case["passage_words"])
        shown = [write.shown(passage) for passage in passages_of(golden, case["passages"])]
        messages = write(case["query"], shown, [str(number) for number in range(1, len(shown) + 1)])
        assert messages == case["messages"]
        assert encoded(tokenizer, messages) == case["ids"]
    record(name, IDS, len(data["cases"]), len(data["cases"]))


@pytest.mark.parametrize(("name", "file"), [("rank_r1", "rank_r1"), ("rank_r1_v02", "rank_r1_v02")])
def test_rank_r1_encodes_the_published_token_ids(golden: Path, name: str, file: str) -> None:
    data = read(golden / "ids" / f"{file}.json")
    tokenizer = tokenizer_of(golden / "ids" / "tokenizers" / data["tokenizer"])
    for case in data["cases"]:
        write = Writer(PROMPTS[name].load(), Unlimited(), plain_references=True)
        texts = [passage.text for passage in passages_of(golden, case["passages"])]
        messages = write(case["query"], texts, [str(number) for number in range(1, len(texts) + 1)])
        assert messages == case["messages"]
        assert encoded(tokenizer, messages) == case["ids"]
    record(name, IDS, len(data["cases"]), len(data["cases"]))


def test_rankzephyr_computes_the_published_logits(golden: Path) -> None:
    folder = golden / "released" / "rank-zephyr"
    logits = load_file(folder / "expected.safetensors")
    llm = {"local": str(folder / "checkpoint"), "dtype": "float32", "max_tokens": 8}
    for number, case in enumerate(read(folder / "expected.json")["cases"]):
        made = build("rankzephyr", llm=llm, passage_words=case["passage_words"])
        shown = [made.writer.shown(passage) for passage in passages_of(golden, case["passages"])]
        messages = made.writer(case["query"], shown, [str(place) for place in range(1, len(shown) + 1)])
        weights = made.model._backend.weights
        ids = weights.parts(messages).ids
        assert list(ids) == case["ids"]
        (written,) = weights.with_room(len(case["greedy_ids"])).generate([ids])
        assert list(written.tokens) == case["greedy_ids"]
        assert_close(last_logits(weights.model.model, ids), logits[f"logits_{number}"])
    record("rankzephyr", NUMBERS, len(logits), len(logits))


def test_rankllama_encodes_the_token_ids_of_its_model_card(golden: Path) -> None:
    data = read(golden / "ids" / "rankllama.json")
    tokenizer = tokenizer_of(golden / "ids" / "tokenizers" / data["tokenizer"])
    made = RankLlama.__new__(RankLlama)
    made.config, made.tokenizer, made._layout = RankLlamaConfig(), tokenizer, None
    for case in data["cases"]:
        shown = made.shown(Passage("", case["title"], case["text"]))
        assert made.encoded(case["query"], [shown]) == [case["ids"]]
    record("rankllama", IDS, len(data["cases"]), len(data["cases"]))


def test_rankllama_gives_the_scores_of_its_model_card(golden: Path) -> None:
    folder = golden / "released" / "rankllama"
    made = build("rankllama", base=str(folder / "base"), adapter=str(folder / "checkpoint"), dtype="float32")
    cases = read(folder / "expected.json")["cases"]
    for case in cases:
        (row,) = made.encoded(case["query"], [made.shown(Passage("", case["title"], case["text"]))])
        assert row == case["ids"]
        assert made.scored([tuple(row)])[tuple(row)] == pytest.approx(case["score"], abs=1e-5)
    record("rankllama", NUMBERS, len(cases), len(cases))


def test_search_r1_encodes_the_published_token_ids(golden: Path) -> None:
    data = read(golden / "ids" / "search_r1.json")
    tokenizer = tokenizer_of(golden / "ids" / "tokenizers" / data["tokenizer"])
    template = tokenizer.chat_template
    for case in data["cases"]:
        tokenizer.chat_template = template if case["chat"] else None
        text = case["question"].strip()
        messages = TEMPLATES["search_r1"].load().messages(question=text if text.endswith("?") else f"{text}?")
        assert encoded(tokenizer, messages) == case["ids"]
    record("search_r1", IDS, len(data["cases"]), len(data["cases"]))
    (turn,) = TEMPLATES["search_r1_turn"].load().messages(reply="a <search>b</search>", passages="Doc 1(Title: c) d\n")
    assert turn["content"] == "\n\na <search>b</search><information>Doc 1(Title: c) d\n</information>\n\n"


COMPRESSORS = {
    "autocompressor/legacy-true": {},
    "autocompressor/legacy-false": {},
    "pisco/legacy-true": {},
    "pisco/legacy-false": {},
    "cocom": {"max_length": 64},
    "cocom-light": {},
    "xrag/legacy-true": {"retriever": "retriever"},
    "xrag/legacy-false": {"retriever": "retriever"},
}
"""Folders of checkpoints, with options of their conversion."""


@pytest.mark.parametrize("name", COMPRESSORS)
def test_compressors_compute_the_published_vectors(golden: Path, name: str, tmp_path: Path) -> None:
    folder = golden / "released" / name
    data, tensors = read(folder / "expected.json"), load_file(folder / "expected.safetensors")
    options = {key: str(folder / value) if value == "retriever" else value for key, value in COMPRESSORS[name].items()}
    if name == "cocom-light":
        options["encoder"] = str(folder / "bert")
    shutil.copytree(folder / "checkpoint", tmp_path / "checkpoint")
    if not list((tmp_path / "checkpoint").glob("*.safetensors")):
        save_file({"stray": torch.zeros(1)}, str(tmp_path / "checkpoint" / "extra.safetensors"))  # is not read
    if name == "cocom":
        in_shards(tmp_path / "checkpoint" / "pytorch_model.bin")
    below = (tmp_path / "checkpoint") if name.startswith("xrag") else folder / "base"
    convert(released(str(tmp_path / "checkpoint")), tmp_path / "made", str(below) if below.is_dir() else None, options, "cpu")
    model = SoftModel.load(tmp_path / "made", "cpu")
    with torch.inference_mode():
        memory = model.encode(data["documents"])
        if name.startswith("autocompressor"):
            three = [in_segments(model, case["ids"], case["three_segments"]["segment_lengths"]) for case in data["cases"]]
    if name.startswith("autocompressor"):
        expected = [tensors[f"one_{number}"] for number in range(len(memory))]
        for number, vectors in enumerate(three):
            assert_close(vectors, tensors[f"three_{number}"])
    elif name == "cocom-light":
        expected = [tensors["memory_0"][0], tensors["memory_1"][0], *tensors["memory_2"]]
    elif name.startswith("xrag"):
        expected = [vector[None] for vector in tensors["projected"]]
    else:
        expected = list(tensors["trained" if name == "cocom" else "memory"])
    assert len(memory) == len(expected)
    for ours, theirs in zip(memory, expected, strict=True):
        assert_close(ours, theirs)
    record(name.partition("/")[0], NUMBERS, len(expected), len(expected))


def in_shards(file: Path) -> None:
    """Split a weights file into two shards."""
    weights = torch.load(file)
    for number in range(2):
        some = list(weights)[number::2]
        torch.save({name: weights[name] for name in some}, file.with_name(f"pytorch_model-0000{number + 1}-of-00002.bin"))
    file.unlink()


@pytest.mark.parametrize("name", ["clara/base-legacy-true", "clara/base-legacy-false", "autocompressor/legacy-false/checkpoint"])
def test_sentencepiece_model_without_tokenizer_json_tokenizes_as_published(golden: Path, name: str, tmp_path: Path) -> None:
    shutil.copytree(golden / "released" / name, tmp_path / "made")
    expected = tokenizer_of(tmp_path / "made")
    (tmp_path / "made" / "tokenizer.json").unlink()
    alone = llama_tokenizer(tokenizer_of(tmp_path / "made"))
    for text in ("The old", "<s>The old </s>é", "  two  x\n", ""):
        assert alone(text)["input_ids"] == expected(text)["input_ids"]


def converted(golden: Path, name: str, folder: Path) -> Path:
    """Convert a published compressor like a user does."""
    source = golden / "released" / name
    options = {key: str(source / value) if value == "retriever" else value for key, value in COMPRESSORS[name].items()}
    options |= {"encoder": str(source / "bert")} if name == "cocom-light" else {}
    below = source / "base" if (source / "base").is_dir() else source / "checkpoint"
    convert(released(str(source / "checkpoint")), folder, str(below), options, "cpu")
    return folder


@pytest.mark.parametrize("name", COMPRESSORS)
def test_readers_of_compressors_use_the_published_prompts(golden: Path, name: str, tmp_path: Path) -> None:
    system, folder = name.partition("/")[0], golden / "released" / name
    data, tensors = read(folder / "expected.json"), load_file(folder / "expected.safetensors")
    reader = build("memory_reader", model=str(converted(golden, name, tmp_path / "made")))
    model = reader._model
    for number, case in enumerate(data["cases"]):
        if system == "autocompressor":
            memory, expected, logits = [tensors[f"one_{number}"]], case["question_ids"], tensors[f"one_logits_{number}"]
        else:
            memory = list(tensors[f"memory_{number}"]) if system.startswith("cocom") else memory_of(system, tensors, case["documents"])
            expected, logits = case["decoder_ids" if system.startswith("cocom") else "ids"], tensors[f"logits_{number}"]
        pieces = reader._asked(case["question"], memory)
        tokens = data.get("mem_token_ids") or [data.get("xrag_token_id") or data.get("token_ids", {}).get("<MEM>")]
        separator = data.get("sep_token_id") or data.get("token_ids", {}).get("<SEP>")
        assert ids_of(pieces, tokens, separator, system == "autocompressor") == expected
        with torch.inference_mode(), model.through(model.system.reads):
            vectors, _ = embedded([pieces], model.base.get_input_embeddings())
            ours = model.base(inputs_embeds=vectors).logits[0, -1].float()
            (written,) = model.generate([pieces], 8, 1, model.system.reads)
        assert_close(ours, logits[: len(ours)])  # their vocabulary has the tokens of memory, too
        assert list(written.tokens) == (case["one_segment"] if system == "autocompressor" else case)["greedy_ids"]
    if system == "autocompressor":
        text, source = "a</s>The <s>x", tokenizer_of(folder / "checkpoint")  # special tokens in a text, and what follows them
        assert model.system.segments(model, text) == [source(text, add_special_tokens=False)["input_ids"]]
    if system == "xrag":  # its authors stop at a line break, after 100 tokens
        assert reader._longest == 100
        assert (
            reader._until_stop(Generation("", 0, 0, 0, tokens=tuple(model.tokenizer("one\ntwo", add_special_tokens=False)["input_ids"])))
            == "one"
        )
    record(system, IDS, len(data["cases"]), len(data["cases"]))


def memory_of(system: str, tensors: Any, documents: Sequence[int]) -> list[Any]:
    """Return the published memory of some documents."""
    return [tensors["projected"][at][None] if system == "xrag" else tensors["memory"][at] for at in documents]


def ids_of(pieces: Sequence[Any], memory: Sequence[int], separator: int | None, behind: bool) -> list[int]:
    """Return the ids of a prompt from the authors' tokenizer, with their tokens in the positions of vectors, which precede some."""
    ids: list[int] = []
    vectors = False
    for piece in pieces:
        if isinstance(piece, list):
            ids += piece
        elif not behind:
            mark = vectors and len(piece) == 1 and separator is not None
            ids += [separator] if mark else [memory[at % len(memory)] for at in range(len(piece))]  # type: ignore[list-item]
            vectors = not mark
            continue
        vectors = False
    return ids


def in_segments(model: SoftModel, ids: Sequence[int], lengths: Sequence[int]) -> Any:
    """Return the summary vectors of a text that is encoded in segments of some lengths."""
    memory, start = model.nothing, 0
    for length in lengths:
        row = [memory, *model.system.row(model, ids[start : start + length], "")]
        (states,) = model.system.vectors(model, [row])
        memory, start = torch.cat([memory, states]), start + length
    return memory


@pytest.mark.parametrize("stage", ["Base", "Instruct", "E2E", "E2E-legacy-false"])
def test_clara_computes_the_published_vectors_of_documents_and_questions(golden: Path, stage: str, tmp_path: Path) -> None:
    folder = golden / "released" / "clara"
    data, tensors = read(folder / stage / "expected.json"), load_file(folder / stage / "expected.safetensors")
    base = folder / f"base-legacy-{'false' if stage.endswith('false') else 'true'}"
    convert_clara(released(str(folder / stage / "checkpoint")), tmp_path / "clara", str(base), {}, "cpu")
    clara = Clara.load(tmp_path / "clara", "cpu")
    with torch.inference_mode():
        assert_close(clara.encode(data["documents"]).memory, tensors["memory"])
        if "query" in tensors:
            questions = clara.encode(data["questions"], "reasoner").memory.flatten(1)
            assert_close(questions, tensors["query"])
    record("clara", NUMBERS, len(data["documents"]), len(data["documents"]))


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["Base", "Instruct", "E2E", "E2E-legacy-false"])
def test_clara_reader_uses_the_published_prompt(golden: Path, stage: str, tmp_path: Path) -> None:
    folder = golden / "released" / "clara"
    data, tensors = read(folder / stage / "expected.json"), load_file(folder / stage / "expected.safetensors")
    base = folder / f"base-legacy-{'false' if stage.endswith('false') else 'true'}"
    convert_clara(released(str(folder / stage / "checkpoint")), tmp_path / "clara", str(base), {}, "cpu")
    readers = {task: build("clara_reader", model=str(tmp_path / "clara"), task=task) for task in ("answer", "paraphrase")}
    for number, case in enumerate(data["prompts"]):
        reader = readers[case["kind"]]
        clara = reader._clara
        request = replace(reader._prompt(case.get("question", ""), len(case["documents"])), wording=case.get("wording", 0))
        ids = clara.generator.prompt_ids(request)  # ours has no token that asks for the text, so the separator's number differs
        assert [data["sep_token_id"] if number == clara.tokens.between else number for number in ids] == case["ids"]
        with torch.inference_mode(), clara.use("generator"):
            batch = clara.generator.assemble([request], [tensors["memory"][case["documents"]]])
            ours = clara.base(inputs_embeds=batch.embedded).logits[0, -1].float()
            (written,) = clara.generate([request], [tensors["memory"][case["documents"]]], 8)
        assert_close(ours, tensors[f"logits_{number}"][: len(ours)])
        assert list(written.tokens) == case["greedy_ids"]
    record("clara", IDS, len(data["prompts"]), len(data["prompts"]))


@pytest.mark.parametrize("stage", ["E2E", "E2E-legacy-false"])
def test_clara_selects_and_answers_as_published(golden: Path, stage: str, tmp_path: Path) -> None:
    folder = golden / "released" / "clara"
    data = read(folder / stage / "expected.json")
    base = folder / f"base-legacy-{'false' if stage.endswith('false') else 'true'}"
    convert_clara(released(str(folder / stage / "checkpoint")), tmp_path / "clara", str(base), {}, "cpu")
    wanted = data["generate_from_questions"]
    whole = build("clara", model=str(tmp_path / "clara"), k=wanted["top_k"])
    corpus = Corpus.of([Passage(str(number), "", text) for number, text in enumerate(data["documents"])])
    index = whole.retriever.index(corpus)
    for case in wanted["cases"]:
        query = Query("", case["question"])
        (ranking,) = index.retrieve([query], wanted["top_k"])
        assert [int(identifier) for identifier in ranking.ids] == case["selected"]
        (context,) = whole.compressor.compress([query], [ranking], corpus, None)
        (written,) = whole.reader._clara.generate([whole.reader._prompt(query.text, len(ranking.ids))], [context.memory.vectors], 8)
        assert list(written.tokens) == case["greedy_ids"]
    record("clara", NUMBERS, len(wanted["cases"]), len(wanted["cases"]))


MODEL_FILE = """
raise SystemExit
class CLaRa:
    def _blend_standard_prompt(self, docs, query):
        prompt_system = "Be brief."
        prompt_user = f"Read {docs} for: {query}"
"""


@pytest.mark.slow
def test_checkpoint_prompt_is_the_default_and_ours_or_a_file_can_be_chosen(golden: Path, tmp_path: Path) -> None:
    folder = golden / "released" / "clara"
    shutil.copytree(folder / "Base" / "checkpoint", tmp_path / "source")
    convert_clara(released(str(tmp_path / "source")), tmp_path / "plain", str(folder / "base-legacy-true"), {}, "cpu")
    (tmp_path / "source" / "modeling_clara.py").write_text(MODEL_FILE)
    convert_clara(released(str(tmp_path / "source")), tmp_path / "clara", str(folder / "base-legacy-true"), {}, "cpu")
    (tmp_path / "own.txt").write_text("Own words: $background $question")
    wanted = {None: "Be brief.\n\nRead", "ours": "Find what matters", str(tmp_path / "own.txt"): "Own words: "}
    hashes = set()
    for prompt, text in wanted.items():
        options = {"model": str(tmp_path / "clara"), **({"prompt": prompt} if prompt else {})}
        reader = build("clara_reader", **options)
        ids = reader._clara.generator.prompt_ids(reader._prompt("who", 1))
        assert text in reader._clara.tokenizer.decode(ids)
        hashes.add(Component.of("clara_reader", options).config.checkpoint_hash())
    hashes.add(Component.of("clara_reader", {"model": str(tmp_path / "plain")}).config.checkpoint_hash())
    assert len(hashes) == 4


def test_missing_published_prompts_are_refused_before_the_first_question(
    golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = str(converted(golden, "pisco/legacy-true", tmp_path / "made"))
    for name in ("RAGMETER_DATA", "RAGMETER_CACHE"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("RAGMETER_OFFLINE", "1")
    with raises("published-prompt-missing"):
        Component.of("memory_reader", {"model": made}).preflight()
    Component.of("memory_reader", {"model": made, "prompt": "ours"}).preflight()
    (tmp_path / "own.txt").write_text("system\nBe brief.\n---\nuser\nRead $passages and say: $question")
    reader = build("memory_reader", model=made, prompt=str(tmp_path / "own.txt"))
    for memory in ([], [torch.zeros(4, 32)] * 2):
        pieces = reader._asked("who", memory)
        text = reader._model.tokenizer.decode([number for piece in pieces if isinstance(piece, list) for number in piece])
        assert "Be brief." in text
        assert len(pieces) == 1 + 4 * bool(memory) + bool(memory)


def test_clara_uses_the_same_memory_token_at_all_positions(golden: Path, tmp_path: Path) -> None:
    folder, source = golden / "released" / "clara", tmp_path / "source"
    shutil.copytree(folder / "E2E" / "checkpoint", source)
    own = read(source / "config.json")
    (source / "config.json").write_text(json.dumps({**own, "different_mem_tokens": False}))
    ends = torch.load(source / "decoder_first_last_layers.pth")
    for key, table in ends.items():  # of four memory tokens one is left, and the marks move up
        ends[key] = torch.cat([table[:-6], table[-3:]])
    torch.save(ends, source / "decoder_first_last_layers.pth")
    convert_clara(released(str(source)), tmp_path / "clara", str(folder / "base-legacy-true"), {}, "cpu")
    memory = Clara.load(tmp_path / "clara", "cpu").module.rows.memory
    assert len(memory) == 4
    assert torch.equal(memory, memory[:1].expand(4, -1))


CLASSIFIERS = "bert-base-multilingual-cased", "xlm-roberta-large"


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_llmlingua2_keeps_the_published_words(golden: Path, name: str) -> None:
    folder = golden / "released" / "llmlingua2" / f"llmlingua-2-{name}-meetingbank"
    data, options = read(folder / "expected.json"), {"model": str(folder / "checkpoint")}
    results = [result for case in data["cases"] for result in case["chunk_results"] if "words" in result]
    counts = {word: count for result in results for word, count in zip(result["words"], result["gpt_tokens"], strict=True)}
    forced = data["force_tokens"]
    for case in (*data["cases"], forced):
        made = build("llmlingua2", **options, keep=case.get("force_tokens", ()))
        made.__dict__["_counts"] = lambda texts: [counts[text] for text in texts]  # OpenAI's tokens, which are not on this machine
        text = data["documents"][case["document"]]
        if case is not forced:
            assert made.chunks(text) == case["chunks"]
        for words, expected in zip(made.words(made.chunks(text)), case.get("chunk_results", ()), strict=False):
            if "words" in expected:
                assert [word.text for word in words] == expected["words"]
                assert [word.likely for word in words] == pytest.approx(expected["word_probabilities"], abs=1e-5)
        assert made.compressed([text], case["rate"]) == [case["compressed"]]
    record("llmlingua2", NUMBERS, len(data["cases"]) + 1, len(data["cases"]) + 1)


def test_bge_m3_computes_the_published_vectors_and_scores(golden: Path) -> None:
    folder = golden / "released" / "bge-m3"
    data, tensors = read(folder / "expected.json"), load_file(folder / "expected.safetensors")
    made = M3Encoder(M3Config(model=str(folder / "checkpoint")), "cpu")
    vectors = made.encode([row["text"] for row in data["rows"]])
    for number, (row, ours) in enumerate(zip(data["rows"], vectors, strict=True)):
        assert_close(torch.tensor(ours.dense), tensors[f"dense_{number}"])
        assert_close(torch.tensor(ours.multi), tensors[f"multi_{number}"])
        assert dict(zip(map(str, ours.tokens), ours.weights, strict=True)) == pytest.approx(row["sparse"], rel=1e-4)
    queries, passages = vectors[: data["queries"]], vectors[data["queries"] :]
    for mode, column in (("dense", 2), ("sparse", 3), ("multi", 4)):
        ours = made.scores(queries, passages, (mode,)) / made.config.weights[mode]
        assert [ours[row[0], row[1]] for row in data["scores"]] == pytest.approx([row[column] for row in data["scores"]], rel=1e-5)
    record("bge_m3", NUMBERS, len(vectors), len(vectors))


@pytest.mark.slow
def test_qwen3_embedding_computes_the_published_vectors(golden: Path) -> None:
    folder = golden / "released" / "qwen3-embedding"
    data, expected = read(folder / "expected.json"), load_file(folder / "expected.safetensors")["vectors"]
    made = Encoder(EncoderConfig.preset("qwen3-embedding-0.6b", model=str(folder / "checkpoint")), "cpu")
    queries = [row["text"].partition("Query:")[2] for row in data["rows"][: data["queries"]]]
    passages = [row["text"] for row in data["rows"][data["queries"] :]]
    assert_close(torch.tensor(made.queries(queries)), expected[: len(queries)])
    assert_close(torch.tensor(made.passages(passages)), expected[len(queries) :])
    record("qwen3-embedding", NUMBERS, len(expected), len(expected))


def test_recomp_scores_sentences_as_published(golden: Path) -> None:
    folder = golden / "released" / "recomp-extractive"
    cases = read(folder / "expected.json")["cases"]
    made = build("recomp_extractive", model=str(folder / "checkpoint"))
    for case in cases:
        (scores,) = made.scores(Query("q", case["query"]), [], [case["sentences"]])
        assert scores.tolist() == pytest.approx(case["scores"], rel=1e-5)
    record("recomp_extractive", NUMBERS, len(cases), len(cases))


def test_dpa_rag_scores_as_published(golden: Path) -> None:
    folder = golden / "released" / "dpa-rag"
    (weights,) = (folder / "checkpoint").glob("*.bin")
    cases = read(folder / "expected.json")["cases"]
    made = build("dpa_rag", model=str(folder / "bge"), weights=str(weights)).model
    for case in cases:
        (pair,) = made._pairs.encoded(made._pairs.cut(case["query"]), [case["text"]])
        assert pair["input_ids"] == case["ids"]
        (score,) = made.scores(case["query"], [case["text"]])
        assert score == pytest.approx(case["logits"][1] - case["logits"][0], abs=1e-5)
    record("dpa_rag", IDS, len(cases), len(cases))
    record("dpa_rag", NUMBERS, len(cases), len(cases))


def test_setwise_encodes_the_published_token_ids(golden: Path) -> None:
    data = read(golden / "ids" / "setwise_vicuna.json")
    tokenizer = tokenizer_of(golden / "ids" / "tokenizers" / data["tokenizer"])
    tokenizer.chat_template = data["chat_template"]
    for case in data["cases"]:
        write = Writer(PROMPTS["setwise"].load("published"), Unlimited(), start=" Passage:")
        messages = write(case["query"], [passage.text for passage in passages_of(golden, case["passages"])], LABELS)
        assert encoded(tokenizer, messages) == case["ids"]
    record("setwise", IDS, len(data["cases"]), len(data["cases"]))


def test_rankgpt_sends_the_published_messages(golden: Path) -> None:
    data = read(golden / "ids" / "rankgpt_messages.json")
    passages = passages_of(golden, [item["id"] for item in read(golden / "ids" / "inputs.json")["passages"]])
    write = Writer(PROMPTS["rankgpt"].load("published"), Unlimited(), plain_references=True, passage_words=300)
    for case in data["cases"]:
        labels = [str(number) for number in range(1, len(passages) + 1)]
        assert write(case["query"], [write.shown(passage) for passage in passages], labels) == case["messages"]
    record("rankgpt", TEXTS, len(data["cases"]), len(data["cases"]))


def test_in_context_ralm_encodes_the_published_token_ids(golden: Path) -> None:
    data = read(golden / "ids" / "ic_ralm.json")
    tokenizer = tokenizer_of(golden / "ids" / "tokenizers" / data["tokenizer"])
    tokenizer.chat_template = None
    write = RalmPrompt(InContextRalmConfig(model="none"))
    passages = [Passage(item["id"], item["title"], item["text"]) for item in read(golden / "ids" / "inputs.json")["passages"]]
    for case in data["cases"]:
        text = write(case["question"], passages[: case["passages"]])
        assert text == case["text"]
        assert encoded(tokenizer, [{"role": "user", "content": text}]) == case["ids"]
    record("in_context_ralm", IDS, len(data["cases"]), len(data["cases"]))


def test_prompts_without_token_ids_equal_the_published_texts(golden: Path) -> None:
    cases = read(golden / "ids" / "plain_texts.json")["cases"]
    refiner, passage = Writer(PROMPTS["ddr_refiner"].load(), Unlimited(), plain_references=True), "passage"
    for case in cases:
        made = {
            "ddr_refiner": refiner(case["query"], [case[passage]], ["1"]),
            "hyde": HYDE.load("published").messages(question=case["query"]),
            "recomp": SUMMARY.load().messages(question=case["query"], passages=case[passage]),
            "chatqa": [{"content": chatqa_prompt(case["query"], [Passage("", "", case[passage])], "full")}],
        }
        for name, messages in made.items():
            assert [message["content"] for message in messages or []] == [case[name]], name
    for name in ("ddr_refiner", "hyde", "recomp_abstractive", "chatqa"):
        record(name, TEXTS, len(cases), len(cases))


def test_ddr_generator_uses_the_published_format_and_truncates_passages_at_the_end(golden: Path) -> None:
    llm = {"local": str(golden / "released" / "rank-zephyr" / "checkpoint"), "dtype": "float32", "max_tokens": 2}
    made = build("ddr_generator", llm=llm)
    passages = [Passage("a", "", "One $x {y} "), Passage("b", "", "two.")]
    (message,), notes = made._request("Who?", Context("q", tuple(passages)))
    assert (message["content"], notes) == ("Background:\nOne $x {y} \ntwo.\n\nQ: Who?\nA:", {})
    assert made._request("Who?", Context("q"))[0] == [{"role": "user", "content": "Q: Who?\nA:"}]
    (message,), notes = made._request("Who?", Context("q", (Passage("a", "", "word " * 10_000),)))
    assert message["content"].startswith("Background:\nword word")
    assert message["content"].endswith("\n\nQ: Who?\nA:")
    assert made._model.counter.count([message]) <= made._model.room
    assert 0 < notes["truncated"]["kept"] < notes["truncated"]["of"]


def test_retrobust_encodes_the_published_token_ids(golden: Path) -> None:
    data = read(golden / "ids" / "retrobust.json")
    tokenizer = tokenizer_of(golden / "ids" / "tokenizers" / data["tokenizer"])
    tokenizer.chat_template = None
    prompt = shipped(Path(self_ask.__file__).parent, "retrobust")["retrobust"].load()
    for case in data["cases"]:
        written, follow_ups = "", case["dataset"] != "nq"
        contexts = [*passages_of(golden, case["contexts"]), *([Passage("spare", "Spare", "spare.")] * len(case["calls"]))]
        for number, (call, reply) in enumerate(zip(case["calls"], case["replies"], strict=True)):
            messages = released_text(prompt, case["question"], contexts[: number + 1], follow_ups, written)
            assert messages == [{"role": "user", "content": call["prompt"]}]
            assert encoded(tokenizer, messages) == call["ids"]
            written = released_step(written, reply, not number, follow_ups)
    calls = sum(len(case["calls"]) for case in data["cases"])
    record("retrobust", IDS, calls, calls)


def test_self_rag_encodes_the_published_token_ids(golden: Path) -> None:
    data = read(golden / "ids" / "self_rag.json")
    tokenizer = tokenizer_of(golden / "ids" / "tokenizers" / data["tokenizer"])
    tokenizer.chat_template = None
    tokenizer.add_tokens(list(data["added_tokens"]), special_tokens=True)
    for case in data["cases"]:
        head = instruction(case["query"])
        assert encoded(tokenizer, [{"role": "user", "content": head}]) == case["prompt_ids"]
        shown = augmented(head, case["title"], case["text"])
        assert encoded(tokenizer, [{"role": "user", "content": shown}]) == case["augmented_ids"]
    record("self_rag", IDS, len(data["cases"]), len(data["cases"]))


@pytest.mark.slow
def test_self_rag_scores_and_decides_as_published(golden: Path) -> None:
    folder = golden / "released" / "self-rag"
    data = read(folder / "expected.json")
    weights = {"relevance": data["weights"]["w_rel"], "support": data["weights"]["w_sup"], "usefulness": data["weights"]["w_use"]}
    options = {"model": str(folder / "checkpoint"), "max_new_tokens": data["max_new_tokens"], "share": "log_probabilities", **weights}
    config = SelfRagConfig.model_validate({**options, "dtype": "float32", "retriever": "bm25"})
    model = TagModel(config, Services(device="cpu"))
    session: Any = SimpleNamespace(wrote=lambda *_: "", fallback=lambda _: None)
    for case in data["cases"]:
        head = instruction(case["query"])
        share = asyncio.run(model.share_of_retrieval(session, head))
        assert (share > data["threshold"]) is case["adaptive_retrieves"]
        passages = passages_of(golden, case["passages"])
        segments = [asyncio.run(model.segment(session, head, passage)) for passage in passages]
        expected = [case["always"][f"retrieval_{number}"]["score"] for number in range(len(passages))]
        assert [segment.score(config) for segment in segments] == pytest.approx(expected, abs=1e-5)
    record("self_rag", NUMBERS, len(data["cases"]), len(data["cases"]))


def test_released_checkpoints_page_matches_these_tests() -> None:
    if (names := set(RESULTS)) != set(WITH_FIXTURES):
        pytest.skip(f"not compared in this run: {', '.join(sorted(set(WITH_FIXTURES) - names))}")
    heads = "| system | published prompt | license | ids equal | numbers equal |"
    table = "\n".join(
        [heads, "| --- | --- | --- | --- | --- |", *map(line, WITH_FIXTURES), *(f"| {name} | {text}" for name, text in OTHERS.items())]
    )
    page = PAGE.read_text("utf-8")
    before, _, rest = page.partition(MARK)
    _, _, after = rest.partition(MARK)
    written = f"{before}{MARK}\n{table}\n{MARK}{after}"
    if os.environ.get("RAGMETER_WRITE_DOCS") == "1":
        PAGE.write_text(page := written, "utf-8")
    assert page == written, "write the table again with RAGMETER_WRITE_DOCS=1"


def line(name: str) -> str:
    """Return a system's line of the table."""
    entry = registry().get(WITH_FIXTURES[name] or name)
    source = entry.source if entry else WITH_FIXTURES[name]
    return f"| `{name}` | {source} | {entry.license if entry else LICENSES.get(name, '–')} | {said(name, IDS)} | {said(name, NUMBERS)} |"


def said(name: str, kind: str) -> str:
    """Return how many of a system's cases are equal; texts if the fixture has no ids."""
    if kind == IDS and TEXTS in RESULTS[name]:
        kind = TEXTS
    equal, of = RESULTS[name].get(kind, (0, 0))
    return f"{equal} of {of}{' texts' if kind == TEXTS else ''}" if of else "not compared"
