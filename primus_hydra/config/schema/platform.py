"""Facts of the hardware that a job runs on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from primus_hydra.config.schema.key import REQUIRED, key, node
from primus_hydra.config.schema.limits import LimitsConfig


@dataclass(frozen=True, kw_only=True)
class PlatformConfig:
    """One kind of node. Rates are vendor peaks for dense (not sparse) products; each number's source is in its file."""

    name: str = key(REQUIRED, "Name of the choice.")
    vendor: Literal["amd", "nvidia", "cpu"] = key("cpu", "Maker of the accelerator; cpu means none.")
    arch: str | None = key(None, "Instruction set of the accelerator (gfx942, sm_90).")
    product_names: list[str] = key([], "Names that driver tools show, or PCI ids (1002:74a1); * is any text.")
    gpus_per_node: int = key(0, "Accelerators in a node.", ge=0)
    memory_gib: float | None = key(None, "Memory of one accelerator.", unit="GiB", gt=0)
    peak_tflops: dict[str, float] = key(
        {}, "Dense peak per number format (float32, bfloat16, fp8, ...).", unit="TFLOP/s"
    )
    memory_bandwidth_gb_s: float | None = key(None, "Bandwidth of the accelerator's memory.", unit="GB/s", gt=0)
    link_bandwidth_gb_s: float | None = key(None, "GPU to GPU inside a node, one way, per GPU.", unit="GB/s", gt=0)
    nic_bandwidth_gb_s: float | None = key(None, "Network per GPU, one way.", unit="GB/s", gt=0)
    env: dict[str, str] = key({}, "Environment variables that this hardware wants.")
    limits: LimitsConfig = node(LimitsConfig, "What a node must reach to pass a preflight.")
    source: list[str] = key([], "Where the numbers come from.")

    @property
    def is_cpu(self) -> bool:
        """Whether ranks run on the processor itself."""
        return self.vendor == "cpu"
