"""Numbers and flags that people hand over, Python's and numpy's alike: a frame's cell is as good as a literal.

Receives what somebody gave as an argument. Returns a plain int, float or bool, or an error that names the argument and
the value. It does not know what they are for. numpy only.
"""

from __future__ import annotations

import math
import operator
import threading

import numpy as np

from genai_lab.errors import ArgumentError, wrong_kind


def whole(name: str, value: object, allowed: str = "a whole number (int)") -> int:
    """A plain int, also of a numpy integer.

    >>> whole("step", np.int64(3))
    3

    Raises:
        ArgumentTypeError: anything else, `True` and `3.0` among it.
    """
    try:
        if not isinstance(value, bool):
            return operator.index(value)  # type: ignore[arg-type]  # what is none raises
    except TypeError:  # a numpy array has the method and refuses
        pass
    raise wrong_kind(name, value, allowed)


def flag(name: str, value: object) -> bool:
    """A plain bool, also of numpy's.

    Raises:
        ArgumentTypeError: anything else, `1` among it.
    """
    if not isinstance(value, bool | np.bool_):
        raise wrong_kind(name, value, "True or False")
    return bool(value)


def number(name: str, value: object, allowed: str = "a number") -> float:
    """A plain float, also of a whole or a numpy number; of an integer beyond every float, an infinite one.

    Raises:
        ArgumentTypeError: anything else, `True` among it.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise wrong_kind(name, value, allowed)
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def seconds(name: str, value: object) -> float | None:
    """A time to wait at most; None for no limit, and also where it is longer than a thread can wait
    (`threading.TIMEOUT_MAX`, 292 years on Linux), such as math.inf.

    >>> seconds("timeout", 5), seconds("timeout", math.inf)
    (5.0, None)

    Raises:
        ArgumentTypeError: no number.
        ArgumentError: below 0, or nan.
    """
    if value is None:
        return None
    allowed = "seconds from 0 on, or None for no limit"
    time = number(name, value, allowed)
    if not time >= 0:
        raise ArgumentError(f"{name} is {time:g}; allowed are {allowed}")
    return time if time <= threading.TIMEOUT_MAX else None
