"""The tokens of a corpus while they grow: parts are added in order, and what was added survives whatever happens.

A folder beside the output holds the plan, the files that grow, and the parts that wait for their turn. A count says how
long the files are; it is replaced in one step after they have reached the disk, and what lies beyond is cut off by the
next start. None of the names here is one that a reader of prepared data would take.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np

from primus_hydra.data.part_tokens import OUTCOME_FILE, PieceOutcome, read_outcomes
from primus_hydra.data.parts import Part, Piece
from primus_hydra.data.problem_log import Fault
from primus_hydra.data.token_files import OFFSETS_FILE, TOKENS_FILE

TOKENS: Final = "tokens.growing"
OFFSETS: Final = "offsets.growing"
OUTCOMES: Final = "outcomes.growing"
FAULTS: Final = "faults.growing"
_GROWING: Final = (TOKENS, OFFSETS, OUTCOMES, FAULTS)
_PLAN: Final = "plan.json"
_GROWN: Final = "grown.json"
_BLOCK: Final = 16 << 20
_PART: Final = re.compile(r"\.?part-\d+(\.draft)?")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is being prepared (`key` names everything that decides the tokens), and how it is cut."""

    key: str
    parts: tuple[Part, ...]


@dataclass(frozen=True, kw_only=True)
class Grown:
    """How far it is. `sizes` are those of the growing files; `source`, `line` and `told` are where the last part ended.

    `told` is what was said of the file as a whole that the last part read, which other windows of it say again.
    """

    parts: int
    documents: int
    tokens: int
    text_bytes: int
    faults: int
    sizes: Mapping[str, int]
    source: int
    line: int
    told: Sequence[str]


_NOTHING: Final = Grown(
    parts=0,
    documents=0,
    tokens=0,
    text_bytes=0,
    faults=0,
    sizes=dict.fromkeys(_GROWING, 0),
    source=-1,
    line=0,
    told=(),
)


