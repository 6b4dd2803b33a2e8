"""The harness store: every proposal is a commit in a bare Git repository.

Importing this starts no git and does not need one; GitPython is imported when a store is opened. The other
forms of a lineage and a diff are modules of their own: `page` (HTML), `dot`, `side_by_side`.
"""

from whale.harness_repo.blame import BlamedLine, ScoreChange
from whale.harness_repo.errors import GitMissing, NameTaken, RefConflict, RepoError
from whale.harness_repo.graph import render_lineage
from whale.harness_repo.lineage import Acceptance, LineageEntry
from whale.harness_repo.message import CommitFacts, visible
from whale.harness_repo.notes import score_text
from whale.harness_repo.objects import check_files
from whale.harness_repo.packing import StoreSize
from whale.harness_repo.sharing import Pulled, Pushed
from whale.harness_repo.store import HarnessRepo

__all__ = [
    "Acceptance",
    "BlamedLine",
    "CommitFacts",
    "GitMissing",
    "HarnessRepo",
    "LineageEntry",
    "NameTaken",
    "Pulled",
    "Pushed",
    "RefConflict",
    "RepoError",
    "ScoreChange",
    "StoreSize",
    "check_files",
    "render_lineage",
    "score_text",
    "visible",
]
