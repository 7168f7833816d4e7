"""Compiles one kernel into the cache: `python -m oracle.machine.compiled.worker < kernel`.

The kernel is a pickled `Function`, written by the process that started this one.
"""

import pickle
import sys

from oracle.machine.compiled.build import Build

if __name__ == "__main__":
    Build(pickle.load(sys.stdin.buffer)).group()
