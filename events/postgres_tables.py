"""The tables in PostgreSQL, declared with SQLModel. Imported only to make them: the import takes a second.

All text is compared by its bytes (COLLATE "C"): names are equal or not, whatever the server's locale says.
"""

from sqlalchemy import BigInteger, Table, Text, UniqueConstraint
from sqlmodel import Field, SQLModel

_Text = Text(collation="C")


class PostgresRunRow(SQLModel, table=True):
    """The head of one run. Its row is locked by an append, until the commit: that orders the writers."""

    __tablename__ = "whale_runs"

    run: str = Field(primary_key=True, sa_type=_Text)
    created: str = Field(sa_type=Text)
    position: int = Field(sa_type=BigInteger)
    hash: str = Field(sa_type=Text)


class PostgresEventRow(SQLModel, table=True):
    """One event of one run; the columns after `run` are those of `whale.events.log.Row`, in its order."""

    __tablename__ = "whale_events"
    __table_args__ = (
        UniqueConstraint("run", "stream", "version"),
        UniqueConstraint("run", "stream", "key"),
    )

    run: str = Field(primary_key=True, sa_type=_Text)
    position: int = Field(primary_key=True, sa_type=BigInteger)
    stream: str = Field(sa_type=_Text)
    version: int = Field(sa_type=BigInteger)
    key: str = Field(sa_type=_Text)
    event_id: str = Field(sa_type=_Text)  # not indexed: nothing is looked up by it
    at: str = Field(sa_type=Text)
    type: str = Field(sa_type=Text)
    schema_version: int
    data: str = Field(sa_type=Text)
    meta: str = Field(sa_type=Text)
    prev_hash: str = Field(sa_type=Text)
    hash: str = Field(sa_type=Text)


def tables() -> tuple[Table, Table]:
    """Both tables in SQLAlchemy Core's terms."""
    found = SQLModel.metadata.tables
    return found["whale_runs"], found["whale_events"]
