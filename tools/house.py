"""Figures of the code base: size, import cycles, the longest class and function. Needs nothing but Python.

python tools/house.py
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent / "src"
PACKAGE = "anabranch"


@dataclass(frozen=True)
class Module:
    name: str
    path: Path
    tree: ast.Module
    lines: int


def modules() -> dict[str, Module]:
    found: dict[str, Module] = {}
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        text = path.read_text()
        found[name] = Module(name, path, ast.parse(text), len(text.splitlines()))
    return found


def imports(module: Module, known: dict[str, Module]) -> Iterator[str]:
    """The modules that one imports when it runs, inside of functions too; imports for the type checker are none."""
    typing = {id(each) for node in ast.walk(module.tree) if _for_types(node) for each in ast.walk(node)}
    for node in ast.walk(module.tree):
        if id(node) in typing:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module in known:
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name for name in inner if name in known)
            if any(name not in known for name in inner):
                yield node.module or ""


def _for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def largest_cycle(graph: dict[str, set[str]]) -> list[str]:
    """The largest set of modules that all reach each other (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    best: list[str] = []

    def visit(node: str) -> None:
        nonlocal best
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in graph[node]:
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            at = stack.index(node)
            component = stack[at:]
            del stack[at:]
            best = component if len(component) > max(len(best), 1) else best

    for node in graph:
        if node not in index:
            visit(node)
    return sorted(best)


def main() -> None:
    known = modules()
    rows: list[tuple[str, str]] = []

    def size(*packages: str) -> str:
        mine = [m for m in known.values() if any(m.name.startswith(f"{PACKAGE}.{each}") for each in packages)]
        return f"{sum(m.lines for m in mine):,} in {len(mine)} files"

    rows.append(("lines in sql + plan + ir + render", size("sql", "plan", "ir", "render")))
    rows.append(("lines in engine", size("engine")))
    rows.append(("lines in all", f"{sum(m.lines for m in known.values()):,} in {len(known)} files"))
    view = next((c for c in _classes(known[f"{PACKAGE}.plan.view"]) if c.name == "View"), None)
    if view is not None:
        rows.append(("fields of a stored view", str(sum(isinstance(each, ast.AnnAssign) for each in view.body))))
    graph = {name: set(imports(module, known)) - {name} for name, module in known.items()}
    cycle = largest_cycle(graph)
    rows.append(("largest import cycle", f"{len(cycle)} modules" if cycle else "none"))
    lexer = [name for name, used in graph.items() if f"{PACKAGE}.sql.lexer" in used]
    rows.append(("files that import the lexer", str(len(lexer))))
    methods = [
        (sum(isinstance(e, ast.FunctionDef) for e in c.body), c.name) for m in known.values() for c in _classes(m)
    ]
    rows.append(("largest class", "{} methods ({})".format(*max(methods))))
    functions = [
        ((node.end_lineno or 0) - node.lineno + 1, f"{m.name}.{node.name}")
        for m in known.values()
        for node in ast.walk(m.tree)
        if isinstance(node, ast.FunctionDef)
    ]
    rows.append(("largest function", "{} lines ({})".format(*max(functions))))
    longest = max(known.values(), key=lambda m: m.lines)
    rows.append(("longest file", f"{longest.lines} lines ({longest.name})"))
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:<{width}}  {value}")


def _classes(module: Module) -> list[ast.ClassDef]:
    return [node for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef)]


if __name__ == "__main__":
    main()
