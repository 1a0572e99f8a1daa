"""Errors by who must act, and the exit codes of the command (the only module that knows them)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of the command; a failed rank's own code passes through otherwise."""

    DONE = 0
    USER = 2
    HOST = 3
    BUG = 4
    REQUEUE = 75
    HANG = 100
    INTERRUPTED = 130


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing that is wrong: where it stands, what it is, and how to mend it."""

    what: str
    key: str | None = None
    where: str | None = None
    hint: str | None = None

    def __str__(self) -> str:
        subject = f"{self.key}: {self.what}" if self.key else self.what
        place = f"\n    at {self.where}" if self.where else ""
        hint = f"\n    {self.hint}" if self.hint else ""
        return f"{subject}{place}{hint}"


class PrimusError(Exception):
    """An error that a person outside this project can mend; it is shown without a traceback."""

    exit_code: ExitCode = ExitCode.BUG
    headline: str = "this cannot be done"
    """What all problems of this kind have in common, in a few words."""

    def __init__(self, *problems: Problem | str) -> None:
        self.problems: tuple[Problem, ...] = tuple(
            problem if isinstance(problem, Problem) else Problem(what=problem) for problem in problems
        )
        super().__init__("\n".join(str(problem) for problem in self.problems))


class UserError(PrimusError):
    """The user's configuration or input is wrong (exit 2)."""

    exit_code = ExitCode.USER
    headline = "the configuration cannot be used"


class CheckFailed(UserError):
    """What the user asked the command to check does not hold; nothing is wrong with the question (exit 2)."""

    headline = "the check failed"


class HostError(PrimusError):
    """The machine lacks something (exit 3)."""

    exit_code = ExitCode.HOST
    headline = "this machine cannot do that"


def raise_all(problems: Sequence[Problem]) -> None:
    """Raise one UserError with every problem, or return if there is none."""
    if problems:
        raise UserError(*problems)
