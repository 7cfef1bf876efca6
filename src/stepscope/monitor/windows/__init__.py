from __future__ import annotations

from stepscope.monitor.windows.kineto_peer import open_peer

__all__ = ["open_peer"]
