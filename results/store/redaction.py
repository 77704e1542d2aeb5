"""Remove secrets from all output for people: pages, tables, exports.

ragmeter itself stores no key: options name the environment variable that holds one. But plug-ins have options of their
own, cards of submissions are untrusted text, and services repeat keys in their error messages; so output is searched for
fields named like secrets and for texts that have the form of keys.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

HIDDEN = "[hidden]"
_NAMES = r"""[a-z0-9_.-]*(?:
    (?:api|access|auth|secret|private|service|session|refresh|bearer|hf|encryption|signing)[_-]?(?:key|token)s?
    | [_.-](?:key|token|pwd) | pass(?:word|wd|phrase)s? | secrets? | credentials? | authori[sz]ation
    | connection[_-]?string
) | token | pwd | cookie"""
# Named like a secret, and what every tokenizer, table and worked question has: marks of texts, places, units.
_HARMLESS = r"""(?:[a-z0-9_.-]+[_.-])?(?:
    (?:answer|gold|column|board|dataset|row|sort|cache|group|index|join|primary|foreign|partition|public|unknown|
       duplicate|metric|method|question|document|passage|store|config)[_-]key
    | (?:pad|padding|eos|bos|unk|mask|sep|cls|start|end|stop|special|image|memory|mem|per|first|last|next|think|empty
       )[_-]token
)"""
_FORMS = r"""
    \b(?:sk|pk|rk)-(?=[A-Za-z_-]{0,48}[0-9*])[A-Za-z0-9_*-]{12,}   # OpenAI's form; services star the middle
    | \b(?:hf_|gsk_|r8_|xai-)[A-Za-z0-9]{20,}                   # Hugging Face, Groq, Replicate, xAI
    | \b(?:nvapi-|pplx-)[A-Za-z0-9_-]{20,}                      # NVIDIA, Perplexity
    | \b(?:gh[pousr]_|github_pat_)[A-Za-z0-9_]{20,}             # GitHub
    | \bglpat-[A-Za-z0-9_-]{16,}                                # GitLab
    | \b(?:AKIA|ASIA)[A-Z0-9]{16}\b                             # Amazon
    | \bAIza[A-Za-z0-9_-]{30,}                                  # Google
    | \bxox[abprs]-[A-Za-z0-9-]{10,}                            # Slack
    | \beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{5,}     # JSON web tokens
    | (?<=[Bb]earer\ )[A-Za-z0-9._~+/=-]{12,}
    | -----BEGIN[ A-Z]*PRIVATE\ KEY-----[A-Za-z0-9+/=\s\\]*(?:-----END[ A-Z]*PRIVATE\ KEY-----)?
    | (?<=://)[^\s/@:"'?#]{0,200}:[^\s/"'?#]{1,200}(?=@)        # user:password@host, :password@host
    | (?:(?<=https://)|(?<=http://))[^\s/@:"'?#]{1,200}(?=@)    # token@host; over ssh it is a user's name
"""
# What is after a name. Only the value goes; in running text a name alone says nothing ("the API key: see below").
_STATED = r"""
    (?P<kept>
        [?&;][A-Za-z0-9_.-]{0,40}(?i:key|token|secret|passw(?:or)?d|pwd|signature|sig|credential|auth)=
        (?=[^&;\#\s"'<>)\]}\\]{6})
    |   \b[Aa](?i:uthorization)\\?["']?\s{0,3}[:=]\s{0,3}\\?["']?(?i:basic|token|apikey|negotiate|digest)\s
        (?: (?=[A-Za-z0-9+/_-]{6,}={0,2}(?:[\s"',;)}\]\\]|\Z))(?=[a-z+/_-]*[A-Z0-9]) | (?=username=) )   # no word of a sentence
    |   [AaSsPpCc](?i:(?:(?<=a)(?:pi|ccess|uth|ccount)|(?<=s)ecret|(?<=p)rivate)[_-]?(?:key|token)
            |(?<=c)lient[_-]?secret|(?<=p)(?:assw(?:or)?d|assphrase|wd))
        (?: \\?["']?\s{0,3}[:=]\s{0,3}\\?["'](?=[^\s"'\\]{4})              # api_key='…', "api_key": "…"
        |   =(?!(?i:none|null|true|false|os\b)\b)(?=[^\s"',;&)\]}\\]{4})      # api_key=…
        |   :\s{0,3}(?=[^\s"',;&)\]}\\0-9]{0,40}[0-9])(?=[^\s"',;&)\]}\\]{8})   # x-api-key: …, which has a digit
        )
    )
    (?!\[hidden\])[^&;\#\s"',<>)\]}\\]+
"""
_FIELD = re.compile(_NAMES, re.IGNORECASE | re.VERBOSE)
_NO_FIELD = re.compile(_HARMLESS, re.IGNORECASE | re.VERBOSE)
_FORM = re.compile(_FORMS, re.VERBOSE)
_BEHIND = re.compile(_STATED, re.VERBOSE)
# An escaped ASCII character can hide a name or a form in the raw text.
_SUSPECT = re.compile(rf'(?i:"(?:{_NAMES})"\s*:)|\\u00[2-7]|{_FORMS}|{_STATED}', re.VERBOSE)
_VARIABLE = re.compile(r".*(?:TOKEN|KEY|SECRET|CREDENTIAL|COOKIE|PASSWORD|PASSWD|PASS)S?(?:_.*)?|(?:.*_)?(?:PASS.*|(?:AUTH|PWD)(?:_.*)?)")
_NO_VARIABLE = frozenset(("PWD", "STREAMLIT_SERVER_SSL_KEY_FILE"))
"""Variables with key-like names but no secret: the working directory, and a path that the server reads."""


def without_secrets(text: str) -> str:
    """Replace parts of a text that look like an API key by `HIDDEN`."""
    return _BEHIND.sub(lambda result: result["kept"] + HIDDEN, _FORM.sub(HIDDEN, text))


def names_secret(name: str) -> bool:
    """Return whether a field's name suggests a secret (such as a key or token)."""
    return _FIELD.fullmatch(name) is not None and _NO_FIELD.fullmatch(name) is None


def variable_is_secret(name: str, value: str) -> bool:
    """Return whether an environment variable looks like a secret, by its name or value.

    It is stricter than `names_secret`, because dropping a harmless variable does little harm.
    """
    if without_secrets(value) != value:
        return True
    return name not in _NO_VARIABLE and (_VARIABLE.fullmatch(name.upper()) is not None or names_secret(name))


def shareable(document: str | None) -> Any:
    """Parse stored JSON and remove secrets; None gives an empty object."""
    value = json.loads(document or "{}")
    # Almost no document has any: searching the text is much faster than visiting all values.
    return redacted(value) if document and _SUSPECT.search(document) else value


def redacted(value: Any) -> Any:
    """Remove secrets from a JSON value: fields whose name suggests a secret lose their value; in other texts, keys are replaced."""
    if isinstance(value, Mapping):
        return {name: _hidden(inner) if names_secret(str(name)) else redacted(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [redacted(inner) for inner in value]
    return without_secrets(value) if isinstance(value, str) else value


_PLACES_OF_KEYS = frozenset({"key_variable"})
"""Options into which users put a key by mistake."""
_ADDRESSES = frozenset({"base_url"})


def echoed(value: Any, path: Sequence[str | int] = (), *, longest: int = 60) -> str:
    """Format an invalid value for an error message: without possible secrets, and truncated.

    Args:
        value: The invalid value.
        path: Its position in the document; values of fields for keys or addresses are always hidden.
        longest: Maximum length in characters.
    """
    for part in reversed(path):
        value = {str(part): value}
    value = _redacted(redacted(value))
    for part in path:
        value = value[str(part)] if isinstance(value, Mapping) else value
    text = HIDDEN if value == HIDDEN else without_secrets(repr(value))
    return text if len(text) <= longest else text[: longest - 3] + "…"


def _redacted(value: Any) -> Any:
    """Return a value without fields into which users put keys by mistake: names of variables, and addresses."""
    if isinstance(value, Mapping):
        return {name: HIDDEN if _may_be_key(name, inner) else _redacted(inner) for name, inner in value.items()}
    return [_redacted(inner) for inner in value] if isinstance(value, list | tuple) else value


def _may_be_key(name: Any, value: Any) -> bool:
    if value is None:
        return False
    return name in _PLACES_OF_KEYS or (name in _ADDRESSES and any(mark in str(value) for mark in "@?"))


def _hidden(value: Any) -> Any:
    """Reduce a value to its shape and empty values."""
    if isinstance(value, Mapping):
        return {name: _hidden(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_hidden(inner) for inner in value]
    return value if value is None or isinstance(value, bool) or value == "" else HIDDEN
