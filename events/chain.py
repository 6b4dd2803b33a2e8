"""The stored row, and the hash chain over it. Every store shares this; it does no I/O.

hash = SHA-256 of canonical JSON of the whole envelope: position, stream, version, key, event_id, at, type,
schema_version, data, meta and prev_hash, where prev_hash is the hash of the event before, and data and meta
stand in it as the very bytes that are stored. So a changed byte in any column breaks its own row's hash, and
a row that is removed, inserted or moved breaks the position or the link. What a chain cannot show is a tail
that was cut off or written anew by somebody who recomputed it: for that, keep a head's hash elsewhere.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from random import Random

import msgspec

from whale.events.codec import Codec, Encoded, canonical
from whale.events.log import GENESIS, CorruptLog, Head, InvalidEvent, KeyConflict, NewEvent, Recorded, as_row
from whale.events.log import Row as Row

Clock = Callable[[], datetime]


class _Envelope(msgspec.Struct, gc=False):
    """What is hashed. The fields stand in code-point order: that is what makes the JSON canonical."""

    at: str
    data: msgspec.Raw
    event_id: str
    key: str
    meta: msgspec.Raw
    position: int
    prev_hash: str
    schema_version: int
    stream: str
    type: str
    version: int


_encode = msgspec.json.Encoder().encode
_Raw, _sha256 = msgspec.Raw, hashlib.sha256
_decode_meta = msgspec.json.Decoder(dict).decode
_decode_raw = msgspec.json.Decoder(msgspec.Raw).decode


def digest(row: Row) -> str:
    """The hash that the row must have: SHA-256, lower-case hexadecimal."""
    return _hash(*row[:-1])


def _hash(
    position: int, stream: str, version: int, key: str, event_id: str, at: str, type_: str, schema_version: int,
    data: bytes, meta: bytes, prev_hash: str,
) -> str:  # fmt: skip
    envelope = _Envelope(
        at, _Raw(data), event_id, key, _Raw(meta), position, prev_hash, schema_version, stream, type_, version
    )
    return _sha256(_encode(envelope)).hexdigest()


def check(row: Row) -> None:
    """Raise CorruptLog unless the row is, byte for byte, the one that was hashed."""
    position, stream, version, key, event_id, at, type_, schema_version, data, meta, prev_hash, hash_ = row
    try:
        if _hash(position, stream, version, key, event_id, at, type_, schema_version, data, meta, prev_hash) == hash_:
            return
    except (TypeError, ValueError):  # a column that holds another type than was written
        pass
    raise CorruptLog(position, "what is stored is not what was written (its hash does not fit)")


def check_link(row: Row, position: int, hash_: str) -> None:
    """Raise CorruptLog unless the row comes right after the one with that position and hash."""
    if row.position != position + 1:
        raise CorruptLog(position + 1, f"is missing; the next one that is stored is {row.position}")
    if row.prev_hash != hash_:
        raise CorruptLog(row.position, "does not follow from the event before it (the chain is broken)")


def check_json(row: Row) -> None:
    """Raise CorruptLog unless data and meta are JSON each, without decoding them to any type.

    Closes a gap of hashing stored bytes inside JSON: text that is moved from one of them to the other
    can leave the envelope's bytes the same, but not both of them JSON.
    """
    try:
        _decode_raw(row.data)
        _decode_raw(row.meta)
    except msgspec.DecodeError as error:
        raise CorruptLog(row.position, f"is not JSON: {error}") from error


def checked(rows: Iterable[Row]) -> Iterator[Row]:
    """The rows of a whole log or a prefix, each checked against the chain. Raises CorruptLog."""
    before = Head(0, GENESIS)
    for row in rows:
        check_link(row, before.position, before.hash)
        check(row)
        check_json(row)
        before = Head(row.position, row.hash)
        yield row


def recorded(row: Row, codec: Codec) -> Recorded:
    """The row as a reader gets it. Raises CorruptLog or UnknownEvent."""
    check(row)
    position, stream, version, key, event_id, at, type_, schema_version, data, meta, prev_hash, hash_ = row
    event = codec.decode(type_, schema_version, data, position)
    try:
        decoded = _decode_meta(meta)
    except msgspec.DecodeError as error:
        raise CorruptLog(position, f"its meta is not a JSON object: {error}") from error
    return Recorded(position, stream, version, key, event_id, at, event, decoded, prev_hash, hash_)


class Prepared(msgspec.Struct, frozen=True, gc=False):
    """A new event, encoded before any lock is taken."""

    key: str
    encoded: Encoded
    meta: bytes


def prepare(stream: str, events: Sequence[NewEvent], codec: Codec) -> list[Prepared]:
    """Encode a batch. Raises InvalidEvent, UnknownEvent, or KeyConflict for a key that comes twice."""
    _check_name("stream", stream)
    seen: set[str] = set()
    batch = []
    for new in events:
        _check_name("key", new.key)
        if new.key in seen:
            raise KeyConflict(stream, new.key, "comes twice in one batch")
        seen.add(new.key)
        try:
            batch.append(Prepared(new.key, codec.encode(new.event), canonical(dict(new.meta))))
        except InvalidEvent as error:
            raise InvalidEvent(f'event "{new.key}": {error}') from error
    return batch


def _check_name(what: str, name: str) -> None:
    if not isinstance(name, str) or not name or not name.isprintable():
        raise InvalidEvent(f"{what} {name!r}: must be non-empty text without control characters")


def recorded_before(
    stream: str, batch: Sequence[Prepared], rows: Mapping[str, Row], codec: Codec
) -> list[Recorded] | None:
    """The recorded events if the whole batch is a repeat; None if all of it is new.

    `rows` are the stored rows with the batch's keys. Raises KeyConflict for other data, or for a part.
    """
    if not rows:
        return None
    found = {key: recorded(row, codec) for key, row in rows.items()}
    for p in batch:
        old = found.get(p.key)
        # Compared as this release reads it, so that a repeat after an upgrade is still a repeat.
        if old is not None and (old.type != p.encoded.type or canonical(old.event) != p.encoded.data):
            raise KeyConflict(stream, p.key, f"event {old.position} has this key and other data")
    if len(found) < len(batch):
        new = next(p.key for p in batch if p.key not in found)
        old = next(iter(found.values()))
        raise KeyConflict(
            stream,
            new,
            f'is new, but "{old.key}" of the same batch is event {old.position}: batches are whole',
        )
    return [found[p.key] for p in batch]


def seal(
    stream: str,
    batch: Sequence[Prepared],
    version: int,
    head: Head,
    now: datetime,
    new_ids: Callable[[datetime, int], list[str]],
) -> list[Row]:
    """The batch as rows after `head`, the first with the stream's version + 1."""
    at = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    rows = []
    position, previous = head.position, head.hash
    for p, event_id in zip(batch, new_ids(now, len(batch)), strict=True):
        position, version, new = position + 1, version + 1, p.encoded
        envelope = (
            position, stream, version, p.key, event_id, at, new.type, new.schema_version, new.data, p.meta, previous,
        )  # fmt: skip
        previous = _hash(*envelope)
        rows.append(as_row((*envelope, previous)))
    return rows


