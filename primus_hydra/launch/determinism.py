"""Variables that make libraries repeat their sums bit by bit, by the maker of the accelerator; pure.

Only what a library documents is set: cuBLAS (cuBLAS documentation, "Results Reproducibility"), Transformer Engine
(documentation, environment variables; for AMD the determinism page of Primus), NCCL and RCCL (NCCL user guide,
NCCL_ALGO; Megatron-Core's "Deterministic Training" says why Ring), rocBLAS (documentation, environment variables),
PyTorch (torch/_inductor/config.py; documentation of torch.cuda.tunable), Python (command line, PYTHONHASHSEED).
NCCL_PROTO is left alone: it changes how bytes travel, and the choice follows from sizes and topology. For MIOpen and
hipBLASLt no variable is documented that fixes results; the kernels that torch takes there follow from
`training.deterministic`.
"""

from __future__ import annotations

from primus_hydra.config.schema import DeterminismConfig
from primus_hydra.launch.environment import EnvVariable

_EVERYWHERE = {
    "PYTHONHASHSEED": ("0", "hashes of text, and with them the order of sets, are the same in every process"),
    "TORCHINDUCTOR_DETERMINISTIC": ("1", "torch.compile does not choose between kernels by timing them"),
}
_ON_GPUS = {
    "NCCL_ALGO": ("Ring", "the order of a ring's sums follows from the topology alone"),
    "NVTE_ALLOW_NONDETERMINISTIC_ALGO": ("0", "Transformer Engine takes deterministic kernels only"),
    "PYTORCH_TUNABLEOP_ENABLED": ("0", "torch does not choose between matrix kernels by timing them"),
}
_BY_VENDOR = {
    "nvidia": {"CUBLAS_WORKSPACE_CONFIG": (":4096:8", "cuBLAS repeats its sums also with several streams")},
    "amd": {"ROCBLAS_DEFAULT_ATOMICS_MODE": ("0", "rocBLAS does not add with atomics, in whatever order")},
}


def determinism_variables(config: DeterminismConfig, vendor: str) -> list[EnvVariable]:
    """Return the variables for `vendor` (amd, nvidia, cpu), or none where `config` asks for nothing.

    They win over what the caller's shell exports, as somebody asked for them by name; the job's `env` wins over them.
    """
    if config.mode == "off":
        return []
    chosen = _EVERYWHERE | (_ON_GPUS if vendor != "cpu" else {}) | _BY_VENDOR.get(vendor, {})
    return [
        EnvVariable(name=name, value=value, reason=f"determinism=strict: {why}", over_shell=True)
        for name, (value, why) in chosen.items()
    ]
