"""A hub on loopback."""

import pytest

from benchmarks.io import hub_faults
from tests.support.hub_server import HubServer


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    """A hub that fails is asked again at once."""
    monkeypatch.setattr(hub_faults, "WAIT_S", 0.0)


@pytest.fixture
def server(repository, tmp_path):
    """The hub, with the test file's `repository` as `owner/set`."""
    server = HubServer({"owner/set": repository})
    with server.as_hub(tmp_path / "home"):
        yield server
