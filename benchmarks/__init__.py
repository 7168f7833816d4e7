"""How fast the oracle is, and what its time goes to: `python benchmarks/run.py`."""
