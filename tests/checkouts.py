"""Stand-ins for a vLLM tree: files with the names and signatures of the public ones, our own words.

The public dequantiser at the pin takes the scales of both sides for swizzled; the corrected one has
a flag for it. The view split scales a side's strides by 8/9 and 1/9.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

from oracle.subjects.checkout_commit import PIN
from oracle.subjects.checkout_process import PYTHON_VARIABLE

DEQUANTISER = "tests/kernels/quantization/nvfp4_utils.py"
SPLIT = "vllm/utils/torch_utils.py"


def _has_torch() -> bool:
    return PYTHON_VARIABLE in os.environ or importlib.util.find_spec("torch") is not None


needs_torch = pytest.mark.skipif(
    not _has_torch(),
    reason=f"functions of a checkout need torch: install it, or name a Python with it in "
    f"{PYTHON_VARIABLE}",
)

PYTHON = os.environ.get(PYTHON_VARIABLE) or sys.executable

# What stands around the functions is not needed by them and must not be executed.
_DEQUANTISER = '''
"""Helpers of tests."""
import torch
import vllm
from vllm.scalar_type import scalar_types

LARGEST = scalar_types.float4_e2m1f.max()
MAGNITUDES = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


def codes_to_numbers(packed):
    wide = packed.to(torch.long)
    codes = torch.stack([wide % 16, wide // 16], dim=-1).flatten(-2)
    numbers = MAGNITUDES[codes % 8]
    return torch.where(codes < 8, numbers, -numbers)


def unswizzled(plane):
    *outer, tokens, columns = plane.shape
    bands = plane.reshape(*outer, tokens // 4, columns, 4)
    return bands.transpose(-1, -2).reshape(plane.shape)


def dequant_nvfp4_kv_cache(
    fp4_data: torch.Tensor,
    block_scale: torch.Tensor,
    global_scale: float,
    head_size: int,
    block_size: int,{parameter}
) -> "vllm.Tensor":
    assert fp4_data.shape[-2:] == (block_size, head_size // 2)
    stored = block_scale.view(torch.uint8)
    scales = unswizzled(stored){condition}
    scales = scales.contiguous().view(torch.float8_e4m3fn).float() * global_scale
    numbers = codes_to_numbers(fp4_data).unflatten(-1, (head_size // 16, 16))
    return (numbers * scales[..., None]).flatten(-2)


def quantised(tensor: vllm.Tensor) -> vllm.Tensor:
    return vllm.quantise(tensor, LARGEST)
'''

PINNED = _DEQUANTISER.format(parameter="", condition="")
CORRECTED = _DEQUANTISER.format(
    parameter="\n    swizzled_scales: bool = True,",
    condition=" if swizzled_scales else stored",
)

_SPLIT = """
import torch
from vllm.logger import init_logger

logger = init_logger(__name__)


def nvfp4_split_data_scale(kv_side: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    pages, rows, columns, content = kv_side.shape
    cut = []
    behind = 0
    for width in (content * 8 // 9, content - content * 8 // 9):
        steps = (kv_side.stride(0), *(kv_side.stride(i) * width // content for i in (1, 2)), 1)
        shape = (pages, rows, columns, width)
        offset = kv_side.storage_offset() + behind
        cut.append(torch.as_strided(kv_side, shape, steps, storage_offset=offset))
        behind += rows * columns * width
    return cut[0], cut[1].view(torch.float8_e4m3fn)
"""

_BOTH_SIDES = """

def nvfp4_kv_cache_split_views(kv_cache):
    if kv_cache.dim() == 4:
        data, scale = nvfp4_split_data_scale(kv_cache)
        return (data,), (scale,)
    sides = [nvfp4_split_data_scale(kv_cache[:, side]) for side in (0, 1)]
    return tuple(zip(*sides))
"""


def tree(
    root: Path, dequantiser: str | None = PINNED, split: str | None = _SPLIT + _BOTH_SIDES
) -> Path:
    """A checkout at the pin with these files; None leaves one out."""
    files = {"vllm/__init__.py": "raise ImportError('not to be imported')\n"}
    if dequantiser is not None:
        files[DEQUANTISER] = dequantiser
    if split is not None:
        files[SPLIT] = split
    files[".git/HEAD"] = "ref: refs/heads/main\n"
    files[".git/refs/heads/main"] = f"{PIN}\n"
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    return root
