"""Step time of a run through us against the smallest script on megatron-core with the same configuration.

    python benchmarks/megatron_step_time.py [--steps 40] [--rounds 3] [OVERRIDE...]

Both sides train the same model on the same text, in processes of their own, one after the other and in turn, so that
a busy machine hits both alike. The bare side (`bare_megatron.py`) prints its loss and nothing else; ours reports, logs
and asks for a stop in every step. The first steps are left out. Printed: the median step of each side per round, and
the ratio of the medians over all rounds.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from step_time import compare

BACKEND = "backend=megatron"


def main() -> None:
    """Run both sides in turn and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("overrides", nargs="*")
    arguments = parser.parse_args()
    overrides = [BACKEND, f"training.steps={arguments.steps}", "checkpoint.enable=false", *arguments.overrides]
    with tempfile.TemporaryDirectory() as folder:
        compare(Path(folder), overrides, rounds=arguments.rounds, bare="bare_megatron.py")


if __name__ == "__main__":
    main()
