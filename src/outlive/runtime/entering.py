"""Blocks that are entered by ``async with``, and what they say to a plain ``with``.

Owns the words of the refusal. To type checkers such a block has no plain entrance at all, so that
they refuse it before the program runs.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_UNAWAITED = "; code without async uses outlive.blocking"


class AwaitedBlock:
    """What is entered by ``async with`` alone.

    ``block`` is how it is written, ``unawaited`` what is said to code that cannot await.
    """

    __slots__ = ()

    block: ClassVar[str] = ""
    unawaited: ClassVar[str] = _UNAWAITED

    if not TYPE_CHECKING:

        def __enter__(self) -> NoReturn:
            """Refuse a plain ``with``."""
            raise TypeError(f"write `async with {self.block}`{self.unawaited}")

        def __exit__(self, *_: object) -> None:
            """Never reached; without it Python would not ask ``__enter__``."""


class _Running(AwaitedBlock, AbstractAsyncContextManager[T]):
    __slots__ = ("_inner",)

    block = "host.running()"

    def __init__(self, inner: AbstractAsyncContextManager[T]) -> None:
        self._inner = inner

    async def __aenter__(self) -> T:
        return await self._inner.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> bool | None:
        return await self._inner.__aexit__(kind, error, where)

    if not TYPE_CHECKING:

        def __await__(self) -> Generator[Any, None, NoReturn]:
            raise TypeError(f"{self.block} is a context manager: write `async with {self.block}`")


def running_block(
    function: Callable[P, AsyncGenerator[T]],
) -> Callable[P, AbstractAsyncContextManager[T]]:
    """``contextlib.asynccontextmanager`` for ``running``, whose misuse is told in our words."""
    manager = asynccontextmanager(function)

    @functools.wraps(function)
    def make(*args: P.args, **kwargs: P.kwargs) -> AbstractAsyncContextManager[T]:
        return _Running(manager(*args, **kwargs))

    return make
