"""Take the two commands that the README begins with out of it, so that CI runs exactly what a reader would paste."""

from __future__ import annotations

import re
import sys
from pathlib import Path


def main(target: str) -> None:
    """Write `main.sh` and `tests.sh` below `target`; fails when the README does not begin with two command blocks."""
    blocks = re.findall(r"^```sh\n(.*?)^```", Path("README.md").read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    if len(blocks) < 2:
        sys.exit("README.md must begin with two ```sh blocks: the main command and the test command")
    for name, block in zip(("main.sh", "tests.sh"), blocks, strict=False):
        Path(target, name).write_text(f"set -eu\n{block}", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
