"""The driver, which comes with the extra `postgres` alone. Raises LogError, with the command, if it is missing."""

from whale.events.log import LogError

try:
    import psycopg
    from psycopg import sql
except ImportError as missing:
    raise LogError('a log in PostgreSQL needs psycopg: pip install "whale-evolve[postgres]"') from missing

__all__ = ["psycopg", "sql"]
