"""Events to bytes and back: canonical JSON, strict decoding, upcasters.

Canonical JSON is UTF-8 with keys sorted by code point, no spaces, the shortest float that reads back the same
(msgspec's). The bytes are made once, on append, and are kept as they are from then on.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from whale.events.log import CorruptLog, InvalidEvent, UnknownEvent
from whale.events.types import EVENT_TYPES, Event
from whale.events.upcasters import UPCASTERS, Upcaster


def _plain(value: Any) -> Any:
    """Numbers of array libraries and read-only mappings, as JSON has them."""
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        return value.item()
    if isinstance(value, Mapping):
        return dict(value)
    raise NotImplementedError(f"{type(value).__module__}.{type(value).__qualname__} has no JSON form")


_encoder = msgspec.json.Encoder(order="sorted", enc_hook=_plain)


def canonical(value: Any) -> bytes:
    """Canonical JSON of a value. Raises InvalidEvent for what JSON cannot hold; NaN and infinity are null."""
    try:
        return _encoder.encode(value)
    except (TypeError, ValueError, NotImplementedError, OverflowError, RecursionError) as error:
        raise InvalidEvent(f"cannot be written as JSON: {error}") from error


class Encoded(msgspec.Struct, frozen=True, gc=False):
    """An event as it is stored, and as a reader gets it."""

    type: str
    schema_version: int
    data: bytes
    event: Event


class Codec:
    """Encodes and decodes the events of a set of types."""

    def __init__(
        self,
        types: Mapping[str, type[Event]] = EVENT_TYPES,
        upcasters: Mapping[tuple[str, int], Upcaster] = UPCASTERS,
    ) -> None:
        """Raises ValueError if a type has a version that no upcaster leads on from."""
        for name, cls in types.items():
            for version in range(1, cls.schema_version):
                if (name, version) not in upcasters:
                    raise ValueError(f"{name} is at version {cls.schema_version}, but has no upcaster from {version}")
        self._types = dict(types)
        self._upcasters = dict(upcasters)
        self._readers = {(name, cls.schema_version): msgspec.json.Decoder(cls).decode for name, cls in types.items()}

    def encode(self, event: Event) -> Encoded:
        """The bytes to store; they are read back at once, so that no unreadable event is ever recorded.

        Raises InvalidEvent if a field has the wrong type or the event would come back different (NaN),
        UnknownEvent if its type is not one of the log's.
        """
        name, version = type(event).__name__, event.schema_version
        if self._types.get(name) is not type(event):
            raise UnknownEvent(name, version, None)
        try:
            back = self._readers[name, version](canonical(event))
        except msgspec.DecodeError as error:
            raise InvalidEvent(f"{name}: {error}") from error
        except InvalidEvent as error:
            raise InvalidEvent(f"{name} {error}") from error
        if back != event:
            where = _difference(event, back)
            if where is not None:
                raise InvalidEvent(f"{name}{where} has a value that JSON would change (NaN, a set, bytes …)")
        # Once more, from what was read back: an int in a float's place gets the float's form, so that
        # equal events always have equal bytes.
        return Encoded(name, version, canonical(back), back)

    def decode(self, name: str, version: int, data: bytes, position: int | None = None) -> Event:
        """The event, brought to this release's version of its type.

        Raises UnknownEvent for an unknown type or a later version, CorruptLog for data that does not fit.
        """
        read = self._readers.get((name, version))
        try:
            return self._upcast(name, version, data, position) if read is None else read(data)
        except (msgspec.DecodeError, KeyError, UnicodeDecodeError) as error:
            raise CorruptLog(position, f"the data does not fit {name} version {version}: {error}") from error

    def _upcast(self, name: str, version: int, data: bytes, position: int | None) -> Event:
        cls = self._types.get(name)
        if cls is None:
            raise UnknownEvent(name, version, None, position)
        if version > cls.schema_version:
            raise UnknownEvent(name, version, cls.schema_version, position)
        old = msgspec.json.decode(data)
        for n in range(version, cls.schema_version):
            old = self._upcasters[name, n](old)
        return msgspec.convert(old, cls, strict=True)


def _difference(event: Any, back: Any, path: str = "") -> str | None:
    """Where what was read back is not what was given; a tuple may come back as a list."""
    if isinstance(event, msgspec.Struct) and type(event) is type(back):
        pairs = [(f".{n}", getattr(event, n), getattr(back, n)) for n in event.__struct_fields__]
    elif isinstance(event, Mapping) and isinstance(back, dict) and event.keys() == back.keys():
        pairs = [(f".{k}", event[k], back[k]) for k in back]
    elif isinstance(event, list | tuple) and isinstance(back, list) and len(event) == len(back):
        pairs = [(f"[{i}]", x, back[i]) for i, x in enumerate(event)]
    else:
        return None if event == back else path
    found = (_difference(x, y, path + step) for step, x, y in pairs)
    return next((where for where in found if where is not None), None)


CODEC = Codec()
"""The codec of this release's events."""
