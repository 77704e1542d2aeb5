"""Tables of GraphRAG's published prompts, and references to them in replies."""

from __future__ import annotations

import json
from typing import Any

import pandas
import pytest

from benchmarks.corpus import Corpus
from benchmarks.schema import Passage, Query
from methods.api import Services, Usage
from methods.baselines.graph_rag.graphrag import GlobalConfig, GraphRagGlobal, GraphRagIndex, Report, Reported
from methods.baselines.graph_rag.tables import analyst_points, community_tables, report_table, reports_in, table, without_references
from methods.flow import run
from methods.graphs.communities import Community
from methods.graphs.extraction import ChunkRead
from methods.graphs.knowledge_graph import EntityRecord, RelationRecord
from methods.prompts import parse as template
from tests.methods.baselines.test_graph_rag import Says, Words

NAMES = ["ADA", "BAY", "CAT", "DAN"]
ENTITIES = tuple(EntityRecord(name, "T", f'{name}, "said", so') for name in NAMES)
RELATIONS = tuple(RelationRecord(one, other, f"{one} to {other}", 1.0) for one, other in (("ADA", "BAY"), ("ADA", "CAT"), ("CAT", "DAN")))
CORPUS = Corpus.of([Passage("p0", "", "Ada, Bay, Cat and Dan.")])
CONFIG = GlobalConfig.model_validate({"llm": {"model": "m", "key_variable": None}, "prompts": "published"})


@pytest.fixture
def made() -> GraphRagIndex:
    reads = [ChunkRead(ENTITIES, RELATIONS)]
    return GraphRagIndex(CONFIG, CORPUS, Words(), reads, Usage(), lambda *_: None, None)  # type: ignore[arg-type]


def test_csv_equals_pandas_output() -> None:
    columns, rows = ("a", "b|c"), [("1", 'x, "y"'), ("2", "line\nbreak"), ("", "|")]
    for separator in (",", "|"):
        assert table(columns, rows, separator) == pandas.DataFrame(rows, columns=list(columns)).to_csv(index=False, sep=separator)


def test_community_table_is_sorted_by_degree_and_cut_to_its_budget(made: GraphRagIndex) -> None:
    group = made.group(Query("q", "?"))
    names = [node.name for node in group.index.graph.nodes]
    entities, relations = community_tables(group, range(4), {}, 1000).split("\n\n\n")
    assert entities.startswith("-----Entities-----\nhuman_readable_id,title,description,degree\n")
    assert f'{names.index("ADA")},ADA,"ADA, ""said"", so",2\n' in entities
    rows = relations.splitlines()[2:]
    assert rows[0].endswith("ADA,CAT,ADA to CAT,4")
    assert len(rows) == 3
    cut = community_tables(group, range(4), {7: "# Part"}, 1)
    assert cut.startswith("----Reports-----\ncommunity,full_content\n7,# Part\n")
    assert len(cut.partition("-----Relationships-----\n")[2].splitlines()) == 2
    assert "Relationships" not in community_tables(group, [names.index("DAN")], {}, 1000)


@pytest.mark.parametrize(
    ("text", "ids", "plain"),
    [
        ("It is so [Data: Reports (2, 7, +more)].", [2, 7], "It is so."),
        ("A [Data: Reports (3)]; b [Data: Entities (1, 5); Reports (4, 3)]", [3, 4], "A; b"),
        ("A [Data: Report (9)]", [9], "A"),
        ("Nothing [1] here", [], "Nothing [1] here"),
    ],
)
def test_references_to_reports_are_read_and_removed(text: str, ids: list[int], plain: str) -> None:
    assert (reports_in(text), without_references(text)) == (ids, plain)


def test_reports_and_points_have_the_released_format() -> None:
    rows = [(1, "A", 0.5, "# A", 3.0), (2, "B", 1.0, "# B", 1.0), (3, "C", 1.0, "# C", 2.0)]
    assert report_table(rows) == "id|title|occurrence weight|content|rank\n3|C|1.0|# C|2.0\n2|B|1.0|# B|1.0\n1|A|0.5|# A|3.0\n"
    assert analyst_points([(0, 90.0, "a"), (2, 5.0, "b")]) == (
        "----Analyst 1----\nImportance Score: 90\na\n\n----Analyst 3----\nImportance Score: 5\nb"
    )


def test_global_search_reads_published_replies(made: GraphRagIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    points = {"points": [{"description": "Ada kept it [Data: Reports (5)]", "score": 80}, {"description": "no", "score": 0}]}
    says = Says(f"```json\n{json.dumps(points)}\n```", "**Answer:** Ada [Data: Reports (5)]")
    prompt = template("options\nwhitespace: keep\n---\nuser\n$question", "x")
    filled: list[dict[str, Any]] = []

    class Kept:
        def messages(self, **values: Any) -> Any:
            filled.append(values)
            return prompt.messages(question=values["question"])

    monkeypatch.setattr(GlobalConfig, "template", lambda self, name: Kept())
    method = GraphRagGlobal(CONFIG, Services(device="cpu"))
    community = Community(5, 0, -1, tuple(range(4)))
    reported = Reported((community,), {5: Report(title="Ada", summary="s", rating=4, findings=[])}, {})

    async def ready(query: Query) -> Any:
        return made, made.group(query), reported

    monkeypatch.setattr(method, "reported", ready)
    monkeypatch.setattr(method, "_model", says)
    monkeypatch.setattr(method, "_index", made)
    prediction = run(method.answer_one(Query("q", "Who?")))
    assert (prediction.answer, [item.id for item in prediction.evidence]) == ("Ada", ["p0"])
    assert filled[0]["reports"] == 'id|title|occurrence weight|content|rank\n5|Ada|1.0|"# Ada\n\ns"|4.0\n'
    assert filled[1]["points"] == "----Analyst 1----\nImportance Score: 80\nAda kept it [Data: Reports (5)]"
