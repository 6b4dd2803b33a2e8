"""What keeps the PostgreSQL tables append-only: made once for a schema, and looked at by `verify`.

The triggers are ENABLE ALWAYS, so that neither a replication role nor `session_replication_role` goes round
them; a superuser can still drop them, and then the chain tells. There is no INSERT OR REPLACE here, and
ON CONFLICT DO UPDATE fires the UPDATE trigger. What is inserted must follow from what is there: its
predecessor in the run (position and hash) and in the stream (version) exist.
"""

from typing import NamedTuple

from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.schema import CreateTable

from whale.events.log import CorruptLog, LogError
from whale.events.postgres_driver import psycopg, sql

LAYOUT = 2
"""Version of the tables' layout, in the comment on `whale_events`."""

_COMMENT = "event log of whale, layout "
_MAKING = 0x5748_4C45  # "WHLE": the advisory lock of the one that makes the tables

_REFUSE = """
BEGIN
  RAISE EXCEPTION 'the event log is append-only' USING ERRCODE = 'integrity_constraint_violation';
END
"""
_FOLLOW = """
BEGIN
  IF EXISTS (
    SELECT FROM added a
    LEFT JOIN whale_events e ON e.run = a.run AND e.position = a.position - 1
    LEFT JOIN whale_events s ON s.run = a.run AND s.stream = a.stream AND s.version = a.version - 1
    WHERE a.prev_hash IS DISTINCT FROM CASE WHEN a.position = 1 THEN repeat('0', 64) ELSE e.hash END
    OR a.position < 1 OR a.version < 1 OR (a.version > 1 AND s.version IS NULL)
  ) THEN
    RAISE EXCEPTION 'the event log is append-only: this event does not follow from those that are there'
      USING ERRCODE = 'integrity_constraint_violation';
  END IF;
  RETURN NULL;
END
"""
_GROW = """
BEGIN
  IF TG_OP = 'INSERT' AND NEW.position = 0 AND NEW.hash = repeat('0', 64) THEN
    RETURN NEW;
  END IF;
  IF TG_OP = 'UPDATE' AND NEW.run = OLD.run AND NEW.created = OLD.created AND NEW.position > OLD.position
    AND EXISTS (
      SELECT FROM whale_events WHERE run = NEW.run AND position = NEW.position AND hash = NEW.hash
    ) THEN
    RETURN NEW;
  END IF;
  RAISE EXCEPTION 'the event log is append-only' USING ERRCODE = 'integrity_constraint_violation';
END
"""


class _Trigger(NamedTuple):
    name: str
    table: str
    when: str
    body: str
    bits: int
    """pg_trigger.tgtype: 1 row, 2 before, 4 insert, 8 delete, 16 update, 32 truncate."""


_TRIGGERS = (
    _Trigger("whale_events_fixed", "whale_events", "BEFORE UPDATE OR DELETE", _REFUSE, 1 | 2 | 8 | 16),
    _Trigger("whale_events_kept", "whale_events", "BEFORE TRUNCATE", _REFUSE, 2 | 32),
    _Trigger("whale_events_follow", "whale_events", "AFTER INSERT", _FOLLOW, 4),
    _Trigger("whale_runs_grow", "whale_runs", "BEFORE INSERT OR UPDATE OR DELETE", _GROW, 1 | 2 | 4 | 8 | 16),
    _Trigger("whale_runs_kept", "whale_runs", "BEFORE TRUNCATE", _REFUSE, 2 | 32),
)


class Place(NamedTuple):
    """What a connection finds where the log should be."""

    schema: str | None
    encoding: str
    fsync: str
    made: bool
    comment: str | None


def look(connection: psycopg.Connection) -> Place:
    """One look, without any lock."""
    row = connection.execute(
        "SELECT coalesce((SELECT n.nspname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE c.oid = to_regclass('whale_events')), current_schema()), current_setting('server_encoding'), "
        "current_setting('fsync'), to_regclass('whale_events') IS NOT NULL, "
        "obj_description(to_regclass('whale_events'), 'pg_class')"
    ).fetchone()
    assert row is not None
    return Place(*row)


def check_place(where: str, place: Place) -> None:
    """Raise LogError or CorruptLog unless a log can be kept there, or is."""
    if place.encoding != "UTF8":
        raise LogError(
            f"{where}: the database's encoding is {place.encoding}, which cannot hold all text; "
            "make one with: createdb --encoding=UTF8 --template=template0 NAME"
        )
    if not place.made:
        return
    if not (place.comment or "").startswith(_COMMENT):
        raise CorruptLog(None, f"{where}: the table whale_events there is not an event log of ours")
    if place.comment != f"{_COMMENT}{LAYOUT}":
        raise LogError(f"{where} has layout {(place.comment or '')[len(_COMMENT) :]}; this release knows {LAYOUT}")


def create(connection: psycopg.Connection, schema: str) -> None:
    """Make the tables and their guards, all or none; leave them alone that another process has just made."""
    from whale.events.postgres_tables import tables

    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MAKING,))
        if look(connection).made:
            return
        for table in tables():
            connection.execute(str(CreateTable(table).compile(dialect=PGDialect_psycopg())).encode())  # type: ignore[no-untyped-call]
        for trigger in _TRIGGERS:
            connection.execute(_statements(trigger, schema))
        connection.execute(sql.SQL("COMMENT ON TABLE whale_events IS {}").format(f"{_COMMENT}{LAYOUT}"))


def _statements(trigger: _Trigger, schema: str) -> sql.Composed:
    row_level = trigger.bits & 1
    added = "" if trigger.bits != 4 else "REFERENCING NEW TABLE AS added "
    # Its own search_path: the caller's might lead the function to other tables.
    return sql.SQL(
        "CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql SET search_path = {schema}, pg_temp AS {body};"
        "CREATE TRIGGER {name} {when} ON {table} {each} EXECUTE FUNCTION {name}();"
        "ALTER TABLE {table} ENABLE ALWAYS TRIGGER {name}"
    ).format(
        name=sql.Identifier(trigger.name),
        schema=sql.Identifier(schema),
        body=trigger.body,
        when=sql.SQL(trigger.when),
        table=sql.Identifier(trigger.table),
        each=sql.SQL(added + ("FOR EACH ROW" if row_level else "FOR EACH STATEMENT")),
    )


def guarded(connection: psycopg.Connection) -> bool:
    """Whether the triggers are all there, as they were made, and enabled."""
    found = connection.execute(
        "SELECT t.tgname::text, c.relname::text, p.prosrc, t.tgtype::int FROM pg_trigger t "
        "JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_proc p ON p.oid = t.tgfoid "
        "WHERE t.tgrelid IN (to_regclass('whale_events'), to_regclass('whale_runs')) "
        "AND NOT t.tgisinternal AND t.tgenabled = 'A' AND t.tgqual IS NULL"
    ).fetchall()
    return {(name, table, body, bits) for name, table, body, bits in found} == {
        (t.name, t.table, t.body, t.bits) for t in _TRIGGERS
    }
