"""Check what a connection needs before the first request: address, headers, fields, and the environment's proxy and certificates."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, TypeVar
from urllib.parse import urlsplit

from benchmarks.core.errors import UserError

T = TypeVar("T")
_CONNECTION = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VALUE = re.compile(r"[\t\x20-\x7e]*")
_PATHS = re.compile(r"/(?:(?:chat/)?completions|embeddings|embed|rerank)/*$")
"""Paths that clients append to a base URL."""


def connection_variables(url: str = "https:") -> str:
    """Return the environment variables that affect connections to a URL, with their values but without passwords; "" for none."""
    shown = {}
    for name in (*_CONNECTION, *map(str.lower, _CONNECTION)):
        if name.upper().startswith("SSL_") and url.lower().startswith("http:"):
            continue
        if value := os.environ.get(name, ""):
            shown[name] = re.sub(r"(^|//)[^/\s]*@", r"\1***@", value)
    return ", ".join(f"{name}={value}" for name, value in shown.items())


def opened(make: Callable[[], T]) -> T:
    """Return a new HTTP client. Clients read proxies and certificates from the environment.

    Raises:
        UserError: The environment names a proxy or a certificate file that cannot be used.
    """
    try:
        return make()
    except Exception as error:  # ImportError for SOCKS, ValueError, OSError, or the client's own InvalidURL
        remedy = "correct or unset these variables"
        if isinstance(error, ImportError):
            remedy = "pip install 'httpx[socks]', or a proxy with http://, or unset the variable"
        reason = re.sub(r"[^/\s'\"]*@", "***@", str(error))
        raise UserError(
            f"no connection can be opened: {reason} (in effect: {connection_variables() or 'no proxy and no certificate file'})",
            code="bad-connection-variables",
            where="environment",
            try_this=remedy,
        ) from None


def no_cookies() -> CookieJar:
    """Return a cookie jar that stays empty: with a session's cookie, a server could mix the questions' conversations."""
    return CookieJar(DefaultCookiePolicy(allowed_domains=()))


def base_url_of(value: str) -> str:
    """Return a base URL without surrounding white space, after checking it.

    Raises:
        ValueError: It does not begin with http:// or https://, has a wrong port, a key or a query, or ends in the path of a request.
    """
    value = value.strip()
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("base_url must start with http:// or https://")
    if "${" in value:
        raise ValueError("base_url must not name a variable: write the address")
    try:
        parts.port  # noqa: B018
    except ValueError:
        raise ValueError("base_url has a port that is not a number from 0 to 65535") from None
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError("base_url must not carry a key, a query or a fragment: put them into key_variable and query")
    if match := _PATHS.search(value):
        raise ValueError(f"base_url must end before {match[0]}, which is appended to it: {value[: match.start()]}")
    return value


def require_headers(headers: Mapping[str, str], where: str) -> None:
    """Check that headers can be sent. A value may be secret, so the message does not show it.

    Raises:
        UserError: A name or a value has characters that headers cannot hold, such as curly quotes or line breaks.
    """
    for name, value in headers.items():
        if not _HEADER.fullmatch(name):
            raise UserError(f"{name!r} is no name of a header", code="bad-header", where=where, try_this="letters, digits and hyphens")
        if not _VALUE.fullmatch(value):
            sign = next(sign for sign in value if not _VALUE.fullmatch(sign))
            raise UserError(
                f"the value of the header {name} has the character U+{ord(sign):04X}, which cannot be sent",
                code="bad-header",
                where=where,
                try_this="copy the value again: curly quotes, line breaks and invisible characters come from documents and web pages",
            )


def json_fields(value: dict[str, Any], taken: frozenset[str]) -> dict[str, Any]:
    """Return additional fields of a request, after checking them.

    Args:
        value: The fields.
        taken: Fields that ragmeter sets itself.

    Raises:
        ValueError: A field is taken, or is no JSON value (a date, a set, NaN).
    """
    if used := sorted(taken & set(value)):
        raise ValueError(f"parameters must not hold {', '.join(used)}: that is a separate option, or fixed")
    for name, item in value.items():
        try:
            json.dumps(item, allow_nan=False)
        except (TypeError, ValueError):
            raise ValueError(f"parameters.{name} is {item!r:.60}, which JSON cannot hold: put a date or a text in quotes") from None
    return value


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that an endpoint asks to wait (`Retry-After` in seconds or as a date), or None.

    Source: RFC 9110, section 10.2.3; `retry-after-ms` is OpenAI's.
    """
    try:
        if "retry-after-ms" in headers:
            return max(float(headers["retry-after-ms"]) / 1000, 0.0)
        text = headers["retry-after"]
    except (KeyError, ValueError):
        return None
    try:
        return max(float(text), 0.0)
    except ValueError:
        pass
    when = _moment(text)
    # The date is of the server's clock, which may differ from the one here.
    now = _moment(headers.get("date", "")) or datetime.now(UTC)
    return max((when - now).total_seconds(), 0.0) if when else None


def _moment(text: str) -> datetime | None:
    """Parse the date of a header; None if it is not a date, or has no time zone."""
    try:
        when = parsedate_to_datetime(text)
    except ValueError:
        return None
    return when if when.tzinfo else None
