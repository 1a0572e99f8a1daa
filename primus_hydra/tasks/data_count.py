"""`task=data task.action=count`: documents, tokens and bytes of each source.

Of tokens on disk the counts are read; text is encoded for it, side by side, and nothing is written.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from primus_hydra.config.schema import JobConfig
from primus_hydra.data.blend import read_blend
from primus_hydra.data.check import check_settings
from primus_hydra.data.file_list import expand_home
from primus_hydra.data.finish import count_sources
from primus_hydra.data.megatron_corpus import open_set
from primus_hydra.data.output import SourceCount, read_manifest
from primus_hydra.data.part_tokens import PieceOutcome
from primus_hydra.data.parts import cut, text_size
from primus_hydra.errors import ExitCode, raise_all
from primus_hydra.tasks.data import Data
from primus_hydra.tasks.data_encoding import encode, open_text, part_bytes, refuse_faults, tell_faults, worker_count
from primus_hydra.tasks.data_pool import Pool
from primus_hydra.ui.output import print_json, print_lines
from primus_hydra.ui.portion import PortionView
from primus_hydra.ui.prepared_text import count_lines


def count(options: Data.Options, job: JobConfig) -> int:
    """Print the counts; raises UserError and HostError."""
    sources = _of_path(options.path) if options.path else _of_job(options, job)
    if options.report == "json":
        print_json([asdict(one) for one in sources])
    else:
        print_lines(count_lines(sources))
    return int(ExitCode.DONE)


def _of_job(options: Data.Options, job: JobConfig) -> list[SourceCount]:
    if job.data.kind in ("megatron", "stream"):
        raise_all(check_settings(job))
        parts, _ = read_blend(job.data.path)
        return [one for part in parts for one in _of_path(str(part.prefix))]
    with PortionView() as view:
        return _encoded(options, job, view)


def _of_path(path: str) -> list[SourceCount]:
    folder = Path(expand_home(path)).absolute()
    manifest = read_manifest(folder)
    if manifest is not None:
        return list(manifest.sources)
    index = open_set(folder, key="task.path").index
    tokens = index.tokens_in(range(index.documents))
    return [SourceCount(name=str(folder), documents=index.documents, tokens=tokens, text_bytes=0, faults=0)]


def _encoded(options: Data.Options, job: JobConfig, view: PortionView) -> list[SourceCount]:
    text = open_text(job, view, strict=options.strict)
    tokenizer, workers, sources = text.tokenizer(), worker_count(options.workers), text.corpus.sources
    size = part_bytes(sum(text_size(one) for one in sources), workers, options.part_mib)
    parts = cut(sources, size)
    outcomes: list[PieceOutcome] = []
    told = 0
    with Pool(job, tokenizer, workers) as pool:
        for done in encode(pool, view, parts, range(len(parts)), [None] * len(parts)):
            outcomes += done.outcomes or ()
            faults = [fault for one in done.outcomes or () for fault in one.faults]
            if options.strict:
                refuse_faults(faults)
            told = tell_faults(view, faults, told)
    return count_sources(outcomes, [source.name for source in sources])
