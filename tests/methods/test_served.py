"""Checkpoints behind an endpoint: scores equal those of local weights, and missing log-probabilities are refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks.corpus import Corpus
from benchmarks.schema import Passage, Query, Question, passage_id
from methods.api import FAILED, Ranking, Services
from methods.ark.alignment import Terms
from methods.ark.config import ArkTrainingConfig, ScoreConfig
from methods.ark.data import Document, Piece
from methods.baselines.compress.text_training import TextTrainingConfig, likelihoods
from methods.baselines.end_to_end.flare import FlareConfig
from methods.baselines.rerank.rank1 import settled
from methods.flow import each, run
from methods.models.causal import CausalConfig, CausalModel
from methods.models.likelihood import LikelihoodScorer, ScoredText, ScoringConfig, ScoringRequest, ScoringTemplate
from methods.models.reply import Completion, Logprobs
from methods.models.reply_cache import shared
from methods.pipeline import assemble
from methods.registry import Component
from methods.served import ScorerConfig, ServedModel
from tests.support.errors import raises
from tests.support.vllm import VLLM, Weights
from tools.tiny_checkpoints import make

pytestmark = pytest.mark.slow

pytest.importorskip("torch")
INFINITE = float("inf")
QUERY = Query("q", "where was the old painter born ?")
TEXTS = [f"The {n} old bridge is of stone. " * (1 + n % 3) for n in range(4)]
CORPUS = Corpus.of(Passage(passage_id("", text, str(n)), "", text, (), str(n)) for n, text in enumerate(TEXTS))
RANKING = Ranking("q", tuple(CORPUS.ids), (4.0, 3.0, 2.0, 1.0))


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Save a tiny Qwen2.5 that was trained to end some of its thoughts with a verdict."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = tmp_path_factory.mktemp("judge")
    make(folder, ["qwen2.5"])
    path = str(folder / "qwen2.5")
    tokenizer, model = AutoTokenizer.from_pretrained(path), AutoModelForCausalLM.from_pretrained(path)
    rows = rank1(path).encoded(QUERY.text, TEXTS)
    ends = ["Yes.</think> true", "No.</think> false", "It may be. Perhaps", "Yes.</think> true"]
    items = [(row, tokenizer(end, add_special_tokens=False)["input_ids"]) for row, end in zip(rows, ends, strict=True)]
    torch.manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(40):
        loss = sum(model(torch.tensor([[*row, *end]]), labels=torch.tensor([[-100] * len(row) + end])).loss for row, end in items)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.save_pretrained(path)
    return path


def rank1(model: str, services: Services | None = None, **options: Any) -> Any:
    values = {"model": model, "max_length": 256, "max_new_tokens": 12, "prompt": "ours", **options}
    return Component.of("rank1", values).build(services or Services(device="cpu"))


@contextmanager
def serving(folder: str, **options: Any) -> Iterator[tuple[Weights, str]]:
    """Serve a checkpoint within a block; yields the server and the base URL."""
    weights = Weights(folder, **options)
    with VLLM("judge", weights=weights).running() as url:
        yield weights, url


def endpoint(url: str, **options: Any) -> dict[str, Any]:
    return {"model": "judge", "base_url": url, "key_variable": None, "attempts": 1, **options}


@pytest.fixture(scope="module")
def server(judge: str) -> Iterator[tuple[Weights, str]]:
    with serving(judge) as served:
        yield served


def test_rank1_scores_of_an_endpoint_equal_those_of_local_weights(judge: str, server: tuple[Weights, str], tmp_path: Path) -> None:
    served, url = server
    (local,) = each(rank1(judge), "rerank", [QUERY], [RANKING], CORPUS)
    services = Services(device="cpu", cache=tmp_path / "cache.sqlite")
    made = rank1(judge, services, endpoint=endpoint(url))
    before = len(served.requests)
    (result,) = each(made, "rerank", [QUERY], [RANKING], CORPUS)
    unfinished = local.notes["rank1"]["fallbacks"]["unfinished"]
    assert 0 < unfinished < len(TEXTS)
    assert len(served.requests) - before == len(TEXTS) + unfinished
    assert result.notes == {"rank1": {"calls": len(TEXTS) + unfinished, "fallbacks": {"unfinished": unfinished}}}
    assert result.ids == local.ids
    assert list(result.scores) == pytest.approx(list(local.scores), abs=1e-4)
    assert result.usage.prompt_tokens > local.usage.prompt_tokens > 0
    (again,) = each(rank1(judge, services, endpoint=endpoint(url)), "rerank", [QUERY], [RANKING], CORPUS)
    assert again.scores == result.scores
    assert len(served.requests) - before == len(TEXTS) + unfinished


def test_flare_gives_the_same_sentences_and_queries_with_an_endpoint(tiny_llama: str, tmp_path: Path) -> None:
    options = {"model": tiny_llama, "retriever": "bm25", "k": 1, "max_new_tokens": 6, "sentences": 2}
    with serving(tiny_llama) as (served, url):
        services = Services(device="cpu", cache=tmp_path / "cache.sqlite", artifacts=tmp_path / "artifacts")
        made = [assemble(Component.of("flare", options | more), services) for more in ({}, {"endpoint": endpoint(url)})]
        predictions = []
        for method in made:
            method.index(CORPUS)
            predictions.extend(method.answer([QUERY]))
    local, remote = predictions
    assert 0 < len(served.requests) < remote.usage.model_calls  # an equal prompt comes from the cache
    assert remote.usage.model_calls == local.usage.model_calls
    assert (remote.answer, remote.evidence, remote.notes["flare"]) == (local.answer, local.evidence, local.notes["flare"])
    assert remote.usage.prompt_tokens == local.usage.prompt_tokens
    assert [call.prompt for call in remote.calls] == [call.prompt for call in local.calls]


def test_log_probabilities_of_a_continuation_equal_those_of_local_weights(tiny_llama: str) -> None:
    local = CausalModel(CausalConfig(model=tiny_llama, max_new_tokens=8), "cpu")
    ids = local.encode("Where was the painter born?")
    (made,) = local.generate([ids])
    (values,) = local.logprobs([(ids, made.tokens)], ScoringConfig())
    with serving(tiny_llama) as (_, url):
        options = FlareConfig.model_validate({"model": tiny_llama, "max_new_tokens": 8, "endpoint": endpoint(url)})
        written = run(ServedModel(options, Services(), "test").write(ids))
    assert (written.generation.tokens, written.generation.text) == (made.tokens, made.text)
    assert list(written.logprobs) == pytest.approx(values, abs=1e-4)


def test_endpoint_without_log_probabilities_is_refused_before_the_first_question(tiny_llama: str, tmp_path: Path) -> None:
    with serving(tiny_llama, ids=False) as (_, url):
        config = FlareConfig.model_validate({"model": tiny_llama, "endpoint": endpoint(url)})
        with raises("no-token-logprobs", "judge"):
            config.reach(tmp_path / "cache.sqlite")


def test_rank1_fails_a_question_if_returned_tokens_do_not_determine_the_order(judge: str) -> None:
    with serving(judge, most=1) as (_, url):
        (result,) = each(rank1(judge, endpoint=endpoint(url)), "rerank", [QUERY], [RANKING], CORPUS)
    assert result.notes[FAILED].startswith("rank1: ")
    assert result.ids == RANKING.ids


@pytest.mark.parametrize(
    ("bounds", "known"),
    [
        ([(1.0, 1.0), (0.0, 0.0)], True),
        ([(2.0, INFINITE), (1.0, 1.0), (-INFINITE, 0.0)], True),
        ([(2.0, INFINITE), (3.0, INFINITE)], False),
        ([(1.0, INFINITE), (2.0, 2.0)], False),
        ([(-INFINITE, INFINITE), (2.0, 2.0)], False),
        ([(-INFINITE, 0.5), (0.0, 0.0)], False),
        ([(0.0, INFINITE), (-INFINITE, 1.0)], False),
    ],
)
def test_order_is_determined_exactly_if_bounds_do_not_overlap(bounds: list[tuple[float, float]], known: bool) -> None:
    assert settled(bounds) is known


def test_cached_log_probabilities_round_trip() -> None:
    completion = Completion("a", "stop", 1, 1, "m", logprobs=Logprobs(("token_id:1",), (-0.5,), {"token_id:1": -0.5}))
    assert Completion.from_json(json.loads(json.dumps(completion.to_json()))) == completion


def test_endpoint_options_that_the_system_sets_are_refused(tiny_llama: str) -> None:
    for option in ({"max_tokens": 5}, {"temperature": 0.5}, {"batch": True}):
        with pytest.raises(ValueError, match="endpoint"):
            FlareConfig.model_validate({"model": tiny_llama, "endpoint": endpoint("http://localhost:1/v1", **option)})


def test_local_options_keep_their_fingerprint(tiny_llama: str) -> None:
    assert "endpoint" not in Component.of("flare", {"model": tiny_llama, "retriever": "bm25"}).describe()["config"]


def scorers(folder: str, url: str, cache: Path | None = None) -> tuple[LikelihoodScorer, LikelihoodScorer]:
    """Return scorers for the same checkpoint, local and behind an endpoint."""
    services = Services(device="cpu", cache=cache)
    return tuple(LikelihoodScorer(ScorerConfig.of(folder, where).open(services, "test")) for where in (None, endpoint(url)))  # type: ignore[return-value]


def test_scores_of_texts_equal_those_of_local_weights_and_are_requested_once(tiny_llama: str, tmp_path: Path) -> None:
    template = ScoringTemplate("Context: $chunk\nQuestion: $question\nAnswer:", chat=True)
    questions = [ScoringRequest({"question": "who ?"}, " the painter"), ScoringRequest({"question": "où ?"}, " là\n")]
    with serving(tiny_llama) as (served, url):
        local, remote = scorers(tiny_llama, url, tmp_path / "cache.sqlite")
        expected = local.grid([*TEXTS, ""], questions, template)
        for _ in range(2):
            made = remote.grid([*TEXTS, ""], questions, template)
            assert len(served.requests) == 2 * (len(TEXTS) + 1)
    for row, other in zip(expected, made, strict=True):
        for one, same in zip(row, other, strict=True):
            assert same.tokens == one.tokens
            assert list(same.logprobs) == pytest.approx(list(one.logprobs), abs=1e-4)
    assert {(body["max_tokens"], body["echo"]) for body in served.requests} == {(0, True)}
    kept = [json.loads(entry.reply)["logprobs"]["tokens"] for entry in shared(tmp_path / "cache.sqlite").entries()]
    assert {len(tokens) for tokens in kept} == {len(score.tokens) for row in made for score in row}  # and no prompt's


def test_prompt_too_long_for_the_endpoint_is_truncated_in_its_chunk(tiny_llama: str) -> None:
    length = CausalModel(CausalConfig(model=tiny_llama), "cpu").length
    text = "word " * length
    pair = ScoredText(f"{text}\nAnswer:", " a", (0, len(text)))
    weights = Weights(tiny_llama)
    with VLLM("judge", weights=weights, max_model_len=length).running() as url:
        local, remote = scorers(tiny_llama, url)
        (made,) = remote.score([pair])
    ids, target = remote.encode([pair])[0]
    assert len(weights.requests[0]["prompt"]) == len(ids) + len(target) == length - 1
    (values,) = local.model.logprobs([(ids, target)], ScoringConfig())
    assert list(made.logprobs) == pytest.approx(values, abs=1e-4)


@pytest.mark.parametrize("options", [{"ids": False}, {"echo": False}, {"begin": (1,)}], ids=["no ids", "no echo", "other tokens"])
def test_endpoints_that_do_not_score_the_tokens_sent_are_refused_before_the_first_question(
    tiny_llama: str, tmp_path: Path, options: dict[str, Any]
) -> None:
    with serving(tiny_llama, **options) as (_, url):
        code = "endpoint-probe-failed" if options == {"echo": False} else "no-token-logprobs"
        data, where = {"data": ["worlds/long:train"]}, {"endpoint": endpoint(url)}
        scorer = ScorerConfig.of(tiny_llama, endpoint(url))
        setwise = Component.of("setwise", {"llm": {"local": tiny_llama}, "score": "likelihood", **where}).config
        training = ArkTrainingConfig.model_validate({**data, "score": {"scorer": tiny_llama, **where}})
        labels = TextTrainingConfig.model_validate({**data, "base": "b", "reader": tiny_llama, **where})
        for config in (scorer, setwise, training, labels):
            with raises(code):
                config.reach(tmp_path / "cache.sqlite")


def test_answered_probe_is_not_repeated(tiny_llama: str, tmp_path: Path) -> None:
    with serving(tiny_llama) as (served, url):
        scorer = ScorerConfig.of(tiny_llama, endpoint(url))
        for _ in range(2):
            scorer.reach(tmp_path / "cache.sqlite")
    scorer.reach(tmp_path / "cache.sqlite")
    assert len(served.requests) == 1


def test_text_that_cannot_be_scored_stops_the_scoring(tiny_llama: str) -> None:
    with VLLM("judge", weights=Weights(tiny_llama), max_model_len=8).running() as url:
        _, remote = scorers(tiny_llama, url)
        with raises("text-not-scored"):
            remote.score([ScoredText("a long prompt", " a")])


def test_setwise_chooses_the_same_labels_with_an_endpoint(tiny_llama: str) -> None:
    options = {"llm": {"local": tiny_llama}, "score": "likelihood", "k": 2, "passage_tokens": 16}
    with serving(tiny_llama) as (served, url):
        local, remote = (
            each(Component.of("setwise", options | more).build(Services(device="cpu")), "rerank", [QUERY], [RANKING], CORPUS)[0]
            for more in ({}, {"endpoint": endpoint(url)})
        )
    assert remote.ids == local.ids
    assert remote.notes["setwise"]["calls"] == len(served.requests) > local.notes["setwise"]["calls"]


def test_ark_gives_the_same_alignment_with_an_endpoint(tiny_llama: str, tmp_path: Path) -> None:
    pieces = tuple(Piece(f"c{n}", n, text, 0, len(text)) for n, text in enumerate(TEXTS))
    document = Document("d", (), pieces, (Question("q", QUERY.text, ("by the river",)),))
    raw = []
    with serving(tiny_llama) as (_, url):
        for more in ({}, {"endpoint": endpoint(url)}):
            score = {"scorer": tiny_llama, "v": {"weight": 0}, **more}
            config = ArkTrainingConfig.model_validate({"data": ["worlds/long:train"], "base": "minilm", "score": score})
            raw.append(Terms(config, "cpu", tmp_path, None).raw(document, document.questions)[0])
    local, remote = raw
    assert len(list(tmp_path.iterdir())) == 4  # two scores, by two scorers
    for name in "fb":
        assert list(remote[name]) == pytest.approx(list(local[name]), abs=1e-4)


def test_compressor_labels_are_equal_with_an_endpoint(tiny_llama: str) -> None:
    asking = [("who ?", (Passage("", "A", text),), "the painter") for text in TEXTS] + [("who ?", (), "the painter")]
    with serving(tiny_llama) as (_, url):
        local, remote = (likelihoods(ScorerConfig.of(tiny_llama, w), Services(device="cpu"), asking) for w in (None, endpoint(url)))
    assert remote == pytest.approx(local, abs=1e-3)


def test_self_rag_gives_the_same_answers_with_an_endpoint(tiny_selfrag: str, tmp_path: Path) -> None:
    options = {"model": tiny_selfrag, "retriever": "bm25", "k": 2, "max_new_tokens": 6}
    with serving(tiny_selfrag) as (served, url):
        predictions = []
        for more in ({"mode": "always"}, {"mode": "always", "endpoint": endpoint(url)}, {"endpoint": endpoint(url)}):
            method = assemble(Component.of("self_rag", options | more), Services(device="cpu", artifacts=tmp_path))
            method.index(CORPUS)
            predictions.extend(method.answer([QUERY]))
    local, remote, _ = predictions
    assert (remote.answer, remote.evidence, remote.notes["self_rag"]) == (local.answer, local.evidence, local.notes["self_rag"])
    assert served.requests


@pytest.mark.parametrize(
    "options",
    [
        {"llm": {"local": "m"}, "endpoint": {"model": "m"}},
        {"llm": {"model": "m"}, "score": "likelihood"},
        {"llm": {"local": "m", "adapter": "a"}, "score": "likelihood", "endpoint": {"model": "m"}},
        {"llm": {"local": "m"}, "score": "likelihood", "endpoint": {"model": "m", "temperature": 0.5}},
    ],
)
def test_setwise_options_unsupported_by_endpoints_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="endpoint"):
        Component.of("setwise", options)


def test_endpoint_without_a_likelihood_score_is_refused() -> None:
    with pytest.raises(ValueError, match="endpoint"):
        ScoreConfig.model_validate({"f": {"weight": 0}, "b": {"weight": 0}, "endpoint": {"model": "m"}})
