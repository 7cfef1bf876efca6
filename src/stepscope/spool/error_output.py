"""Last lines that a program has written to `sys.stderr`: a ring of bytes in a mapped file.

    word 0      bytes written so far; of a line that a carriage return begins again, its last state
    8 …         the ring: byte n is at 8 + n mod `RING_BYTES`

The content is written before the word that counts it, so that the end of the process, whatever it
is, loses at most what is being written.
"""

from __future__ import annotations

import mmap
import os

OUTPUT_FILE = "output"
NO_OUTPUT_VARIABLE = "STEPSCOPE_NO_OUTPUT"
"""Environment variable that, set to 1, keeps the output from being recorded."""
RING_BYTES = 1 << 16
_WORD_BYTES = 8


class OutputRing:
    """Writer of the ring of one process.

    Raises:
        OSError: the file cannot be created.
    """

    def __init__(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            # Real blocks: a write to a hole of a full file system would end the process.
            os.posix_fallocate(descriptor, 0, _WORD_BYTES + RING_BYTES)
            self._map = mmap.mmap(descriptor, _WORD_BYTES + RING_BYTES)
        finally:
            os.close(descriptor)
        self._count = memoryview(self._map)[:_WORD_BYTES].cast("Q")
        self._line_start = 0

    def write(self, text: str) -> None:
        """Append a text. Two threads that write at once may overwrite each other's."""
        data = text.encode(errors="backslashreplace")
        rewinds = data.startswith(b"\r") and not data.startswith(b"\r\n")
        count = self._line_start if rewinds else self._count[0]
        line_end = data.rfind(b"\n")
        if line_end >= 0:
            self._line_start = count + line_end + 1
        end = count + len(data)
        data = data[-RING_BYTES:]
        at = (end - len(data)) % RING_BYTES
        first = min(len(data), RING_BYTES - at)
        start = _WORD_BYTES + at
        self._map[start : start + first] = data[:first]
        self._map[_WORD_BYTES : _WORD_BYTES + len(data) - first] = data[first:]
        self._count[0] = end


def read_output(path: str) -> str:
    """Read what a ring holds, from its first whole line on; empty without a ring."""
    try:
        with open(path, "rb") as file:
            content = file.read(_WORD_BYTES + RING_BYTES)
    except OSError:
        return ""
    if len(content) < _WORD_BYTES + RING_BYTES:
        return ""
    count, ring = int.from_bytes(content[:_WORD_BYTES], "little"), content[_WORD_BYTES:]
    if count <= RING_BYTES:
        return ring[:count].decode(errors="replace")
    at = count % RING_BYTES
    return (ring[at:] + ring[:at]).partition(b"\n")[2].decode(errors="replace")
