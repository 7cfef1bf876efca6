"""Verdicts, steps and windows of JAX jobs with planted properties."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path

import pytest

import stepscope
from tests.support.command import run_command
from tests.support.framework_environments import find_python
from tests.support.under_stepscope import FinishedJob, run_under

pytestmark = pytest.mark.extended("verdicts in detail; test_jax_contracts.py has a job")

SCRIPT = Path(__file__).parent / "scripts" / "jax_faults.py"
JITTED = """
import pickle, jax, jax.numpy as jnp
from stepscope.capture import session
from stepscope.capture.frameworks.jax.calls import JittedFunction

@jax.jit(static_argnums=1)
def power(x, n):
    "Raise to a power."
    return x**n

class Layer:
    @jax.jit(static_argnums=0)
    def double(self, x):
        return 2 * x

assert type(power) is JittedFunction
assert isinstance(power, jax.stages.Wrapped)
assert (power.__name__, power.__doc__) == ("power", "Raise to a power.")
assert power(jnp.arange(3), 2).tolist() == [0, 1, 4]
layer = Layer()
assert layer.double(jnp.arange(3)).tolist() == [0, 2, 4]
assert (layer.double.__name__, layer.double.__self__) == ("double", layer)
assert layer.double.eval_shape(layer, jnp.arange(3)).shape == (3,)  # as that of JAX, unbound
assert layer.double.lower(layer, jnp.arange(3)).compile()(jnp.arange(3)).tolist() == [0, 2, 4]
layer.double.clear_cache()
assert layer.double._cache_size() == 0
assert jax.grad(lambda x: power(x, 3))(2.0) == 12.0
assert jax.vmap(lambda x: power(x, 2))(jnp.arange(3)).tolist() == [0, 1, 4]
assert power.lower(jnp.arange(3), 2).compile()(jnp.arange(3)).tolist() == [0, 1, 4]
assert power._cache_size() == 1
assert power.eval_shape(jnp.arange(3), 2).shape == (3,)
try:
    pickle.dumps(power)
except pickle.PicklingError as error:  # that of JAX
    assert "not the same object as __main__.power" in str(error)
donated = jax.jit(lambda x: x + 1, donate_argnums=0)
x = jnp.arange(3)
donated(x)
try:
    x.block_until_ready()
except RuntimeError as error:
    print(str(error).partition(" with")[0])
"""


def run(kind: str, directory: Path, *options: str) -> FinishedJob:
    job = run_under(
        directory / "run",
        *(find_python("keras"), str(SCRIPT), kind),
        options=("--no-rules", *(options or ("--window", "off"))),
    )
    assert job.code == 0, job.stderr
    return job


@pytest.fixture(scope="module")
def recompiling(tmp_path_factory: pytest.TempPathFactory) -> FinishedJob:
    return run("recompile", tmp_path_factory.mktemp("recompile"))


def test_compiling_in_every_step_is_named(recompiling: FinishedJob) -> None:
    verdict = recompiling.verdict
    assert verdict["cause"] == "recompilation"
    texts = [evidence["text"] for evidence in verdict["evidence"]]
    (text,) = [text for text in texts if text.startswith("JAX compiled 58 times in the measured ")]
    assert "; 58 were recompilations for new shapes, types or static arguments. jit(update)" in text
    titles = [fix["title"] for fix in verdict["fixes"]]
    assert "Keep shapes, types and static arguments the same" in titles
    notes = [note for note in verdict["notes"] if note.startswith("The steps are inferred: ")]
    assert notes == [
        "The steps are inferred: each call of jit(update) ends one, because it returns the largest "
        "state. stepscope.steps(loader) marks them."
    ]


def test_the_rule_counts_the_compilations_of_a_function(recompiling: FinishedJob) -> None:
    directory = recompiling.run.parent
    done = run_command(directory, "rules", "check", "run", "--rule", "RecompileStorm", "--json")
    (finding,) = json.loads(done.stdout)["findings"]
    compilations = finding["Details"]["ranks"]
    ((name, function),) = [
        item for rank in compilations.values() for item in rank["functions"].items()
    ]
    assert (name, function["count"]) == ("jit(update)", 64 - 50)  # the first 50 steps do not count
    opened = stepscope.open(recompiling.run).framework(kind="compile")
    last = sorted(
        (row["start_ns"], row["end_ns"]) for row in opened.rows() if row["name"] == "jit(update)"
    )[-function["count"] :]
    assert function["total_ns"] == sum(end - start for start, end in last)


def test_a_batch_that_the_device_does_not_wait_for_is_not_named(tmp_path: Path) -> None:
    job = run("hidden", tmp_path)
    shares = {phase["name"]: phase["share_ratio"] for phase in job.steps()["phases"]}
    assert shares["execution"] > 0.7
    assert job.verdict["suspect"] != "data_pipeline"


def test_a_device_that_is_always_busy_is_no_dispatch_overhead(tmp_path: Path) -> None:
    job = run("donated", tmp_path)
    shares = {phase["name"]: phase["share_ratio"] for phase in job.steps()["phases"]}
    assert shares["execution"] > 0.7
    assert job.verdict["suspect"] != "framework_overhead"


def test_a_thread_that_prepares_batches_does_not_train(tmp_path: Path) -> None:
    job = run("prefetch", tmp_path)
    steps = job.steps()
    assert steps["step_count"] == 60
    shares = {phase["name"]: phase["share_ratio"] for phase in steps["phases"]}
    assert shares["execution"] > 0.7
    assert job.verdict["suspect"] != "framework_overhead"


def test_functions_compiled_ahead_and_marked_steps(tmp_path: Path) -> None:
    job = run("ahead", tmp_path, "--start-step", "20", "--num-steps", "3")
    steps = job.steps()
    assert steps["source"] == "marked"
    opened = stepscope.open(job.run)
    calls = Counter(row["name"] for row in opened.framework(kind="dispatch").rows())
    assert calls["jit(update)"] == 40
    traces = opened.sql('SELECT process, "window" FROM traces ORDER BY "window"').rows()
    assert traces
    windows = job.payload("show", "steps")["traces"]
    assert ["20", "21", "22"] in [[step["step"] for step in trace["steps"]] for trace in windows]


def test_functions_of_one_name_are_told_apart_by_their_results(tmp_path: Path) -> None:
    job = run("namesakes", tmp_path)
    assert job.steps()["step_count"] == 40
    opened = stepscope.open(job.run)
    calls = Counter(row["name"] for row in opened.framework(kind="dispatch").rows())
    assert calls["jit(step)"] == 60


def test_jitted_functions_behave_as_without_stepscope(tmp_path: Path) -> None:
    script = tmp_path / "jitted.py"
    script.write_text(JITTED)
    job = run_under(
        tmp_path / "run",
        *(find_python("keras"), str(script)),
        options=("--no-rules", "--window", "off"),
    )
    assert job.code == 0, job.stderr
    assert "called on deleted or donated buffer" in job.stdout


def test_an_error_of_the_script_is_the_same(tmp_path: Path) -> None:
    code = "import jax; jax.jit(lambda x: undefined_name)(1)"
    python = find_python("keras")
    job = run_under(tmp_path / "run", python, "-c", code, options=("--no-rules",))
    bare = subprocess.run([python, "-c", code], check=False, capture_output=True, text=True)
    assert job.code == bare.returncode == 1
    assert "NameError: name 'undefined_name' is not defined" in job.stderr
