"""Errors a user may see. Each is one line: what is wrong and what to do about it."""


class OracleError(Exception):
    """Base of every error this package raises on purpose; exit code 3 (internal) unless refined."""

    exit_code = 3


class UsageError(OracleError):
    """Bad usage or bad input: an unknown spec, a broken file, a shape that cannot exist."""

    exit_code = 2


class NothingRan(OracleError):
    """What was asked for cannot run here, so no result was obtained."""

    exit_code = 5
