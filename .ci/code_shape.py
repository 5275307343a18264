"""The shape of the code: modules, lines, folders, names, imports and function lengths.

    python .ci/code_shape.py                 the package memrecall
    python .ci/code_shape.py PATH --json     another package

A module is a Python file other than `__init__.py`; lines are counted in all Python files.

An importer of a module is another file of the package, an `__init__.py` too, with a statement that
imports it or a name from it, also inside a function or under `TYPE_CHECKING`. A name that a file
takes from a package's `__init__.py` counts for the `__init__.py`. A module that only strings name
has no importer; such modules are not among those with one importer.

A shared name is a public constant, class or function that two or more files define at their top
level. Type variables do not count, nor the names that every module of a kind has (`PER_MODULE`).

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
PER_MODULE = frozenset({"FORMAT", "log", "router"})
TYPE_VARIABLES = frozenset({"ParamSpec", "TypeVar", "TypeVarTuple"})


@dataclass(frozen=True)
class Shape:
    """The figures of one package."""

    modules: int
    lines: int
    largest_module: tuple[str, int]
    modules_per_folder: dict[str, int]
    ing_modules: list[str]
    shared_names: dict[str, list[str]]
    shared_classes: list[str]
    single_importer: list[str]
    circles: list[list[str]]
    function_lines: dict[str, int]


def count_lines(folder: Path) -> int:
    """Return the number of lines in the Python files of a folder."""
    return sum(len(file.read_text("utf-8").splitlines()) for file in folder.rglob("*.py"))


def measure(package: Path) -> Shape:
    """Return the figures of the package in that folder."""
    sources = {
        _module_name(package, file): file.read_text("utf-8")
        for file in sorted(package.rglob("*.py"))
    }
    trees = {name: ast.parse(source) for name, source in sources.items()}
    modules = [name for name in trees if not name.endswith(".__init__")]
    known = set(trees)
    nodes = {name: list(ast.walk(tree)) for name, tree in trees.items()}
    importers = Counter(
        target for name, all_nodes in nodes.items() for target in _imports(name, all_nodes, known)
    )
    runtime_nodes = {name: list(_runtime_nodes(tree)) for name, tree in trees.items()}
    imports = {
        name: _imports(name, running, known) | _imports_by_name(name, running, known)
        for name, running in runtime_nodes.items()
    }
    classes = Counter(
        node.name for tree in trees.values() for node in tree.body if isinstance(node, ast.ClassDef)
    )
    sizes = {name: len(sources[name].splitlines()) for name in modules}
    return Shape(
        modules=len(modules),
        lines=count_lines(package),
        largest_module=max(sizes.items(), key=lambda item: item[1]),
        modules_per_folder=dict(
            sorted(Counter(name.rpartition(".")[0] for name in modules).items())
        ),
        ing_modules=[name for name in modules if name.endswith("ing")],
        shared_names=_shared_names(trees),
        shared_classes=[
            name for name, count in classes.items() if count > 1 and not name.startswith("_")
        ],
        single_importer=[name for name in modules if importers[name] == 1],
        circles=_circles(imports),
        function_lines=_summarise_functions(nodes.values()),
    )


def _module_name(package: Path, file: Path) -> str:
    return ".".join(file.relative_to(package.parent).with_suffix("").parts)


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


def _shared_names(trees: dict[str, ast.Module]) -> dict[str, list[str]]:
    homes: dict[str, list[str]] = defaultdict(list)
    for module, tree in trees.items():
        for name in {name for node in tree.body for name in _defined_names(node)}:
            if not name.startswith("_") and name not in PER_MODULE:
                homes[name].append(module)
    return {name: modules for name, modules in sorted(homes.items()) if len(modules) > 1}


def _defined_names(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement defines; an import and a type variable define none."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign) and not _is_type_variable(node.value):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            yield from (part.id for part in ast.walk(target) if isinstance(part, ast.Name))


def _is_type_variable(value: ast.expr | None) -> bool:
    return (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Name)
        and value.func.id in TYPE_VARIABLES
    )


def _summarise_functions(files: Iterable[Iterable[ast.AST]]) -> dict[str, int]:
    lengths = sorted(
        node.end_lineno - node.lineno + 1
        for nodes in files
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno
    )
    cuts = quantiles(lengths, n=20) if len(lengths) > 1 else (lengths or [0]) * 19
    return {
        "median": round(cuts[9]),
        "p95": round(cuts[18]),
        "longest": max(lengths, default=0),
    }


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
    print("largest module         {} ({} lines)".format(*shape.largest_module))
    functions = ", ".join(f"{name} {value}" for name, value in shape.function_lines.items())
    print(f"lines of a function    {functions}")
    _print_list("named with -ing", shape.ing_modules)
    _print_list("with one importer", shape.single_importer)
    _print_list("names of several files", [f"{k}: {v}" for k, v in shape.shared_names.items()])
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
