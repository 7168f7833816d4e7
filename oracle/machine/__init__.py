"""Executes GPU machine code (SASS) on a CPU: reads cubins, decodes, lowers, runs over lanes."""
