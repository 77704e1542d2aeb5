"""A whole system in three steps: search, ask what is still missing, search for that and read both."""

from __future__ import annotations

from methods.program import ProgramConfig, Session, register_program


@register_program(
    "two_looks",
    summary="search, ask what is missing, search again, read",
    config=ProgramConfig,
    prompts=("missing",),
    calls=lambda config: 2,
    searches=lambda config: 2,
)
async def two_looks(q: Session) -> str:
    """The answer from both searches; of the first alone where the model says nothing."""
    passages = await q.search(q.text)
    missing = await q.ask("missing", passages, question=q.text)
    return await q.read([*passages, *(await q.search(missing) if missing else [])])
