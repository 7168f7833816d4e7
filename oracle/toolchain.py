"""CUDA tools without a GPU, a driver or an installed toolkit.

Everything comes from wheels that pip installs: the compiler library NVRTC from `nvidia-cuda-nvrtc`
(called through ctypes), the device headers from `nvidia-cuda-runtime` and the disassembler from
`nvidia-cuda-nvdisasm`. Files are found through the wheels' own records, never through PATH or the
loader's search path, so that another toolkit on the machine cannot change a result.
"""

import ctypes
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path, PurePosixPath

from oracle import diskcache
from oracle.diskcache import cache_dir
from oracle.errors import OracleError, UsageError

__all__ = [
    "CompileError",
    "ToolchainError",
    "cache_dir",
    "compile_cuda",
    "kernel_source",
    "nvdisasm_path",
    "supported_archs",
    "tool_versions",
]

NVRTC_PACKAGE = "nvidia-cuda-nvrtc"
RUNTIME_PACKAGE = "nvidia-cuda-runtime"
NVDISASM_PACKAGE = "nvidia-cuda-nvdisasm"

_ARCH = re.compile(r"sm_([1-9][0-9]{1,2})([af]?)")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Arch-specific targets (a) exist from compute capability 9.0, family targets (f) from 10.0.
_FIRST_ARCH_WITH_SUFFIX = {"": 0, "a": 90, "f": 100}


class ToolchainError(OracleError):
    """A CUDA tool is missing or broken, so nothing could be compiled or disassembled."""

    exit_code = 5


class CompileError(ToolchainError):
    """The CUDA source does not compile for the arch it was asked for."""

    exit_code = 2


def _packaged_file(package: str, name: str) -> Path:
    """The installed file called `name` of the wheel `package`."""
    try:
        files = metadata.files(package) or []
    except metadata.PackageNotFoundError:
        files = []
        problem = "is not installed"
    else:
        problem = f"has no {name}"
    for file in files:
        if PurePosixPath(file).name == name:
            path = Path(str(file.locate()))
            if path.is_file():
                return path
    raise ToolchainError(f"{package} {problem}: pip install --force-reinstall '{package}>=13,<14'")


def nvdisasm_path() -> Path:
    """The nvdisasm executable. Raises ToolchainError where its wheel is missing."""
    return _packaged_file(NVDISASM_PACKAGE, "nvdisasm")


@cache
def include_dir() -> Path:
    """The directory of cuda_fp16.h and its siblings. Raises ToolchainError where it is missing."""
    return _packaged_file(RUNTIME_PACKAGE, "cuda_fp16.h").parent


def tool_versions() -> dict[str, str | None]:
    """Wheel name to installed version, None where it is not installed."""
    versions: dict[str, str | None] = {}
    for package in (NVRTC_PACKAGE, RUNTIME_PACKAGE, NVDISASM_PACKAGE):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = None
    return versions


def kernel_source(name: str) -> str:
    """The text of the CUDA source `kernels/<name>.cu`, installed or from a checkout.

    Raises UsageError for a name that is not among the project's kernels.
    """
    package = Path(__file__).parent
    # The installed copy first: next to an installed package, `kernels` is somebody else's.
    for directory in (package / "_kernels", package.parent / "kernels"):
        path = directory / f"{name}.cu"
        if _IDENTIFIER.fullmatch(name) and path.is_file():
            return path.read_text(encoding="utf-8")
    raise UsageError(f"there is no kernel source named {name!r}: try nvfp4_kv_store")


@cache
def _nvrtc() -> ctypes.CDLL:
    path = _packaged_file(NVRTC_PACKAGE, "libnvrtc.so.13")
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise ToolchainError(f"{NVRTC_PACKAGE} cannot be loaded: {error}") from error


