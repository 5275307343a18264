"""Which tests one worker of pytest-xdist runs, because they share what takes long to prepare."""

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

# Each worker has a browser and services of its own; the tests of a module may write to them.
_FOLDER_OF_MODULES = "tests/dashboard/"
_SPLIT = "tests/dashboard/test_accessibility.py"  # reads only; has the longest tests
_MODULES = frozenset(
    {
        "tests/agent/offline/test_recalls.py",
        "tests/test_code_shape.py",
        "tests/test_demo.py",
        "tests/test_readme.py",
        "tests/test_wheel.py",
    }
)


# Not `--dist loadgroup`: pytest-xdist 3.8 cannot mark groups in the node ids of pytest 9.
class SharedSetupScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Gives whole groups to a worker, the largest first, and all other tests one by one."""

    def _split_scope(self, nodeid: str) -> str:
        module = nodeid.partition("::")[0]
        is_shared = module in _MODULES or module.startswith(_FOLDER_OF_MODULES)
        return module if is_shared and module != _SPLIT else nodeid


@pytest.hookimpl(optionalhook=True)  # the hook belongs to pytest-xdist
def pytest_xdist_make_scheduler(config: Any, log: Any) -> SharedSetupScheduling:
    """Tell pytest-xdist how to distribute the tests."""
    return SharedSetupScheduling(config, log)
