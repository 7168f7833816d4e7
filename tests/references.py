"""Independent references: exact rational arithmetic, and NVIDIA's own conversions on the host."""

import importlib.util
import math
import shutil
import subprocess
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from pathlib import Path

import numpy as np

MIN_NORMAL = 2.0**-126
MAX_FLOAT32 = float(np.finfo(np.float32).max)


def nearest_float32(exact: Fraction) -> float:
    """Round a rational number to float32, ties to even, by counting units in the last place."""
    numerator, denominator = abs(exact.numerator), exact.denominator
    # 2^(bits-1) < |exact| < 2^(bits+1), so that it counts 2^23 to 2^25 of this unit, or fewer.
    bits = numerator.bit_length() - denominator.bit_length()
    unit = max(bits - 24, -149)
    numerator, denominator = numerator << max(-unit, 0), denominator << max(unit, 0)
    if numerator >= denominator << 24:
        unit, denominator = unit + 1, denominator * 2
    units, rest = divmod(numerator, denominator)
    if 2 * rest > denominator or (2 * rest == denominator and units % 2 == 1):
        units += 1
    magnitude = math.ldexp(units, unit)
    if magnitude > MAX_FLOAT32:
        magnitude = math.inf
    return -magnitude if exact.numerator < 0 else magnitude


# A group's values and multipliers recur, and building a Fraction costs more than using it.
rational = lru_cache(2**12)(Fraction)


def fused(a: float, b: float, c: float) -> float:
    """a * b + c of three float32 values, rounded to float32 once."""
    unrounded = a * b + c  # right where it is an infinity, a NaN or a zero of either sign
    if not all(map(math.isfinite, (a, b, c))):
        return unrounded
    exact = rational(a) * rational(b) + rational(c)
    return nearest_float32(exact) if exact else unrounded


def product(a: float, b: float) -> float:
    """a * b of two float32 values, rounded to float32; zeros keep the sign of the product."""
    unrounded = a * b
    if not math.isfinite(unrounded) or unrounded == 0:
        return unrounded
    return math.copysign(nearest_float32(rational(a) * rational(b)), unrounded)


def quotient(a: float, b: float) -> float:
    """a / b of two float32 values, rounded to float32."""
    sign = math.copysign(1, a) * math.copysign(1, b)
    if math.isfinite(a) and math.isfinite(b) and a != 0 and b != 0:
        return math.copysign(nearest_float32(Fraction(a) / Fraction(b)), sign)
    if b == 0:
        return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, sign)
    return a / b


def flushed(x: float) -> float:
    """A subnormal float32 becomes a zero of the same sign."""
    return math.copysign(0.0, x) if abs(x) < MIN_NORMAL else x


def reciprocal(x: float, ulps: int = 0) -> float:
    """`rcp.approx.ftz.f32` modelled as correctly rounded and then off by so many ulps."""
    result = flushed(quotient(1.0, flushed(x)))
    if ulps and result != 0 and math.isfinite(result):
        away = np.float32(math.copysign(math.inf, result) if ulps > 0 else 0.0)
        result = flushed(float(np.nextafter(np.float32(result), away)))
    return result


HOST_PROGRAM = r"""
#include <cstdio>
#include <cstring>
#include <string>
#include <cuda_fp4.h>
#include <cuda_fp8.h>

template <class In, class Out, class Convert> int each(Convert convert) {
    In in;
    while (std::fread(&in, sizeof in, 1, stdin) == 1) {
        Out out = convert(in);
        std::fwrite(&out, sizeof out, 1, stdout);
    }
    return 0;
}

template <class Raw> unsigned short pattern(Raw raw) {
    unsigned short bits;
    std::memcpy(&bits, &raw, sizeof bits);
    return bits;
}

int main(int, char **argv) {
    const std::string verb = argv[1];
    using Byte = unsigned char;
    using Word = unsigned short;
    if (verb == "encode e2m1")
        return each<float, Byte>(
            [](float x) { return __nv_cvt_float_to_fp4(x, __NV_E2M1, cudaRoundNearest); });
    if (verb == "encode e2m1 pair")
        return each<float2, Byte>(
            [](float2 x) { return __nv_cvt_float2_to_fp4x2(x, __NV_E2M1, cudaRoundNearest); });
    if (verb == "encode e4m3")
        return each<float, Byte>(
            [](float x) { return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3); });
    if (verb == "encode bf16")
        return each<float, Word>([](float x) { return pattern(__float2bfloat16_rn(x)); });
    if (verb == "encode fp16")
        return each<float, Word>([](float x) { return pattern(__float2half_rn(x)); });
    if (verb == "decode e2m1")
        return each<Byte, float>(
            [](Byte c) { return __half2float(__half(__nv_cvt_fp4_to_halfraw(c, __NV_E2M1))); });
    if (verb == "decode e4m3")
        return each<Byte, float>(
            [](Byte c) { return __half2float(__half(__nv_cvt_fp8_to_halfraw(c, __NV_E4M3))); });
    return 2;
}
"""


def _include_folder() -> Path | None:
    package = importlib.util.find_spec("nvidia")
    for folder in (package.submodule_search_locations or []) if package else []:
        include = Path(folder) / "cu13" / "include"
        if (include / "cuda_fp4.h").exists():
            return include
    return None


def _compiler() -> str | None:
    return next(filter(None, map(shutil.which, ("g++", "clang++", "c++"))), None)


@dataclass(frozen=True)
class VendorHeaders:
    """cuda_fp4.h and cuda_fp8.h, compiled for the host: what NVIDIA says its formats are."""

    program: Path

    @staticmethod
    def unavailable_reason() -> str | None:
        if _compiler() is None:
            return "no host C++ compiler: g++, clang++ or c++"
        include = _include_folder()
        needed = {
            "cuda_fp4.h": "nvidia-cuda-runtime",
            "crt/host_defines.h": "nvidia-cuda-crt",
            "nv/target": "nvidia-cuda-cccl",
        }
        for header, wheel in needed.items():
            if include is None or not any(
                (folder / header).exists() for folder in (include, include / "cccl")
            ):
                return f"{header} not found: install {wheel}"
        return None

    @classmethod
    def compile(cls, folder: Path) -> "VendorHeaders":
        compiler, include = _compiler(), _include_folder()
        assert compiler is not None
        assert include is not None
        source, program = folder / "conversions.cpp", folder / "conversions"
        source.write_text(HOST_PROGRAM)
        command = [compiler, "-std=c++17", "-O1", "-w", "-o", str(program), str(source)]
        command += ["-isystem", str(include), "-isystem", str(include / "cccl")]
        subprocess.run(command, check=True)
        return cls(program)

    def __call__(self, verb: str, values: bytes) -> bytes:
        command = [str(self.program), verb]
        return subprocess.run(command, input=values, stdout=subprocess.PIPE, check=True).stdout
