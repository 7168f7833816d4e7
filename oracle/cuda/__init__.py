"""Runs machine code on an NVIDIA GPU through the CUDA driver, without toolkit, torch or compiler.

A launch (`launcher.Launch`) is described by bytes alone; `process.GpuProcess` hands it to another
process, in which `launcher.Launcher` performs it on a `driver.Driver`. The driver is loaded in that
process only: a fork of a process that has used CUDA cannot use it, and an illegal access leaves a
context that nothing can be done with any more but to end its process.
"""
