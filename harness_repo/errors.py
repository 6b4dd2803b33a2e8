"""What can go wrong with the store. The CLI prints each as one line; this package imports nothing of ours."""


class RepoError(Exception):
    """The store cannot do what was asked: what is wrong, where, and what to do next, in one line."""


class GitMissing(RepoError):
    """There is no usable git on PATH. Raised when the store is used, never when it is imported."""

    def __init__(self, detail: str = "git was not found on PATH") -> None:
        super().__init__(f"{detail}: install git >= 2.30")


class RefConflict(RepoError):
    """A compare-and-swap on refs lost: another process moved one of them first."""


class NameTaken(RepoError):
    """A remote has another run under this one's name."""
