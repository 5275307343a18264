"""Write the types of the TypeScript client: `python -m tests.clients.typescript_types`.

`npm install` in clients/typescript installs the generator. Errors have one shape, so that the
client needs the types of successful responses only; examples are in the OpenAPI document.
"""

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from memrecall.server.http.app import describe_api

PACKAGE = Path(__file__).parents[2] / "clients" / "typescript"
TYPES = PACKAGE / "src" / "schema.ts"


def generate_types() -> str:
    """Return what `schema.ts` should contain."""
    with tempfile.TemporaryDirectory() as name:
        source, target = Path(name) / "openapi.json", Path(name) / "schema.ts"
        source.write_text(json.dumps(_without_errors(describe_api())), "utf-8")
        generator = PACKAGE / "node_modules" / ".bin" / "openapi-typescript"
        options = ("--default-non-nullable", "false")
        subprocess.run([generator, source, *options, "-o", target], check=True, cwd=name)
        return target.read_text("utf-8")


def _without_errors(document: dict[str, Any]) -> dict[str, Any]:
    paths = json.loads(json.dumps(document["paths"]))
    for item in paths.values():
        for operation in item.values():
            operation["responses"] = {"200": operation["responses"]["200"]}
            for part in (operation["responses"]["200"], operation.get("requestBody", {})):
                for content in part.get("content", {}).values():
                    content.pop("example", None)
            for parameter in operation.get("parameters", ()):
                parameter.pop("example", None)
    return {**document, "paths": paths}


if __name__ == "__main__":
    TYPES.write_text(generate_types(), "utf-8")
