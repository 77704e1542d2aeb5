"""Claims: parsed from typical replies, attached to their entities, and requested over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pydantic import ValidationError

from benchmarks.schema import Question
from methods.flow import run
from methods.graphs.augmented_queries import QueryRequest, TemplateQueries, given, graph_of
from methods.graphs.chunking import Chunk
from methods.graphs.claims import PROMPT, parse_claims
from methods.graphs.extraction import FAILED, GraphConfig, LLMExtractor
from methods.graphs.knowledge_graph import EntityRecord, GraphBuilder, KnowledgeGraph, Records
from methods.models.chat import ChatModel
from methods.models.chat_config import ChatConfig
from tests.support.server import ChatRequest, OpenAIServer, Refused, Written

FINE = (
    "(COMPANY A<|>GOVERNMENT AGENCY B<|>ANTI-COMPETITIVE PRACTICES<|>TRUE<|>2022-01-10T00:00:00<|>2022-01-10T00:00:00<|>"
    "Company A was fined for bid rigging.<|>Company A was fined)"
)
SUSPECTED = (
    "(PERSON C<|>NONE<|>CORRUPTION<|>SUSPECTED<|>2015-01-01T00:00:00<|>2015-12-30T00:00:00<|>"
    "Person C (the owner) was corrupt.<|>C was suspected)"
)
FINED = ("COMPANY A", "Company A was fined for bid rigging. (2022-01-10)")
CORRUPT = ("PERSON C", "Person C (the owner) was corrupt. (not verified, 2015-01-01 to 2015-12-30)")


@pytest.mark.parametrize(
    ("reply", "claims", "counts"),
    [
        (f"{FINE}\n##\n{SUSPECTED}\n<|COMPLETE|>", [FINED, CORRUPT], {}),
        (f"```text\n{FINE}##\n{SUSPECTED}##\n```\n<|COMPLETE|>", [FINED, CORRUPT], {}),
        (f"Sure! Here are the claims:\n\n{FINE}\n<|COMPLETE|>\nLet me know if you need more.", [FINED], {}),
        (f"{FINE}\n{SUSPECTED}", [FINED, CORRUPT], {"no end marker": 1}),
        ("<|COMPLETE|>", [], {}),
        ("I'm sorry, but I can't help with that.", [], {"no record in the reply": 1}),
        ("", [], {"empty reply": 1}),
        ("(COMPANY A<|>NONE<|>FINE<|>TRUE<|>fined)\n<|COMPLETE|>", [], {"claim with too few fields": 1}),
        (FINE[:-1] + "<|>more<|>more)<|COMPLETE|>", [], {"claim with too many fields": 1}),
        (FINE[:-20], [], {"no end marker": 1, "record not closed": 1}),
        ("(NONE<|>NONE<|>X<|>TRUE<|>NONE<|>NONE<|>Something.<|>quote)<|COMPLETE|>", [], {"claim without subject or description": 1}),
        (
            "(MERCURY (PLANET)<|>NONE<|>X<|>**FALSE**<|>NONE<|>NONE<|>It rings.)<|COMPLETE|>",
            [("MERCURY (PLANET)", "It rings. (found to be false)")],
            {},
        ),
        ("(a<|>NONE<|>X<|>maybe<|>NONE<|>NONE<|>It is.<|>q)<|COMPLETE|>", [("A", "It is. (not verified)")], {"claim of unknown status": 1}),
    ],
)
def test_claims_are_parsed_from_typical_replies(reply: str, claims: list[tuple[str, str]], counts: dict[str, int]) -> None:
    records = parse_claims(reply)
    assert [tuple(claim) for claim in records.claims] == claims
    assert dict(records.malformed + records.repaired) == counts


def test_claims_are_attached_to_their_subject_and_others_are_counted(tmp_path: Path) -> None:
    builder = GraphBuilder()
    claims = parse_claims(f"{FINE}##{SUSPECTED}<|COMPLETE|>").claims
    builder.add(0, Records((EntityRecord("COMPANY A", "ORGANIZATION", "A company."),), claims=claims))
    graph = builder.build("d")
    assert [(node.name, node.claims) for node in graph.nodes] == [("COMPANY A", (FINED[1],))]
    assert graph.counts == {"claim about no entity of the graph": 1}
    graph.save(tmp_path / "graph.json")
    assert KnowledgeGraph.load(tmp_path / "graph.json") == graph
    request = QueryRequest(Question("q", "Who was punished?", ("Zeta",)), graph.nodes)
    assert f'"{FINED[1]}"' in given(request)
    assert any(FINED[1].rstrip(".") in query for query in TemplateQueries().generate([request])[0].queries)


@pytest.mark.parametrize("name", ["ours", "published"])
def test_claim_prompts_have_placeholders_for_text_and_entities(name: str, data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGMETER_DATA", str(data_folder))
    if name == "published" and not (data_folder / "prompts").is_dir():
        pytest.skip("no prompts among the real samples")
    text = "\n".join(message["content"] for message in PROMPT.load(name).messages(text="The text.", entities="COMPANY A, PERSON C"))
    assert "The text." in text
    assert "COMPANY A, PERSON C" in text
    assert "{" not in text


def test_claims_require_an_llm_and_leave_other_fingerprints_unchanged() -> None:
    with pytest.raises(ValidationError, match="language model"):
        GraphConfig.model_validate({"extractor": "noun_phrases", "claims": "ours"})
    assert "claims" not in GraphConfig.model_validate({}).model_dump()


EXTRACTED = '("entity"<|>Company A<|>ORGANIZATION<|>A company.)##\n("entity"<|>Person C<|>PERSON<|>Its owner.)##\n<|COMPLETE|>'
CHUNKS = [Chunk(0, "Company A was fined.", 0, 20), Chunk(1, "Person C owns it.", 21, 38)]


@contextmanager
def served(claims: str | None, prompts: list[str]) -> Iterator[ChatModel]:
    """Serve a model that extracts two entities and answers a request for claims with a text (None: an error)."""

    def answer(request: ChatRequest) -> Written:
        prompts.append(request.prompt)
        if "Entities:\n" not in request.prompt:
            return Written(EXTRACTED, 10, 20)
        if claims is None:
            raise Refused(500, "overloaded")
        return Written(claims, 10, 20)

    with OpenAIServer("m", answer).running() as url:
        options = {"model": "m", "base_url": url, "key_variable": None, "attempts": 1, "max_tokens": 4096}
        yield ChatModel(ChatConfig.model_validate(options))


def test_claims_are_requested_per_chunk_for_its_entities(tmp_path: Path) -> None:
    prompts: list[str] = []
    with served(f"{FINE}\n##\n{SUSPECTED}\n<|COMPLETE|>", prompts) as model:
        extractor = LLMExtractor(model, claims=PROMPT.load())
        graph = run(graph_of("d", CHUNKS, extractor, tmp_path))
        assert run(graph_of("d", CHUNKS, extractor, tmp_path)) == graph
    assert len(prompts) == 2 * len(CHUNKS)
    assert sum("COMPANY A, PERSON C" in prompt for prompt in prompts) == len(CHUNKS)
    assert {node.name: node.claims for node in graph.nodes} == {FINED[0]: (FINED[1],), CORRUPT[0]: (CORRUPT[1],)}
    assert extractor.fingerprint != LLMExtractor(model).fingerprint


def test_failed_claims_keep_the_graph_and_are_requested_again(tmp_path: Path) -> None:
    prompts: list[str] = []
    with served(None, prompts) as model:
        partial = run(graph_of("d", CHUNKS, LLMExtractor(model, claims=PROMPT.load()), tmp_path))
    assert partial.counts[FAILED] == len(CHUNKS)
    assert [node.claims for node in partial.nodes] == [(), ()]
    with served(f"{FINE}<|COMPLETE|>", prompts) as model:
        whole = run(graph_of("d", CHUNKS, LLMExtractor(model, claims=PROMPT.load()), tmp_path))
    assert whole.nodes[0].claims == (FINED[1],)
    assert FAILED not in whole.counts
