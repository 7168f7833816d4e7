"""The compiled back end: kernels whose lanes are independent, as native code through LLVM.

Nothing here is needed to execute a kernel: without the package `llvmlite` the NumPy lanes answer.
"""
