"""The shape of the code: modules, lines, folders, names, imports and function lengths.

    python -m benchmarks.code_shape                 the package memrecall
    python -m benchmarks.code_shape PATH --json     another package

A module is a Python file other than `__init__.py`. Modules of `importers` and `integrations` (one
per format or framework) are not counted, except in folders and sizes; their lines are a figure of
their own.

Lines are counted twice: those of Python files, and those of all files that hold code or tables
(`LINE_SUFFIXES`). Rules that move from Python into a table leave the second number unchanged.
Importers and integrations are left out: each is independent, so more of them do not make the rest
harder to read.

An importer of a module is another file of the package, an `__init__.py` too, with a statement that
imports it or a name from it, also inside a function or under `TYPE_CHECKING`. A name that a file
takes from a package's `__init__.py` counts for the `__init__.py`. A module that only strings name
has no importer; such modules are not among those with one importer.

A circle is one of what runs: without `TYPE_CHECKING`, with modules that are imported by name (a
string that names one, or an f-string that begins so).
"""

import argparse
import ast
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import quantiles

PACKAGE = Path(__file__).resolve().parent.parent / "memrecall"
ONE_PER_FORMAT = ("importers", "integrations")
LINE_SUFFIXES = frozenset({".py", ".txt", ".json", ".sql", ".css", ".svg"})


@dataclass(frozen=True)
class Shape:
    """The figures of one package."""

    modules: int
    lines: int
    format_lines: int
    lines_with_tables: int
    largest_module: tuple[str, int]
    modules_per_folder: dict[str, int]
    ing_modules: list[str]
    duplicate_classes: dict[str, list[str]]
    single_importer: list[str]
    circles: list[list[str]]
    function_lines: dict[str, int]


def measure(package: Path) -> Shape:
    """Return the figures of the package in that folder."""
    trees = {
        _module_name(package, file): ast.parse(file.read_text("utf-8"))
        for file in sorted(package.rglob("*.py"))
    }
    lines = {
        _module_name(package, file): len(file.read_text("utf-8").splitlines())
        for file in package.rglob("*.py")
    }
    modules = [name for name in trees if not name.endswith(".__init__")]
    counted = [name for name in modules if not _is_one_per_format(name)]
    known = set(trees)
    nodes = {name: list(ast.walk(tree)) for name, tree in trees.items()}
    importers = Counter(
        target for name, all_nodes in nodes.items() for target in _imports(name, all_nodes, known)
    )
    lengths = sorted(
        length for all_nodes in nodes.values() for length in _function_lengths(all_nodes)
    )
    runtime_nodes = {name: list(_runtime_nodes(tree)) for name, tree in trees.items()}
    imports = {
        name: _imports(name, running, known) | _imports_by_name(name, running, known)
        for name, running in runtime_nodes.items()
    }
    cuts = quantiles(lengths, n=20) if len(lengths) > 1 else (lengths or [0]) * 19
    return Shape(
        modules=len(counted),
        lines=sum(count for name, count in lines.items() if not _is_one_per_format(name)),
        format_lines=sum(count for name, count in lines.items() if _is_one_per_format(name)),
        lines_with_tables=sum(
            len(file.read_text("utf-8").splitlines())
            for file in package.rglob("*")
            if file.suffix in LINE_SUFFIXES and not _is_one_per_format(_module_name(package, file))
        ),
        largest_module=max(((name, lines[name]) for name in modules), key=lambda item: item[1]),
        modules_per_folder=dict(
            sorted(Counter(name.rpartition(".")[0] for name in modules).items())
        ),
        ing_modules=[name for name in counted if name.endswith("ing")],
        duplicate_classes=_duplicate_classes(trees),
        single_importer=[name for name in counted if importers[name] == 1],
        circles=_circles(imports),
        function_lines={
            "median": round(cuts[9]),
            "p95": round(cuts[18]),
            "longest": max(lengths, default=0),
        },
    )


def _module_name(package: Path, file: Path) -> str:
    return ".".join(file.relative_to(package.parent).with_suffix("").parts)


