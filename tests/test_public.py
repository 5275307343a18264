"""The public names of the package."""

import inspect

import pytest

import memrecall

from .cases import check_each, read_lines

SURFACE = read_lines("names", "public")
CONSTANTS = {"MEMRECALL_TOOLS", "__version__"}


def test_public_names() -> None:
    assert memrecall.__all__ == SURFACE
    assert dir(memrecall) == sorted(SURFACE)


def test_public_names_have_docstrings() -> None:
    def check(name: str) -> None:
        value = getattr(memrecall, name)
        assert inspect.getdoc(value)
        assert value.__name__ == name

    check_each([name for name in SURFACE if name not in CONSTANTS], check)


def test_unknown_name_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Mistake'"):
        memrecall.Mistake  # noqa: B018
