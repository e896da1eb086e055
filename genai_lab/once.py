"""Blocks that are entered once: `with` objects of generator functions, which say so when they are used wrongly.

Receives a generator function as `contextlib.contextmanager` does. Knows nothing of what the blocks are for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ContextDecorator, contextmanager
from functools import wraps
from types import TracebackType
from typing import Any, Generic, ParamSpec, TypeVar

from genai_lab.errors import StateError

P = ParamSpec("P")
T = TypeVar("T")


class Once(ContextDecorator, AbstractContextManager[T], Generic[T]):
    """What `record()` and its like return: for one `with`.

    Args:
        make: a fresh context manager.
        name: of the function, for messages.
    """

    def __init__(self, make: Callable[[], AbstractContextManager[T]], name: str) -> None:
        self._make, self._name = make, name
        self._inner: AbstractContextManager[T] | None = None

    def __enter__(self) -> T:
        if self._inner is not None:
            raise StateError(
                f"this {self._name}() was used in a with statement before, and one at most is allowed; call "
                f"{self._name}() again: with {self._name}(): ..."
            )
        self._inner = self._make()
        return self._inner.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        if self._inner is None:
            raise StateError(f"this {self._name}() was never entered; use it in a with statement: with {self._name}():")
        return self._inner.__exit__(kind, error, traceback)

    def _recreate_cm(self) -> Once[T]:
        """A decorated function enters a fresh one at each call."""
        return Once(self._make, self._name)

    def __getattr__(self, name: str) -> Any:
        call = f"{self.__dict__.get('_name', 'it')}()"
        raise AttributeError(
            f"{call} has no {name!r}: a with statement enters it and gives what has: with {call} as inside: ..."
        )


def once(function: Callable[P, Iterator[T]]) -> Callable[P, Once[T]]:
    """As `contextlib.contextmanager`, with words for who enters twice, or forgets `with`.

    >>> @once
    ... def quiet():
    ...     yield 5
    >>> block = quiet()
    >>> with block as five:
    ...     five
    5
    >>> with block:
    ...     pass
    Traceback (most recent call last):
    ...
    genai_lab.errors.StateError: this quiet() was used in a with statement before, and one at most is allowed; call ...
    """
    make = contextmanager(function)

    @wraps(function)
    def begin(*args: P.args, **kwargs: P.kwargs) -> Once[T]:
        return Once(lambda: make(*args, **kwargs), function.__name__)

    return begin