@cache
def supported_archs() -> tuple[str, ...]:
    """Every arch NVRTC compiles for, such as "sm_90a", in rising order."""
    library = _nvrtc()
    count = ctypes.c_int()
    _succeed(library.nvrtcGetNumSupportedArchs(ctypes.byref(count)))
    bases = (ctypes.c_int * count.value)()
    _succeed(library.nvrtcGetSupportedArchs(bases))
    return tuple(
        f"sm_{base}{suffix}"
        for base in sorted(bases)
        for suffix, first in _FIRST_ARCH_WITH_SUFFIX.items()
        if base >= first
    )


def _succeed(status: int) -> None:
    if status:
        text = _nvrtc().nvrtcGetErrorString
        text.restype = ctypes.c_char_p
        raise ToolchainError(f"NVRTC failed: {text(status).decode()}")


def compile_cuda(
    source: str,
    arch: str,
    defines: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
    name: str = "kernel.cu",
) -> bytes:
    """Compile CUDA C++ `source` into a cubin for `arch` ("sm_80", "sm_100a", ...).

    `defines` are preprocessor macros, `options` further NVRTC options, `name` what messages call
    the source. CUDA's own headers can be included; host headers (<cstdint>, <cmath>) cannot.
    Results are kept in the disk cache under everything that enters the compilation.

    Raises UsageError for an arch NVRTC does not know or a macro that is no identifier,
    CompileError with the first error of the compiler's log, ToolchainError where a wheel is
    missing.
    """
    defines = dict(defines or {})
    if not _ARCH.fullmatch(arch):
        raise UsageError(f"unknown arch {arch!r}: give one such as sm_80, sm_90a or sm_100a")
    for macro in defines:
        if not _IDENTIFIER.fullmatch(macro):
            raise UsageError(f"{macro!r} is not a macro name: use letters, digits and _")
    flags = [f"-D{macro}={value}" for macro, value in sorted(defines.items())] + list(options)
    versions = [str(version) for version in tool_versions().values()]
    inputs = [source, arch, name, *flags, *versions]
    key = diskcache.key_of(text.encode() for text in inputs)
    cubin = diskcache.load(key, ".cubin")
    if cubin is None:
        cubin = _compile(source, arch, flags, name)
        diskcache.store(key, ".cubin", cubin)
    return cubin


def _compile(source: str, arch: str, flags: Sequence[str], name: str) -> bytes:
    if arch not in supported_archs():
        raise UsageError(f"unknown arch {arch!r}: NVRTC knows {', '.join(supported_archs())}")
    library = _nvrtc()
    arguments = [f"--gpu-architecture={arch}", f"--include-path={include_dir()}", *flags]
    encoded = [argument.encode() for argument in arguments]
    program = ctypes.c_void_p()
    _succeed(
        library.nvrtcCreateProgram(
            ctypes.byref(program), source.encode(), name.encode(), 0, None, None
        )
    )
    try:
        status = library.nvrtcCompileProgram(
            program, len(encoded), (ctypes.c_char_p * len(encoded))(*encoded)
        )
        if status:
            log = _product(library.nvrtcGetProgramLogSize, library.nvrtcGetProgramLog, program)
            raise CompileError(_first_error(log.decode(errors="replace"), name, arch))
        return _product(library.nvrtcGetCUBINSize, library.nvrtcGetCUBIN, program)
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _product(
    size_of: Callable[..., int], copy: Callable[..., int], program: ctypes.c_void_p
) -> bytes:
    """What one of NVRTC's pairs of calls, for the size and for the bytes, gives."""
    size = ctypes.c_size_t()
    _succeed(size_of(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _succeed(copy(program, buffer))
    return buffer.raw


def _first_error(log: str, name: str, arch: str) -> str:
    lines = [line.strip("\0 \t") for line in log.splitlines()]
    spoken = [line for line in lines if line]
    errors = [line for line in spoken if "error" in line.lower()]
    reason = (errors or spoken or ["no reason given"])[0]
    return f"{name} does not compile for {arch}: {reason}"
