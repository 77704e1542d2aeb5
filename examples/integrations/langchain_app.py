"""A LangChain chain as a method: retriever, prompt, model and parser, returned with the documents that it read."""

from documents import TEXTS, quoted
from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.language_models import FakeListChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever


class SharedWords(BaseRetriever):
    """The five documents that share most words with the question."""

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        words = set(query.lower().split())
        best = sorted(TEXTS, key=lambda name: -len(words & set(TEXTS[name].lower().split())))[:5]
        return [Document(id=name, page_content=TEXTS[name], metadata={"source": f"docs/{name}"}) for name in best]


RETRIEVER = SharedWords()
PROMPT = ChatPromptTemplate.from_messages([("system", "Answer from these passages:\n{passages}"), ("human", "{question}")])


async def answer(question: str) -> tuple[str, list[Document]]:
    """Answer as the application does."""
    documents = await RETRIEVER.ainvoke(question)
    texts = [document.page_content for document in documents]
    chain = PROMPT | FakeListChatModel(responses=[quoted(texts)]) | StrOutputParser()
    return await chain.ainvoke({"question": question, "passages": "\n\n".join(texts)}), documents
