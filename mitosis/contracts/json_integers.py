"""How long an integer in a JSON document may be: what every reader can read back."""

LONGEST_INTEGER = 4300
"""Digits and sign: msgspec counts both. Python alone, sys.get_int_max_str_digits(), counts the digits."""
LONGEST_TEXT = (
    f"an integer of more than {LONGEST_INTEGER:,} digits, or {LONGEST_INTEGER - 1:,} below zero"
)
_BEYOND: int = 10**LONGEST_INTEGER
_BEYOND_BELOW: int = -(10 ** (LONGEST_INTEGER - 1))


def is_too_long(value: int) -> bool:
    return value >= _BEYOND or value <= _BEYOND_BELOW
