"""The same jobs under TraceML (traceml-ai on PyPI), and what it says in the words of a verdict.

TraceML sees the steps of a plain training loop only where the script marks them. So it gets what
its documentation asks for: a copy of the script with `traceml.init(mode="auto")` at its top and
the body of the training loop under `traceml.trace_step(model)`. The training loop is the innermost
one with `optimizer.step(...)` in it, and scripts call their model `model`. It diagnoses nothing
without an input phase either: where the loop goes over something else than a DataLoader, that is
wrapped with `traceml.wrap_dataloader_fetch`.

At the end TraceML writes `final_summary.json`, whose primary diagnosis is one of these:

    INPUT_BOUND, INPUT_STRAGGLER   data_pipeline    waiting for input, everywhere or on one rank
    H2D_BOUND                      data_pipeline    copies to the device
    RESIDUAL_HEAVY                 framework_overhead  time in the step that is in no phase
    H2D_STRAGGLER                  data_pipeline    the same, on one rank
    COMPUTE_STRAGGLER              model            one rank computes longer
    STRAGGLER                      communication    one rank is behind, for whatever reason
    COMPUTE_BOUND                  model            forward, backward and optimizer own the step:
                                                    a remark, never a warning
    BALANCED, NORMAL               healthy
    INSUFFICIENT_…, NO_DATA …      it abstains

It states neither causes within these, but for stragglers and copies, nor confidence, nor what a
change would bring.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.diagnosis.catalogue import Scenario
from benchmarks.diagnosis.outcomes import Answer, FixSaid, Job, Outcome
from benchmarks.diagnosis.running import (
    CannotRunError,
    JobFailedError,
    copied,
    metered,
    run_around,
    scenario_digest,
    script_arguments,
)

_MEANINGS: dict[str, tuple[str, str | None]] = {
    "INPUT_BOUND": ("data_pipeline", None),
    "INPUT_STRAGGLER": ("data_pipeline", "straggler"),
    "H2D_BOUND": ("data_pipeline", "host_to_device_copies"),
    "RESIDUAL_HEAVY": ("framework_overhead", None),
    "COMPUTE_STRAGGLER": ("model", "straggler"),
    "H2D_STRAGGLER": ("data_pipeline", "straggler"),
    "STRAGGLER": ("communication", "straggler"),
    "COMPUTE_BOUND": ("model", None),
    "BALANCED": ("healthy", "none"),
    "NORMAL": ("healthy", "none"),
}
_PRELUDE = """
import traceml_ai as traceml
traceml.init(mode="auto")

def _fetched(source):
    from torch.utils.data import DataLoader
    seen = isinstance(source, (DataLoader, enumerate, zip)) or not hasattr(source, "__iter__")
    return source if seen else traceml.wrap_dataloader_fetch(source)
"""
_REMARKS = frozenset({"COMPUTE_BOUND"})


class NoTrainingLoopError(CannotRunError):
    """A script whose training loop cannot be marked."""


def run_job(job: Job, scenario: Scenario, *, program: Path) -> Outcome:
    """Run a scenario under TraceML and read its summary.

    Args:
        program: the `traceml` of an environment in which the scripts run as well.
    """
    digest = depends_on(scenario, program)
    try:
        if scenario.label.drawn:
            raise CannotRunError("a drawn record is no job")
        with copied(scenario) as work:
            script = work / "train.py"
            script.write_text(marked(script.read_text()))
            command = [str(program), "run", "--mode", "summary", "--no-save-training-output"]
            command += ["--logs-dir", str(work / "logs"), "--run-name", "run"]
            command += [f"--nproc-per-node={scenario.label.ranks}", str(script)]
            command += ["--args", *script_arguments(job)]
            ended = run_around(command, job, scenario, cwd=work)
            summary = json.loads((work / "logs" / "run" / "final_summary.json").read_bytes())
    except CannotRunError as error:
        return Outcome(job=job, depends_on=digest, status="not run", reason=str(error))
    except (JobFailedError, OSError) as error:
        return Outcome(job=job, depends_on=digest, status="failed", reason=str(error))
    return Outcome(
        job=job,
        depends_on=digest,
        status="done",
        answer=answer_of(summary),
        metered=metered(ended.stdout),
        wall_s=ended.wall_s,
        outside_cores=ended.outside_cores,
    )


def answer_of(summary: Mapping[str, Any]) -> Answer:
    """A summary in the words of a verdict, as far as it says anything that these can express."""
    said = summary.get("primary_diagnosis") or {}
    kind = said.get("kind", "")
    suspect, cause = _MEANINGS.get(kind, (None, None))
    action = said.get("action")
    return Answer(
        suspect=suspect,
        cause=cause,
        remark=kind in _REMARKS,
        fixes=[FixSaid(title=action, how="")] if action and suspect != "healthy" else [],
        words=f"{said.get('status', 'nothing')}: {said.get('summary', '')}",
    )


def marked(source: str) -> str:
    """A training script with TraceML's marks in it.

    Raises:
        NoTrainingLoopError: there is none that steps an `optimizer`, or the model has another name.
    """
    tree = ast.parse(source)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    loops = [node for node in ast.walk(tree) if isinstance(node, ast.For | ast.While)]
    stepping = [loop for loop in loops if any(map(_steps_optimizer, ast.walk(loop)))]
    if not stepping or "model" not in names:
        raise NoTrainingLoopError("no loop that calls optimizer.step() on a `model` to be marked")
    innermost = min(stepping, key=lambda loop: sum(1 for _ in ast.walk(loop)))
    marks = ast.parse("with traceml.trace_step(model):\n    pass").body[0]
    assert isinstance(marks, ast.With)
    marks.body = innermost.body
    innermost.body = [marks]
    if isinstance(innermost, ast.For):
        innermost.iter = ast.Call(ast.Name("_fetched", ast.Load()), [innermost.iter], [])
    after = _first_statement(tree)
    tree.body[after:after] = ast.parse(_PRELUDE).body
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def depends_on(scenario: Scenario, program: Path) -> str:
    """Digest of a scenario, of TraceML's version and of how it is read here."""
    return scenario_digest(scenario, _version(program).encode(), Path(__file__).read_bytes())


@cache
def _version(program: Path) -> str:
    found = sorted(program.resolve().parents[1].glob("lib/python*/site-packages/traceml_ai-*"))
    return found[-1].name if found else "unknown"


def _steps_optimizer(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(attr="step", value=ast.Name(id="optimizer"))):
            return True
        case _:
            return False


def _first_statement(tree: ast.Module) -> int:
    """After the docstring."""
    match tree.body:
        case [ast.Expr(value=ast.Constant(value=str())), *_]:
            return 1
        case _:
            return 0
