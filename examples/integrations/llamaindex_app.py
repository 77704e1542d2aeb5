"""A LlamaIndex query engine as a method: its response with the source nodes that it read."""

from documents import TEXTS, quoted
from llama_index.core import Settings, SimpleKeywordTableIndex
from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import CustomQueryEngine
from llama_index.core.response import Response
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import TextNode

Settings.llm = MockLLM()
INDEX = SimpleKeywordTableIndex([TextNode(id_=name, text=text, metadata={"file_path": name}) for name, text in TEXTS.items()])


class Engine(CustomQueryEngine):
    """Retrieves nodes and answers from them."""

    retriever: BaseRetriever

    def custom_query(self, query_str: str) -> Response:
        nodes = self.retriever.retrieve(query_str)[:5]
        return Response(quoted([node.text for node in nodes]), source_nodes=nodes)


ENGINE = Engine(retriever=INDEX.as_retriever(retriever_mode="simple"))


def answer(question: str) -> dict[str, object]:
    """Answer as the application does."""
    response = ENGINE.query(question)
    return {"answer": str(response), "contexts": response.source_nodes}
