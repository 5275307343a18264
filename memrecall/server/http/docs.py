"""The API for people: one page, written here, that loads nothing from anywhere."""

import json
from collections.abc import Iterator
from html import escape
from typing import Any

from fastapi import Response

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h2 { border-bottom: 1px solid #ccc; margin-top: 2.5rem; }
code, pre { font-family: ui-monospace, monospace; font-size: .9em; }
pre { background: #f5f5f5; padding: .75rem; overflow-x: auto; max-height: 24rem; }
table { border-collapse: collapse; } td, th { text-align: left; padding: .2rem 1rem .2rem 0;
vertical-align: top; } .method { color: #06c; }
"""
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
}


def docs_page(document: dict[str, Any]) -> Response:
    """The OpenAPI document as a page."""
    html = "\n".join(_page(document))
    return Response(html, media_type="text/html; charset=utf-8", headers=_HEADERS)


def _page(document: dict[str, Any]) -> Iterator[str]:
    info = document["info"]
    title = escape(f"{info['title']} {info['version']}")
    yield f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title>"
    yield f"<style>{_STYLE}</style><h1>{title}</h1><p>{escape(info['description'])}</p>"
    yield "<p>For programs: <a href='/openapi.json'>/openapi.json</a></p>"
    schemas = document["components"]["schemas"]
    for path, item in document["paths"].items():
        for method, operation in item.items():
            yield from _operation(path, method, operation, schemas)
    yield "<h2>Types</h2>"
    for name, schema in sorted(schemas.items()):
        yield from _schema(name, schema)
    yield "</html>"


def _operation(
    path: str, method: str, operation: dict[str, Any], schemas: dict[str, Any]
) -> Iterator[str]:
    shown = f"<span class=method>{method.upper()}</span> <code>{escape(path)}</code>"
    yield f"<h2 id='{escape(operation['operationId'])}'>{shown}</h2>"
    yield f"<p>{escape(operation.get('description', ''))}</p>"
    fields = [
        (p["name"], p["in"], p["required"], p["schema"]) for p in operation.get("parameters", [])
    ]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    if body:
        model = schemas[body["schema"]["$ref"].rpartition("/")[2]]
        required = model.get("required", [])
        fields += [
            (name, "body", name in required, schema) for name, schema in model["properties"].items()
        ]
    if fields:
        yield "<table><tr><th>name<th>in<th>type<th>"
        for name, place, needed, schema in fields:
            yield _field(name, place, needed, schema)
        yield "</table>"
    yield from _example("Request", body.get("example"))
    answer = operation["responses"]["200"].get("content", {}).get("application/json", {})
    yield from _example("Answer", answer.get("example"))
    errors = [
        f"{status} {answer['description']}"
        for status, answer in operation["responses"].items()
        if status != "200"
    ]
    yield "<details><summary>Errors</summary><ul>"
    yield from (f"<li>{escape(error)}" for error in errors)
    yield "</ul></details>"


def _schema(name: str, schema: dict[str, Any]) -> Iterator[str]:
    yield f"<h3 id='{escape(name)}'>{escape(name)}</h3>"
    yield f"<p>{escape(schema.get('description', ''))}</p>"
    if "enum" in schema:
        yield f"<p>One of {escape(', '.join(map(str, schema['enum'])))}</p>"
    required = schema.get("required", [])
    yield "<table>"
    for field, inner in schema.get("properties", {}).items():
        yield _field(field, "", field in required, inner)
    yield "</table>"


def _field(name: str, place: str, needed: bool, schema: dict[str, Any]) -> str:
    cells = (
        f"<code>{escape(name)}</code>{' (required)' if needed else ''}",
        place,
        escape(_type(schema)),
        escape(_description(schema)),
    )
    return "<tr>" + "".join(f"<td>{cell}" for cell in cells)


def _description(schema: dict[str, Any]) -> str:
    choices = [schema, *schema.get("anyOf", [])]
    return next((str(choice["description"]) for choice in choices if "description" in choice), "")


def _type(schema: dict[str, Any]) -> str:
    """A schema in a few words."""
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if "anyOf" in schema:
        choices = [_type(choice) for choice in schema["anyOf"]]
        named = " or ".join(choice for choice in choices if choice != "null")
    elif schema.get("type") == "array":
        named = f"list of {_type(schema.get('items', {}))}"
    else:
        named = str(schema.get("format") or schema.get("type", "any"))
    bounds = [schema[name] for name in ("minimum", "maximum") if name in schema]
    if len(bounds) == 2:
        named += f" {bounds[0]:g} to {bounds[1]:g}"
    default = schema.get("default")
    return f"{named}, {json.dumps(default)} if left out" if default is not None else named


def _example(title: str, value: Any) -> Iterator[str]:
    if value is not None:
        text = json.dumps(value, ensure_ascii=False, indent=2)
        yield f"<p>{title}</p><pre>{escape(text)}</pre>"
