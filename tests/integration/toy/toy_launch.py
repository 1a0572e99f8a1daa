"""Launches the toy backend as the train task launches a real one: `toy_launch.py RUN_DIR OVERRIDES_AS_JSON`.

Prints the result as one JSON line and exits with its code.
"""

import json
import os
import sys
from pathlib import Path

from primus_hydra.config.build import dump_job
from primus_hydra.config.layout import layout_of
from primus_hydra.data.prepared import PreparedData
from primus_hydra.errors import PrimusError
from primus_hydra.host.topology import read_topology
from primus_hydra.launch.containment import contain, is_contained, python_inside
from primus_hydra.launch.local import launch
from primus_hydra.launch.outer import Publication, follow, outer_launch, python_argv
from primus_hydra.launch.plan import BackendFacts, plan_launch
from primus_hydra.run.paths import RunPaths
from tests.support import make_job

NO_DATA = PreparedData(
    vocab_size=8,
    corpus_hash=None,
    tokens_dir=None,
    tokenizer_dir=None,
    documents=0,
    train_tokens=0,
    validation_tokens=0,
)


def main(run_dir: Path, overrides: dict[str, object]) -> int:
    outer = outer_launch(os.environ)
    if outer is not None and not outer.is_main:
        follow()
    try:
        if outer is None:
            return report(start(run_dir, overrides, None, None))
        with Publication() as publication:
            return report(start(run_dir, overrides, outer, publication.spec))
    except PrimusError as error:
        print(error, file=sys.stderr)
        return int(error.exit_code)


def start(run_dir, overrides, outer, published):
    job = make_job({"backend._target_": "primus_toy.ToyAdapter", "backend.name": "toy", **overrides})
    layout, problems = layout_of(job)
    assert layout is not None, problems
    paths = RunPaths(run_dir)
    paths.root.mkdir(parents=True, exist_ok=True)
    paths.config.write_text(dump_job(job))
    plan = plan_launch(
        job,
        layout,
        paths=paths,
        attempt=1,
        data=NO_DATA,
        resume_from=None,
        backend=BackendFacts(version="1.0", env={"TOY_DEFAULT": "1"}),
        inherited=os.environ,
        cores=2,
        python=python_inside(job) if is_contained(job) else python_argv(),
        topology=read_topology(root=Path(os.environ.get("TOY_MACHINE", "/"))),
        outer=outer,
    )
    return launch(contain(plan, job), published=published)


def report(result) -> int:
    said = {
        "exit_code": int(result.exit_code),
        "message": result.message,
        "failed_rank": result.failed_rank,
        "log": str(result.log),
        "steps": {outcome.rank: outcome.step for outcome in result.outcomes},
        "status": {outcome.rank: outcome.status for outcome in result.outcomes},
        "restarts": result.restarts,
    }
    print(json.dumps(said), flush=True)
    return int(result.exit_code)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), json.loads(sys.argv[2])))
