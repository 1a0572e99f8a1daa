"""What the documentation says: its pages, its commands, and the outputs that it shows."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SET_UP = re.compile(
    r"\./bootstrap && \.venv/bin/python -m primus_hydra|\./bootstrap dev && \.venv/bin/python -m pytest.*"
)
"""The two commands that `.ci/run` takes out of the README and runs word for word."""
DRILL = re.compile(r"python -m tests\.drills\b.*")
"""Commands of the drills, which are not of the product: a test of their own knows them."""
BENCHMARK = re.compile(r"python benchmarks/\w+\.py\b.*")
"""Commands of the benchmarks, which take minutes: a test of their own looks at their options, and runs short ones."""
ELIDED = "..."
_BLOCK = re.compile(r"^```(sh|text)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"^```yaml\n# (\S+\.yaml)\n(.*?)^```", re.DOTALL | re.MULTILINE)
"""A file that a page shows whole: its name stands in the first line."""
_PROGRAMS = ("primus_hydra", "primus-hydra")


@dataclass(frozen=True)
class Documented:
    """One command of one page, and the output that is shown below it, if any."""

    page: str
    command: str
    output: str | None = None

    @property
    def arguments(self) -> list[str]:
        """What follows the program; any other command has no place in a ```sh block."""
        words = shlex.split(self.command)
        found = [position for position, word in enumerate(words) if word in _PROGRAMS]
        assert found, f"not a command of ours: {self.command}"
        return words[found[0] + 1 :]

    @property
    def trains(self) -> bool:
        """Whether the command would start ranks."""
        shows = {"--cfg", "--info", "--help", "--hydra-help", "--version"} & set(self.arguments)
        return not shows and not any(word.startswith("task=") for word in self.arguments)

    def __str__(self) -> str:
        return f"{self.page}: {self.command}"


def documented() -> list[Documented]:
    """Return each line of each ```sh block; a ```text block belongs to the last line before it."""
    found: list[Documented] = []
    for page in PAGES:
        for kind, body in _BLOCK.findall(page.read_text(encoding="utf-8")):
            if kind == "text":
                found[-1] = Documented(found[-1].page, found[-1].command, body)
            else:
                lines = [line for line in body.splitlines() if line.strip() and not _is_elsewhere(line)]
                found += [Documented(page.relative_to(ROOT).as_posix(), line) for line in lines]
    return found


def make_files(case: Documented) -> set[Path]:
    """Make, in the current folder, the files that the page of a migration shows; return them."""
    if "task=migrate" not in case.arguments:
        return set()
    made = set()
    for name, text in _FILE.findall((ROOT / case.page).read_text(encoding="utf-8")):
        file = Path.cwd() / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        made.add(file)
    return made


def drills() -> list[list[str]]:
    """Return the arguments of each command of the drills that a page shows."""
    return [words[3:] for words in _lines_like(DRILL)]


def benchmarks() -> list[list[str]]:
    """Return the script and the arguments of each command of a benchmark that a page shows."""
    return [words[1:] for words in _lines_like(BENCHMARK)]


def _lines_like(pattern: re.Pattern[str]) -> list[list[str]]:
    blocks = (_BLOCK.findall(page.read_text(encoding="utf-8")) for page in PAGES)
    lines = (line for found in blocks for kind, body in found if kind == "sh" for line in body.splitlines())
    return [shlex.split(line, comments=True) for line in lines if pattern.fullmatch(line)]


def _is_elsewhere(line: str) -> bool:
    return bool(SET_UP.fullmatch(line) or DRILL.fullmatch(line) or BENCHMARK.fullmatch(line))


def same_everywhere(text: str, here: Path) -> list[str]:
    """Return the lines of an output without what differs between machines: folders, interpreter, cores, columns.

    Hashes of values and lines of files may change too; they are left out.
    """
    text = text.replace(str(here), "/home/you")
    text = re.sub(r"\S*python[\d.]*( -P)? -m", "python -m", text)
    text = re.sub(r"a rank is bound to \d+ cores", "2 usable cores over 2 ranks", text)
    text = re.sub(r"OMP_NUM_THREADS=\d+(\s+)\d+ usable", r"OMP_NUM_THREADS=1\g<1>2 usable", text)
    text = re.sub(r"pretrain-[0-9a-f]{8}", "pretrain-hash", text)
    text = re.sub(r"\.yaml:\d+", ".yaml:1", text)
    text = re.sub(r"^CPUs .*", "CPUs as this machine has them", text, flags=re.MULTILINE)
    text = re.sub(r"(LOCAL_RANK=\d+), CPUs .*", r"\1", text)
    text = re.sub(r"this machine has .*", "this machine has no GPU, 2 cores", text)
    return [" ".join(line.split()) for line in text.splitlines()]


def holds(lines: list[str], shown: list[str]) -> str | None:
    """Return the first shown line that the output does not hold in its place, or None; `...` stands for any lines."""
    position, free = 0, False
    for line in shown:
        if line == ELIDED:
            free = True
            continue
        try:
            found = lines.index(line, position)
        except ValueError:
            return line
        if found != position and not free:
            return line
        position, free = found + 1, False
    return None if free or position == len(lines) else "the output goes on"
