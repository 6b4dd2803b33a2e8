"""A real PostgreSQL server for tests: pgserver's binaries, in a folder of its own, to be stopped and killed at will."""

import os
import pwd
import secrets
import shutil
import socket
import subprocess
import tempfile
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import psutil
import psycopg
from psycopg import sql
from sqlalchemy.engine import URL, make_url


class TestServer:
    """A server that is there already: `WHALE_TEST_POSTGRES`, whose role must be a superuser."""

    __test__ = False

    def __init__(self, url: str) -> None:
        self.url: URL = make_url(url).set(drivername="postgresql+psycopg")

    def connect(self, url: str | None = None) -> psycopg.Connection:
        """A superuser's connection, in autocommit."""
        address = self.url if url is None else make_url(url)
        return psycopg.connect(address.set(drivername="postgresql").render_as_string(False), autocommit=True)

    def database(self, *, encoding: str = "UTF8") -> str:
        """The address of a new, empty database."""
        name = f"whale_test_{secrets.token_hex(6)}"
        with self.connect() as connection:
            connection.execute(
                sql.SQL("CREATE DATABASE {} ENCODING {} LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0").format(
                    sql.Identifier(name), encoding
                )
            )
        return self.url.set(database=name).render_as_string(False)

    def drop(self, url: str) -> None:
        """Remove a database, whoever is connected to it."""
        with self.connect() as connection:
            name = sql.Identifier(make_url(url).database or "")
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(name))

    def close(self) -> None:
        """Nothing of ours runs."""


class LocalServer(TestServer):
    """A server of our own."""

    def __init__(self) -> None:
        spec = find_spec("pgserver")
        assert spec is not None and spec.submodule_search_locations
        # Its programs alone: importing it makes folders and takes locks.
        installed = Path(spec.submodule_search_locations[0]) / "pginstall"
        # Not pytest's folders: they are closed to other users, and PostgreSQL does not run as root.
        self.folder = Path(tempfile.mkdtemp(prefix="whale-pg-"))
        self.user: str | int = os.geteuid()
        if os.geteuid() == 0:
            self.user = "postgres" if _exists("postgres") else "nobody"
            shutil.chown(self.folder, self.user)
            if not all(parent.stat().st_mode & 0o001 for parent in installed.parents):
                installed = Path(shutil.copytree(installed, self.folder / "pginstall"))
        self._bin = installed / "bin"
        self.port = _free_port()
        self._run("initdb", "-D", self.data, "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--no-locale", "-N")
        with (self.data / "postgresql.conf").open("a") as config:
            config.write(
                f"listen_addresses = '127.0.0.1'\nport = {self.port}\nunix_socket_directories = '{self.folder}'\n"
                "max_connections = 60\nshared_buffers = 32MB\nautovacuum = off\nlogging_collector = off\n"
            )
        self.start()
        super().__init__(f"postgresql+psycopg://postgres@127.0.0.1:{self.port}/postgres")

    @property
    def data(self) -> Path:
        """PGDATA."""
        return self.folder / "data"

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        self._run("pg_ctl", "-D", self.data, "-w", "-t", "60", "-l", self.folder / "log", "start")

    def stop(self, mode: str = "fast") -> None:
        """Stop it: `immediate` is a crash, after which it recovers from its write-ahead log."""
        self._run("pg_ctl", "-D", self.data, "-w", "-t", "60", "-m", mode, "stop")

    def kill(self) -> None:
        """SIGKILL the server and all of its processes, and wait until they are gone."""
        postmaster = psutil.Process(int((self.data / "postmaster.pid").read_text().split()[0]))
        family = [postmaster, *postmaster.children(recursive=True)]
        for process in family:  # the postmaster first: it would start the others anew
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(family, timeout=60)

    def reload(self) -> None:
        """Read pg_hba.conf and postgresql.conf anew."""
        self._run("pg_ctl", "-D", self.data, "reload")

    def close(self) -> None:
        """Stop it and remove its folder."""
        try:
            if (self.data / "postmaster.pid").exists():
                self.stop("immediate")
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, program: str, *arguments: object) -> None:
        # Not PIPE: the server inherits it, and keeps it open.
        with tempfile.TemporaryFile() as output:
            done = subprocess.run(
                [self._bin / program, *map(str, arguments)],
                stdout=output, stderr=output, stdin=subprocess.DEVNULL, user=self.user, cwd=self.folder,
                env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"},
            )  # fmt: skip
            if done.returncode:
                output.seek(0)
                raise RuntimeError(f"{program}: {output.read().decode(errors='replace')}")


def _exists(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port
