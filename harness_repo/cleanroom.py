"""Git in a clean room: the one place that starts git, by GitPython's command wrapper.

What the machine or the user has set up must not change what the store does, so each command runs with no
inherited `GIT_*`, no system or user config, no attributes, hooks, signing or line-end conversion, no
replaced objects, and a fixed locale. The store is always named by `--git-dir`: nothing is discovered, so
neither an outer repository, a foreign owner nor `safe.bareRepository` matters.

A command that talks to a remote needs what reaches it: the user's home, and of the user's config the
credentials, URL rewrites, proxies and ssh command, nothing else.
"""

import functools
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

from whale.harness_repo.conversation import Conversation, Ended, exactly, process_of
from whale.harness_repo.errors import GitMissing, RepoError

if TYPE_CHECKING:
    from git.cmd import Git

MINIMUM = (2, 30)
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"

ENVIRONMENT = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "LC_ALL": "C",
    "LANGUAGE": "C",
    # git before 2.32 does not know GIT_CONFIG_GLOBAL, and ~/.config/git/attributes is no config.
    "HOME": os.devnull,
    "XDG_CONFIG_HOME": os.devnull,
}

CONFIG = {
    "core.hooksPath": os.devnull,
    "core.attributesFile": os.devnull,
    # Since 2.43 a bare repository reads .gitattributes from HEAD's tree, which a proposer wrote.
    "attr.tree": EMPTY_TREE,
    "core.autocrlf": "false",
    "core.quotePath": "false",
    "core.logAllRefUpdates": "false",
    # The log is durable before the commit is; an object must not be lost to a power cut after that.
    "core.fsync": "objects,reference",
    "core.filesRefLockTimeout": "5000",
    "core.packedRefsTimeout": "5000",
    "commit.gpgSign": "false",
    "tag.gpgSign": "false",
    "log.showSignature": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "init.defaultRefFormat": "files",
    "transfer.fsckObjects": "true",
}

_REACHES_REMOTES = re.compile(r"(?:credential|http|url|ssh|protocol)\..*|core\.(?:sshcommand|askpass|gitproxy)")
"""The keys of a user's config that hold for commands that talk to a remote."""
_REACHES_REMOTES_BY_NAME = re.compile(r"GIT_(?:SSH|SSL|HTTP|PROXY|ASKPASS|CURL)\w*")
"""The same of inherited variables."""


class GitObject(NamedTuple):
    """An object as `git cat-file --batch` gives it: id, type and content."""

    id: str
    kind: str
    data: bytes


def shown(path: str | os.PathLike[str]) -> str:
    """A path as printable text, whatever bytes it has."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def git_executable() -> str:
    """The absolute path of git.

    Raises:
        GitMissing: git is not on PATH, or too old.
    """
    found = shutil.which("git")
    if found is None:
        raise GitMissing
    _check_version(found)
    return found


@functools.cache
def _check_version(executable: str) -> None:
    try:
        # Not by GitPython: a broken git must give one clear line before anything of it is imported.
        text = subprocess.run([executable, "--version"], capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise GitMissing(f"{shown(executable)} does not run ({error})") from error
    match = re.search(rb"(\d+)\.(\d+)", text)
    if match is None or (int(match[1]), int(match[2])) < MINIMUM:
        raise GitMissing(f"{shown(executable)} is {text.decode('utf-8', 'replace').strip()}")


def _wrapper(folder: Path) -> "Git":
    """GitPython's command wrapper, imported at first use: it runs git at import and takes 0.4 s."""
    unset = "GIT_PYTHON_REFRESH" not in os.environ
    if unset:
        os.environ["GIT_PYTHON_REFRESH"] = "quiet"
    try:
        from git.cmd import Git
    except ImportError as error:
        raise GitMissing(f"GitPython found no usable git ({error})") from error
    finally:
        if unset:
            del os.environ["GIT_PYTHON_REFRESH"]
    return Git(folder)


