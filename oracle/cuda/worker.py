"""The process that holds the GPU: `python -m oracle.cuda.worker DESCRIPTOR`.

It answers over a pipe whose end it inherits: first with the GPU, then with the outcome of every
launch it is sent, or with the error there was instead. It ends with the pipe.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection

from oracle.cuda.driver import CudaDriver
from oracle.cuda.launcher import Launcher
from oracle.errors import OracleError


def serve(connection: Connection, start: Callable[[], Launcher]) -> None:
    """Answer until nobody asks any more."""
    try:
        launcher = start()
    except OracleError as error:
        connection.send(error)
        return
    connection.send(launcher.device)
    while True:
        try:
            launch = connection.recv()
        except EOFError:
            return
        try:
            connection.send(launcher.run(launch))
        except OracleError as error:
            connection.send(error)


if __name__ == "__main__":
    # An interrupt reaches all processes of a terminal; whoever started this one ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    serve(Connection(int(sys.argv[1])), lambda: Launcher(CudaDriver()))
