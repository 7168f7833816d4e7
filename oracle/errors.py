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


class Refused(NothingRan):
    """A subject refused a geometry by name as it was called, as a host side does before."""

    def __init__(self, subject: str, reason: str) -> None:
        super().__init__(subject, reason)
        self.reason = reason

    def __str__(self) -> str:
        """Who refuses, and why."""
        return "{} refuses the geometry: {}".format(*self.args)


class CallFailed(OracleError):
    """A subject's function raised, or gave no result, for one geometry."""

    exit_code = 2