def _without_inherited(env: Mapping[str, str], keep: re.Pattern[str] | None = None) -> list[str]:
    """The command prefix that removes inherited `GIT_*` variables but those that `env` sets or `keep` matches.

    GitPython merges into the inherited environment and cannot remove a variable, and an empty GIT_DIR or
    GIT_OBJECT_DIRECTORY is not the same as none. `env` replaces itself by git, so no process is added.
    """
    names = [
        name
        for name in sorted(os.environ)
        if name.startswith("GIT_")
        and name not in env
        and not name.startswith("GIT_PYTHON_")
        # Those say how to reach a remote: nothing to a command that does not, and the process is saved.
        and not _REACHES_REMOTES_BY_NAME.fullmatch(name)
        and not (keep and keep.fullmatch(name))
    ]
    if not names:
        return []
    program = shutil.which("env")
    if program is None:
        raise RepoError(f"env was not found on PATH: unset {', '.join(names)} by hand")
    return [program, *(word for name in names for word in ("-u", name))]


def checked_out(folder: Path) -> str:
    """The commit that is checked out where the user works. This one looks at a repository of the user's.

    Raises:
        RepoError: `folder` is in no repository, or nothing is checked out there.
    """
    done = subprocess.run([git_executable(), "rev-parse", "HEAD^{commit}"], cwd=folder, capture_output=True)
    if done.returncode:
        raise RepoError(f"{shown(folder)} has no commit checked out: {one_line_of(done.stderr)}")
    return done.stdout.decode().strip()


