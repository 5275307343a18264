"""What the package of the TypeScript client has from this one: `make test-typescript`."""

import json

import pytest

import memrecall

from .typescript_types import PACKAGE, TYPES, generate_types

pytestmark = pytest.mark.clients


def test_types_are_those_of_the_openapi_document() -> None:
    assert TYPES.read_text("utf-8") == generate_types(), "run make typescript-types"


def test_versions_agree() -> None:
    version = json.loads((PACKAGE / "package.json").read_text("utf-8"))["version"]
    assert version.replace("-dev.", ".dev") == memrecall.__version__
