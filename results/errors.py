"""Errors for the user, for pages and servers, which read through `results` alone."""

from __future__ import annotations

from benchmarks.core.errors import MissingPackage as MissingPackage
from benchmarks.core.errors import UserError as UserError
from benchmarks.core.errors import counted as counted
