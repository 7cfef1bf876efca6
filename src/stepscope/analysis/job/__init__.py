"""Time of a whole job: its division into classes, activities outside of steps, functions."""

from __future__ import annotations
