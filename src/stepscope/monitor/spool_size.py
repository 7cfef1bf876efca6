"""Size of a spool, which the monitor looks at in every tick."""

from __future__ import annotations

from pathlib import Path

from stepscope.spool import SpoolTree, segment_bytes


class SpoolSize:
    """Size of the logs in a spool; only directories that have changed are listed again."""

    def __init__(self, tree: SpoolTree) -> None:
        self._tree = tree
        self._sizes: dict[str, tuple[int, int]] = {}
        """Time of the last change and bytes by directory."""

    def measure(self) -> int:
        """Return the number of bytes."""
        sizes: dict[str, tuple[int, int]] = {}
        for path in self._tree.process_directories().values():
            try:
                changed_ns = Path(path).stat().st_mtime_ns
            except FileNotFoundError:
                continue
            cached = self._sizes.get(path)
            if cached is None or cached[0] != changed_ns:
                cached = changed_ns, segment_bytes(path)
            sizes[path] = cached
        self._sizes = sizes
        return sum(size for _, size in sizes.values())
