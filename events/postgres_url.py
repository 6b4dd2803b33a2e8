"""The address of a PostgreSQL log: what may stand in it, and what must not."""

from whale.events.log import LogError

_SECRETS = ("password", "sslpassword", "oauth_client_secret")


def check_url(url: str) -> str:
    """The address in the form that is kept and opened: `postgresql+psycopg://…`, without a password.

    An address is written to run folders, logs and error lines, so a secret in it is refused here.

    Raises LogError: it is no address of a PostgreSQL database, or it holds a password.
    """
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:  # its message would repeat the text, password and all
        raise LogError(
            "this is not a database address; write postgresql+psycopg://user@host:5432/database"
        ) from error.with_traceback(None)
    if parsed.drivername not in ("postgresql+psycopg", "postgresql", "postgres"):
        raise LogError(f"a log can be kept in PostgreSQL (postgresql+psycopg://…), not in {parsed.drivername}://")
    if parsed.password is not None or any(name in parsed.query for name in _SECRETS):
        raise LogError(
            f"the address {parsed.set(query={}).render_as_string(hide_password=True)} holds a password, and would be "
            "written to files; give the password in PGPASSWORD, ~/.pgpass or a service file (?service=name)"
        )
    return parsed.set(drivername="postgresql+psycopg").render_as_string(hide_password=False)


def check_run(run: str) -> str:
    """The run's name. Raises LogError for one that no terminal or database would show as it is."""
    if not run or not run.isprintable():
        raise LogError(f"run {run!r}: a run's name is non-empty text without control characters")
    return run
