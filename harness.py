"""The oracle from a checkout, without installing it: `python harness.py verdict`."""

import sys

from oracle.cli import main

if __name__ == "__main__":
    sys.exit(main())
