"""What is in force, and what is wrong with it."""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import httpx

from memrecall.errors import MemrecallError
from memrecall.library.library import Library
from memrecall.settings import OPENAI, Loaded, check_url, load_settings
from memrecall.text import TEXT_VERSION

_PATIENCE = 5.0  # seconds


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    subject: str
    well: bool
    said: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All findings, and the settings with where each came from."""

    findings: tuple[Finding, ...]
    settings: Mapping[str, Any]
    origins: Mapping[str, str]

    @property
    def well(self) -> bool:
        """Whether nothing is wrong."""
        return all(finding.well for finding in self.findings)

    def as_dict(self) -> dict[str, Any]:
        """The diagnosis as plain data."""
        return {
            "well": self.well,
            "findings": [asdict(finding) for finding in self.findings],
            "settings": dict(self.settings),
            "origins": dict(self.origins),
        }


async def examine(arguments: Mapping[str, Any], *, load_embedder: bool = True) -> Diagnosis:
    """Look at the settings, the database, the embedder and the model."""
    loaded = load_settings(arguments)
    findings = [
        Finding("settings", True, f"from {loaded.file}" if loaded.file else "no settings file")
    ]
    try:
        async with await Library.open(loaded.settings, create=False) as library:
            findings += await _examine_library(library, load_embedder)
    except MemrecallError as error:
        findings.append(Finding("database", False, str(error)))
    findings.append(await _examine_model(loaded))
    return Diagnosis(tuple(findings), loaded.settings.shown(), loaded.origins)


async def _examine_library(library: Library, load_embedder: bool) -> list[Finding]:
    store = library.store
    findings = [
        Finding("database", True, store.location),
        Finding("schema", True, f"version {await store.schema_version()}"),
    ]
    if store.file is not None:
        findings.append(_examine_permissions(library))
    if store.facts.text_version != TEXT_VERSION:
        said = f"search text is of version {store.facts.text_version}: `memrecall reindex`"
        findings.append(Finding("search text", False, said))
    findings.append(await _examine_embedder(library, load_embedder))
    findings.append(await _examine_vectors(library))
    return findings


def _examine_permissions(library: Library) -> Finding:
    file = library.store.file
    assert file is not None  # noqa: S101 -- the caller has looked
    if not os.access(file, os.W_OK) or not os.access(file.parent, os.W_OK):
        return Finding("permissions", False, f"{file} or its folder cannot be written")
    if file.stat().st_mode & 0o077:
        said = f"{file} can be read by others: chmod 600"
        return Finding("permissions", False, said)
    return Finding("permissions", True, "readable and writable by its owner alone")


async def _examine_embedder(library: Library, load: bool) -> Finding:
    embedder = library.embedder
    if embedder is None:
        return Finding("embedder", True, "none: search by keywords only")
    if not load:
        return Finding("embedder", True, f"{embedder.model} (not loaded)")
    try:
        vectors = await embedder.embed(["recall", "回忆"])
    except MemrecallError as error:
        return Finding("embedder", False, str(error))
    return Finding("embedder", True, f"{embedder.model}, {vectors.shape[1]} dimensions")


async def _examine_vectors(library: Library) -> Finding:
    if library.embedder is None:
        return Finding("vectors", True, "not wanted")
    stored = library.store.facts.embedding_model
    if stored not in (None, library.embedder.model):
        said = f"made by {stored}, the embedder is {library.embedder.model}: `memrecall reindex`"
        return Finding("vectors", False, said)
    missing = await library.store.vectors(library.embedder.model).count_pending()
    if missing:
        return Finding("vectors", False, f"{missing} rows have none: `memrecall reindex`")
    return Finding("vectors", True, "every row has one")


async def _examine_model(loaded: Loaded) -> Finding:
    """Whether the model's server answers. Nothing is asked of the model itself: that may cost."""
    settings = loaded.settings
    if not settings.model:
        return Finding("model", True, "none: works offline, by rules")
    address = settings.base_url or OPENAI
    said = f"{settings.model} at {address}"
    headers = {"Authorization": f"Bearer {settings.api_key}"} if settings.api_key else {}
    try:
        async with httpx.AsyncClient(timeout=_PATIENCE, headers=headers) as client:
            answer = await client.get(f"{check_url(address).rstrip('/')}/models")
    except MemrecallError as error:
        return Finding("model", False, str(error))
    except httpx.HTTPError as error:
        return Finding("model", False, f"{said}: no answer ({type(error).__name__})")
    if answer.status_code in (401, 403):
        return Finding("model", False, f"{said}: the key is refused ({answer.status_code})")
    # A server that lists no models may still answer questions.
    return Finding("model", True, said)
