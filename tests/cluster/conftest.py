"""All tests of this folder run on a cluster."""

from pathlib import Path

import pytest

from tests.cli.conftest import shell as shell


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder, which `make test-cluster` runs."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.cluster)


@pytest.fixture
def engine() -> str:
    """The name of the engine under test."""
    return "citus"
