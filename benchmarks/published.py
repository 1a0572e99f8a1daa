"""Hold the plan's projections against published results: a table of every row, its error, and what it was used for.

    python benchmarks/published.py                        # print the table
    python benchmarks/published.py --write docs/published.md

The rows and their sources are in published.yaml. Nothing is run and nothing needs a GPU.
"""

from __future__ import annotations

import argparse
import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from primus_hydra.config.compose import Request, compose
from primus_hydra.config.layout import layout_of
from primus_hydra.plan.memory import GIB, memory_of, peak
from primus_hydra.plan.rates import power_clock, rates_of
from primus_hydra.plan.setting import setting_of
from primus_hydra.plan.throughput import throughput_of

TABLE = Path(__file__).with_name("published.yaml")


@dataclass(frozen=True, kw_only=True)
class Row:
    """A published row beside its projection; `gib` is the memory, where it was published."""

    name: str
    source: str
    use: str
    tokens: float
    projected: float
    gib: float | None
    projected_gib: float
    why: str | None

    @property
    def error(self) -> float:
        """Projected over published speed, less one."""
        return self.projected / self.tokens - 1

    @property
    def memory_error(self) -> float | None:
        """The same of the memory; None where it was not published."""
        return None if self.gib is None else self.projected_gib / self.gib - 1


def rows(table: Path = TABLE) -> list[Row]:
    """Return every published row with its projection."""
    data = yaml.safe_load(table.read_text(encoding="utf-8"))
    return [_row(entry, data) for entry in data["rows"]]


def _row(entry: dict[str, Any], data: dict[str, Any]) -> Row:
    named = {word.partition("=")[0]: word for word in [*data["common"][entry["common"]], *entry["overrides"]]}
    job = compose(Request(overrides=list(named.values()))).job
    layout, problems = layout_of(job)
    if layout is None:
        raise SystemExit(f"{entry['name']}: {problems}")
    setting = setting_of(job, layout, job.model.vocab_size or 0)
    setting = dataclasses.replace(setting, **entry.get("change", {}))
    hardware = dict(data["hardware"].get(entry.get("hardware"), {}))
    power = hardware.pop("power_w", None)
    platform = dataclasses.replace(job.platform, **hardware)
    rates = rates_of(platform, setting, clock=power_clock(*power) if power else 1.0)
    assert rates is not None, "every platform of the table states its rates"
    return Row(
        name=entry["name"],
        source=data["sources"][entry["source"]],
        use=entry["use"],
        tokens=entry["tokens"],
        projected=throughput_of(setting, rates).tokens_per_s_per_gpu,
        gib=entry.get("gib"),
        projected_gib=peak(memory_of(setting)).total / GIB,
        why=entry.get("why"),
    )


def table_lines(found: list[Row]) -> list[str]:
    """Return the rows as a table in Markdown."""
    lines = [
        "| what | published, tokens/s/GPU | projected | error | published, GiB | projected | error | used for |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for row in found:
        memory = "—" if row.gib is None else f"{row.gib:.1f}"
        wrong = "" if row.memory_error is None else f"{row.memory_error:+.0%}"
        lines.append(
            f"| {row.name} | {row.tokens:,.0f} | {row.projected:,.0f} | {row.error:+.1%} | {memory} | "
            f"{row.projected_gib:.1f} | {wrong} | {row.use} |"
        )
    return lines


def page(found: list[Row]) -> str:
    """Return the page of the documentation."""
    checked = [row for row in found if row.use == "check"]
    within = sum(abs(row.error) <= 0.10 for row in checked)
    reasons = [f"- {row.name}: {row.why}." for row in found if row.why]
    parts = [
        "# The projection and published results",
        "Made by `benchmarks/published.py` from `benchmarks/published.yaml`; do not edit. The projection is that of "
        "[`task=plan`](plan.md#memory-and-speed). One figure of it was taken from a row (`fitted`: the part of the "
        "rates that torchtitan reaches); nothing was taken from the others.",
        f"Of {len(checked)} rows that nothing was fitted to, {within} are within 10 %.",
        "\n".join(table_lines(found)),
        "Where a row differs from what is projected:",
        "\n".join(reasons),
        "The H100s of torchtitan's rows have 96 GB of HBM2e at 2.4 TB/s and are limited to 500 W: their clock is taken "
        "as the cube root of what power is left beyond 200 W (assumed), against 700 W. Their memory is the allocator's "
        "reserve; the projection adds 1.5 GiB for the driver.",
        "Sources:",
        "\n".join(f"- {source}" for source in dict.fromkeys(row.source for row in found)),
    ]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, help="write the page of the documentation to this file")
    options = parser.parse_args()
    found = rows()
    if options.write is not None:
        options.write.write_text(page(found), encoding="utf-8")
    else:
        print("\n".join(table_lines(found)))


if __name__ == "__main__":
    main()
