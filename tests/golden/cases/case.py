"""One type with one value: its stored JSON, and the values read from that and from other JSON.

Owns how a case passes through the registry of an app: as the payload of a job, and as the argument
and the result of a step. No other module of the golden files imports the codec.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from outlive import App
from outlive.errors import OutliveError
from outlive.serialization import encode

SAME: Any = object()
"""The value that is read equals the value that was stored."""

Entry = dict[str, str]
"""The part of a golden file for one case: JSON texts by key. See ``Case.entry``."""


@dataclass(frozen=True)
class Case:
    """A value, and how its type reads JSON of other programs or older releases.

    Attributes:
        name: Says in the golden file what the case shows.
        kind: The annotated type.
        value: The value that is stored.
        back: The value that is read from the stored text, where it does not equal ``value``.
        reads: The value that is read from other stored JSON, by its text; an exception class where
            the text is refused.
    """

    name: str
    kind: Any
    value: Any
    back: Any = SAME
    reads: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def expected(self) -> Any:
        """The value that is read from the stored text."""
        return self.value if self.back is SAME else self.back

    def entry(self) -> Entry:
        """The stored texts: ``job`` and ``flow``, or ``stored`` where these are the same text.

        With ``refused`` behind it, a key gives the class of the error; ``type refused`` where no
        value of the type is stored.
        """
        carrier = Carrier(self.kind)
        try:
            carrier.check()
        except OutliveError as error:
            return {"type refused": _name_of(error)}
        job, flow = (
            _attempt("job", carrier.job, self.value),
            _attempt("flow", carrier.flow, self.value),
        )
        if list(job.values()) == list(flow.values()):
            return {
                key.replace("job refused", "refused").replace("job", "stored"): text
                for key, text in job.items()
            }
        return job | flow

    def readers(self) -> tuple[Callable[[str], Any], ...]:
        """The readers of a stored text: a handler, a step, and a flow that is given a result."""
        carrier = Carrier(self.kind)
        return carrier.of_job, carrier.of_argument, carrier.of_result


def _attempt(where: str, store: Callable[[Any], str], value: Any) -> Entry:
    try:
        return {where: store(value)}
    except OutliveError as error:
        return {f"{where} refused": _name_of(error)}


def _name_of(error: OutliveError) -> str:
    return f'"{type(error).__name__}"'


class Carrier:
    """A handler and a step whose payload, argument and result are of one type."""

    def __init__(self, kind: Any) -> None:
        app = App("golden")

        def carried(value: Any) -> Any:
            return value

        carried.__annotations__ = {"value": kind, "return": kind}
        self._handler = app.handler("golden")(carried)
        self._step = app.step(carried)

    def check(self) -> None:
        """Look whether values of the type can be stored.

        Raises:
            UsageError: They cannot.
        """
        _ = self._handler.takes, self._step.arguments.returns

    def job(self, value: Any) -> str:
        """The stored text of the payload of a job."""
        return encode(self._handler.takes.fitted(value, "the queue"), "the payload")

    def flow(self, value: Any) -> str:
        """The stored text of the argument of a step; of its result it is the same."""
        text = bytes(self._step.arguments.encode((value,), {})).decode()
        prefix, suffix = '{"value":', "}"
        assert text.startswith(prefix)
        assert text.endswith(suffix)
        return text[len(prefix) : -len(suffix)]

    def of_job(self, text: str) -> Any:
        """The payload that a handler is given."""
        return self._handler.takes.decode(text)

    def of_argument(self, text: str) -> Any:
        """The argument that a step is given."""
        (value,), named = self._step.arguments.decode(f'{{"value":{text}}}')
        assert named == {}
        return value

    def of_result(self, text: str) -> Any:
        """The result that a flow is given."""
        return self._step.arguments.decode_result(msgspec.Raw(text))
