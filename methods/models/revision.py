"""The revision of a deployment, which distinguishes versions of a system behind the same address.

A revision is a text, or a probe that fetches it from a JSON document, a header, or a command's output. Results, run identities
and the reply cache store the text, never the probe.
"""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator

from benchmarks.core.errors import Broke, UserError, described
from methods.api import UNKNOWN_REVISION

LONGEST = 200
"""Maximum characters of a revision."""
_NOTHING = frozenset({UNKNOWN_REVISION, "none", "null", "undefined", "n/a"})
"""Placeholders that builds print if they do not know their revision."""
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_UNFILLED = re.compile(r"\$(?:\{|[A-Za-z_])")
_SECRET = re.compile(r"auth|cookie|key|pass|secret|token|credential", re.I)
_STEP = re.compile(r"""\.?([^.\[\]"']+)|\[(\d+)\]|\[(?:"([^"]+)"|'([^']+)')\]""")
_LONGEST_BODY = 4 * 2**20

T = TypeVar("T")


def filled(text: str) -> str:
    """Replace each `${NAME}` by the environment variable.

    Raises:
        ValueError: A variable is not set or empty; the message names it.
    """

    def value(match: re.Match[str]) -> str:
        text = os.environ.get(match[1], "").strip()
        if not text:
            raise ValueError(f"the environment variable {match[1]} is not set (export {match[1]}=…)")
        return text

    return _VARIABLE.sub(value, text)


def checked(text: str) -> str:
    """Return a revision stripped of white space, after validating it.

    Raises:
        ValueError: It is empty, too long, a placeholder value, or contains line breaks or invisible characters.
    """
    if "\n" in text.strip(" \t") or "\r" in text.strip(" \t"):
        raise ValueError("a revision must be one line, but this has a line break")
    text = text.strip()
    if not text:
        raise ValueError("a revision must not be empty")
    if not text.isprintable():
        sign = next(sign for sign in text if not sign.isprintable())
        raise ValueError(f"a revision must not contain the invisible character U+{ord(sign):04X}")
    if len(text) > LONGEST:
        raise ValueError(f"a revision has at most {LONGEST} characters, and this has {len(text):,}")
    if text.casefold() in _NOTHING:
        raise ValueError(f"{text!r} identifies no deployment")
    if _UNFILLED.search(text):
        raise ValueError(f"{text!r} contains a variable that was not filled in (write ${{NAME}} for an environment variable)")
    return text


