"""Compiles one kernel into the cache: `python -m oracle.machine.compiled.worker < kernel`.

The kernel is a pickled `Function`, written by the process that started this one and left it the
lock on the compiler.
"""

import pickle
import sys

from oracle.machine.compiled.build import Build

if __name__ == "__main__":
    build = Build(pickle.load(sys.stdin.buffer))
    if not build.cached():
        build.compile("group")
