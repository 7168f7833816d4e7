"""Which commit a vLLM tree is at, read from its files without running git.

A checkout names its commit in `.git`; an installed package names one in `_version.py`.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

from oracle.files import open_regular

PIN = "5559679229bc961848b121ccdeaa8fa5d79bec98"
"""The commit whose dequantiser un-swizzles the scales of both sides."""

_COMMIT = re.compile(r"[0-9a-f]{40}")
_VERSION_NAMES = ("commit_id", "__commit_id__")
_MAX_BYTES = 2**20
_SHORT = 12


@dataclass(frozen=True)
class Provenance:
    """A commit, whole or abbreviated as an installed package has it, or None."""

    commit: str | None

    @property
    def at_pin(self) -> bool | None:
        """Whether the tree is at the pin; None where its commit is not known."""
        return None if self.commit is None else PIN.startswith(self.commit)

    @property
    def words(self) -> str:
        """The commit and where it stands to the pin."""
        if self.commit is None:
            return f"commit unknown (the pin is {PIN})"
        return f"commit {self.commit} ({'the pin' if self.at_pin else f'not the pin, {PIN}'})"


def provenance(root: Path) -> Provenance:
    """The commit of a tree. A file that is missing or unreadable leaves it unknown."""
    return Provenance(_head(root) or _installed(root / "vllm" / "_version.py"))


def _head(root: Path) -> str | None:
    """The commit that .git/HEAD names, through a reference where it names one."""
    git = root / ".git"
    if git.is_file():
        # A worktree or submodule: the file says where its directory is.
        git = root / _text(git).removeprefix("gitdir:").strip()
    head = _text(git / "HEAD").strip()
    if not head.startswith("ref:"):
        return head if _COMMIT.fullmatch(head) else None
    reference = head.removeprefix("ref:").strip()
    if not reference.startswith("refs/") or ".." in reference:
        return None
    common = git / (_text(git / "commondir").strip() or ".")
    for directory in (git, common):
        commit = _text(directory / reference).strip()
        if _COMMIT.fullmatch(commit):
            return commit
    packed = (line.split() for line in _text(common / "packed-refs").splitlines())
    return next((row[0] for row in packed if row[1:] == [reference]), None)


def _installed(path: Path) -> str | None:
    """The commit that a generated version file holds, without the `g` of git-describe."""
    try:
        module = ast.parse(_text(path))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    for node in module.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        names = {each.id for each in targets if isinstance(each, ast.Name)}
        if names & set(_VERSION_NAMES) and isinstance(getattr(node, "value", None), ast.Constant):
            commit = str(node.value.value).removeprefix("g")  # type: ignore[attr-defined]
            return commit if re.fullmatch(r"[0-9a-f]{7,40}", commit) else None
    return None


def _text(path: Path) -> str:
    try:
        with open_regular(path) as file:
            return file.read(_MAX_BYTES).decode(errors="replace")
    except OSError:
        return ""
