"""The sandbox: a worker process per candidate that forks a locked process per episode.

Modules that also run inside (`worker`, `episode`, `loop`, `frames`, `seccomp`, `landlock`) import nothing but
the standard library and each other.
"""
