"""A Python function: how a spec names it, imported into this process, and what comes of a call.

A module that holds torch, or anything that came from it, gets torch tensors; any other gets NumPy
arrays. What counts is the module that the function stands in: one that uses torch only through
another module gets NumPy arrays.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import Any

from oracle.errors import CallFailed, Refused, UsageError
from oracle.geometry import CacheGeometry
from oracle.subjects.guard import TooLong, guarded

_PYTHON_FILE = re.compile(r"(?P<folder>.*/)?(?P<module>[A-Za-z_]\w*)\.py(?::(?P<function>.*))?")
_NOT_THE_SUBJECTS = (
    "<frozen ",
    f"{Path(__file__).parents[1]}/",
    f"{Path(importlib.__file__).parent}/",
)
"""How the names of files begin that import or call a subject: Python's own, and this package's."""


def check_no_file(spec: str, function: str) -> None:
    """Refuse a Python function that is named by its file, and say how it is named.

    `function` stands for the one that is left out.
    """
    found = _PYTHON_FILE.fullmatch(spec)
    if found is None:
        return
    folder, module = PurePath(found["folder"] or ""), found["module"]
    named = f"{module}:{found['function'] or function}"
    if all(part.isidentifier() for part in folder.parts):
        named = ".".join((*folder.parts, named))
    else:
        named += f", with {folder} on PYTHONPATH"
    raise UsageError(f"{spec}: a Python function is named by its module, not its file: {named}")


def load_function(spec: str) -> Callable[..., Any]:
    """The function `package.module:function` names, searched for from the current directory too.

    Raises UsageError where there is none, or where importing its module fails.
    """
    module_name, _, function_name = spec.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        with guarded():
            module = importlib.import_module(module_name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise UsageError(f"{spec}: {_why_not_imported(module_name, error)}") from error
    function: Callable[..., Any] | None = getattr(module, function_name, None)
    if function is None or not callable(function):
        raise UsageError(f"{spec}: {module_name} has no function {function_name!r}")
    return function


def _why_not_imported(module_name: str, error: BaseException) -> str:
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    if missing is None:
        return f"importing {module_name} failed: {_line(error)}"
    if f"{module_name}.".startswith(f"{missing}."):
        where = "it is looked for in the current directory and on PYTHONPATH"
        return f"there is no module {missing}: {where}"
    return f"{module_name} imports {missing}, which this Python does not have{_place(error)}"


def _line(error: BaseException) -> str:
    """An exception in one line: its type, its first line, and where the subject raised it."""
    words = _words(error)
    return f"{type(error).__name__}{f': {words}' if words else ''}{_place(error)}"


def _words(error: BaseException) -> str:
    """The first line of what an exception says."""
    try:
        return next(iter(str(error).strip().splitlines()), "")
    except Exception:
        # A subject's exception may have no words for itself.
        return ""


def _place(error: BaseException) -> str:
    """The innermost line of a traceback that is the subject's own, in brackets; empty for none."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith(_NOT_THE_SUBJECTS):
            return f" ({os.path.basename(frame.filename)}:{frame.lineno})"
    return ""


def uses_torch(function: Callable[..., Any]) -> bool:
    """Whether the function's module holds torch, or anything that came from it."""
    held = vars(inspect.getmodule(function) or object).values()
    return any(_home(thing) == "torch" for thing in held)


def _home(thing: Any) -> str:
    """The top-level package a module, class or function comes from."""
    name = thing.__name__ if inspect.ismodule(thing) else getattr(thing, "__module__", None)
    return name.partition(".")[0] if isinstance(name, str) else ""


def digest(function: Callable[..., Any]) -> str | None:
    """sha256 of the file a function stands in, if it stands in one."""
    try:
        path = inspect.getsourcefile(function)
        with open(path or "", "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except (OSError, TypeError):
        return None


@contextmanager
def called(spec: str, function: Callable[..., Any], geometry: CacheGeometry) -> Iterator[None]:
    """What calls a function: within the time limit, and with its exceptions as errors.

    Raises Refused where it raises NotImplementedError with a reason, CallFailed where it raises
    anything else, and UsageError where it takes too long.
    """
    given = geometry.in_words()
    try:
        with guarded():
            yield
    except KeyboardInterrupt:
        raise
    except TooLong as error:
        raise UsageError(f"{spec} {error}, given {given}") from None
    except BaseException as error:
        # Not even a subject's own exit may become the tool's.
        words = _words(error)
        if isinstance(error, NotImplementedError) and words:
            raise Refused(spec, words) from error
        if "torch" in sys.modules and not uses_torch(function):
            given += ", as NumPy arrays, since its own module imports no torch"
        raise CallFailed(f"{spec} raised {_line(error)}, given {given}") from error
