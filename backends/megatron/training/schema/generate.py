"""Write the data file of the Megatron here: `python -m primus_hydra.backends.megatron.training.schema.generate`.

Needs torch and a Megatron with `megatron.training`. The file lets the launcher check `backend.config` without either; a
test proves it equal to the parser it describes.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from primus_hydra.backends.megatron.training.describe import describe_parser
from primus_hydra.backends.megatron.training.parser import upstream_parser
from primus_hydra.backends.megatron.training.versions import TrainingRelease, find_training, release_for


def schema_of_upstream(version: str) -> dict[str, Any]:
    """Describe the arguments of the importable `megatron.training`."""
    return {"megatron": version, "arguments": describe_parser(upstream_parser())}


def render(schema: dict[str, Any]) -> str:
    """Write a schema as the data file holds it: one argument a line."""
    lines = [f"  {json.dumps(name)}: {json.dumps(node)}" for name, node in schema["arguments"].items()]
    return f'{{\n "megatron": {json.dumps(schema["megatron"])},\n "arguments": {{\n' + ",\n".join(lines) + "\n }\n}\n"


def path_of(release: TrainingRelease) -> Path:
    """Return the data file of a release."""
    return Path(__file__).with_name(f"{release.name}.json")


def main() -> None:
    """Write the data file."""
    version = find_training(None, os.environ).version
    path = path_of(release_for(version))
    path.write_text(render(schema_of_upstream(version)), encoding="utf-8")
    print(f"wrote {path.name}")


if __name__ == "__main__":
    main()