class Probe(BaseModel):
    """Source of a deployment's revision at the start of a run: `{url, json}`, `{url, header}` or `{command}`."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, validate_by_name=True, serialize_by_alias=True)

    url: str | None = Field(None, description="address to read", exclude_if=lambda value: value is None)
    path: str | None = Field(
        None, alias="json", description="path in the JSON document there, such as build.commit", exclude_if=lambda value: value is None
    )
    header: str | None = Field(None, description="response header", exclude_if=lambda value: value is None)
    command: str | tuple[str, ...] | None = Field(
        None,
        description="command that prints the revision as its first line: a shell command as text, or a list",
        exclude_if=lambda value: value is None,
    )
    headers: dict[str, str] = Field({}, description="request headers; write secrets as ${NAME}", exclude=True)
    timeout_s: float = Field(10.0, gt=0, description="time limit in seconds", exclude=True)

    @field_validator("url")
    @classmethod
    def _plain(cls, value: str | None) -> str | None:
        parts = urlsplit(value or "http://x")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("url must start with http:// or https://")
        if parts.username or parts.password:
            raise ValueError("url must not hold a password: use headers: {Authorization: 'Basic ${NAME}'}")
        if any(_SECRET.search(name) for name, _ in parse_qsl(parts.query)):
            raise ValueError("url must not hold a secret: use headers: {Authorization: 'Bearer ${NAME}'}")
        return value

    @field_validator("path")
    @classmethod
    def _readable(cls, value: str | None) -> str | None:
        if value is not None:
            steps(value)
        return value

    @field_validator("headers")
    @classmethod
    def _no_secrets(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name) or "\n" in text or "\r" in text:
                raise ValueError(f"{name!r} cannot be sent as a header")
            if _SECRET.search(name) and not _VARIABLE.search(text):
                raise ValueError(f"the header {name} must take its value from an environment variable: {name}: ${{NAME}}")
        return value

    @model_validator(mode="after")
    def _one_place(self) -> Probe:
        named = [name for name, value in (("json", self.path), ("header", self.header), ("command", self.command)) if value]
        if len(named) != 1:
            has = f"and has {' and '.join(named)}" if named else "and has none of them"
            raise ValueError(f"a probe has one of json, header and command, {has}")
        if self.command and (self.url or self.headers):
            raise ValueError("a probe by command has no url and no headers")
        return self

    @property
    def place(self) -> str:
        """Return the URL or command, for messages."""
        if self.command:
            return f"the command {self.command if isinstance(self.command, str) else ' '.join(self.command)!r}"
        return str(self.url)


def _read(value: Any) -> Any:
    """Convert an option's value to a revision text (variables filled in) or a probe.

    It raises one clear error instead of pydantic's list for all alternatives of the union.
    """
    if value is None or isinstance(value, Probe):
        return value
    if isinstance(value, str):
        return checked(filled(value))
    if isinstance(value, Mapping):
        try:
            return Probe.model_validate(dict(value))
        except ValidationError as error:
            place, problem = described(error)
            known = "; keys: url, json, header, command, headers, timeout_s" if "known key" in problem else ""
            raise ValueError(f"{place}: {problem}{known}" if place else problem) from None
    if isinstance(value, int | float | date):
        raise ValueError("a revision is a text: put it in quotes")
    raise ValueError("a revision is a text, or a probe: {url, json}, {url, header} or {command}")


Revision = Annotated[str | Probe | None, BeforeValidator(_read)]
"""Type of the option `revision:`."""
DESCRIPTION = "what identifies the deployment: a text (${GITHUB_SHA}), or a probe {url, json}, {url, header} or {command}"


def parse_revision(text: str, where: str) -> str:
    """Parse a revision given on the command line.

    Raises:
        UserError: The text is not a valid revision.
    """
    try:
        return checked(filled(text))
    except ValueError as error:
        raise UserError(str(error), code="bad-revision", where=where, try_this="ROW=TEXT, such as my_app=${GITHUB_SHA}") from None


def steps(path: str) -> list[str | int]:
    """Split a JSON path such as `build.commit`, `data[0].created` or `data["a.b"]` into keys and positions.

    Raises:
        ValueError: The path is malformed.
    """
    text, results, at = path.removeprefix("$").removeprefix("."), list[str | int](), 0
    while at < len(text):
        match = _STEP.match(text, at)
        if match is None:
            raise ValueError(f"{path!r} is not a JSON path (examples: build.commit, data[0].created)")
        plain, position, *quoted = match.groups()
        results.append(int(position) if position is not None else plain or quoted[0] or quoted[1])
        at = match.end()
    if not results:
        raise ValueError(f"{path!r} is not a JSON path (examples: build.commit, data[0].created)")
    return results


def found(document: Any, path: str) -> str:
    """Return the text or number at a JSON path.

    Raises:
        ValueError: Nothing is at the path, or another type; the message names it.
    """
    value, seen = document, "the document"
    for step in steps(path):
        inside = isinstance(value, Mapping) if isinstance(step, str) else isinstance(value, list)
        if not inside or (step not in value if isinstance(step, str) else step >= len(value)):
            raise ValueError(f"{path!r} finds nothing: {seen} {_shape(value)}")
        value, seen = value[step], f"{step!r}"
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{path!r} finds no text or number: {seen} {_shape(value)}")
    return value if isinstance(value, str) else json.dumps(value)


def _shape(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"has the keys {', '.join(map(str, list(value)[:8]))}" if value else "is an empty object"
    return f"is a list of {len(value)}" if isinstance(value, list) else f"is {value!r:.60}"


def ask(probe: Probe, urls: Sequence[str] = (), headers: Mapping[str, str] | None = None) -> str:
    """Fetch a revision with a probe.

    Args:
        probe: The probe.
        urls: URLs to try in order if the probe has none.
        headers: Further request headers.

    Raises:
        Broke: The revision cannot be read: a time-out, an error status, nothing at the path, or a failed command.
        UserError: A variable of the request headers is not set.
    """
    try:
        named = {**(headers or {}), **{name: filled(text) for name, text in probe.headers.items()}}
    except ValueError as error:
        raise UserError(
            f"the revision cannot be read from {probe.place}: {error}", code="unreadable-revision", where="revision.headers"
        ) from None
    if probe.command:
        hint, failed = "correct the command", {probe.place: ""}
    else:
        hint, failed = f"correct url and {'header' if probe.header else 'json'}", dict.fromkeys((probe.url,) if probe.url else urls, "")
    for place in failed:
        try:
            return checked(_output(probe.command, probe.timeout_s) if probe.command else _response(probe, place, named))
        except ValueError as error:
            failed[place] = str(error)
            if isinstance(error, Unreachable):
                break
    reasons = "; ".join(f"{place}: {reason}" for place, reason in failed.items() if reason)
    raise Broke(f"the revision cannot be read from {reasons}", code="unreadable-revision", try_this=f"{hint}, or state a text")


def _response(probe: Probe, url: str, headers: Mapping[str, str]) -> str:
    answer = fetch(url, headers, probe.timeout_s)
    answer.require()
    if probe.header is None:
        return found(answer.json(), str(probe.path))
    text = answer.headers.get(probe.header.lower())
    if text is None:
        raise ValueError(f"the response has no header {probe.header!r}")
    return text


def _output(command: str | tuple[str, ...], timeout_s: float) -> str:
    """Run a command, and return the first line of its output.

    Raises:
        ValueError: The command fails, prints nothing, or times out.
    """
    try:
        # A separate process group, so that the time limit also ends the processes that a shell started.
        process = subprocess.Popen(
            command if isinstance(command, str) else list(command),
            shell=isinstance(command, str),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from None
    with process:
        try:
            output, complaint = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise ValueError(f"timed out after {timeout_s:g} s (timeout_s)") from None
        finally:
            # What it left in the background goes too: it may hold the output open.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode:
        last = complaint.decode("utf-8", "replace").strip().rpartition("\n")[2][:300]
        raise ValueError(f"exit code {process.returncode}{': ' + last if last else ''}")
    lines = output.decode("utf-8", "replace").strip().splitlines()
    if not lines:
        raise ValueError("it prints nothing")
    return lines[0]


@dataclass(frozen=True, slots=True)
class Answer:
    """HTTP response: status, headers by lower-case name, and body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def require(self) -> None:
        """Raise ValueError unless the status means success."""
        if 300 <= self.status < 400:
            raise ValueError(f"HTTP {self.status}, which redirects to {self.headers.get('location', 'nowhere')}")
        if not 200 <= self.status < 300:
            raise ValueError(f"HTTP {self.status}")

    def json(self) -> Any:
        """Parse the body as JSON.

        Raises:
            ValueError: The body is not JSON.
        """
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            kind = self.headers.get("content-type", "no content type")
            raise ValueError(f"the response is not JSON but {kind}") from None


