"""Benchmarks put into retrieval settings; a retriever that a setting names is built here.

It is named by its id, or with a preset of it in brackets: `corpus(retriever=dense[dpr-nq],n=50)`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from benchmarks import settings
from benchmarks.errors import UserError
from benchmarks.registry import Benchmark
from benchmarks.schema import Query
from benchmarks.settings import Setting
from methods.api import Ranking, Services
from methods.pipeline import index_folder
from methods.registry import METHODS, Component


def candidate_retriever(setting: Setting) -> Component | None:
    """The retriever whose results a setting prescribes as candidates, if it does."""
    name = _retriever_of(setting)
    return _named(name) if name else None


def _named(name: str, where: str | None = None) -> Component:
    """A retriever, with a preset's options where one stands in brackets.

    Raises:
        UserError: There is no such method or preset.
    """
    preset = re.fullmatch(r"(.+)\[(.+)\]", name)
    if preset is None or name in METHODS:
        return Component.of(name, where=where)
    return Component.of(preset[1], {"preset": preset[2]}, where=where)


def _retriever_of(setting: Setting) -> str | None:
    return setting.retriever or (setting.base.retriever if setting.base else None)


def read_setting(text: str, where: str | None) -> Setting:
    """A setting whose candidates, where a retriever finds them, come from a registered one that needs no reader's help.

    Raises:
        UserError: There is no such setting, or what it names is no retriever.
    """
    setting = Setting.parse(text, where=where)
    name = _retriever_of(setting)
    if name is not None and (entry := _named(name, where).entry).kind != "retriever":
        raise UserError(
            f"{name!r} is a {entry.kind}, not a retriever", where=where, try_this="`ragmeter methods --kind retriever` lists what fits"
        )
    return setting


def in_setting(setting: Setting, benchmark: Benchmark, services: Services) -> Benchmark:
    """A benchmark as it is asked in a setting, drawn by the seed of the services.

    Raises:
        UserError: It cannot be asked so.
    """

    def retrieve(name: str, queries: Sequence[Query], n: int) -> list[Ranking]:
        component = _named(name)
        folder = index_folder(component, benchmark.corpus, services)
        index = component.build(services).index(benchmark.corpus, folder)
        return list(index.retrieve(queries, n))

    return settings.apply(setting, benchmark, services.seed, retrieve)
