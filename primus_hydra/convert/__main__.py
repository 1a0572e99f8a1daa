"""The process of a conversion: `python -m primus_hydra.convert REQUEST`.

Speaks lines of JSON: what it is about, then either its result or why there is none. Libraries print to standard error.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from primus_hydra.errors import ExitCode, HostError, UserError
from primus_hydra.runtime.tether import die_with_parent
from primus_hydra.weights.request import ConvertRequest


def main(file: Path, out: TextIO) -> int:
    """Carry out a request; what happens is written to `out`."""

    def say(words: Mapping[str, Any]) -> None:
        print(json.dumps(words), file=out, flush=True)

    try:
        say({"result": _converted(ConvertRequest.read(file), say).to_json()})
    except (UserError, HostError) as error:
        kind = "user" if isinstance(error, UserError) else "host"
        say({"failure": kind, "problems": [asdict(problem) for problem in error.problems]})
        return int(ExitCode.USER if kind == "user" else ExitCode.HOST)
    except OSError as error:  # a full disk, a file system that is gone
        say({"failure": "host", "problems": [{"what": f"a file cannot be read or written: {error}"}]})
        return int(ExitCode.HOST)
    except Exception:
        say({"failure": "bug", "traceback": traceback.format_exc()})
        return int(ExitCode.BUG)
    return int(ExitCode.DONE)


def _converted(request: ConvertRequest, say: Any) -> Any:
    say({"stage": f"loading {request.native}"})
    from primus_hydra.config.build import load_job
    from primus_hydra.convert.conversion import Conversion
    from primus_hydra.convert.formats import open_format
    from primus_hydra.convert.meter import Meter

    job = load_job(Path(request.job))
    native, version = open_format(request.native, job)
    return Conversion(request=request, job=job, native=native, version=version, meter=Meter(), say=say).run()


if __name__ == "__main__":
    die_with_parent()
    # What libraries print must not mix with what is said.
    spoken = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    code = main(Path(sys.argv[1]), spoken)
    spoken.flush()
    os._exit(code)
