"""Extract claims (GraphRAG's covariates): statements of a chunk about an entity, with their status and dates.

    (SUBJECT<|>OBJECT<|>TYPE<|>STATUS<|>START<|>END<|>DESCRIPTION<|>SOURCE)##
    <|COMPLETE|>

ARK extracts claims in addition to entities and relations (Figure 2). A claim is attached to its subject entity, and shown with
the entity's descriptions to the model that writes augmented queries.

Source: Edge et al. 2024, From Local to Global (arXiv:2404.16130), and the grammar of GraphRAG's prompt.
"""

from __future__ import annotations

import re
from collections import Counter

from methods.graphs.knowledge_graph import FIELD, ClaimRecord, Records, clean, clean_name, inside_records
from methods.models.chat import ChatModel, Reply
from methods.prompts import Prompt, shipped

TEMPLATE = "graphrag_claims"
PROMPT = shipped("methods.graphs", TEMPLATE)[TEMPLATE]
FEWEST, MOST = 7, 8
"""Minimum and maximum number of fields in a claim record; the quoted source is optional."""
CONFIRMED, REFUTED, SUSPECTED = "TRUE", "FALSE", "SUSPECTED"
QUALIFIED = {REFUTED: "found to be false", SUSPECTED: "not verified"}
"""Suffix added to the text of a claim with this status."""
_START = re.compile(r"\(\s*(?=(?:[^()<]|\([^()<]*\))*<\|>)")
_NOTHING = re.compile(r"\W*(none|null|unknown|n/?a|)\W*", re.IGNORECASE)
_DATE = re.compile(r"(\d{4}(?:-\d{2}){0,2})(?:T[\d:.]*Z?)?")


async def ask_claims(model: ChatModel, prompt: Prompt, text: str, entities: tuple[str, ...]) -> tuple[Records, Reply]:
    """Ask a model for the claims of a chunk about the given entities; a failed call gives empty records."""
    reply = await model.ask(prompt.messages(text=text, entities=", ".join(entities)), step="claims")
    return (parse_claims(reply.text) if reply.failed is None else Records()), reply


def parse_claims(reply: str) -> Records:
    """Parse the claims in a reply, and count malformed ones."""
    claims: list[ClaimRecord] = []
    malformed: Counter[str] = Counter()
    repaired: Counter[str] = Counter()
    for _, inside in inside_records(reply, _START, malformed):
        fields = inside.split(FIELD)
        if not FEWEST <= len(fields) <= MOST:
            malformed[f"claim with too {'few' if len(fields) < FEWEST else 'many'} fields"] += 1
            continue
        subject, text = clean_name(_known(fields[0])), clean(_known(fields[6]))
        if not subject or not text:
            malformed["claim without subject or description"] += 1
            continue
        status = clean_name(fields[3]).strip("*")
        if status not in (CONFIRMED, *QUALIFIED):
            repaired["claim of unknown status"] += 1
            status = SUSPECTED
        claims.append(ClaimRecord(subject, _qualified(text, status, _period(fields[4], fields[5]))))
    return Records(malformed=malformed, repaired=repaired, claims=tuple(dict.fromkeys(claims)))


def _known(field: str) -> str:
    """Return a field's value; "" if it states that nothing is known."""
    text = field.strip().strip("*")
    return "" if _NOTHING.fullmatch(text) else text


def _period(start: str, end: str) -> str:
    """Return the dates of a claim without times of day."""
    dates = [match[1] if (match := _DATE.fullmatch(text)) else clean(text) for text in map(_known, (start, end))]
    return " to ".join(dict.fromkeys(filter(None, dates)))


def _qualified(text: str, status: str, period: str) -> str:
    added = ", ".join(filter(None, (QUALIFIED.get(status), period)))
    return f"{text} ({added})" if added else text
