"""A harness tree that is shipped with a domain."""

from importlib.resources.abc import Traversable


def read_tree(folder: Traversable, prefix: str = "") -> dict[str, bytes]:
    """The files below a package's folder, by path, without caches."""
    tree: dict[str, bytes] = {}
    for entry in sorted(folder.iterdir(), key=lambda item: item.name):
        if entry.is_dir():
            if entry.name != "__pycache__":
                tree |= read_tree(entry, f"{prefix}{entry.name}/")
        elif not entry.name.endswith((".pyc", ".pyo")):
            tree[prefix + entry.name] = entry.read_bytes()
    return tree
