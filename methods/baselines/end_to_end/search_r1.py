"""Search-R1 and R1-Searcher: models trained to search during their reasoning, by writing tags.

Inserted search results are never parsed as the model's output. A reply without a tag uses up a turn and is answered with
instructions. The last turn cannot search.

Source: Jin et al. 2025, Search-R1 (arXiv:2503.09516); Song et al. 2025, R1-Searcher (arXiv:2503.05592).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, ClassVar, NamedTuple

from pydantic import Field

from benchmarks.schema import Passage
from methods.models.bounded import between
from methods.models.llm import LLM, defaults
from methods.program import NO_END, NOTHING_FOUND, ProgramConfig, Session, prompt_of, register_program, tagged
from methods.prompts import OURS, Messages, shipped

OPENING, TURN = "search_r1", "search_r1_turn"
TEMPLATES = shipped(Path(__file__).parent, OPENING, TURN, released=(OPENING, TURN))


_WORDS, _BREAK = re.compile(r"\s*\S+"), re.compile(r"\n{0,2}")


class Tags(NamedTuple):
    """Tags around a search query and around inserted results."""

    search: tuple[str, str]
    information: tuple[str, str]


TAGS = {
    "search_r1": Tags(("<search>", "</search>"), ("<information>", "</information>")),
    "r1_searcher": Tags(("<|begin_of_query|>", "<|end_of_query|>"), ("<|begin_of_documents|>", "<|end_of_documents|>")),
}


class SearchR1Config(ProgramConfig):
    """Options of both systems."""

    thinks: ClassVar[bool] = True
    opening: ClassVar[str] = OPENING
    llm: Annotated[LLM, defaults(max_tokens=500, stop=[tags.information[0] for tags in TAGS.values()])] = Field(
        description="the trained model: a local model, or an endpoint that continues an assistant's last message"
    )
    tags: str = Field("search_r1", pattern="^(search_r1|r1_searcher)$", description="tags that the model was trained with")
    prompt: str | None = Field(
        None,
        description="`published` (Search-R1's), `ours`, or a template file; null: published for a local model and for endpoints "
        "with the name of a checkpoint; for R1-Searcher, ours",
    )
    k: int = Field(3, ge=1, le=100, description="passages per search (R1-Searcher: 5)")
    turns: int = Field(4, ge=1, description="maximum searches before the last turn (R1-Searcher: 16)")
    words: int | None = Field(
        None, ge=1, description="maximum words of retrieved information; null: as many as fit into the model's context"
    )

    def preflight(self) -> None:
        """Check the model, the retriever and the templates; download a published template."""
        super().preflight()
        if self.tags == OPENING:
            for template in TEMPLATES.values():
                template.load(prompt_of(self, template))


def _released(model: str, **more: object) -> dict[str, object]:
    return {"llm": {"local": model, "dtype": "bfloat16"}, **more}


@register_program(
    "search_r1",
    summary="a model that was trained to search while it reasons",
    version=3,
    config=SearchR1Config,
    prompts=(OPENING, "r1_searcher", "search_r1_again", TURN),
    released=(OPENING, TURN),
    calls=lambda config: config.turns + 2,
    searches=lambda config: config.turns + 1,
    paper="Jin et al. 2025, Search-R1 (arXiv:2503.09516)",
    presets={
        "released-3b": _released("PeterJinGo/SearchR1-nq_hotpotqa_train-qwen2.5-3b-em-grpo"),
        "released-7b": _released("PeterJinGo/SearchR1-nq_hotpotqa_train-qwen2.5-7b-it-em-ppo"),
        "r1-searcher": _released("XXsongLALA/Qwen-2.5-7B-base-RAG-RL", tags="r1_searcher", k=5, turns=16),
    },
)
async def search_r1(q: Session) -> str:
    """Run the search loop on a question, and return the text in the answer tag, else the answer of plain reading."""
    opening, closing = TAGS[q.config.tags].search
    before, after = TAGS[q.config.tags].information
    question = q.text.strip() if q.text.rstrip().endswith("?") else f"{q.text.strip()}?"
    turns = q.prompts[TURN] if q.config.tags == OPENING else TEMPLATES[TURN].load(OURS)
    start = q.prompts[q.config.tags].messages(question=question)
    (again,) = q.prompts["search_r1_again"].messages(opening=opening, closing=closing)
    head, passages, fitting = "", list[Passage](), _Shown()

    def conversation(words: int) -> Messages:
        fitting.written = head
        if fitting.reply:
            shown = _show_passages(passages, words) + ("" if "before" in turns.placeholders else "\n" * bool(passages))
            (turn,) = turns.messages(reply=fitting.reply, passages=shown, before=before, after=after)
            fitting.written += turn["content"]
        return [*start, *([{"role": "assistant", "content": fitting.written}] if fitting.written else [])]

    for number in range(q.config.turns + 1):
        count = sum(len(_WORDS.findall(line)) for line in _lines(passages))
        reply = await q.fitted(conversation, min(count, q.config.words or count), "turn", raw=True)
        head, fitting.reply, passages = fitting.written, "", []
        wanted = between(reply, opening, closing)
        answered = re.search("<answer>", reply, re.IGNORECASE)
        if wanted and not (answered and answered.start() < wanted.start()):
            if number == q.config.turns:
                break
            passages = list(await q.search(wanted[1].strip() or q.text))
            if not passages:
                q.fallback(NOTHING_FOUND)
            fitting.reply = reply[: wanted.end()] + _BREAK.match(reply, wanted.end())[0]  # type: ignore[index]
        elif answer := tagged(reply, "answer"):
            return answer
        else:
            q.unusable(reply)
            head += f"{reply}\n\n{again['content']}\n\n"
    q.fallback(NO_END)
    return await q.plain()


class _Shown:
    """The reply whose search is being answered, and the assistant's text as last shown."""

    reply = written = ""


def _lines(passages: Sequence[Passage]) -> list[str]:
    parts = [f"{item.title}\n{item.text}".partition("\n") for item in passages]  # the released code takes the first line as title
    return [f"Doc {number}(Title: {title}) {text}" for number, (title, _, text) in enumerate(parts, 1)]


def _show_passages(passages: Sequence[Passage], words: int) -> str:
    """Format passages one per line, up to a number of words."""
    kept: list[str] = []
    for line in _lines(passages):
        own = _WORDS.findall(line)
        kept.append(line if len(own) <= words else "".join(own[:words]))
        words = max(0, words - len(own))
    return "\n".join(line for line in kept if line)