class CleanGit:
    """Runs git on one bare repository. Safe to use from several threads.

    Reads of single objects share one `git cat-file --batch` process, and moves of refs one `git update-ref`; each
    starts when it is first needed and ends with `close()`. Every other command is a process that has ended when
    the call returns.
    """

    def __init__(self, git_dir: Path) -> None:
        """`git_dir` need not exist yet.

        Raises:
            GitMissing: there is no usable git.
        """
        self.git_dir = git_dir.absolute()
        self._executable = git_executable()
        self._git = _wrapper(self.git_dir.parent)
        self._objects = Conversation(lambda: self._start(("cat-file", "--batch"), stdin=True))
        self._refs = Conversation(lambda: self._start(("update-ref", "--stdin"), stdin=True))

    def _start(
        self,
        args: tuple[str, ...],
        *,
        stdin: bool,
        env: Mapping[str, str] = ENVIRONMENT,
        keep: re.Pattern[str] | None = None,
    ) -> "Git.AutoInterrupt":
        from git.exc import GitCommandNotFound

        command = [*_without_inherited(env, keep), self._executable, "--no-pager", f"--git-dir={self.git_dir}"]
        for key, value in CONFIG.items():
            command += ["-c", f"{key}={value}"]
        try:
            return self._git.execute(
                [*command, *args],
                istream=subprocess.PIPE if stdin else None,
                as_process=True,
                env=env,
                shell=False,
                start_new_session=True,  # Ctrl+C is for us: git finishes what it is writing
            )
        except GitCommandNotFound as error:
            raise GitMissing from error

    def run(self, *args: str, stdin: bytes | None = None) -> bytes:
        """Run one git command and return its standard output.

        Raises:
            RepoError: git's exit status is not 0; the message holds what git said.
        """
        status, out, err = self.complete(*args, stdin=stdin)
        if status:
            raise self._failed(args, status, err)
        return out

    def complete(self, *args: str, stdin: bytes | None = None) -> tuple[int, bytes, bytes]:
        """Run one git command and return its exit status, standard output and standard error."""
        return _finish(self._start(args, stdin=stdin is not None), stdin)

    def stream(self, *args: str) -> Iterator[bytes]:
        """Run one git command and yield its standard output as it comes, so that we read while git works.

        Raises:
            RepoError: git's exit status is not 0; it is known after the last part.
        """
        process = process_of(running := self._start(args, stdin=False))
        assert process.stdout is not None and process.stderr is not None  # both are pipes
        said: list[bytes] = []
        listener = threading.Thread(target=lambda: said.append(process.stderr.read() if process.stderr else b""))
        listener.start()
        try:
            while part := process.stdout.read1(1 << 20):  # type: ignore[attr-defined]
                yield part
        finally:
            process.stdout.close()  # a reader that stopped early: git ends by SIGPIPE
            listener.join()
            process.wait()
            process.stderr.close()
            running.proc = None
        if process.returncode:
            raise self._failed(args, process.returncode, b"".join(said))

    def _failed(self, args: tuple[str, ...], status: int, err: bytes) -> RepoError:
        return RepoError(f"git {args[0]} failed in {shown(self.git_dir)} (exit {status}): {one_line_of(err)}")

    def complete_remote(self, *args: str) -> tuple[int, bytes, bytes]:
        """The same for a command that talks to a remote. It can ask nobody for a password."""
        env = {name: value for name, value in ENVIRONMENT.items() if name not in ("HOME", "XDG_CONFIG_HOME")}
        settings = self._remote_settings()
        # Not as arguments: they may hold a secret, and a list of processes shows those to everybody.
        env["GIT_CONFIG_COUNT"] = str(len(settings))
        for at, (key, value) in enumerate(settings):
            env |= {f"GIT_CONFIG_KEY_{at}": key, f"GIT_CONFIG_VALUE_{at}": value}
        return _finish(self._start(args, stdin=False, env=env))

    def _remote_settings(self) -> list[tuple[str, str]]:
        """What a user's own config says on reaching remotes."""
        keep = re.compile(r"GIT_CONFIG.*")
        read = self._start(("config", "--list", "--includes", "-z"), stdin=False, env={"LC_ALL": "C"}, keep=keep)
        status, out, err = _finish(read)
        if status:
            raise RepoError(f"git cannot read your config: {one_line_of(err)}")
        entries = [entry.partition("\n") for entry in out.decode("utf-8", "surrogateescape").split("\0")]
        return [(key, value if sep else "true") for key, sep, value in entries if _REACHES_REMOTES.fullmatch(key)]

    def get(self, name: str) -> GitObject | None:
        """The object that `name` stands for in git's own syntax, or None if there is none.

        Raises:
            RepoError: the object is there but damaged.
        """
        if not name or "\n" in name or "\0" in name:
            return None

        def answer(output: IO[bytes]) -> GitObject | None:
            header = output.readline()
            words = header.split()
            if header.endswith((b" missing\n", b" ambiguous\n")):
                return None
            if len(words) != 3:
                raise BrokenPipeError(one_line_of(header))
            data = exactly(output, int(words[2]) + 1)
            return GitObject(words[0].decode(), words[1].decode(), data[:-1])

        try:
            return self._objects.ask(os.fsencode(name) + b"\n", answer)
        except Ended as error:
            said = one_line_of(error.said)
            raise RepoError(f"git cannot read {name!r} in {shown(self.git_dir)}: {said}") from error

    def transaction(self, commands: Iterable[str]) -> None:
        """Carry out commands of `git update-ref --stdin`, all or none.

        Raises:
            RepoError: git refused; the message holds what it said.
        """
        # Without the closing commit, input that a kill cut short is dropped as a whole.
        steps = ("start", "prepare", "commit")
        text = "\n".join((steps[0], *commands, *steps[1:], ""))

        def answer(output: IO[bytes]) -> None:
            for step in steps:
                if output.readline() != f"{step}: ok\n".encode():
                    raise BrokenPipeError(f"git update-ref did not {step}")

        try:
            self._refs.ask(text.encode(), answer)
        except Ended as error:
            raise self._failed(("update-ref",), error.status, error.said) from error

    def close(self) -> None:
        """End the processes that were kept. The object may be used again after that."""
        self._objects.close()
        self._refs.close()


def _finish(running: "Git.AutoInterrupt", stdin: bytes | None = None) -> tuple[int, bytes, bytes]:
    process = process_of(running)
    out, err = process.communicate(stdin)
    return process.returncode, out, err


def one_line_of(text: bytes) -> str:
    """What git said, as one printable line."""
    words = " ".join(text.decode("utf-8", "replace").split())
    return "".join(c if c.isprintable() else "\ufffd" for c in words)[:500] or "no message"
