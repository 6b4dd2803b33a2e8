"""Frames on a stream socket: four bytes of length, big-endian, then that many bytes of UTF-8 JSON."""

import json
import struct
from typing import Any

_HEADER = struct.Struct(">I")
HEADER_BYTES = _HEADER.size


class FrameTooLarge(Exception):
    """The sender announced more than the receiver takes."""


class MalformedFrame(Exception):
    """The bytes are no JSON object in clean UTF-8."""


def encode(value: Any) -> bytes:
    """Return `value` as one frame. Raises TypeError, ValueError or RecursionError if it is not JSON."""
    return wrap(json.dumps(value, allow_nan=False, separators=(",", ":")))


def wrap(text: str) -> bytes:
    """Return JSON text as one frame."""
    body = text.encode("ascii")
    return _HEADER.pack(len(body)) + body


def body_length(header: bytes) -> int:
    """Read the length from a header."""
    (length,) = _HEADER.unpack(header)
    return int(length)


def decode(body: bytes) -> dict[str, Any]:
    """Parse one frame's body; MalformedFrame for whatever is not a JSON object in clean UTF-8."""
    try:
        value = json.loads(body.decode("utf-8"), parse_constant=_refuse)
        # A lone surrogate passes json.loads as an escape and would fail later, in a tokenizer or a file.
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        raise MalformedFrame(f"{type(error).__name__}: {error}"[:300]) from None
    if not isinstance(value, dict):
        raise MalformedFrame("not an object")
    return value


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


class FrameReader:
    """Cuts a byte stream from an untrusted sender into frames; never holds more than `limit` + one read."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = bytearray()

    @property
    def pending(self) -> bool:
        """Whether there are bytes that have not been taken."""
        return bool(self._buffer)

    def feed(self, data: bytes) -> None:
        """Add what was received."""
        self._buffer += data

    def take(self) -> bytes | None:
        """Return the next whole frame's body, or None. FrameTooLarge as soon as one announces too much."""
        if len(self._buffer) < HEADER_BYTES:
            return None
        length = body_length(bytes(self._buffer[:HEADER_BYTES]))
        if length > self._limit:
            raise FrameTooLarge(f"a message of {length:,} bytes; the limit is {self._limit:,}")
        end = HEADER_BYTES + length
        if len(self._buffer) < end:
            return None
        body = bytes(self._buffer[HEADER_BYTES:end])
        del self._buffer[:end]
        return body