class _Stay(urllib.request.HTTPRedirectHandler):
    """Handler that refuses redirects, since the target is another system and must not receive the headers."""

    def redirect_request(self, *_: Any) -> None:
        return None


class Unreachable(ValueError):
    """Raised if no response was received."""


def fetch(url: str, headers: Mapping[str, str], timeout_s: float) -> Answer:
    """Send a GET request and return the response.

    Raises:
        Unreachable: No response arrived within the timeout.
        ValueError: The response is too long.
    """

    def get() -> Answer:
        request = urllib.request.Request(url, headers={"accept": "application/json, */*", "user-agent": "ragmeter", **headers})
        try:
            response = urllib.request.build_opener(_Stay).open(request, timeout=timeout_s)
        except urllib.error.HTTPError as error:
            response = error
        with response:
            body = response.read(_LONGEST_BODY + 1)
            return Answer(response.status, {name.lower(): text for name, text in response.headers.items()}, body)

    try:
        answer = _within(timeout_s, get)
    except TimeoutError:
        raise Unreachable(f"timed out after {timeout_s:g} s (timeout_s)") from None
    except urllib.error.URLError as error:
        reason = error.reason
        if isinstance(reason, TimeoutError):
            raise Unreachable(f"timed out after {timeout_s:g} s (timeout_s)") from None
        raise Unreachable(f"nothing answers ({getattr(reason, 'strerror', None) or reason})") from None
    except Exception as error:  # a broken status line, a closed connection …
        raise Unreachable(f"the connection broke ({type(error).__name__})") from None
    if len(answer.body) > _LONGEST_BODY:
        raise ValueError(f"the response has more than {_LONGEST_BODY // 2**20} MiB")
    return answer


def _within(timeout_s: float, work: Callable[[], T]) -> T:
    """Run work in a thread that is abandoned after a timeout."""
    done: queue.SimpleQueue[tuple[T | None, Exception | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            done.put((work(), None))
        except Exception as error:
            done.put((None, error))

    threading.Thread(target=run, name="probe", daemon=True).start()
    try:
        value, error = done.get(timeout=timeout_s)
    except queue.Empty:
        raise TimeoutError from None
    if error is not None:
        raise error
    return value  # type: ignore[return-value]
