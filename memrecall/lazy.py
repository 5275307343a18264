"""Package exports that load their module on first use."""

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazy_exports(package: str, homes: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """Return a module `__getattr__` that imports each name from its home on first use.

    `homes` maps a module to the names it defines. A module that begins with a dot is relative to
    `package`. Importing the package then costs next to nothing.
    """
    home_of = {name: home for home, names in homes.items() for name in names}

    def load(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(home_of[name], package), name)
        # The next use finds it without this function, which takes 30 times as long.
        setattr(sys.modules[package], name, value)
        return value

    return load
