"""Looks for cases in which a writer breaks a promise, shrinks them, and keeps what it learns."""
