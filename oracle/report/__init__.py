"""Renders a verdict: one outline in words and tables, shown in a terminal or written as files."""
