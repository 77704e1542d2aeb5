"""A small corpus with questions, and fixtures that several test files share."""

from __future__ import annotations

import importlib.util
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from benchmarks.corpus import Corpus
from benchmarks.schema import Passage, Question, passage_id, sentence_id
from methods.api import Services
from methods.registry import Component
from tests.support.app import app, shout
from tests.support.hosted import KEY, hosted
from tests.support.server import ChatRequest, OpenAIServer, Written

TOWNS = ["Arle", "Bresk", "Corvin", "Dalmow", "Estry", "Fennick", "Garlow", "Hulme", "Istrin", "Jorva", "Kestle", "Lorn"]
PROGRAMS = ("genground", "retrobust", "self_ask", "self_rag_prompted", "iter_retgen", "ircot", "search_r1")
TRADES = ["baker", "pilot", "printer", "sailor", "teacher", "weaver"]


@dataclass(frozen=True)
class Ground:
    """Questions over a corpus."""

    questions: list[Question]
    corpus: Corpus


def passage(title: str, *sentences: str, document: str | None = None) -> Passage:
    text = "".join(sentences)
    return Passage(passage_id(title, text, document), title, text, sentences, document)


def make_ground(seed: int = 0, people: int = 40, questions: int = 12) -> Ground:
    """Make people who live in towns; each question asks for the town of one, among ten candidates or in the whole corpus."""
    rng = random.Random(seed)
    passages, facts = [], []
    for number in range(people):
        town, trade, year = rng.choice(TOWNS), rng.choice(TRADES), rng.randint(1850, 1990)
        name = f"{rng.choice(TOWNS)[:4].lower().capitalize()}a Number{number}"
        body = (f"{name} was a {trade}, born in {year}. ", f"{name} lived in {town} and worked there. ")
        passages.append(passage(name, *body))
        facts.append((name, town, passages[-1]))
    corpus = Corpus.of(passages)
    queries = []
    for number, (name, town, gold) in enumerate(facts[:questions]):
        others = rng.sample([p.id for p in passages if p.id != gold.id], 9)
        candidates = tuple(rng.sample([gold.id, *others], 10)) if number % 2 else None
        queries.append(
            Question(
                f"2hop__{number}",
                f"In which town did {name} live?",
                (town,),
                evidence=(gold.id,),
                supporting_facts=(sentence_id(gold.id, 1),),
                triples=((name, "lived in", town),),
                candidates=candidates,
            )
        )
    return Ground(queries, corpus)


@pytest.fixture(scope="session")
def ground() -> Ground:
    return make_ground()


@pytest.fixture
def build(tmp_path: Path) -> Callable[..., Any]:
    """Build a registered method with options; its artifacts go into the test's folder."""

    def make(identifier: str, seed: int = 0, **config: Any) -> Any:
        return Component.of(identifier, config).build(Services(seed=seed, artifacts=tmp_path / "artifacts", device="cpu"))

    return make


@pytest.fixture
def in_two(tmp_path: Path) -> Callable[..., tuple[Path, Path]]:
    """Run a program's text in one process and in a group of two; its last argument is a path per run, which is returned."""

    def run(text: str, *value: str) -> tuple[Path, Path]:
        program, item, two = tmp_path / "program.py", tmp_path / "of1", tmp_path / "of2"
        program.write_text(text)
        command = [sys.executable, "-m", "tests.support.processes", str(program), *value, str(item), str(two)]
        with subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])},
            start_new_session=True,
        ) as started:
            try:
                printed, _ = started.communicate()
            finally:
                if started.returncode is None:
                    os.killpg(started.pid, signal.SIGKILL)
        if started.returncode:
            pytest.fail(printed[-3000:])
        return item, two

    return run


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Save a Llama with random weights, a byte-level tokenizer and a chat template."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate(["<pad>", "<s>", "</s>", *alphabet])}
    raw = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, bos_token="<s>", eos_token="</s>", pad_token="<pad>")
    tokenizer.chat_template = (
        "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system role') }}"
        "{% endif %}[{{ m.role }}]{{ m.content }}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
    )
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(vocabulary),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=1024,
            bos_token_id=1,
            eos_token_id=2,
            pad_token_id=0,
        )
    )
    folder = tmp_path_factory.mktemp("tiny_llama")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="session")
