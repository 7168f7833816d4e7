"""The process that executes functions of a checkout; started by path, with `python -I`.

It imports nothing of this package and nothing of vLLM: it is given source text, and answers
requests on its standard input with answers on its standard output, each a header and a payload:

    8 bytes, little endian: length of the header; the header, JSON; `bytes` (in it) of payload

    load         sources of functions with the names to keep        -> nothing
    dequantise   views of a cache, arguments, the cache as payload  -> float32 values as payload
    split        shape and strides of a tensor                      -> views, on torch's meta device

An answer holds `error` instead where something went wrong: `needs` for a stub that was used, `gpu`
for a function that wants a device, `raised` for anything else.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Iterator
from typing import IO, Any

DATA_LIMIT = 4 * 2**30
"""Bytes of private memory the process may have."""

Answer = tuple[dict[str, Any], bytes]


class StubUsed(Exception):
    """A name from a module that is not executed was used."""


class Stub:
    """Stands for such a name; whatever is done with it says which one it is."""

    def __init__(self, origin: str) -> None:
        self._origin = origin

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise StubUsed(self._origin)

    __getattr__ = __call__ = __getitem__ = __iter__ = __bool__ = __eq__ = __hash__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = _refuse
    __mro_entries__ = __enter__ = __index__ = __float__ = __len__ = __contains__ = _refuse


class Worker:
    """The functions that were loaded, and what can be asked of them."""

    def __init__(self) -> None:
        import torch

        torch.set_num_threads(1)
        self.torch = torch
        self.functions: dict[str, Any] = {}

    def load(self, request: dict[str, Any], payload: bytearray) -> Answer:
        """Execute the sources and keep one function of each."""
        for name, source in request["sources"].items():
            namespace: dict[str, Any] = {"__name__": "checkout", "_stub": Stub}
            exec(compile(source, request["paths"][name], "exec"), namespace)
            self.functions[name] = namespace[name]
        return {}, b""

    def dequantise(self, request: dict[str, Any], payload: bytearray) -> Answer:
        """Call a dequantiser for each side's views; float32 [pages, heads, tokens, size] each."""
        cache = self.torch.frombuffer(payload, dtype=self.torch.uint8)
        results = []
        for call in request["calls"]:
            data, scale = (
                cache.as_strided(view["shape"], view["strides"], view["offset"])
                for view in (call["data"], call["scale"])
            )
            scale = scale.view(self.torch.float8_e4m3fn)
            given = zip(request["parameters"], (data, scale, *call["rest"]), strict=True)
            values = self.functions[request["function"]](**dict(given), **call["named"])
            values = values.to(self.torch.float32).contiguous()
            if list(values.shape) != request["shape"]:
                raise ValueError(f"gave {list(values.shape)}, not {request['shape']}")
            results.append(values.numpy().tobytes())
        return {}, b"".join(results)

    def split(self, request: dict[str, Any], payload: bytearray) -> Answer:
        """Call a view split for one side; the views of data and scales it makes."""
        whole = self.torch.empty(0, dtype=self.torch.uint8, device="meta")
        side = whole.as_strided(request["shape"], request["strides"], request["offset"])
        found = list(_tensors(self.functions[request["function"]](side), self.torch))
        views = [
            {
                "shape": list(view.shape),
                "strides": list(view.stride()),
                "offset": view.storage_offset(),
                "bytes": view.element_size(),
            }
            for view in found
        ]
        return {"views": views}, b""


def _tensors(value: Any, torch: Any) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from _tensors(each, torch)


def _error(error: BaseException) -> dict[str, Any]:
    """What went wrong, as the parent is told."""
    if isinstance(error, StubUsed):
        return {"error": "needs", "message": str(error)}
    text = " ".join(str(error).split())[:500]
    message = f"{type(error).__name__}: {text}" if text else type(error).__name__
    wants_gpu = any(word in text for word in ("CUDA", "cuda", "NVIDIA driver", "Triton"))
    return {"error": "gpu" if wants_gpu else "raised", "message": message}


def _read(stream: IO[bytes], count: int) -> bytearray:
    data = bytearray()
    while len(data) < count:
        part = stream.read(count - len(data))
        if not part:
            raise EOFError
        data += part
    return data


def _serve(requests: IO[bytes], answers: IO[bytes]) -> None:
    worker = None
    while True:
        try:
            header = json.loads(_read(requests, int.from_bytes(_read(requests, 8), "little")))
            payload = _read(requests, header["bytes"])
        except EOFError:
            return
        try:
            if worker is None:
                worker = Worker()
            answer, data = getattr(worker, header["verb"])(header, payload)
        except BaseException as error:
            answer, data = _error(error), b""
        head = json.dumps({**answer, "bytes": len(data)}).encode()
        answers.write(len(head).to_bytes(8, "little") + head + data)
        answers.flush()


def main() -> None:
    """Serve until the parent closes the pipe."""
    resource.setrlimit(resource.RLIMIT_DATA, (DATA_LIMIT, DATA_LIMIT))
    # What the functions print must not get among the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    _serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
