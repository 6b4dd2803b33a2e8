"""Rows in order, in pages, with what is missing told from what is not there: for stores in databases."""

from collections.abc import Callable, Iterator

from whale.events.chain import check_link
from whale.events.log import GENESIS, CorruptLog, Row

PAGE = 500
"""Rows a query. Between pages a reader holds no snapshot: SQLite's WAL file can be reset, and PostgreSQL's
old row versions go."""

Page = Callable[[int, int, int], list[Row]]
"""(after, end, limit) -> the first `limit` rows with after < position <= end, in order."""

StreamPage = Callable[[int, int], list[Row]]
"""(version, limit) -> the stream's first `limit` rows after that version, in order."""


def walk(page: Page, after: int, end: int) -> Iterator[Row]:
    """All rows with after < position <= end, each checked to follow from the one before it."""
    after = max(after, 0)
    if after >= end:
        return
    position, hash_ = after, GENESIS
    if after:
        rows = page(after - 1, after, 1)
        if not rows:
            raise CorruptLog(after, "is missing")
        hash_ = rows[0].hash
    while position < end:
        rows = page(position, end, PAGE)
        if not rows:
            raise CorruptLog(position + 1, "is missing")
        for row in rows:
            if row.position != position + 1 or row.prev_hash != hash_:
                check_link(row, position, hash_)  # raises, with what is wrong
            position, hash_ = row.position, row.hash
            yield row


def walk_stream(page: StreamPage, stream: str, newest: int, end: int) -> Iterator[Row]:
    """The stream's rows after version `newest`, up to position `end`."""
    while True:
        rows = page(newest, PAGE)
        for row in rows:
            if row.position > end:
                return
            if row.version != newest + 1:
                raise CorruptLog(row.position, f'has version {row.version} in "{stream}", after {newest}')
            newest = row.version
            yield row
        if len(rows) < PAGE:
            return
