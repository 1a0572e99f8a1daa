"""How far a result may be off in each number format; pure."""

from __future__ import annotations

PRODUCT_ERRORS = {"float32": 1e-4, "tf32": 1e-2, "bfloat16": 2e-2, "float16": 5e-3, "fp8": 5e-2}
"""Of a matrix product against float64, relative to its largest value; each format's own rounding is well below."""
ATTENTION_ERRORS = {"float32": 1e-4, "bfloat16": 5e-2, "float16": 1e-2}
"""The same of attention, whose scores are rounded before the exponential."""
