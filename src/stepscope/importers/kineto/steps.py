"""Steps that the user names: ranges of the script as those of the profiler."""

from __future__ import annotations

import re

import numpy as np

from stepscope import schema
from stepscope.importers.content import INVALID
from stepscope.importers.kineto.arguments import ANNOTATION
from stepscope.importers.kineto.gather import Gathered
from stepscope.importers.kineto.reading import Note


def name_steps(gathered: Gathered, name: str) -> list[Note]:
    """Let annotations of a name be the steps, and no others, on the thread that has most of them.

    A step has the number at the end of the name of its range, such as "step 12"; if the ranges have
    none, or one of them twice, they are counted from 0. Ranges inside another one are no steps.

    Args:
        gathered: the events of a trace.
        name: name of the ranges, with or without a number after it.

    Returns:
        A note if there is no such range.
    """
    pattern = re.compile(rf"{re.escape(name)}(?:[\s#:_/=-]*(\d{{1,18}}))?")
    numbers = {
        code: match[1]
        for code, text in enumerate(gathered.strings)
        if (match := pattern.fullmatch(text)) is not None
    }
    columns = gathered.columns(ANNOTATION, "name", "track", "start", "duration")
    is_named = np.isin(columns["name"], [*numbers]) & (columns["start"] != INVALID)
    rows = np.flatnonzero(is_named)
    if not len(rows):
        return [("no_step_range", 1, name)]
    rows = rows[columns["track"][rows] == np.bincount(columns["track"][rows]).argmax()]
    rows = rows[np.argsort(columns["start"][rows], kind="stable")]
    ends = np.maximum.accumulate(columns["start"][rows] + columns["duration"][rows])
    rows = rows[np.append(True, columns["start"][rows][1:] >= ends[:-1])]
    stated = [numbers[code] for code in columns["name"][rows].tolist()]
    is_numbered = None not in stated and len(set(stated)) == len(stated)
    labels = stated if is_numbered else range(len(stated))
    names = columns["name"].copy()
    for code in np.unique(names).tolist():
        text = gathered.strings[code]
        if text.startswith(schema.STEP_PREFIX):
            names[names == code] = gathered.code_of(text.replace("#", " "))
    names[rows] = [gathered.code_of(f"{schema.STEP_PREFIX}{label}") for label in labels]
    gathered.extend(ANNOTATION, "name", names)
    return []
