"""Fixtures for a loopback hub."""

import pytest

from benchmarks.io import hub_faults
from tests.support.hub_server import HubServer


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    """Retry failed hub requests without waiting."""
    monkeypatch.setattr(hub_faults, "WAIT_S", 0.0)


@pytest.fixture
def server(repository, tmp_path):
    """Serve the test file's `repository` as `owner/set`."""
    server = HubServer({"owner/set": repository})
    with server.as_hub(tmp_path / "home"):
        yield server
