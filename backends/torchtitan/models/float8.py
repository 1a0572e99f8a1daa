"""fp8 matrix products: the neutral `precision.fp8*` keys as torchtitan's model converters."""

from __future__ import annotations

from torchtitan.components.quantization import Float8LinearConverter
from torchtitan.protocols.model import ModelConfigConverter

from primus_hydra.config.schema.training import PrecisionConfig
from primus_hydra.errors import HostError, Problem, UserError

RECIPES = ("rowwise", "rowwise_with_gw_hp")


def float8_converters(precision: PrecisionConfig, *, compiled: bool) -> list[ModelConfigConverter.Config]:
    """Return the converters that put the linear layers in fp8; none when `precision.fp8` is null.

    Routed experts stay as they are. Raises UserError for a recipe that torchtitan 0.3.0 lacks, or for emulation in a
    compiled model.
    """
    if precision.fp8 is None:
        return []
    if precision.fp8 not in RECIPES:
        raise UserError(
            Problem(
                key="precision.fp8",
                what=f"torchtitan 0.3.0 has no {precision.fp8} recipe",
                hint=f"choose one of {', '.join(RECIPES)}",
            )
        )
    if precision.fp8_emulate and compiled:
        raise UserError(
            Problem(key="precision.fp8_emulate", what="emulated fp8 cannot be compiled", hint="compile.enable=false")
        )
    return [
        Float8LinearConverter.Config(
            recipe_name=precision.fp8,
            filter_fqns=list(precision.fp8_exclude),
            emulate=precision.fp8_emulate,
            model_compile_enabled=compiled,
        )
    ]


def convert(config: object, converters: list[ModelConfigConverter.Config]) -> object:
    """Apply converters to a model configuration.

    Raises HostError when torchao is missing or this machine's accelerator has no fp8.
    """
    for converter in converters:
        try:
            config = converter.build().convert(config)
        except ImportError as error:
            raise HostError(
                Problem(key="precision.fp8", what=str(error), hint="pip install 'primus-hydra[float8]'")
            ) from error
        except ValueError as error:
            raise HostError(
                Problem(key="precision.fp8", what=str(error), hint="precision.fp8_emulate=true for a test")
            ) from error
    return config