def tiny_models() -> ModuleType:
    """Load `tiny_models.py` by its path, because tests are not a package."""
    spec = importlib.util.spec_from_file_location("tiny_models", Path(__file__).with_name("tiny_models.py"))
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def tiny_encoder(tiny_models: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Save a `SentenceTransformer` with random weights, for tests that do not need MiniLM."""
    import torch
    from transformers import BertModel

    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("tiny_encoder")
    model = BertModel(tiny_models.config("Bert", len(tiny_models.tokenizer())))
    tiny_models.save(folder, "bert", tiny_models.scaled(model))
    tiny_models.layout(folder, 64, [tiny_models.pooling("mean")], {})
    return str(folder)


@pytest.fixture(scope="session")
def tiny_gpt2(tiny_llama: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Save a GPT-2 with random weights, absolute positions and the tiny Llama's tokenizer."""
    import torch
    from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel

    tokenizer = AutoTokenizer.from_pretrained(tiny_llama)
    torch.manual_seed(1)
    sizes = {"n_positions": 128, "n_embd": 24, "n_layer": 2, "n_head": 4, "bos_token_id": 1, "eos_token_id": 2, "initializer_range": 0.2}
    folder = tmp_path_factory.mktemp("tiny_gpt2")
    GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), **sizes)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="session")
def tiny_rq_rag(tiny_llama: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Save the tiny Llama with RQ-RAG's control tokens."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from methods.baselines.rq_rag import ANSWER_TOKEN, END_TOKEN, EVIDENCE_TOKENS, QUERY_TOKENS

    tokenizer = AutoTokenizer.from_pretrained(tiny_llama)
    tokenizer.add_special_tokens({"additional_special_tokens": [*QUERY_TOKENS, ANSWER_TOKEN, END_TOKEN, *EVIDENCE_TOKENS]})
    model = AutoModelForCausalLM.from_pretrained(tiny_llama)
    model.resize_token_embeddings(len(tokenizer))
    folder = tmp_path_factory.mktemp("tiny_rq_rag")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="session")
