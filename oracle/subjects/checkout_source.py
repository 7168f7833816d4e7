"""One function of a source file and what it needs, taken from the text alone.

The file is parsed, never imported. From the function on, every name it loads is followed to the
statements of the module that bind it, and theirs to others; what is not reached is left out.
Imports are kept for the modules in ALLOWED. Any other name becomes a stub that refuses, by name, to
be used, so that a function which merely stands in a file with `import vllm` runs, and one that
needs vLLM says so. Annotations are dropped, because they would be evaluated.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from oracle.errors import UsageError
from oracle.files import read_at_most
from oracle.subjects.dequantiser import Parameter

ALLOWED = frozenset(
    (
        "__future__", "collections", "dataclasses", "enum", "functools", "itertools", "math",
        "numpy", "operator", "torch", "typing",
    )
)  # fmt: skip
"""Modules, with all below them, that an extracted function may import."""

MAX_SOURCE_BYTES = 8 * 2**20
STUB = "_stub"
"""What the extracted text calls to make a stub from a dotted name."""


@dataclass(frozen=True)
class Extract:
    """A function of a file, ready to be executed elsewhere.

    `source` is the text of the function and what it needs; `parameters` and `signature` are its
    own; `sha256` is the digest of the whole file.
    """

    path: str
    sha256: str
    function: str
    source: str
    parameters: tuple[Parameter, ...]
    signature: str

    @property
    def name(self) -> str:
        """File and function, for messages."""
        return f"{self.path}: {self.function}"


def extract(root: Path, path: str, function: str) -> Extract:
    """Take a function out of a file below `root`.

    Raises UsageError for a file that is missing, too large or no Python, and for one without the
    function.
    """
    data = _read(root / path)
    try:
        module = ast.parse(data, path)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UsageError(f"{root / path} cannot be parsed: {error}") from error
    node = next((n for n in module.body if isinstance(n, _FUNCTIONS) and n.name == function), None)
    if node is None:
        raise UsageError(f"{root / path} has no function {function}")
    signature = f"({ast.unparse(node.args)})"
    parameters = tuple(_parameters(node.args))
    kept = _Foreign().visit(ast.Module(_needed(module, function), []))
    source = ast.unparse(ast.fix_missing_locations(kept))
    digest = hashlib.sha256(data).hexdigest()
    return Extract(path, digest, function, source, parameters, signature)


def has_function(root: Path, path: str, function: str) -> bool:
    """Whether a file exists and defines a function, told from its text."""
    return (root / path).is_file() and f"def {function}(".encode() in _read(root / path)


def _read(path: Path) -> bytes:
    data = read_at_most(path, MAX_SOURCE_BYTES)
    if len(data) > MAX_SOURCE_BYTES:
        raise UsageError(f"{path} is larger than {MAX_SOURCE_BYTES} bytes: no source of vLLM's")
    return data


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_BLOCKS = (ast.If, ast.Try, ast.With)


def _parameters(arguments: ast.arguments) -> Iterator[Parameter]:
    positional = [*arguments.posonlyargs, *arguments.args]
    required = len(positional) - len(arguments.defaults)
    for place, argument in enumerate(positional):
        yield Parameter(argument.arg, place < required)
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield Parameter(argument.arg, default is None)


def _needed(module: ast.Module, function: str) -> list[ast.stmt]:
    """The statements of a module that a function needs, itself among them, in their order."""
    binding: dict[str, list[int]] = {}
    for place, statement in enumerate(module.body):
        for name in _bound(statement):
            binding.setdefault(name, []).append(place)
    needed: set[int] = set()
    waiting = [function]
    while waiting:
        for place in binding.pop(waiting.pop(), ()):
            if place not in needed:
                needed.add(place)
                waiting += _loaded(module.body[place])
    return [module.body[place] for place in sorted(needed)]


def _bound(statement: ast.stmt) -> Iterator[str]:
    """The names a statement of a module binds."""
    if isinstance(statement, (*_FUNCTIONS, ast.ClassDef)):
        yield statement.name
    elif isinstance(statement, ast.Import):
        for alias in statement.names:
            yield alias.asname or alias.name.partition(".")[0]
    elif isinstance(statement, ast.ImportFrom):
        for alias in statement.names:
            yield alias.asname or alias.name
    elif isinstance(statement, _BLOCKS):
        for inner in ast.iter_child_nodes(statement):
            if isinstance(inner, ast.stmt):
                yield from _bound(inner)
            elif isinstance(inner, ast.ExceptHandler):
                for handled in inner.body:
                    yield from _bound(handled)
    else:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id


def _loaded(statement: ast.stmt) -> Iterator[str]:
    """The names a statement reads, those of functions inside it too, but not of annotations."""
    for node in ast.walk(_Bare().visit(_copied(statement))):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id


def _copied(statement: ast.stmt) -> ast.stmt:
    return ast.parse(ast.unparse(statement)).body[0]


_Definition = TypeVar("_Definition", ast.FunctionDef, ast.AsyncFunctionDef)


class _Bare(ast.NodeTransformer):
    """Drops annotations."""

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def _definition(self, node: _Definition) -> _Definition:
        node.returns = None
        self.generic_visit(node)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        return self._definition(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AsyncFunctionDef:
        return self._definition(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        if node.value is None:
            return ast.Pass()
        return ast.Assign([node.target], node.value, lineno=node.lineno)


class _Foreign(_Bare):
    """Drops annotations, and turns imports from elsewhere into stubs, wherever they stand."""

    def visit_Import(self, node: ast.Import) -> list[ast.stmt]:
        kept = [alias for alias in node.names if _allowed(alias.name)]
        statements: list[ast.stmt] = [ast.Import(kept)] if kept else []
        for alias in node.names:
            if alias not in kept:
                name = alias.asname or alias.name.partition(".")[0]
                statements.append(_stub(name, alias.name if alias.asname else name))
        return statements

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.stmt | list[ast.stmt]:
        module = node.module or ""
        if node.level == 0 and _allowed(module):
            return node
        return [
            _stub(alias.asname or alias.name, f"{'.' * node.level}{module}.{alias.name}")
            for alias in node.names
        ]


def _allowed(module: str) -> bool:
    return module.partition(".")[0] in ALLOWED


def _stub(name: str, origin: str) -> ast.stmt:
    call = ast.Call(ast.Name(STUB, ast.Load()), [ast.Constant(origin)], [])
    return ast.Assign([ast.Name(name, ast.Store())], call)
