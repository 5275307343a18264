"""Hooks of MkDocs: reference pages that are generated from the program, and the pages' sources.

The Python API comes from `memrecall.__all__` (mkdocstrings renders the docstrings), the commands
from the command line's own parser, the endpoints from the OpenAPI document of the service.
"""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import memrecall
from memrecall.cli.app import app
from memrecall.server.http.app import describe_api

_OUTSIDE = re.compile(r"\[([^]]+)\]\(\.\./([^)#]*)[^)]*\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    document = describe_api()
    pages = {
        "reference/python.md": python_page(),
        "reference/commands.md": "\n".join(command_lines()),
        "reference/endpoints.md": "\n".join(endpoint_lines(document)),
        "reference/openapi.json": json.dumps(document, ensure_ascii=False, indent=1),
    }
    for name, content in pages.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Name files of the repository that are not on the site, instead of linking to them."""
    del config, files
    if "/" in page.file.src_uri:  # a generated page: its links lead to other pages
        return markdown
    return _OUTSIDE.sub(lambda link: f"{link[1]} (`{link[2]}`)", markdown)


def on_post_build(config: MkDocsConfig) -> None:
    """Copy the pages as Markdown too: the links of llms.txt then work here as in the repository."""
    for page in Path(config.docs_dir).glob("*.md"):
        shutil.copy(page, config.site_dir)


def python_page() -> str:
    """Return the page of the public names; mkdocstrings fills it in."""
    names = [name for name in memrecall.__all__ if not name.startswith("_")]
    lines = [f"::: memrecall.{name}" for name in names]
    return "\n\n".join(
        [
            "# Python API",
            "All names are imported from `memrecall`. `Memory` has the methods of `AsyncMemory`"
            " without `await`.",
            *lines,
        ]
    )


def command_lines() -> Iterator[str]:
    """Yield the page of the commands."""
    yield "# Commands\n\nWhat `--help` says of each command."
    yield "[The manual](../cli.md) explains them by task.\n"
    root = typer.main.get_command(app)
    yield from _describe_command(root, typer.Context(root, info_name="memrecall"))


def _describe_command(command: Any, context: Any) -> Iterator[str]:
    children = getattr(command, "commands", {})
    if not children:
        usage = " ".join(command.collect_usage_pieces(context))
        yield f"## {context.command_path}\n\n```\n{context.command_path} {usage}\n```\n"
        yield f"{_paragraphs(command.help)}\n\n| parameter | meaning |\n|---|---|"
        for parameter in command.get_params(context):
            yield _describe_parameter(parameter)
        yield ""
    for name, child in children.items():
        if not child.hidden:
            yield from _describe_command(child, type(context)(child, context, info_name=name))


def _describe_parameter(parameter: Any) -> str:
    options = (*parameter.opts, *parameter.secondary_opts)
    names = ", ".join(f"`{name}`" for name in options or [parameter.name])
    required = " Required." if parameter.required else ""
    return f"| {names} | {_cell(getattr(parameter, 'help', None) or '')}{required} |"


def endpoint_lines(document: dict[str, Any]) -> Iterator[str]:
    """Yield the page of the endpoints."""
    yield "# Endpoints\n\nGenerated from the service's [OpenAPI document](openapi.json), which has"
    yield "schemas and recorded examples."
    yield "[The manual](../http.md) explains keys, errors and limits.\n"
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            yield f"## {method.upper()} {path}\n"
            yield f"{operation.get('summary', '')}\n\n{_paragraphs(operation.get('description'))}\n"
            yield from _describe_inputs(operation)


def _describe_inputs(operation: dict[str, Any]) -> Iterator[str]:
    rows = [
        f"| `{item['name']}` | {item['in']} | {_cell(item.get('description', ''))} |"
        for item in operation.get("parameters", [])
    ]
    for kind, body in operation.get("requestBody", {}).get("content", {}).items():
        name = body.get("schema", {}).get("$ref", "").rpartition("/")[2]
        rows.append(f"| body | {kind} | {f'`{name}`' if name else ''} |")
    if rows:
        yield "\n".join(["| input | where | meaning |", "|---|---|---|", *rows, ""])
    statuses = ", ".join(f"`{status}`" for status in operation["responses"])
    yield f"Statuses: {statuses}\n"


def _paragraphs(text: str | None) -> str:
    return re.sub(r"(?<!\n)\n(?!\n)", " ", (text or "").strip())


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