def sealed(rows: Sequence[Row], batch: Sequence[Prepared]) -> list[Recorded]:
    """New rows as a reader will get them."""
    return [
        Recorded(position, stream, version, key, event_id, at, p.encoded.event, _decode_meta(meta), prev_hash, hash_)
        for (position, stream, version, key, event_id, at, _, _, _, meta, prev_hash, hash_), p in zip(
            rows, batch, strict=True
        )
    ]


def utc_now() -> datetime:
    """The clock of a log that is given no other."""
    return datetime.now(UTC)


class EventIds:
    """UUIDs of version 7 (RFC 9562) that grow within one writer, also when its clock goes back.

    Other systems that an event is sent to may sort and deduplicate by them; nothing in a log depends on them.
    """

    def __init__(self) -> None:
        self._bits = Random().getrandbits  # seeded by the system once: a call of it costs more than all the rest
        self._millisecond, self._prefix, self._next = -1, "", 0

    def __call__(self, now: datetime, count: int) -> list[str]:
        """The next ids: those of one millisecond differ in their last 48 bits, which count up from a random number."""
        millisecond = int(now.timestamp() * 1000)
        if millisecond > self._millisecond:
            self._millisecond, self._next = millisecond, self._bits(47)  # and a bit in which to count
            time, high, low = f"{millisecond:012x}", 0x7000 | self._bits(12), 0x8000 | self._bits(14)
            self._prefix = f"{time[:8]}-{time[8:]}-{high:04x}-{low:04x}-"
        first, prefix = self._next, self._prefix
        self._next += count
        return [f"{prefix}{n:012x}" for n in range(first, self._next)]
