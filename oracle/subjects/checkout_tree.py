"""A vLLM tree on disk: where it comes from, and the functions of it that are of interest.

    tests/kernels/quantization/nvfp4_utils.py   dequant_nvfp4_kv_cache
    vllm/utils/torch_utils.py                   nvfp4_split_data_scale, nvfp4_kv_cache_split_views

An installed package has no tests, and so no dequantiser.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from oracle.errors import UsageError
from oracle.subjects.checkout_commit import Provenance, provenance
from oracle.subjects.checkout_process import (
    TIME_LIMIT,
    CheckoutProcess,
    default_python,
    process_for,
)
from oracle.subjects.checkout_source import Extract, extract, has_function

DEQUANTISER = ("tests/kernels/quantization/nvfp4_utils.py", "dequant_nvfp4_kv_cache")
SPLIT_FILES = ("vllm/utils/torch_utils.py", "vllm/utils/__init__.py")
SPLIT_FUNCTIONS = (
    "nvfp4_split_data_scale", "_nvfp4_split_data_scale", "nvfp4_kv_cache_split_views",
)  # fmt: skip


@dataclass(frozen=True)
class Checkout:
    """A tree, where it comes from, and the functions found in it."""

    root: Path
    provenance: Provenance
    dequantiser: Extract | None
    splits: tuple[Extract, ...]
    python: str
    time_limit: float = TIME_LIMIT

    @property
    def process(self) -> CheckoutProcess:
        """The process that has its functions, started when first asked for."""
        extracts = self.splits if self.dequantiser is None else (self.dequantiser, *self.splits)
        return process_for(extracts, self.python, self.time_limit)


def open_checkout(path: str, python: str | None = None, time_limit: float = TIME_LIMIT) -> Checkout:
    """Find the functions in a source tree or an installed package; nothing is executed yet.

    `python` names the interpreter to execute them with, which needs torch. Raises UsageError where
    there is no vLLM, or none of the functions.
    """
    root = _root(path)
    if not (root / "vllm").is_dir() and not (root / DEQUANTISER[0]).is_file():
        raise UsageError(f"{path} is no vLLM checkout: it has no directory vllm and no tests of it")
    dequantiser = extract(root, *DEQUANTISER) if (root / DEQUANTISER[0]).is_file() else None
    splits = tuple(
        extract(root, file, function)
        for file in SPLIT_FILES
        for function in SPLIT_FUNCTIONS
        if has_function(root, file, function)
    )
    if dequantiser is None and not splits:
        raise UsageError(
            f"{path} has neither {DEQUANTISER[0]} nor {SPLIT_FUNCTIONS[0]} in {SPLIT_FILES[0]}: "
            "name a checkout with NVFP4 KV caches"
        )
    interpreter = python or default_python()
    return Checkout(root, provenance(root), dequantiser, splits, interpreter, time_limit=time_limit)


def built_extensions(path: str) -> list[Path]:
    """The shared objects of a tree's package that may hold the store kernel, by name."""
    return sorted((_root(path) / "vllm").glob("_C*.so"))


def _root(path: str) -> Path:
    root = Path(path)
    if (root / "__init__.py").is_file() and not (root / "vllm").is_dir():
        # The package itself was named, as `vllm.__path__` gives it.
        return root.resolve().parent
    return root
