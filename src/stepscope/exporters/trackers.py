"""Summaries of runs in MLflow and Weights & Biases, by their client libraries.

A run of stepscope is one run there, found again by its identifier, so that a job can send its
figures again and again while it trains. Numbers are metrics by the names of the summary; the
properties of the work are parameters; texts are tags.
"""

from __future__ import annotations

import os
import re
import time
from typing import Any

from stepscope import errors
from stepscope.comparison import RunSummary, get_summary
from stepscope.exporters.registry import ExportOptions, Written, check_library, require_output
from stepscope.masking import mask_text
from stepscope.quantities import count_of
from stepscope.run import Run

DEFAULT_EXPERIMENT = "stepscope"
_MLFLOW_TAG = "stepscope.run_id"
_MLFLOW_LIMITS = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "8"}
"""By default it tries for minutes, and a job that ends does not wait that long for the reason."""
_WANDB_TIMEOUT_S = 10.0
_MAX_TEXT = 500
_CONTRACT = "contract/"
_STEPS = "job/steps_count"


class MlflowExporter:
    """Exporter to a tracking server or store of MLflow; see `registry.Exporter`."""

    options = frozenset[str]()

    def choose_output(self, output: str | None) -> str:
        """Return the tracking URI; see `registry.LiveExporter`."""
        check_library("mlflow", extra="mlflow")
        return require_output("mlflow", output or os.environ.get("MLFLOW_TRACKING_URI"), "URI")

    def export(self, run: Run, output: str, _options: ExportOptions) -> list[Written]:
        """Log the summary at `URI` or `URI#EXPERIMENT`.

        Raises:
            UsageError: MLflow does not take it.
        """
        for variable, text in _MLFLOW_LIMITS.items():
            os.environ.setdefault(variable, text)
        uri, _, experiment = output.partition("#")
        summary = get_summary(run)
        client_module = errors.require("mlflow.tracking", extra="mlflow")
        entities = errors.require("mlflow.entities", extra="mlflow")
        try:
            client = client_module.MlflowClient(tracking_uri=uri)
            run_id = _find_mlflow_run(client, experiment or DEFAULT_EXPERIMENT, summary)
            now_ms, step = time.time_ns() // 1_000_000, round(summary.metrics.get(_STEPS, 0))
            client.log_batch(
                run_id,
                metrics=[
                    entities.Metric(name, value, now_ms, step)
                    for name, value in list_tracked(summary).items()
                ],
                params=[
                    entities.Param(_clean(name), text[:_MAX_TEXT])
                    for name, text in summary.texts.items()
                    if name.startswith(_CONTRACT)
                ],
                tags=[
                    entities.RunTag(f"stepscope.{_clean(name).replace('/', '.')}", text[:_MAX_TEXT])
                    for name, text in summary.texts.items()
                    if not name.startswith(_CONTRACT)
                ],
            )
            client.set_terminated(run_id)
        except Exception as error:  # the library raises errors of many kinds
            raise _refuse("MLflow", error) from error
        return [Written(path=mask_text(output), content=f"run {run_id}, {_count(summary)}")]


def _find_mlflow_run(client: Any, experiment: str, summary: RunSummary) -> str:
    """Return the run of MLflow for a summary; create it, and its experiment, if there is none."""
    existing = client.get_experiment_by_name(experiment)
    number = client.create_experiment(experiment) if existing is None else existing.experiment_id
    identifier = summary.texts["run_id"]
    quoted = identifier.replace("'", "\\'")
    runs = client.search_runs([number], f"tags.`{_MLFLOW_TAG}` = '{quoted}'", max_results=1)
    if runs:
        return str(runs[0].info.run_id)
    tags = {_MLFLOW_TAG: identifier}
    return str(client.create_run(number, tags=tags, run_name=identifier).info.run_id)


class WandbExporter:
    """Exporter to Weights & Biases; see `registry.Exporter`."""

    options = frozenset[str]()

    def choose_output(self, output: str | None) -> str:
        """Return the project; see `registry.LiveExporter`."""
        check_library("wandb", extra="wandb")
        return output or os.environ.get("WANDB_PROJECT") or DEFAULT_EXPERIMENT

    def export(self, run: Run, output: str, _options: ExportOptions) -> list[Written]:
        """Log the summary in `PROJECT` or `ENTITY/PROJECT`.

        Without a network, `WANDB_MODE=offline` writes a run that `wandb sync` sends.

        Raises:
            UsageError: the library does not take it.
        """
        summary = get_summary(run)
        wandb = errors.require("wandb", extra="wandb")
        entity, _, project = output.rpartition("/")
        identifier = re.sub(r"[^\w-]", "-", summary.texts["run_id"])[:64]
        os.environ.setdefault("WANDB_SILENT", "true")
        try:
            logged = wandb.init(
                project=project,
                entity=entity or None,
                id=identifier,
                name=summary.texts["run_id"],
                resume="allow",
                config={
                    name: text for name, text in summary.texts.items() if name.startswith(_CONTRACT)
                },
                # Nothing of this process is of interest: its output, code, machine and GPUs.
                settings=wandb.Settings(
                    console="off",
                    disable_git=True,
                    disable_code=True,
                    x_disable_stats=True,
                    init_timeout=_WANDB_TIMEOUT_S,
                ),
            )
            numbers = list_tracked(summary)
            logged.log(numbers, step=round(summary.metrics.get(_STEPS, 0)))
            texts = {k: v for k, v in summary.texts.items() if not k.startswith(_CONTRACT)}
            logged.summary.update({**numbers, **texts})
            logged.finish()
        except Exception as error:  # the library raises errors of many kinds
            raise _refuse("Weights & Biases", error) from error
        return [Written(path=output, content=f"run {identifier}, {_count(summary)}")]


def list_tracked(summary: RunSummary) -> dict[str, float]:
    """List the numbers of a summary that people look at."""
    hidden = ("_error_ns", "_floor_ns")
    return {name: value for name, value in summary.metrics.items() if not name.endswith(hidden)}


def _refuse(service: str, error: Exception) -> errors.UsageError:
    reason = mask_text(" ".join(str(error).split()).rstrip(".")) or type(error).__name__
    return errors.UsageError(f"{service} did not take the summary: {reason}.")


def _count(summary: RunSummary) -> str:
    return count_of(len(list_tracked(summary)), "number")


def _clean(name: str) -> str:
    """Replace what MLflow refuses in names."""
    return re.sub(r"[^\w\-. :/]", "_", name)