class Growing:
    """The folder of one preparation that is not finished; one process at a time writes in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plan: Plan | None = _read_plan(folder / _PLAN)
        self.grown = _read_grown(folder / _GROWN)

    def begin(self, plan: Plan) -> None:
        """Start from nothing."""
        for path in self.folder.iterdir():
            if path.name in (*_GROWING, _PLAN, _GROWN) or _PART.fullmatch(path.name):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        rows = [[piece.to_row() for piece in part] for part in plan.parts]
        _replace(self.folder / _PLAN, {"key": plan.key, "parts": rows})
        self.plan, self.grown = plan, _NOTHING
        self.go_on()

    def go_on(self) -> None:
        """Cut off what was written last and not counted, and remove what was never whole."""
        for name in _GROWING:
            with (self.folder / name).open("ab") as stream:
                stream.truncate(self.grown.sizes[name])
        kept = {self.part(number).name for number in self.waiting()}
        for path in self.folder.iterdir():
            if _PART.fullmatch(path.name) and path.name not in kept:
                shutil.rmtree(path, ignore_errors=True)

    def part(self, number: int) -> Path:
        """Return the folder of a part that waits for its turn."""
        return self.folder / f"part-{number:06}"

    def waiting(self) -> set[int]:
        """Return the parts that are whole and wait for those before them."""
        total = len(self.plan.parts) if self.plan else 0
        names = {path.parent.name for path in self.folder.glob(f"part-*/{OUTCOME_FILE}")}
        return {number for number in range(self.grown.parts, total) if self.part(number).name in names}

    def missing(self) -> list[int]:
        """Return the parts that have to be encoded, in order."""
        total = len(self.plan.parts) if self.plan else 0
        waiting = self.waiting()
        return [number for number in range(self.grown.parts, total) if number not in waiting]

    @property
    def is_grown(self) -> bool:
        """Whether every part was added."""
        return self.plan is not None and self.grown.parts == len(self.plan.parts)

    def add_waiting(self) -> list[Fault]:
        """Add every part whose turn it is; return what is wrong with their text, by lines of the whole files."""
        faults: list[Fault] = []
        while not self.is_grown and (outcomes := read_outcomes(self.part(self.grown.parts))) is not None:
            faults += self._add(self.part(self.grown.parts), outcomes)
        return faults

    def outcomes(self) -> list[PieceOutcome]:
        """Return what each piece gave, in order, without its faults."""
        with (self.folder / OUTCOMES).open() as stream:
            return [PieceOutcome.from_json(json.loads(line)) for line in stream]

    def faults(self) -> list[Fault]:
        """Return what is wrong with the text of all that was added."""
        with (self.folder / FAULTS).open() as stream:
            return [Fault(**json.loads(line)) for line in stream]

    def _add(self, part: Path, outcomes: Sequence[PieceOutcome]) -> list[Fault]:
        faults, ended = _placed(outcomes, self.grown)
        tokens = sum(outcome.tokens for outcome in outcomes)
        offsets = np.fromfile(part / OFFSETS_FILE, dtype="<i8") + self.grown.tokens
        if self.grown.parts:
            offsets = offsets[1:]
        with (part / TOKENS_FILE).open("rb") as stream:
            self._append(TOKENS, iter(lambda: stream.read(_BLOCK), b""))
        self._append(OFFSETS, [offsets.astype("<i8").tobytes()])
        self._append(OUTCOMES, [_line(asdict(replace(outcome, faults=()))) for outcome in outcomes])
        self._append(FAULTS, [_line(asdict(fault)) for fault in faults])
        self.grown = replace(
            ended,
            parts=self.grown.parts + 1,
            documents=self.grown.documents + sum(outcome.documents for outcome in outcomes),
            tokens=self.grown.tokens + tokens,
            text_bytes=self.grown.text_bytes + sum(outcome.text_bytes for outcome in outcomes),
            sizes={name: (self.folder / name).stat().st_size for name in _GROWING},
        )
        _replace(self.folder / _GROWN, asdict(self.grown))
        shutil.rmtree(part)
        return faults

    def _append(self, name: str, blocks: Iterable[bytes]) -> None:
        with (self.folder / name).open("ab") as stream:
            for block in blocks:
                stream.write(block)
            _through(stream)


def _placed(outcomes: Sequence[PieceOutcome], before: Grown) -> tuple[list[Fault], Grown]:
    """Number lines from the beginning of their file, and say once what every window says of the file as a whole."""
    faults: list[Fault] = []
    source, line, told, count = before.source, before.line, list(before.told), before.faults
    for outcome in outcomes:
        if outcome.source != source:
            source, line, told = outcome.source, 0, []
        count += outcome.fault_count
        for fault in outcome.faults:
            if fault.line is None and fault.reason in told:
                count -= 1
            elif fault.line is None:
                told.append(fault.reason)
                faults.append(fault)
            else:
                faults.append(replace(fault, line=fault.line + line))
        line += outcome.lines
    return faults, replace(before, source=source, line=line, told=told, faults=count)


def _read_plan(file: Path) -> Plan | None:
    try:
        data = json.loads(file.read_text())
        parts = tuple(tuple(Piece.from_row(row) for row in rows) for rows in data["parts"])
        return Plan(key=data["key"], parts=parts)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _read_grown(file: Path) -> Grown:
    try:
        return Grown(**json.loads(file.read_text()))
    except (OSError, ValueError, TypeError):
        return _NOTHING


def _replace(file: Path, data: Mapping[str, Any]) -> None:
    draft = file.with_name(f".{file.name}")
    with draft.open("wb") as stream:
        stream.write(_line(data))
        _through(stream)
    draft.replace(file)


def _line(data: Mapping[str, Any]) -> bytes:
    return json.dumps(data, ensure_ascii=False).encode() + b"\n"


def _through(stream: BinaryIO) -> None:
    stream.flush()
    os.fsync(stream.fileno())
