"""The page of the drills: its commands and results are written between markers, the rest by hand."""

from __future__ import annotations

import platform
import re
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from tests.drills.fault import BACKENDS, Fault
from tests.drills.lane import Result
from tests.drills.table import FAULTS

PAGE = Path(__file__).parents[2] / "docs" / "drills.md"
LONGEST_LINE = 110
NOT_HELD = "(did not hold)"
_PACKAGES = ("torch", "torchtitan", "megatron-core")
_ROW = re.compile(rf"^\| `([\w-]+)`.*? \| ({'|'.join(BACKENDS)}) \|.*$", re.MULTILINE)


def command_block(faults: Sequence[Fault]) -> str:
    """Return one command for each fault, as a block of shell."""
    width = max(len(fault.name) for fault in faults)
    lines = (f"python -m tests.drills {fault.name:<{width}}  # {fault.sentence}" for fault in faults)
    return "\n".join(("```sh", *lines, "```"))


def result_block(results: Sequence[Result], *, where: str, before: str = "") -> str:
    """Return the results as a table; `where` says when and with what the newest of them were got.

    `before` is the text with the results so far: those of drills that were not run again stay.
    """
    rows = _rows_of(before) | {(result.fault, result.backend): _row(result) for result in results}
    order = [(fault, backend) for fault in FAULTS for backend in BACKENDS if (fault, backend) in rows]
    held = sum(NOT_HELD not in rows[drill] for drill in order)
    head = (
        f"{where}: {held} of {len(order)} held.",
        "",
        "| fault | how it is made | backend | exit code | state | what the user sees | steps repeated | seconds |",
        "|---|---|---|---|---|---|---|---|",
    )
    return "\n".join((*head, *(rows[drill] for drill in order)))


def surroundings() -> str:
    """Return the date and the versions of what was drilled."""
    packages = ", ".join(f"{name} {version(name)}" for name in _PACKAGES)
    return f"{time.strftime('%Y-%m-%d')}, Python {platform.python_version()}, {packages}, 2 ranks on a CPU"


def keep_results(results: Sequence[Result], file: Path = PAGE) -> None:
    """Write the results into the page; those of other drills stay."""
    text = file.read_text(encoding="utf-8")
    block = result_block(results, where=surroundings(), before=text)
    text = between(text, "commands", command_block(list(FAULTS.values())))
    file.write_text(between(text, "results", block), encoding="utf-8")


def between(text: str, name: str, block: str) -> str:
    """Return the text with another block between its markers; raises ValueError if it has none."""
    pattern = re.compile(rf"(?<=<!-- {name} -->\n).*?(?=<!-- end of {name} -->)", re.DOTALL)
    if not pattern.search(text):
        raise ValueError(f"the page has no markers for {name}")
    return pattern.sub(lambda _: f"{block}\n", text)


def _rows_of(text: str) -> dict[tuple[str, str], str]:
    return {(row[1], row[2]): row[0] for row in _ROW.finditer(text)}


def _row(result: Result) -> str:
    fault = FAULTS[result.fault]
    held = "" if result.held else f" {NOT_HELD}"
    cells = (
        f"`{result.fault}`{held}",
        fault.made,
        result.backend,
        ", then ".join(map(str, result.codes)),
        ", then ".join(result.words),
        f"`{_short(result.seen)}`",
        str(result.repeated),
        f"{result.seconds:.0f}",
    )
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _short(line: str) -> str:
    line = line.replace("`", "'")
    return line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 3]}..."
