"""Which layers route to experts, as Megatron's `moe_layer_freq` says it: N, a list, or Python text as `([0]*3+[1]*58)`.

The text is read by a parser of its own for sums and multiples of lists of 0 and 1; nothing is evaluated.
"""

from __future__ import annotations

import ast
from typing import Any, Final

_LONGEST: Final = 10_000


def layer_pattern(value: Any, layers: int) -> list[int] | None:
    """Return 0 or 1 for each layer; None for what is no pattern of that many layers."""
    if isinstance(value, str):
        value = _read(value)
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return [int(layer % value == 0) for layer in range(layers)] if value > 0 else None
    fits = isinstance(value, list) and len(value) == layers and all(item in (0, 1) for item in value)
    return [int(item) for item in value] if fits else None


def _read(text: str) -> Any:
    try:
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _value(node: ast.expr) -> Any:
    """Return the number or list of an expression; raises ValueError for anything else."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, (ast.List, ast.Tuple)):
        return [_value(item) for item in node.elts]
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left), _value(node.right)
        if isinstance(node.op, ast.Add) and isinstance(left, list) and isinstance(right, list):
            return left + right
        if isinstance(node.op, ast.Mult) and isinstance(left, list) != isinstance(right, list):
            return _repeated(*((left, right) if isinstance(left, list) else (right, left)))
    raise ValueError("not a pattern")


def _repeated(items: list[Any], times: int) -> list[Any]:
    if len(items) * times > _LONGEST:
        raise ValueError("longer than any model")
    return items * times
