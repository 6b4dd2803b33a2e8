"""The event table, declared with SQLModel. Imported only to make a new log: the import takes a second."""

from sqlalchemy import Table, Text, UniqueConstraint
from sqlmodel import Field, SQLModel


class EventRow(SQLModel, table=True):
    """One event as it is stored; the columns are those of `whale.events.chain.Row`, in its order."""

    __tablename__ = "events"
    __table_args__ = (
        UniqueConstraint("stream", "version"),
        UniqueConstraint("stream", "key"),
        # SQLite then keeps the highest position apart from the rows: a tail that is deleted shows.
        {"sqlite_autoincrement": True},
    )

    position: int = Field(primary_key=True)
    stream: str = Field(sa_type=Text)
    version: int
    key: str = Field(sa_type=Text)
    event_id: str = Field(sa_type=Text)  # not indexed: nothing is looked up by it
    at: str = Field(sa_type=Text)
    type: str = Field(sa_type=Text)
    schema_version: int
    data: str = Field(sa_type=Text)
    meta: str = Field(sa_type=Text)
    prev_hash: str = Field(sa_type=Text)
    hash: str = Field(sa_type=Text)


def event_table() -> Table:
    """The table in SQLAlchemy Core's terms."""
    return SQLModel.metadata.tables["events"]
