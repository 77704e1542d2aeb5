"""A Haystack pipeline as a method: BM25 retriever, prompt builder and generator."""

from documents import TEXTS, quoted
from haystack import Document, Pipeline, component
from haystack.components.builders import PromptBuilder
from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
from haystack.document_stores.in_memory import InMemoryDocumentStore

STORE = InMemoryDocumentStore()
STORE.write_documents([Document(id=name, content=text, meta={"url": f"docs/{name}"}) for name, text in TEXTS.items()])


@component
class Model:
    """A model in this process; replace it by a generator of yours."""

    @component.output_types(replies=list[str])
    def run(self, prompt: str) -> dict[str, list[str]]:
        return {"replies": [quoted(prompt.split("\n\n"))]}


PIPELINE = Pipeline()
PIPELINE.add_component("retriever", InMemoryBM25Retriever(STORE, top_k=5))
PIPELINE.add_component(
    "prompt",
    PromptBuilder("{% for document in documents %}{{ document.content }}\n\n{% endfor %}Question: {{ question }}", required_variables="*"),
)
PIPELINE.add_component("model", Model())
PIPELINE.connect("retriever.documents", "prompt.documents")
PIPELINE.connect("prompt", "model")


def answer(question: str) -> tuple[str, list[Document]]:
    """Answer as the application does."""
    data = {"retriever": {"query": question}, "prompt": {"question": question}}
    outputs = PIPELINE.run(data, include_outputs_from={"retriever"})
    return outputs["model"]["replies"][0], outputs["retriever"]["documents"]
