"""From chunks to a graph: asked of a language model, or read from worlds without one, behind one interface."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Annotated, Any, ClassVar, Literal, Protocol

from pydantic import Field

from benchmarks.core.errors import MissingPackage, UserError
from benchmarks.core.fingerprint import content_hash, fingerprint
from methods.api import Services
from methods.flow import together
from methods.graphs.chunking import Chunk, ChunkConfig
from methods.graphs.knowledge_graph import GraphBuilder, KnowledgeGraph, SimilarityConfig, parse
from methods.graphs.synthetic import WorldsExtractor
from methods.models import template_text
from methods.models.chat import ChatModel
from methods.models.llm import LLM, MayAskConfig, defaults, open_llm

# -- Prompts of this room: templates as text files, filled without ever reading what is put in --
# A template is two parts with a line `---` between them, the system message and the user message. Placeholders are those
# of `string.Template` (`$text`); a dollar sign of one's own is written `$$`. Braces mean nothing.


PLACEHOLDERS = {"extraction": frozenset({"text"}), "names": frozenset({"text"}), "queries": frozenset({"given", "most"})}
"""What each shipped template is filled with."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A template in its two parts."""

    system: str
    user: str

    @property
    def hash(self) -> str:
        """Of the template's text, so that a changed prompt is a changed extraction."""
        return content_hash((self.system, self.user))

    def messages(self, **values: str) -> list[dict[str, str]]:
        """The conversation; what is put in is not searched for placeholders again."""
        parts = (("system", self.system), ("user", self.user))
        return [{"role": role, "content": Template(text).substitute(values)} for role, text in parts if text]


def load_prompt(name: str, path: str | None = None) -> Prompt:
    """A template of this room, or one's own in its place; errors as `read_prompt`."""
    return read_prompt("methods.graphs", name, PLACEHOLDERS[name], path)


def read_prompt(package: str, name: str, wanted: frozenset[str], path: str | Path | None = None) -> Prompt:
    """The template that ships with a package, or one's own in its place.

    Args:
        package, name, path: See `template_text`.
        wanted: The placeholders that it has to have.

    Raises:
        UserError: The file cannot be read, or its placeholders are not those.
    """
    where = str(path or f"{name}.txt")
    text = template_text(package, name, path)
    system, mark, user = text.partition("\n---\n")
    prompt = Prompt(system.strip(), user.strip()) if mark else Prompt("", system.strip())
    templates = Template(prompt.system), Template(prompt.user)
    shown = ", ".join(f"${name}" for name in sorted(wanted))
    if not all(template.is_valid() for template in templates):
        raise UserError("the prompt template holds a lone dollar sign", where=where, try_this="write it $$")
    if {name for template in templates for name in template.get_identifiers()} != wanted:
        raise UserError(f"the prompt template must hold exactly {shown}", where=where, try_this="and $$ for a dollar sign")
    return prompt


FAILED = "failed call"
"""Count of chunks for which no reply came; a kept graph that has some is made again, with cached replies."""


class GraphConfig(MayAskConfig):
    """How the graph of a document is made."""

    choice: ClassVar[str] = "extractor"

    extractor: Literal["llm", "worlds"] = Field("worlds", description="llm: ask a language model; worlds: read worlds' sentences")
    llm: Annotated[LLM, defaults(max_tokens=4096)] | None = Field(None, description="the model of extractor llm; paper: Gemini-2.5-Flash")
    prompt: str | None = Field(None, description="a template file of one's own; null: the one that ships")
    chunk: ChunkConfig = Field(ChunkConfig.model_validate({}), description="the pieces that are read one by one")
    similarity: SimilarityConfig = SimilarityConfig.model_validate({})


class Extractor(Protocol):
    """Reads documents: `extract(document_id, chunks)` to a graph, or `extract_one`, an `async` function, where it asks."""

    @property
    def fingerprint(self) -> str:
        """Of all that decides what it extracts."""
        ...


class LLMExtractor:
    """Asks a model for the records of every chunk.

    Args:
        model: The model.
        prompt: A template file of one's own.
    """

    def __init__(self, model: ChatModel, prompt: str | None = None) -> None:
        self._model = model
        self._prompt = load_prompt("extraction", prompt)

    @property
    def fingerprint(self) -> str:
        return fingerprint("llm", self._model.config.model_dump(mode="json"), self._prompt.hash)

    async def extract_one(self, document_id: str, chunks: Sequence[Chunk]) -> KnowledgeGraph:
        """The graph of a document."""
        replies = await together(*(self._model.ask(self._prompt.messages(text=chunk.text), step="extract") for chunk in chunks))
        builder = GraphBuilder()
        for chunk, reply in zip(chunks, replies, strict=True):
            if reply.failed is None:
                builder.add(chunk.index, parse(reply.text))
            else:
                builder.count(FAILED)
        return builder.build(document_id)


def extractor_of(config: GraphConfig, services: Services) -> WorldsExtractor | LLMExtractor:
    """The extractor that options name."""
    if (llm := config.active_llm) is None:
        return WorldsExtractor()
    model = open_llm(llm, role="knowledge graph", cache=services.cache, device=services.device, seed=services.seed)
    return LLMExtractor(model, config.prompt)


# -- Lists of strings out of replies that should be JSON with one list, and often are nearly so --


_FENCE = re.compile(r"```(?:\w+)?\s*(.*?)(?:```|\Z)", re.DOTALL)


def strings_in(reply: str) -> list[str] | None:
    """The strings of the one list in a reply: fences, prose around it and any key are forgiven.

    Returns:
        The strings as they stand, items of other types left out; None where there is no list.
    """
    for candidate in (reply, *_FENCE.findall(reply), _from_first_bracket(reply)):
        if candidate and (result := _strings(_loads(candidate))) is not None:
            return result
    return None


def _loads(text: str) -> Any:
    text = text.strip()
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    if not text.startswith(("{", "[")):
        return None
    try:
        return json.JSONDecoder().raw_decode(text)[0]
    except (ValueError, RecursionError):
        pass
    try:
        import json_repair
    except ImportError as error:
        raise MissingPackage("json-repair", "llm", "reading a reply that is not plain JSON") from error
    return json_repair.loads(text)


def _strings(value: Any) -> list[str] | None:
    """The strings of a list, or of the one list that an object has."""
    if isinstance(value, dict):
        lists = [item for item in value.values() if isinstance(item, list)]
        value = lists[0] if len(lists) == 1 else None
    if not isinstance(value, list):
        return None
    strings = [item for item in value if isinstance(item, str)]
    return strings if strings or not value else None


def _from_first_bracket(text: str) -> str:
    result = re.search(r"[{\[]", text)
    return text[result.start() :] if result else ""
