"""Kernel names taken apart, compared with binutils where that is installed."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from oracle.machine.demangle import MAX_NAME, demangle

STORE = "vllm::reshape_and_cache_nvfp4_kernel"
STORED = "_ZN4vllm30reshape_and_cache_nvfp4_kernelIN3c10"
NAMES = {
    f"{STORED}8BFloat16EEEvPKT_S5_PhS6_S6_S6_PKlPKfSA_lliiillllll": f"{STORE}<c10::BFloat16>",
    f"{STORED}4HalfELNS_18NVFP4KVScaleSearchE1EEEvPKT_S6_PhS7_S7_S7_PKlPKfSB_lliiillllll": (
        f"{STORE}<c10::Half, (vllm::NVFP4KVScaleSearch)1>"
    ),
    "_ZN4vllm24reshape_and_cache_kernelI13__nv_bfloat16hLNS_18Fp8KVCacheDataTypeE2EEEvPKT_S5_": (
        "vllm::reshape_and_cache_kernel<__nv_bfloat16, unsigned char, (vllm::Fp8KVCacheDataType)2>"
    ),
    "_Z1kIiEvT_": "k<int>",
    "_Z1kPf": "k",
    "_ZL1kv": "k",
    "_ZN12_GLOBAL__N_11kEv": "(anonymous namespace)::k",
    "_Z1kIN1a1bILi3EEES2_E": "k<a::b<3>, a::b<3>>",
    "_Z1kIPKN1a1bES3_RS0_EvT_": "k<a::b const*, a::b const*, a&>",
    "_Z1kILb1ELb0ELj7ELln8ELm9ELyn1EEvv": "k<true, false, 7u, -8l, 9ul, -1ull>",
    "_Z1kILc65EEvv": "k<(char)65>",
    "_Z1kIJifEhEvv": "k<int, float, unsigned char>",
    "_Z1kISt4pairIiN3foo3barEEEvv": "k<std::pair<int, foo::bar>>",
    "_ZN3std1kIOdVPxEEvv": "std::k<double&&, long long* volatile>",
}
UNKNOWN = [
    *("k", "main", "", "_Z", "_Z1", "_Z0", "_Z9k", "_ZN", "_Z-1k", "_Z1kI", "_Z1kI?Evv"),
    *("_Z1kIXadL_Z1fEEEvv", "_Z1kIFviEEvv", "_Z1kIS9_EvT_", "_Z1kILi?EEvv", "_Z1kIDv4_fEvv"),
    "_Z1kILiEEvv",
]


@pytest.mark.parametrize("name", NAMES)
def test_names_that_are_understood(name: str) -> None:
    assert demangle(name) == NAMES[name]


@pytest.mark.skipif(shutil.which("c++filt") is None, reason="binutils' c++filt is not installed")
@pytest.mark.parametrize("name", NAMES)
def test_binutils_reads_the_same(name: str) -> None:
    done = subprocess.run(["c++filt", name], capture_output=True, text=True, check=True)
    # It adds return and parameter types, and spaces between closing brackets.
    assert demangle(name) in re.sub(r" (?=>)", "", done.stdout)


@pytest.mark.parametrize("name", UNKNOWN)
def test_names_that_are_not_stay_as_they_are(name: str) -> None:
    assert demangle(name) == name


def doubled(levels: int) -> str:
    """A name whose arguments are pairs of pairs: each level refers to the one before twice."""
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return (
        "_Z1kI1a" + "".join(f"1bIS{digits[2 * i]}_S{digits[2 * i]}_E" for i in range(levels)) + "E"
    )


def test_no_name_explodes() -> None:
    assert demangle(doubled(2)) == "k<a, b<a, a>, b<b<a, a>, b<a, a>>>"
    for name in (doubled(17), "_Z1kI" + "P" * 3000 + "iEvv", "_Z1k" + "I" * 99, "_Z1k" * MAX_NAME):
        assert demangle(name) == name


@given(st.text(alphabet="_ZNSILEJKPTvifab0123456789", max_size=60))
@example("NE")
def test_any_text_gives_a_name(text: str) -> None:
    assert demangle("_Z" + text)
