"""WHALE: evolve an agent's weights and harness together, and see, trust, undo and replay every step."""

from pathlib import Path

__version__ = "0.1.0"

# In a clone with core.symlinks=false the links whale/events, whale/harness_repo and whale/tui are plain
# files; the real folders lie beside this package then.
if not (Path(__file__).parent / "events").is_dir():
    __path__.append(str(Path(__file__).parent.parent))
