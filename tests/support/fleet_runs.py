"""Runs of a fleet that consist of their stored summaries, with planted causes, prices and fixes."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from stepscope import analysis, schema
from stepscope.comparison import RunSummary
from stepscope.run import find_results
from stepscope.store import RunLabels

FIRST_S = int(datetime(2026, 11, 2, tzinfo=UTC).timestamp())
"""Monday of the first week."""
CAUSES = (
    ("data_pipeline", "slow_decode", "Decode in more workers"),
    ("data_pipeline", "too_few_workers", "Add workers"),
    ("communication", "straggler", "Replace the slow node"),
    ("healthy", "healthy", None),
)
MACHINES = ((8, 96, 32.5), (1, 12, None), (0, 16, 0.75), (0, 0, None))
"""GPUs, cores and price per hour."""


def draw_summary(number: int) -> RunSummary:
    """Draw the summary of the run with a number: an hour or more, divided in most runs."""
    draw = random.Random(number)
    suspect, cause, fix = draw.choice(CAUSES)
    gpus, cores, price = draw.choice(MACHINES)
    hours = draw.choice((1, 2, 5, 10))
    metrics = {
        "job/wall_time_ns": hours * 3.6e12,
        "job/gpus_count": float(gpus),
        "job/cores_count": float(cores),
        "verdict/share_ratio": 0.5,
        "verdict/confidence_ratio": 0.9,
    }
    texts = {
        "run_id": f"run {number}",
        "created": datetime.fromtimestamp(FIRST_S + 3600 * number, UTC).isoformat(),
        "working_directory": f"/projects/p{draw.randrange(7)}",
        "nodes": "n0",
        "verdict/suspect": suspect,
        "verdict/cause": cause,
        "verdict/share_of": "step wall time",
        "verdict/headline": f"Headline of run {number}.",
    }
    if number % 3:
        texts["git_revision"] = f"{number % 5:07x}"
    if price is not None:
        metrics["job/cost_usd"] = price * hours
    if number % 10:  # the others are not divided
        weights = {key: draw.random() for key in draw.sample(analysis.JOB_CLASSES, 6)}
        weights["steps"] = 4.0
        for key, weight in weights.items():
            metrics[f"time/{key}_ratio"] = weight / sum(weights.values())
        if fix is not None:
            texts["verdict/job_fix"] = fix
            kind = "bound" if number % 4 == 0 else "saving"
            metrics[f"verdict/job_{kind}_ratio"] = 0.4 * draw.random()
            metrics["verdict/job_share_ratio"] = 0.5 * draw.random()
    return RunSummary(texts=texts, metrics=metrics)


def draw_tags(summary: RunSummary) -> list[str]:
    """Draw the tags of the run with a summary: none, one or two."""
    number = int(summary.texts["run_id"].removeprefix("run "))
    return ["even", "tenth"] if number % 10 == 0 else ["even"] if number % 2 == 0 else []


def plant_run(directory: Path, summary: RunSummary | None) -> None:
    """Write a run that has ended, with its summary if there is one."""
    directory.mkdir(parents=True)
    created = FIRST_S if summary is None else datetime.fromisoformat(summary.texts["created"])
    seconds = created if isinstance(created, int) else int(created.timestamp())
    info = schema.RunInfo(
        schema_version=schema.SCHEMA_VERSION,
        run_id=directory.name,
        created_ns=seconds * 10**9,
        command=["python", "train.py"],
        working_directory="/job",
        stepscope_version="0",
        sources=[schema.SourceFile(path="/trace.json", size_bytes=1, changed_ns=1)],
    )
    (directory / "run.json").write_bytes(msgspec.json.encode(info))
    if summary is not None:
        store_summary(str(directory), summary)


def store_summary(location: str, summary: RunSummary) -> None:
    """Store the summary of a run with it."""
    results = find_results(location, uses_findings=False)
    assert results is not None
    assert results.put("summary", msgspec.json.encode(summary))


def plant_fleet(root: Path, count: int) -> dict[str, RunSummary]:
    """Write runs; return their summaries by id."""
    summaries = {}
    for number in range(count):
        run_id = f"team{number % 3}/run{number:04}"
        summaries[run_id] = draw_summary(number)
        plant_run(root / run_id, summaries[run_id])
        if tags := draw_tags(summaries[run_id]):
            labels = RunLabels(title=f"title {number}", tags=tags)
            (root / run_id / "labels").mkdir()
            (root / run_id / "labels/run.json").write_bytes(msgspec.json.encode(labels))
    return summaries
