"""Revision of stepscope that a suite has counted."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def source_revision() -> str:
    """Return the commit that last changed the source of stepscope, "uncommitted" if there are
    changes of it that have none."""
    return "uncommitted" if _git("status", "--porcelain") else _git("log", "-1", "--format=%h")


def add_revision(revisions: list[str]) -> None:
    """Add the present revision to those that were counted."""
    revision = source_revision()
    if revision not in revisions:
        revisions.append(revision)


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments, "--", "src"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()