def _is_one_per_format(module: str) -> bool:
    return module.split(".")[1] in ONE_PER_FORMAT


def _imports(module: str, nodes: Iterable[ast.AST], known: set[str]) -> set[str]:
    """Return the modules of the package that this one imports, itself excepted."""
    targets: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        targets.update(filter(None, (_resolve(name, known) for name in names)))
    return targets - {module}


def _imports_by_name(module: str, nodes: Iterable[ast.AST], known: set[str]) -> set[str]:
    """Return the modules that strings name, and all whose names an f-string can make."""
    targets: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            targets |= {node.value} & known
        elif isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):
            package, dot, rest = str(node.values[0].value).rpartition(".")
            if dot and not rest:
                targets |= {name for name in known if name.rpartition(".")[0] == package}
    return targets - {module}


def _runtime_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Walk a tree without what only a type checker sees."""
    pending = [node]
    while pending:
        for child in ast.iter_child_nodes(pending.pop()):
            if not (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test)):
                yield child
                pending.append(child)


def _resolve(name: str, known: set[str]) -> str | None:
    """Return the module that an imported name is or belongs to."""
    while name:
        for candidate in (name, f"{name}.__init__"):
            if candidate in known:
                return candidate
        name = name.rpartition(".")[0]
    return None


def _duplicate_classes(trees: dict[str, ast.Module]) -> dict[str, list[str]]:
    homes: dict[str, list[str]] = defaultdict(list)
    for module, tree in trees.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(module)
    return {name: modules for name, modules in sorted(homes.items()) if len(modules) > 1}


def _function_lengths(nodes: Iterable[ast.AST]) -> Iterator[int]:
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno:
            yield node.end_lineno - node.lineno + 1


def _circles(imports: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that import one another.

    A package's `__init__` that offers names of its modules is no circle with them: they do not
    need it to be imported first.
    """
    graph = {
        name: {target for target in targets if not target.endswith(".__init__")}
        for name, targets in imports.items()
        if not name.endswith(".__init__")
    }
    reach = {name: _reachable(name, graph) for name in graph}
    groups = {
        tuple(sorted({name, *(other for other in reach[name] if name in reach[other])}))
        for name in graph
        if name in reach[name]
    }
    return [list(group) for group in sorted(groups)]


def _reachable(start: str, graph: dict[str, set[str]]) -> set[str]:
    visited: set[str] = set()
    pending = list(graph[start])
    while pending:
        name = pending.pop()
        if name not in visited:
            visited.add(name)
            pending.extend(graph.get(name, ()))
    return visited


def _print(shape: Shape) -> None:
    print(f"modules                {shape.modules}")
    print(f"lines of Python        {shape.lines:,}")
    print(f"lines with tables      {shape.lines_with_tables:,}")
    print("largest module         {} ({} lines)".format(*shape.largest_module))
    functions = ", ".join(f"{name} {value}" for name, value in shape.function_lines.items())
    print(f"lines of a function    {functions}")
    _print_list("named with -ing", shape.ing_modules)
    _print_list("with one importer", shape.single_importer)
    _print_list("classes defined twice", [f"{k}: {v}" for k, v in shape.duplicate_classes.items()])
    _print_list("import circles", [" <-> ".join(circle) for circle in shape.circles])
    print("modules per folder")
    for folder, number in shape.modules_per_folder.items():
        print(f"  {number:3}  {folder}")


def _print_list(title: str, items: list[str]) -> None:
    print(f"{title:22} {len(items)}")
    for item in items:
        print(f"       {item}")


def main() -> None:
    """Print the figures of a package."""
    parser = argparse.ArgumentParser(description="Print the shape of a package's code.")
    parser.add_argument("package", nargs="?", type=Path, default=PACKAGE, help="its folder")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    shape = measure(arguments.package.resolve())
    if arguments.json:
        print(json.dumps(asdict(shape), indent=2))
    else:
        _print(shape)


if __name__ == "__main__":
    main()