def tiny_selfrag(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Save a Llama with random weights and Self-RAG's tags."""
    from tools.tiny_checkpoints import make

    folder = tmp_path_factory.mktemp("tiny_selfrag")
    make(folder, ["selfrag"])
    return str(folder / "selfrag")


@pytest.fixture(scope="session")
def tiny_bge_m3(tiny_models: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Save a BGE-M3 with random weights and its two heads."""
    import torch
    from transformers import XLMRobertaModel

    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("tiny_bge_m3")
    tiny_models.save(folder, "xlmr", tiny_models.scaled(XLMRobertaModel(tiny_models.config("XLMRoberta", 200))))
    for name, width in (("sparse_linear", 1), ("colbert_linear", 32)):
        torch.save(torch.nn.Linear(32, width).state_dict(), folder / f"{name}.pt")
    return str(folder)


@pytest.fixture(scope="session")
def tiny_splade(tiny_models: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Save a masked language model with random weights in the layout of SPLADE's older checkpoints."""
    return str(tiny_models.save(tmp_path_factory.mktemp("tiny_splade"), "bert", tiny_models.masked_language_model()))


@pytest.fixture(scope="session")
def tiny_colbert(tiny_models: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Save a model with random weights in ColBERTv2's layout."""
    return str(tiny_models.colbert(tmp_path_factory.mktemp("tiny_colbert")))


@pytest.fixture(scope="session")
def tiny_clara(tiny_llama: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Save a CLaRa checkpoint over the tiny Llama with three random adapters."""
    import torch

    from methods.clara.config import ClaraConfig
    from methods.clara.model import Clara

    clara = Clara.open(ClaraConfig(base=tiny_llama, max_length=64, rate=16, k=3), device="cpu")
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name in clara.adapters.names:
            for parameter in clara.adapters.of(name).values():
                parameter.copy_(0.3 * torch.randn(parameter.shape, generator=draw))
    folder = tmp_path_factory.mktemp("tiny_clara")
    clara.save(folder)
    return str(folder)


@pytest.fixture(scope="session")
def tiny_pisco(tiny_llama: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Save an untrained PISCO checkpoint over the tiny Llama."""
    from methods.baselines.compress.model import SoftModel
    from methods.baselines.compress.soft import system_of

    folder = tmp_path_factory.mktemp("tiny_pisco")
    SoftModel(system_of("pisco", {"base": tiny_llama, "max_length": 48, "rate": 12}), "cpu").save(folder)
    return str(folder)


@pytest.fixture(scope="session")
def scripted_url() -> Iterator[str]:
    """Serve replies that depend only on the prompt: the words of its question, reversed."""

    def answer(request: ChatRequest) -> Written:
        query = request.prompt.rpartition("Question: ")[2].partition("\n")[0]
        return Written(" ".join(reversed(query.split())), len(request.prompt) // 4, 8)

    with OpenAIServer("scripted", answer, any_model=True).running() as url:
        yield url


@pytest.fixture(scope="session")
def busy(module_at: Callable[[Path], ModuleType]) -> ModuleType:
    return module_at(Path(__file__).with_name("busy_endpoint.py"))


@pytest.fixture
def endpoint(busy: ModuleType) -> Iterator[Any]:
    """Serve an endpoint that can be set to busy and counts calls in flight."""
    endpoint = busy.Endpoint()
    with endpoint.server.running():
        yield endpoint


@pytest.fixture(scope="session")
def app_url() -> Iterator[str]:
    """Serve an application that answers every question with its first word."""
    with app(lambda request: {"answer": shout(request.json["question"])}) as (url, _):
        yield url


@pytest.fixture(scope="session")
def embeddings_url() -> Iterator[str]:
    """Serve embeddings."""
    with hosted() as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOSTED_KEY", KEY)
        yield f"{server.url}/openai"


@pytest.fixture(scope="session")
def offline_options(
    tiny_encoder: str,
    tiny_rq_rag: str,
    tiny_bge_m3: str,
    tiny_splade: str,
    tiny_colbert: str,
    tiny_clara: str,
    tiny_pisco: str,
    tiny_llama: str,
    tiny_selfrag: str,
    scripted_url: str,
    app_url: str,
    embeddings_url: str,
) -> dict[str, dict[str, Any]]:
    """Return the options with which methods that need a model or an endpoint run in tests, by id."""
    llm = {"model": "scripted", "base_url": scripted_url, "key_variable": None}
    graph = {"encoder": {"model": tiny_encoder}}
    tree = {"model": tiny_rq_rag, "max_new_tokens": 6, "evidence_words": 4, "depth": 1, "system": "Answer."}
    return {
        "http": {"url": app_url},
        "hosted_dense": {"model": "m", "base_url": embeddings_url, "key_variable": "HOSTED_KEY"},
        "function": {"call": "tests.support.app:shout"},
        "function_retriever": {"call": "tests.support.app:find"},
        "hyde": {"llm": llm, "samples": 2, "dense": {"model": tiny_encoder}},
        "chat": {"llm": {"local": tiny_llama, "max_tokens": 6}},
        "rq_rag_prompted": {"llm": llm, "retriever": "bm25"},
        "dense": {"model": tiny_encoder},
        "hybrid": {"retrievers": ["bm25", {"id": "dense", "config": {"model": tiny_encoder}}]},
        "rq_rag": {**tree, "retriever": "bm25"},
        "rq_rag_native": {**tree, "retriever": "bm25"},
        "bge_m3": {"model": tiny_bge_m3, "max_length": 64},
        "splade": {"model": tiny_splade},
        "colbert": {"model": tiny_colbert},
        "ark": {"model": tiny_encoder},
        "ark_folds": {"models": [tiny_encoder, tiny_encoder]},
        **{name: {**graph, "extractor": "noun_phrases"} for name in ("hipporag", "hipporag2", "lightrag", "graphrag")},
        "linear_rag": graph,
        "memorag": {**graph, "llm": llm},
        "raptor": {**graph, "llm": llm, "reduction": "svd"},
        **{name: {**graph, "llm": llm, "extractor": "noun_phrases"} for name in ("graphrag_global", "graphrag_drift")},
        **{name: {"llm": llm, "retriever": "bm25", "k": 2} for name in PROGRAMS},
        "self_rag": {"model": tiny_selfrag, "retriever": "bm25", "k": 2, "max_new_tokens": 6, "mode": "always"},
        "flare": {"model": tiny_llama, "retriever": "bm25", "k": 1, "max_new_tokens": 6, "sentences": 2},
        "chatqa": {"model": tiny_llama, "max_new_tokens": 6},
        "ddr_generator": {"llm": {"local": tiny_llama, "max_tokens": 6}, "prompt": "ours"},
        "in_context_ralm": {"model": tiny_llama, "max_new_tokens": 6, "prompt": "ours", "closed_book_prompt": "ours"},
        "in_context_rag": {"llm": {"local": tiny_llama, "max_tokens": 6}, "demonstrations": "worlds/multihop:train", "count": 1},
        "g_retriever": {"model": tiny_encoder},
        "grag": {"model": tiny_encoder},
        "clara": {"model": tiny_clara, "max_new_tokens": 6},
        "clara_retriever": {"model": tiny_clara},
        "clara_reader": {"model": tiny_clara, "max_new_tokens": 6},
        "memory_reader": {"model": tiny_pisco, "max_new_tokens": 6},
        "clara_text": {"model": tiny_llama, "max_new_tokens": 6, "max_length": 64},
    }
