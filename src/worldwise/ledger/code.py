"""Which code made a result: what a node's function can reach in this package, and a digest of it.

Why the code itself and not a version number that somebody raises: a forgotten number serves stale weights, and nobody
sees it. A digest sees every change. It is taken of the parsed code without docstrings, so comments, docstrings and
layout change nothing, and it follows names: a function, class or constant counts where the node's function uses it,
directly or through others, in whatever module. Files beside the modules (templates) count with their package. What
stores, tracks, tells progress or parses a command line changes no result and is left out.

What is reached only through strings (`getattr(module, name)`, `importlib.import_module(name)`) is not seen.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from worldwise.files import whole_file
from worldwise.ledger.digests import digest_of, file_entry

TEMPLATES = "templates"
"""Folders of this name belong to the package that holds them; other data files lie directly in its folder."""

_STATEMENTS = ""
"""The symbol that stands for what a module does when it is imported, definitions and imports apart."""

_ALL = "*"
"""The symbol that stands for everything in a module."""

Symbol = tuple[str, str]
"""(module, name)."""


@dataclass(frozen=True)
class ModuleCode:
    """A parsed module.

    Attributes:
        defined: name -> the statements that define it.
        imported: name -> where it comes from: (module, name), with `""` for a module as a whole.
        statements: all others.
        annotated: function -> names in the annotations of its parameters and of those inside of it.
        data: digests of the files that belong to it, only for a package.
    """

    defined: dict[str, list[ast.stmt]]
    imported: dict[str, Symbol]
    statements: list[ast.stmt]
    annotated: dict[str, set[str]]
    data: dict[str, str] = field(default_factory=dict)


class KeptDigests:
    """Digests of functions between processes. They hold while every file of the package has the content that it had.

    Args:
        path: JSON file; an absent or broken one is an empty one, and a disk that refuses costs time the next time.
        root: the package's folder.
        left_out: as for `CodeSet`.
    """

    def __init__(self, path: Path, root: Path, left_out: tuple[str, ...]) -> None:
        self._path = path
        files = (own for own in sorted(root.rglob("*")) if own.is_file() and own.suffix != ".pyc")
        content = {own.relative_to(root).as_posix(): file_entry(own).sha256 for own in files}
        self._state = digest_of([content, list(left_out), sys.version])
        self._known: dict[str, dict[str, str]] = {}
        self._changed = False
        with suppress(OSError, ValueError, TypeError, KeyError):
            found = json.loads(path.read_text(encoding="utf-8"))
            if found["state"] == self._state:
                self._known = {str(name): dict(own) for name, own in found["digests"].items()}

    def get(self, name: str) -> dict[str, str] | None:
        """What was kept under a name."""
        return self._known.get(name)

    def put(self, name: str, digests: dict[str, str]) -> None:
        """Keeps more."""
        self._known[name] = digests
        self._changed = True

    def save(self) -> None:
        """For the next process."""
        if self._changed:
            with suppress(OSError), whole_file(self._path) as part:
                part.write_text(json.dumps({"state": self._state, "digests": self._known}), encoding="utf-8")
            self._changed = False


class CodeSet:
    """A package whose code is followed.

    Args:
        package: its name; other packages are not followed.
        root: its folder.
        left_out: modules and subpackages that change no result.
        kept: JSON file that keeps digests as long as no file of the package changes; None = they are always computed.
    """

    def __init__(self, package: str, root: Path, left_out: tuple[str, ...] = (), kept: Path | None = None) -> None:
        self.package, self.root, self.left_out = package, root, left_out
        self._kept = None if kept is None else KeptDigests(kept, root, left_out)
        self._modules: dict[str, ModuleCode] = {}
        self._there: dict[str, bool] = {}
        self._dumped: dict[Symbol, list[str]] = {}
        self._used: dict[Symbol, set[Symbol]] = {}
        self._known: dict[str, dict[str, str]] = {}

    def digests(self, *functions: Callable[..., Any]) -> dict[str, str]:
        """Module -> digest of what functions reach in it together. One of another package reaches nothing here.

        Files are read once in the life of a `CodeSet`, so that they are those that the process has imported if it is
        asked early enough.
        """
        starts = sorted({_symbol(own) for own in functions})
        known = " ".join(":".join(start) for start in starts)
        if known not in self._known and self._kept is not None and (kept := self._kept.get(known)) is not None:
            self._known[known] = kept
        if known not in self._known:
            by_module: dict[str, list[str]] = {}
            for module, name in sorted({symbol for start in starts for symbol in self._closure(start)}):
                by_module.setdefault(module, []).append(name)
            self._known[known] = {module: self._digest(module, names) for module, names in by_module.items()}
            if self._kept is not None:
                self._kept.put(known, self._known[known])
        return self._known[known]

    def save(self) -> None:
        """Keeps what was computed, where something is kept."""
        if self._kept is not None:
            self._kept.save()

    def _closure(self, start: Symbol) -> set[Symbol]:
        found: set[Symbol] = set()
        waiting = [start, *self._parameter_types(start)] if self._inside(start[0]) else []
        while waiting:
            symbol = waiting.pop()
            if symbol not in found:
                found.add(symbol)
                waiting += self._uses(symbol)
        return found

    def _parameter_types(self, start: Symbol) -> Iterator[Symbol]:
        """The types of what others make and hand to the function: their methods run as well."""
        module, function = start
        code = self._module(module)
        for name in code.annotated.get(function, ()):
            if name in code.imported:
                yield from self._target(code.imported[name], {_ALL})
            elif name in code.defined:
                yield module, name

    def _uses(self, symbol: Symbol) -> set[Symbol]:
        if symbol not in self._used:
            self._used[symbol] = set(self._find_uses(*symbol))
        return self._used[symbol]

    def _find_uses(self, module: str, name: str) -> Iterator[Symbol]:
        code = self._module(module)
        yield module, _STATEMENTS
        if "." in module:
            # Importing a module runs its packages.
            yield module.rpartition(".")[0], _STATEMENTS
        if name == _ALL:
            yield from ((module, own) for own in (*code.defined, *code.imported))
        elif name in code.defined or name == _STATEMENTS:
            for statement in code.defined.get(name, code.statements):
                yield from self._names_in(module, statement)
        elif name in code.imported:
            yield from self._target(code.imported[name], {_ALL})

    def _names_in(self, module: str, statement: ast.stmt) -> Iterator[Symbol]:
        code = self._module(module)
        imported = code.imported | self._imports(module, [statement])
        for name, attributes in _names(statement).items():
            if name in imported:
                yield from self._target(imported[name], attributes)
            elif name in code.defined:
                yield module, name

    def _target(self, source: Symbol, attributes: set[str]) -> Iterator[Symbol]:
        module, name = source
        if not self._is_module(module):
            return
        if name:
            yield module, name
        else:
            yield from ((module, attribute) for attribute in attributes)

    def _digest(self, module: str, names: list[str]) -> str:
        code = self._module(module)
        return digest_of([{name: self._dumps(module, name) for name in names}, code.data])[:16]

    def _dumps(self, module: str, name: str) -> list[str]:
        symbol = (module, name)
        if symbol not in self._dumped:
            code = self._module(module)
            statements = code.statements if name == _STATEMENTS else code.defined.get(name, [])
            self._dumped[symbol] = [ast.dump(own) for own in statements]
        return self._dumped[symbol]

    def _module(self, module: str) -> ModuleCode:
        if module not in self._modules:
            path = self._file(module)
            tree = ast.parse(path.read_text(encoding="utf-8"))
            annotated = {own.name: _annotations(own) for own in tree.body if isinstance(own, ast.FunctionDef)}
            _strip(tree)
            defined: dict[str, list[ast.stmt]] = {}
            others = []
            for node in tree.body:
                names = _defines(node)
                for name in names:
                    defined.setdefault(name, []).append(node)
                if not names and not isinstance(node, ast.Import | ast.ImportFrom) and not _for_checkers(node):
                    others.append(node)
            data = _data_files(path.parent) if path.name == "__init__.py" else {}
            self._modules[module] = ModuleCode(defined, self._imports(module, tree.body), others, annotated, data)
        return self._modules[module]

    def _imports(self, module: str, statements: list[ast.stmt]) -> dict[str, Symbol]:
        """Name that an import binds -> where it comes from, for what lies in the package."""
        found: dict[str, Symbol] = {}
        for node in (inner for statement in statements for inner in _executed(statement)):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    found[alias.asname or alias.name.split(".")[0]] = (alias.name, "")
            elif isinstance(node, ast.ImportFrom):
                source = self._source(module, node)
                for alias in node.names:
                    whole = f"{source}.{alias.name}"
                    target = (whole, "") if self._is_module(whole) else (source, alias.name)
                    found[alias.asname or alias.name] = target
        return {name: target for name, target in found.items() if self._is_module(target[0])}

    def _source(self, module: str, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = module.split(".")
        base = parts if self._file(module).name == "__init__.py" else parts[:-1]
        base = base[: len(base) - (node.level - 1)]
        return ".".join([*base, *([node.module] if node.module else [])])

    def _inside(self, module: str) -> bool:
        if module != self.package and not module.startswith(f"{self.package}."):
            return False
        return not any(module == own or module.startswith(f"{own}.") for own in self.left_out)

    def _is_module(self, name: str) -> bool:
        if name not in self._there:
            self._there[name] = self._inside(name) and self._file(name).is_file()
        return self._there[name]

    def _file(self, module: str) -> Path:
        place = self.root.joinpath(*module.split(".")[1:])
        return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


def _symbol(function: Callable[..., Any]) -> Symbol:
    inner = inspect.unwrap(function)
    # A function inside of another one (a node made under a name) is part of the outer one.
    return inner.__module__, inner.__qualname__.split(".")[0]


def _defines(node: ast.stmt) -> list[str]:
    """The names that a statement of a module defines."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Assign):
        return [own.id for target in node.targets for own in ast.walk(target) if isinstance(own, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    if isinstance(node, ast.TypeAlias if hasattr(ast, "TypeAlias") else ()):
        return [node.name.id]
    return []


def _for_checkers(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def _executed(tree: ast.stmt) -> Iterator[ast.stmt]:
    """A statement and all statements below it, but what only type checkers see."""
    waiting: list[ast.stmt] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, ast.If) and _for_checkers(node):
            waiting += node.orelse
        else:
            waiting += _inner_statements(node)


def _inner_statements(node: ast.AST) -> Iterator[ast.stmt]:
    """The statements in the blocks of one: expressions hold none."""
    for block in ("body", "orelse", "finalbody"):
        yield from getattr(node, block, ())
    for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        yield from _inner_statements(part)


def _names(statement: ast.stmt) -> dict[str, set[str]]:
    """Name that a statement uses -> the attributes that it takes of it, `*` where it uses it otherwise as well."""
    found: dict[str, set[str]] = {}
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found.setdefault(node.value.id, set()).add(node.attr)
            continue
        if isinstance(node, ast.Name):
            found.setdefault(node.id, set()).add(_ALL)
        waiting += ast.iter_child_nodes(node)
    return found


def _annotations(function: ast.FunctionDef) -> set[str]:
    """Names in the annotations of parameters, of a function and of those inside of it."""
    given = [own.annotation for own in ast.walk(function) if isinstance(own, ast.arg) and own.annotation is not None]
    return {own.id for annotation in given for own in ast.walk(annotation) if isinstance(own, ast.Name)}


def _strip(tree: ast.Module) -> None:
    """Takes docstrings and the annotations of functions away: they change no result."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [own for own in node.body if not _is_text(own)] or [ast.Pass()]
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None


def _is_text(node: ast.stmt) -> bool:
    """Whether a statement is only a text, which tells something to readers alone."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _data_files(package: Path) -> dict[str, str]:
    beside = [own for own in package.iterdir() if own.is_file() and own.suffix not in (".py", ".pyc")]
    within = [own for own in (package / TEMPLATES).rglob("*") if own.is_file()]
    return {own.relative_to(package).as_posix(): file_entry(own).sha256 for own in sorted([*beside, *within])}


def import_all(modules: Iterable[str]) -> None:
    """Imports modules now, so that what is edited from here on is not what this process runs.

    One that cannot be imported is left to whoever needs it: an optional package may be missing.
    """
    for name in modules:
        with suppress(ImportError):
            importlib.import_module(name)


def changed_code(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Modules whose code differs, came or went, sorted."""
    return sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
