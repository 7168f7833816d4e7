"""Decodes the code of a cubin into instructions, with the disassembler NVIDIA ships.

`nvdisasm -json` gives the opcode, operands, predicate and flags of each instruction; the address
is its position times 16 bytes, the encoding is read from the cubin itself. Starting nvdisasm costs
far more than decoding, so its answer is kept in the disk cache under the cubin's digest.
"""

import json
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from oracle import diskcache
from oracle.errors import UsageError
from oracle.machine.cubin import INSTRUCTION_BYTES, Cubin, KernelInfo
from oracle.machine.operands import Operand, parse_operand, split_operands
from oracle.toolchain import NVDISASM_PACKAGE, ToolchainError, nvdisasm_path, tool_versions

MAX_OUTPUT_BYTES = 256 << 20
TIMEOUT_SECONDS = 120.0

# What is kept of one instruction: opcode, predicate or "", operands as text, control flow or not.
_Row = tuple[str, str, str, bool]
_ROWS_VERSION = b"rows 1"


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction at byte `address` of its kernel's text section.

    `opcode` carries its modifiers ("ISETP.GE.U32.AND"); `predicate` is "P0", "!UP1", "!PT" or
    None where the instruction always runs; `control_flow` is set where it may change the PC.
    `encoding` is the 128-bit instruction word.
    """

    address: int
    opcode: str
    predicate: str | None
    operands: tuple[Operand, ...]
    control_flow: bool
    operand_text: str
    encoding: int

    @property
    def immediate_bits(self) -> int:
        """The 32-bit immediate field: the exact bits of a float immediate printed in decimal.

        For an fp64 operand these are the high 32 bits; for a pair of 16-bit immediates (HFMA2)
        the first is the high half.
        """
        return self.encoding >> 32 & 0xFFFFFFFF

    @property
    def text(self) -> str:
        """The instruction as a disassembler prints it."""
        guard = f"@{self.predicate} " if self.predicate else ""
        return f"{guard}{self.opcode} {self.operand_text}".strip()


def disassemble(cubin: Cubin) -> dict[str, tuple[Instruction, ...]]:
    """Kernel name to its instructions in address order, local routines included.

    Raises UsageError where nvdisasm cannot decode the cubin, takes too long or does not cover a
    kernel's code; ToolchainError where nvdisasm is missing.
    """
    version = tool_versions()[NVDISASM_PACKAGE]
    key = diskcache.key_of((cubin.data, str(version).encode(), _ROWS_VERSION))
    kept = diskcache.load(key, ".sass.json")
    if kept is None:
        functions = _condense(_run_nvdisasm(cubin.data))
        diskcache.store(key, ".sass.json", json.dumps(functions).encode())
    else:
        functions = json.loads(kept)
    return {
        kernel.name: _instructions(kernel, functions.get(kernel.name, ()))
        for kernel in cubin.kernels.values()
    }


def _instructions(kernel: KernelInfo, rows: Sequence[_Row]) -> tuple[Instruction, ...]:
    code = kernel.code
    if len(rows) * INSTRUCTION_BYTES != len(code):
        raise UsageError(f"nvdisasm did not decode all of kernel {kernel.name}")
    return tuple(
        Instruction(
            address,
            opcode,
            predicate or None,
            tuple(map(parse_operand, split_operands(text))),
            control_flow,
            text,
            int.from_bytes(code[address : address + INSTRUCTION_BYTES], "little"),
        )
        for address, (opcode, predicate, text, control_flow) in zip(
            range(0, len(code), INSTRUCTION_BYTES), rows, strict=True
        )
    )


def _condense(output: bytes) -> dict[str, list[_Row]]:
    """Function name to rows, from nvdisasm's JSON."""
    try:
        _, functions = json.loads(output)
        return {
            function["function-name"]: [_row(entry) for entry in function["sass-instructions"]]
            for function in functions
        }
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise UsageError("nvdisasm's description of the cubin is not understood") from error


def _row(entry: dict[str, Any]) -> _Row:
    attributes = entry.get("other-attributes") or {}
    return (
        str(entry["opcode"]),
        str(entry.get("predicate", "")).removeprefix("@"),
        str(entry.get("operands", "")),
        attributes.get("control-flow") == "True",
    )


def _run_nvdisasm(cubin: bytes) -> bytes:
    """What `nvdisasm -json` prints, bounded in size and time: the cubin may be hostile."""
    with tempfile.TemporaryDirectory(prefix="layout-oracle-") as directory:
        path = Path(directory) / "kernel.cubin"
        path.write_bytes(cubin)
        errors_path = Path(directory) / "errors"
        with errors_path.open("wb") as errors:
            output, status = _bounded_run([str(nvdisasm_path()), "-json", str(path)], errors)
        if len(output) > MAX_OUTPUT_BYTES:
            raise UsageError("nvdisasm's output for the cubin is too large: give a smaller cubin")
        if status < 0:
            raise UsageError(
                f"nvdisasm crashed on the cubin, or was stopped after {TIMEOUT_SECONDS:g} s"
            )
        if status:
            lines = errors_path.read_text(errors="replace")[:4096].strip().splitlines()
            reason = lines[0].replace(str(path), "the cubin") if lines else "no reason given"
            raise UsageError(f"nvdisasm cannot decode the cubin: {reason}")
        return output


def _bounded_run(command: list[str], errors: IO[bytes]) -> tuple[bytes, int]:
    """Up to one byte past the limit of what `command` prints, and its exit status."""
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors
        )
    except OSError as error:
        raise ToolchainError(f"{NVDISASM_PACKAGE} cannot be run: {error.strerror}") from error
    clock = threading.Timer(TIMEOUT_SECONDS, process.kill)
    clock.start()
    try:
        assert process.stdout is not None
        with process.stdout as stdout:
            output = stdout.read(MAX_OUTPUT_BYTES + 1)
        # With the pipe closed, a process that still has something to say ends by itself.
        return output, process.wait()
    finally:
        clock.cancel()
        process.kill()
        process.wait()
