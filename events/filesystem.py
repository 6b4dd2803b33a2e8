"""Where a log lies: SQLite's locks and shared memory need a disk of this machine."""

from pathlib import Path

_NETWORK = {
    "9p", "afs", "beegfs", "ceph", "cifs", "davfs", "glusterfs", "gpfs", "lustre", "nfs", "nfs4", "ocfs2",
    "smb3", "smbfs", "fuse.ceph", "fuse.davfs2", "fuse.gcsfuse", "fuse.glusterfs", "fuse.juicefs",
    "fuse.mount-s3", "fuse.rclone", "fuse.s3fs", "fuse.seaweedfs", "fuse.sshfs",
}  # fmt: skip


def network_filesystem(path: Path, mounts: Path = Path("/proc/mounts")) -> str | None:
    """The type of the network file system that holds the path, or None for a local or unknown one."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:  # not Linux
        return None
    place = path.resolve()
    best, kind = -1, ""
    for line in lines:
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        # The kernel writes space, tab, newline and backslash in a mount point as octal escapes.
        point = fields[1]
        for octal, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
            point = point.replace(octal, char)
        # A later mount on the same point hides the earlier one, hence >=.
        if place.is_relative_to(point) and len(point) >= best:
            best, kind = len(point), fields[2]
    return kind if kind in _NETWORK else None
