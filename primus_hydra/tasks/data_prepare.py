"""`task=data task.action=prepare`: the text of a job to a folder of tokens, side by side, going on where it stopped.

What is finished lies in `OUTPUT.unfinished`; the folder itself appears whole. Refuses an output that holds something
else, and a second process on the same one.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from primus_hydra.config.schema import JobConfig
from primus_hydra.data.content_hash import hash_text
from primus_hydra.data.file_list import expand_home
from primus_hydra.data.finish import Origin, Wanted, finish
from primus_hydra.data.growing import Growing, Plan
from primus_hydra.data.output import Manifest, read_manifest
from primus_hydra.data.parts import cut, text_size
from primus_hydra.data.prepare import TextPreparation
from primus_hydra.data.token_files import tokens_key
from primus_hydra.data.tokenizer import TextTokenizer
from primus_hydra.errors import ExitCode, HostError, Problem, UserError
from primus_hydra.tasks.data import Data
from primus_hydra.tasks.data_encoding import (
    encode,
    free_gib,
    open_text,
    part_bytes,
    refuse_faults,
    tell_faults,
    worker_count,
)
from primus_hydra.tasks.data_pool import Pool
from primus_hydra.ui.output import print_json, print_lines
from primus_hydra.ui.portion import PortionView
from primus_hydra.ui.prepared_text import prepared_lines

_KEY: Final = "task.output"
_FORMAT: Final = "data-1"
_STORAGE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR})


def prepare(options: Data.Options, job: JobConfig) -> int:
    """Prepare, or say that it is prepared; raises UserError and HostError."""
    wanted = wanted_folder(options, job)
    with PortionView() as view:
        text = open_text(job, view, strict=options.strict)
        tokenizer = text.tokenizer()
        manifest = _there(wanted, _key(text, tokenizer, wanted), overwrite=options.overwrite)
        if manifest is None:
            manifest = _Preparing(options, wanted, text, tokenizer, view).run()
        else:
            view.say(f"{wanted.output} is prepared")
    if options.report == "json":
        print_json(manifest.to_json())
    else:
        print_lines(prepared_lines(wanted.output, manifest))
    return int(ExitCode.DONE)


def wanted_folder(options: Data.Options, job: JobConfig) -> Wanted:
    """Return the folder that is asked for; raises UserError with what is wrong with the options."""
    problems: list[Problem] = []
    if not options.output:
        problems.append(Problem(key=_KEY, what="needs a folder", hint="set task.output=FOLDER"))
    held = (job.data.validation_fraction, 0.0)
    if options.splits is not None:
        if len(options.splits) not in (2, 3) or min(options.splits) < 0 or options.splits[0] <= 0:
            what = "needs two or three parts, none below 0 and the first above it"
            problems.append(Problem(key="task.splits", what=what, hint="write task.splits=[0.98,0.01,0.01]"))
        else:
            whole = sum(options.splits)
            held = (options.splits[1] / whole, (options.splits[2] if len(options.splits) == 3 else 0.0) / whole)
    if problems:
        raise UserError(*problems)
    output = Path(expand_home(str(options.output))).absolute()
    return Wanted(output=output, layout=options.format, validation=held[0], test=held[1])


def unfinished(output: Path) -> Path:
    """Return the folder that holds what is finished of a preparation."""
    return output.with_name(f"{output.name}.unfinished")


def _key(text: TextPreparation, tokenizer: TextTokenizer, wanted: Wanted) -> str:
    """Name a preparation by everything that decides what the folder holds."""
    tokens = tokens_key(text.corpus_hash, tokenizer, text.job.tokenizer)
    return hash_text(_FORMAT, tokens, wanted.layout, repr(wanted.validation), repr(wanted.test))


def _there(wanted: Wanted, key: str, *, overwrite: bool) -> Manifest | None:
    """Return what the output holds if that is what is asked for; raises UserError if it is something else."""
    output = wanted.output
    if not output.exists() or (output.is_dir() and not any(output.iterdir())):
        return None
    manifest = read_manifest(output) if output.is_dir() else None
    if manifest is not None and manifest.key == key:
        return manifest
    if overwrite and manifest is not None:
        return None
    what = f"{output} holds files that no preparation has made, or not all of its files"
    hint = "choose another folder, or remove it"
    if manifest is not None:
        what = f"{output} holds another preparation: of other text, tokenizer, splits or format"
        hint = "choose another folder, or set task.overwrite=true"
    raise UserError(Problem(key=_KEY, what=what, hint=hint))


class _Preparing:
    """One preparation that is not finished."""

    def __init__(
        self, options: Data.Options, wanted: Wanted, text: TextPreparation, tokenizer: TextTokenizer, view: PortionView
    ) -> None:
        self._options = options
        self._wanted = wanted
        self._text = text
        self._tokenizer = tokenizer
        self._view = view
        self._folder = unfinished(wanted.output)
        self._workers = worker_count(options.workers)
        self._told = 0

    def run(self) -> Manifest:
        with _storage(self._folder), _alone(self._folder):
            growing = self._open()
            try:
                self._grow(growing)
                refuse_empty(growing)
                manifest = finish(growing, self._wanted, self._origin())
            except (KeyboardInterrupt, HostError, OSError):
                self._say_what_stays(growing)
                raise
            shutil.rmtree(self._folder, ignore_errors=True)
            return manifest

    def _open(self) -> Growing:
        growing, key = Growing(self._folder), _key(self._text, self._tokenizer, self._wanted)
        if growing.plan is not None and growing.plan.key == key:
            growing.go_on()
            self._view.say(f"going on: {self._count(growing)} are finished")
            return growing
        if growing.plan is not None and not self._options.overwrite:
            what = f"{self._folder} is of another preparation: of other text, tokenizer, splits or format"
            hint = "choose another task.output, remove that folder, or set task.overwrite=true"
            raise UserError(Problem(key=_KEY, what=what, hint=hint))
        sources = self._text.corpus.sources
        size = part_bytes(sum(text_size(one) for one in sources), self._workers, self._options.part_mib)
        growing.begin(Plan(key=key, parts=tuple(cut(sources, size))))
        return growing

    def _grow(self, growing: Growing) -> None:
        assert growing.plan is not None
        began, todo = time.monotonic(), growing.missing()
        self._add(growing)
        folders = [str(growing.part(number)) for number in todo]
        with Pool(self._text.job, self._tokenizer, self._workers) as pool:
            for _ in encode(pool, self._view, growing.plan.parts, todo, folders):
                self._add(growing)
        if todo:
            self._view.say(f"tokens: {growing.grown.tokens:,} in {time.monotonic() - began:.1f} s")

    def _add(self, growing: Growing) -> None:
        faults = growing.add_waiting()
        if self._options.strict and growing.grown.faults:
            refuse_faults(faults or growing.faults())
        self._told = tell_faults(self._view, faults, self._told)
        if growing.grown.parts and faults:
            refuse_empty(growing)

    def _origin(self) -> Origin:
        text = self._text
        names = [source.name for source in text.corpus.sources]
        return Origin(corpus_hash=text.corpus_hash, files=text.files, names=names, tokenizer=self._tokenizer)

    def _say_what_stays(self, growing: Growing) -> None:
        self._view.say(f"stopped: {self._count(growing)} are finished and stay; the same command goes on")

    def _count(self, growing: Growing) -> str:
        total = len(growing.plan.parts) if growing.plan else 0
        return f"{total - len(growing.missing())} of {total} parts"


def refuse_empty(growing: Growing) -> None:
    """Raise UserError where nothing of what was read could be used: the wrong field, most likely."""
    if growing.grown.documents == 0:
        what = "nothing that was read so far could be used"
        raise UserError(Problem(key="data.path", what=what), *(one.as_problem() for one in growing.faults()[:3]))


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the folder's lock; raises UserError if another process has it. It is let go of however the holder ends."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        _lock(descriptor, folder.name.removesuffix(".unfinished"))
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, name: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        what = f"another process prepares {name} at this moment"
        raise UserError(Problem(key=_KEY, what=what, hint="wait for it, or stop it")) from error


@contextmanager
def _storage(folder: Path) -> Iterator[None]:
    """Turn errors of the storage into a HostError that says how to get on."""
    try:
        yield
    except OSError as error:
        if error.errno not in _STORAGE:
            raise
        there: Sequence[Path] = [path for path in (folder, *folder.parents) if path.is_dir()]
        what = f"{folder} cannot be written: {error.strerror} ({free_gib(str(there[0])):.1f} GiB free)"
        hint = "make room and type the same command again, or choose another task.output"
        raise HostError(Problem(key=_KEY, what=what, hint=hint)) from error
