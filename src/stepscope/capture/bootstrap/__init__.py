"""How capture gets into every process of an unchanged job.

`stepscope run` puts `site/` in front of PYTHONPATH; Python imports `site/sitecustomize.py` at
start-up in every process of the job (torchrun's ranks, spawned workers, subprocesses), and that
calls `activate()`. Nothing else happens until the job imports a framework. A forked child needs
nothing: it inherits the adapters and opens a session of its own.
"""

from __future__ import annotations

import os

from stepscope.capture.import_hooks import after_import

PACKAGE_VARIABLE = "STEPSCOPE_PACKAGE"

_activated = False


def environment(
    spool: str, limit_bytes: int, kineto_directory: str | None = None
) -> dict[str, str]:
    """Variables that carry the recording into a child process and all of its children.

    Args:
        spool: the directory of the span logs.
        limit_bytes: what it may hold.
        kineto_directory: where libkineto finds the monitor; None where it is not to look.
    """
    from stepscope.capture.kineto_daemon import variables
    from stepscope.capture.session import LIMIT_VARIABLE
    from stepscope.spool import SPOOL_VARIABLE

    here = os.path.dirname(os.path.abspath(__file__))
    site = os.path.join(here, "site")
    path = os.environ.get("PYTHONPATH")
    return {
        SPOOL_VARIABLE: spool,
        LIMIT_VARIABLE: str(limit_bytes),
        PACKAGE_VARIABLE: os.path.dirname(os.path.dirname(here)),
        # Kineto prints two lines to stderr whenever a profiler starts and stops.
        "KINETO_LOG_LEVEL": os.environ.get("KINETO_LOG_LEVEL", "99"),
        "PYTHONPATH": f"{site}{os.pathsep}{path}" if path else site,
        **(variables(kineto_directory) if kineto_directory is not None else {}),
    }


def activate() -> None:
    """Watch for the frameworks that we have adapters for. Safe to call again."""
    global _activated
    if _activated:
        return
    _activated = True
    after_import("torch", _install_torch)
    after_import("safetensors.torch", _install_safetensors)


def _install_torch() -> None:
    from stepscope.capture.frameworks.pytorch import install

    install()


def _install_safetensors() -> None:
    from stepscope.capture.frameworks.pytorch import checkpoints

    checkpoints.install_safetensors()
