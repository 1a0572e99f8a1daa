"""What Megatron's modules see as `torch` where the job is for the processor.

Megatron takes a GPU for granted: it allocates on `torch.cuda.current_device()` or on the word "cuda", and draws random
numbers from the GPU's generator. Here the same names answer for the processor. torch itself stays as it is; whatever
is not named here is torch's own.
"""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable
from typing import Any

import torch

_CPU = torch.device("cpu")
_FACTORIES = (
    "arange",
    "as_tensor",
    "empty",
    "empty_like",
    "eye",
    "full",
    "full_like",
    "linspace",
    "ones",
    "ones_like",
    "rand",
    "randint",
    "randn",
    "randperm",
    "tensor",
    "zeros",
    "zeros_like",
)


class Stream:
    """A stream or an event of a device that does everything in order: there is nothing to wait for."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def wait_stream(self, stream: Stream) -> None:
        """Return at once."""

    def wait_event(self, event: Stream) -> None:
        """Return at once."""

    def wait(self, stream: Stream | None = None) -> None:
        """Return at once."""

    def record(self, stream: Stream | None = None) -> None:
        """Do nothing."""

    def record_event(self, event: Stream | None = None) -> Stream:
        """Return an event that has happened."""
        return event or Stream()

    def synchronize(self) -> None:
        """Return at once."""

    def query(self) -> bool:
        """All work is done."""
        return True

    def elapsed_time(self, end: Stream) -> float:
        """Nothing was measured."""
        return 0.0


class _Generators:
    """The processor's generator, whichever device is asked for."""

    def __getitem__(self, device: object) -> torch.Generator:
        return torch.default_generator


def _nothing(*args: Any, **kwargs: Any) -> None:
    """Do nothing."""


def _zero(*args: Any, **kwargs: Any) -> int:
    """Answer that no memory of a device is in use."""
    return 0


def _get_rng_state(device: object = None) -> torch.Tensor:
    return torch.get_rng_state()


def _set_rng_state(state: torch.Tensor, device: object = None) -> None:
    torch.set_rng_state(state)


def _manual_seed(seed: int) -> None:
    # torch.manual_seed would also seed the GPUs of the machine, which are not the job's.
    torch.default_generator.manual_seed(seed)


_RANDOM = {
    "get_rng_state": _get_rng_state,
    "set_rng_state": _set_rng_state,
    "manual_seed": _manual_seed,
    "manual_seed_all": _manual_seed,
}
_THE_STREAM = Stream()
_CUDA: dict[str, Any] = _RANDOM | {
    "Event": Stream,
    "Stream": Stream,
    "current_device": lambda: _CPU,
    "current_stream": lambda device=None: _THE_STREAM,
    "default_generators": _Generators(),
    "default_stream": lambda device=None: _THE_STREAM,
    "device_count": lambda: 0,
    "empty_cache": _nothing,
    "get_device_capability": lambda device=None: (0, 0),
    "get_device_name": lambda device=None: "cpu",
    "get_device_properties": lambda device=None: types.SimpleNamespace(name="cpu", major=0, minor=0, total_memory=0),
    "ipc_collect": _nothing,
    "is_available": lambda: False,
    "is_current_stream_capturing": lambda: False,
    "max_memory_allocated": _zero,
    "max_memory_reserved": _zero,
    "memory_allocated": _zero,
    "memory_reserved": _zero,
    "memory_stats": lambda device=None: {},
    "reset_peak_memory_stats": _nothing,
    "set_device": _nothing,
    "stream": lambda stream: contextlib.nullcontext(),
    "synchronize": _nothing,
}
_NVTX = {"range_pop": _nothing, "range_push": _nothing}
_LAZY = {"_lazy_call": lambda call, **kwargs: call(), "_lazy_init": _nothing}


class Overlay(types.ModuleType):
    """A module with some names of its own; every other name is the module's beneath, looked up when it is asked for."""

    def __init__(self, beneath: types.ModuleType, names: dict[str, Any]) -> None:
        super().__init__(beneath.__name__, beneath.__doc__)
        self.__dict__.update(names, __spec__=beneath.__spec__, __beneath__=beneath)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["__beneath__"], name)


def _on_the_cpu(create: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @functools.wraps(create)
    def wrapped(*args: Any, **kwargs: Any) -> torch.Tensor:
        device = kwargs.get("device")
        if device is not None and torch.device(device).type == "cuda":
            kwargs["device"] = _CPU
        # Pinning memory needs a GPU to pin it for.
        kwargs.pop("pin_memory", None)
        return create(*args, **kwargs)

    return wrapped


def _build() -> dict[types.ModuleType, Overlay]:
    random = Overlay(torch.cuda.random, dict(_RANDOM))
    nvtx = Overlay(torch.cuda.nvtx, dict(_NVTX))
    cuda = Overlay(torch.cuda, _CUDA | {"random": random, "nvtx": nvtx})
    factories = {name: _on_the_cpu(getattr(torch, name)) for name in _FACTORIES}
    top = Overlay(torch, factories | {"cuda": cuda})
    return {torch: top, torch.cuda: cuda, torch.cuda.random: random, torch.cuda.nvtx: nvtx}


OVERLAYS = _build()
TORCH = OVERLAYS[torch]

_FUNCTIONS: dict[Any, Any] = {
    getattr(beneath, name): value
    for beneath, names in (
        (torch.cuda, {name: _CUDA[name] for name in _CUDA if callable(_CUDA[name])} | _LAZY),
        (torch.cuda.random, _RANDOM),
        (torch.cuda.nvtx, _NVTX),
    )
    for name, value in names.items()
    if hasattr(beneath, name)
}


def rebind(namespace: dict[str, Any]) -> None:
    """Replace what a module imported from torch: torch and its parts about GPUs, under whatever name they have there.

    Single functions and classes that were imported by `from torch.cuda import ...` are replaced as well.
    """
    for name, value in list(namespace.items()):
        if isinstance(value, types.ModuleType):
            replacement = OVERLAYS.get(value)
        elif isinstance(value, (types.FunctionType, type)):
            replacement = _FUNCTIONS.get(value)
        else:
            continue
        if replacement is not None:
            namespace[name] = replacement


def type_name(value: Any) -> Any:
    """Answer for `value.type()`: a tensor's type as it would be called on a GPU, which Megatron compares with."""
    name = value.type()
    if not isinstance(value, torch.Tensor) or value.device.type != "cpu":
        return name
    return name.replace("torch.", "torch.cuda.", 1)


def stay(value: Any, *args: Any, **kwargs: Any) -> Any:
    """Answer for `value.cuda(...)`: tensors and modules stay where they are."""
    return value if isinstance(value, (torch.Tensor, torch.nn.Module)) else value.cuda(*args, **kwargs)


def unpinned(value: Any, *args: Any, **kwargs: Any) -> Any:
    """Answer for `value.pin_memory(...)`: there is no GPU to pin a tensor for."""
    return value if isinstance(value, torch.Tensor) else value.pin_memory(*args, **kwargs)
