"""Keeps secrets out of everything that is read for people: pages, tables, exports.

ragmeter itself stores no key: options name the environment variable that holds one. But plug-ins have options of their
own, cards of submissions are strangers' text, and services repeat keys in their error messages; so what is read is
looked through for fields named like secrets and for texts of the forms that keys have.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "[hidden]"
_NAMES = r"""[a-z0-9_.-]*(?:
    (?:api|access|auth|secret|private|service|session|refresh|bearer|hf|encryption|signing)[_-]?(?:key|token)s?
    | pass(?:word|wd|phrase)s? | secrets? | credentials? | authori[sz]ation | connection[_-]?string
) | token | cookie"""
_FORMS = r"""
    \b(?:sk|pk|rk)-(?=[A-Za-z_-]*[0-9*])[A-Za-z0-9_*-]{12,}     # OpenAI's form; services star the middle
    | \bhf_[A-Za-z0-9]{20,}                                     # Hugging Face
    | \b(?:gh[pousr]_|github_pat_)[A-Za-z0-9_]{20,}             # GitHub
    | \bglpat-[A-Za-z0-9_-]{16,}                                # GitLab
    | \b(?:AKIA|ASIA)[A-Z0-9]{16}\b                             # Amazon
    | \bAIza[A-Za-z0-9_-]{30,}                                  # Google
    | \bxox[abprs]-[A-Za-z0-9-]{10,}                            # Slack
    | \beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{5,}     # JSON web tokens
    | (?<=[Bb]earer\ )[A-Za-z0-9._~+/=-]{12,}
    | -----BEGIN[ A-Z]*PRIVATE\ KEY-----[A-Za-z0-9+/=\s\\]*(?:-----END[ A-Z]*PRIVATE\ KEY-----)?
    | (?<=://)[^\s/@:"']+:[^\s/@"']+(?=@)                       # user:password@host
"""
_FIELD = re.compile(_NAMES, re.IGNORECASE | re.VERBOSE)
_FORM = re.compile(_FORMS, re.VERBOSE)
# An escaped ASCII character can hide a name or a form from a look at the text.
_SUSPECT = re.compile(rf'(?i:"(?:{_NAMES})"\s*:)|\\u00[2-7]|{_FORMS}', re.VERBOSE)


def without_secrets(text: str) -> str:
    """A text with what has the form of a key replaced by `HIDDEN`."""
    return _FORM.sub(HIDDEN, text)


def names_secret(name: str) -> bool:
    """Whether a field or an environment variable is named like one that holds a secret."""
    return _FIELD.fullmatch(name) is not None


def shareable(document: str | None) -> Any:
    """Stored JSON as a value without secrets; an empty object where there is none."""
    value = json.loads(document or "{}")
    # Nearly no document holds any: a look at the text is much quicker than one at every value.
    return redacted(value) if document and _SUSPECT.search(document) else value


def redacted(value: Any) -> Any:
    """A JSON value without secrets: fields named like one lose their value, other texts what has the form of one."""
    if isinstance(value, Mapping):
        return {name: _hidden(inner) if names_secret(str(name)) else redacted(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [redacted(inner) for inner in value]
    return without_secrets(value) if isinstance(value, str) else value


def _hidden(value: Any) -> Any:
    """A value in which only its shape and what says "none" are left."""
    if isinstance(value, Mapping):
        return {name: _hidden(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_hidden(inner) for inner in value]
    return value if value is None or isinstance(value, bool) or value == "" else HIDDEN
