"""A process like the one that holds the GPU, with a GPU that is none; or one that misbehaves."""

from __future__ import annotations

import os
import sys
import time
from multiprocessing.connection import Connection

from fakegpu import SM90, FakeDriver

from oracle.cuda.launcher import Launcher
from oracle.cuda.worker import serve

if __name__ == "__main__":
    behaviour, descriptor = sys.argv[1:]
    connection = Connection(int(descriptor))
    if behaviour == "dies at once":
        os._exit(1)
    if behaviour == "works":
        serve(connection, lambda: Launcher(FakeDriver()))
    connection.send(SM90)
    connection.recv()
    if behaviour == "hangs":
        time.sleep(60)
