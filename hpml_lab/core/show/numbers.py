"""Numbers as a reader sees them, in tables, claims and intervals: rounded, never in powers of ten where digits will do."""

from typing import Any

WHOLE_BELOW = 1e15  # 16 digits in groups are harder to read than a power of ten


def number(value: Any, digits: int = 4) -> str:
    """`digits` significant digits for floats, whole numbers whole, thin groups from five places on, – for a missing value."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "–"}[value]
    if isinstance(value, int):
        return f"{value:,}".replace(",", "\u2009") if abs(value) >= 10_000 else str(value)
    if isinstance(value, float):
        rounded = value if value.is_integer() else float(f"{value:.{digits}g}")
        if abs(rounded) < WHOLE_BELOW and rounded.is_integer():  # 65 504, 48 020, not 4.802e+04
            return number(int(rounded))
        return f"{value:.{digits}g}"
    return str(value)
