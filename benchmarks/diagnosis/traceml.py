"""The same jobs under TraceML (traceml-ai on PyPI), with its diagnosis in the terms of a verdict.

TraceML detects the steps of a plain training loop only if the script marks them. The benchmark
therefore follows its documentation and runs a copy of the script with `traceml.init(mode="auto")`
at the top and the body of the training loop inside `traceml.trace_step(model)`. The training loop
is the innermost one with `optimizer.step(...)`, of the script or of `train` in `common.py` where
the script calls that, and the model is called `model`. TraceML also needs an input phase: an
iterable other than a DataLoader is wrapped with `traceml.wrap_dataloader_fetch`.

At the end TraceML writes `final_summary.json`, whose primary diagnosis is one of these:

    INPUT_BOUND, INPUT_STRAGGLER   data_pipeline    waiting for input, everywhere or on one rank
    H2D_BOUND                      data_pipeline    copies to the device
    RESIDUAL_HEAVY                 framework_overhead  step time outside all phases
    H2D_STRAGGLER                  data_pipeline    copies to the device, on one rank
    COMPUTE_STRAGGLER              model            one rank computes longer
    STRAGGLER                      communication    one rank is late, for any reason
    COMPUTE_BOUND                  model            forward, backward and optimizer dominate:
                                                    a remark, never a warning
    BALANCED, NORMAL               healthy
    INSUFFICIENT_…, NO_DATA …      abstention

It states no causes except stragglers and copies, no confidence and no predicted savings.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.diagnosis.catalogue import Scenario
from benchmarks.diagnosis.outcomes import Answer, Job, Outcome, SuggestedFix
from benchmarks.diagnosis.running import (
    CannotRunError,
    JobFailedError,
    copied_script,
    parse_metered,
    run_in_environment,
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
    is_visible = isinstance(source, (DataLoader, enumerate, zip)) or not hasattr(source, "__iter__")
    return source if is_visible else traceml.wrap_dataloader_fetch(source)
"""
_REMARKS = frozenset({"COMPUTE_BOUND"})


class NoTrainingLoopError(CannotRunError):
    """Script whose training loop cannot be marked."""


def run_job(job: Job, scenario: Scenario, *, program: Path) -> Outcome:
    """Run a scenario under TraceML and read its summary.

    Args:
        job: severity, seed and variant.
        scenario: the scenario.
        program: `traceml` command of an environment that can run the scripts.
    """
    digest = compute_digest(scenario, program)
    try:
        if scenario.label.drawn:
            raise CannotRunError("a drawn run is not a job")
        with copied_script(scenario) as work:
            script = work / "train.py"
            mark_script(script, scenario.path.with_name("common.py"))
            command = [str(program), "run", "--mode", "summary", "--no-save-training-output"]
            command += ["--logs-dir", str(work / "logs"), "--run-name", "run"]
            command += [f"--nproc-per-node={scenario.label.ranks}", str(script)]
            command += ["--args", *script_arguments(job)]
            completed = run_in_environment(command, job, scenario, cwd=work)
            summary = json.loads((work / "logs" / "run" / "final_summary.json").read_bytes())
    except CannotRunError as error:
        return Outcome(job=job, depends_on=digest, status="not run", reason=str(error))
    except (JobFailedError, OSError) as error:
        return Outcome(job=job, depends_on=digest, status="failed", reason=str(error))
    return Outcome(
        job=job,
        depends_on=digest,
        status="done",
        answer=parse_answer(summary),
        metered=parse_metered(completed.stdout),
        wall_s=completed.wall_s,
        outside_cores=completed.outside_cores,
    )


def parse_answer(summary: Mapping[str, Any]) -> Answer:
    """Translate a summary to the terms of a verdict, as far as possible."""
    diagnosis = summary.get("primary_diagnosis") or {}
    kind = diagnosis.get("kind", "")
    suspect, cause = _MEANINGS.get(kind, (None, None))
    action = diagnosis.get("action")
    return Answer(
        suspect=suspect,
        cause=cause,
        remark=kind in _REMARKS,
        fixes=[SuggestedFix(title=action, description="")]
        if action and suspect != "healthy"
        else [],
        words=f"{diagnosis.get('status', 'nothing')}: {diagnosis.get('summary', '')}",
    )


def mark_script(script: Path, shared: Path) -> None:
    """Mark the training loop of a script, or of a copy of the shared module whose `train` it calls.

    Raises:
        NoTrainingLoopError: as `mark_training_loop`.
    """
    calls = filter(_is_call_of_train, ast.walk(ast.parse(script.read_text())))
    source = shared if any(calls) else script
    script.with_name(source.name).write_text(mark_training_loop(source.read_text()))


def mark_training_loop(source: str) -> str:
    """Insert TraceML's marks into a training script.

    Raises:
        NoTrainingLoopError: no loop steps an `optimizer`, or the model has another name.
    """
    tree = ast.parse(source)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    loops = [node for node in ast.walk(tree) if isinstance(node, ast.For | ast.While)]
    training_loops = [loop for loop in loops if any(map(_is_optimizer_step, ast.walk(loop)))]
    if not training_loops or "model" not in names:
        raise NoTrainingLoopError(
            "no loop calls optimizer.step(), or no variable is called `model`"
        )
    innermost = min(training_loops, key=lambda loop: sum(1 for _ in ast.walk(loop)))
    marks = ast.parse("with traceml.trace_step(model):\n    pass").body[0]
    assert isinstance(marks, ast.With)
    marks.body = innermost.body
    innermost.body = [marks]
    if isinstance(innermost, ast.For):
        innermost.iter = ast.Call(ast.Name("_fetched", ast.Load()), [innermost.iter], [])
    index = _first_statement(tree)
    tree.body[index:index] = ast.parse(_PRELUDE).body
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def compute_digest(scenario: Scenario, program: Path) -> str:
    """Compute the digest of a scenario, of TraceML's version and of this module."""
    return scenario_digest(scenario, _version(program).encode(), Path(__file__).read_bytes())


@cache
def _version(program: Path) -> str:
    packages = sorted(program.resolve().parents[1].glob("lib/python*/site-packages/traceml_ai-*"))
    return packages[-1].name if packages else "unknown"


def _is_call_of_train(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "train"
    )


def _is_optimizer_step(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(attr="step", value=ast.Name(id="optimizer"))):
            return True
        case _:
            return False


def _first_statement(tree: ast.Module) -> int:
    """Return the index of the first statement after the docstring."""
    match tree.body:
        case [ast.Expr(value=ast.Constant(value=str())), *_]:
            return 1
        case _:
            return 0
