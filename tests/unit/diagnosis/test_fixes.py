"""Fixes say what applies to the job: without a cause, and without a GPU. Milliseconds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from stepscope.analysis import LineWait
from stepscope.diagnosis import Fix, Verdict, diagnose
from stepscope.diagnosis.causes.job_facts import JobFacts
from stepscope.diagnosis.causes.wait_causes import StepWait, list_wait_fixes
from stepscope.diagnosis.fixes.advice import CAUSE_FIXES, leave_out_useless
from stepscope.diagnosis.fixes.fact_fixes import (
    AUGMENT_BATCHES,
    CALL_LESS,
    COMPILE_PREPARATION,
    FACT_FIXES,
    OPTIMIZER_KERNELS,
    STORE_SMALLER,
    TRANSFORM_ONCE,
    list_augmentation_fixes,
    list_inline_data_fixes,
)
from stepscope.diagnosis.traces import trace_fixes
from stepscope.diagnosis.verdict import CAUSES, Prediction
from stepscope.schema import PYTORCH
from stepscope.testing import RunBuilder
from tests.support.cause_runs import CAUSE_RUNS, COMPUTE, SMALL

RunMaker = Callable[..., RunBuilder]


def diagnose_optimizer(run: RunBuilder, **facts: object) -> Verdict:
    rank = run.rank().draw("wait 5 | forward 20 | backward 15 | optimizer 60", 60)
    rank.fact("optimizer", **{"parameter_count": 1000, "tensor_count": 7, **facts})
    rank.fact("model", model=1, parameter_count=1000, embedding_parameter_count=0)
    return diagnose(run.open())


@pytest.mark.parametrize(
    ("facts", "option"),
    [
        ({"name": "Adam", "devices": ["cpu"]}, "torch.optim.Adam(..., fused=True)"),
        ({"name": "SGD", "devices": ["cuda"]}, "torch.optim.SGD(..., fused=True)"),
        ({"name": "AdamW", "devices": ["cuda"], "fused": True}, None),
        ({"name": "RMSprop", "devices": ["cpu"]}, "torch.optim.RMSprop(..., foreach=True)"),
        ({"name": "RMSprop", "devices": ["cuda"]}, None),  # the default on GPUs
        ({"name": "RMSprop", "devices": ["cpu"], "foreach": True}, None),
        ({"name": "Adagrad", "devices": ["cpu"]}, "torch.optim.Adagrad(..., fused=True)"),
        ({"name": "Shampoo", "devices": ["cpu"]}, None),
    ],
)
def test_options_of_the_optimizer_of_the_job(
    new_run: RunMaker, facts: dict[str, object], option: str | None
) -> None:
    verdict = diagnose_optimizer(new_run(), **facts)
    assert verdict.cause == "optimizer"
    texts = [fix.instructions for fix in verdict.fixes if "fused" in fix.title]
    assert len(texts) == (option is not None)
    assert option is None or option in texts[0]


@pytest.mark.parametrize(
    ("model", "operator", "device", "expected"),
    [
        (["Conv2d", "ResNet"], "mm", "cuda", {"mixed precision", "torch.compile"}),
        (["Conv2d", "ResNet"], "mm", "cpu", {"bfloat16", "torch.compile"}),
        (["MultiheadAttention"], "mm", "cpu", {"bfloat16", "torch.compile", "attention"}),
        (["SelfAttn"], "scaled_dot_product_attention", "cpu", {"bfloat16", "torch.compile"}),
        (["OptimizedModule", "ResNet"], "mm", "cuda", {"mixed precision"}),
        (None, "mm", "cuda", {"mixed precision", "torch.compile"}),
    ],
)
def test_cheaper_arithmetic_that_applies_to_the_model(
    new_run: RunMaker, model: list[str] | None, operator: str, device: str, expected: set[str]
) -> None:
    run = new_run()
    step = "forward 100 | backward 200 | optimizer 10"
    window = f"forward ( op:{operator} 100 ) | backward ( op:mm 200 ) | optimizer ( op:a 10 )"
    rank = run.rank().draw(step, 30).draw(f"window ( {window} )").draw(step, 30)
    run.metric("process_cpu_cores", 1, device=str(rank.info.pid))
    types = {} if model is None else {"module_types": model}
    rank.fact("model", model=1, parameter_count=1000, dtypes=["float32"], **types)
    rank.fact("optimizer", name="SGD", parameter_count=9, tensor_count=1, devices=[device])
    verdict = diagnose(run.open())
    assert verdict.cause == "compute"
    instructions = verdict.fixes[0].instructions
    ways = {"mixed precision", "bfloat16", "torch.compile", "attention"}
    assert {way for way in ways if way in instructions} == expected
    assert verdict.fixes[0].prediction is None


def test_fix_of_a_dataset_names_the_function(judge_cause: Callable[[str], Verdict]) -> None:
    assert judge_cause("slow_dataset").fixes[0].instructions.startswith("in lookup, ")


# --- data preparation and environments in the training thread ------------------------------------

LOOP = "main > train"
CODE = {
    "model": f"{LOOP} > Module.__call__@torch/nn/modules/module.py",
    "tokens": f"{LOOP} > encode # pieces = re.findall(pattern, text)",
    "image": f"{LOOP} > Net.forward > load > open@PIL/Image.py # image = Image.open(path)",
    "env": f"{LOOP} > step@gymnasium/core.py > Pole.step # state = np.array([x, y])",
    "own": f"{LOOP} > Pole.step # state = np.array([x, y])",
}


def test_tokeniser_between_the_passes_is_data_preparation(tmp_path: Path) -> None:
    """36 of 100 ms; the window sees the time as overhead between the passes."""
    run = RunBuilder(tmp_path / "run", code=CODE)
    step = "forward 30 ( do:model 30 ) | do:tokens 36 | backward 30 | optimizer 4"
    window = "forward ( op:mm 30 ) | do:tokens 36 | backward ( op:mm 30 ) | optimizer ( op:a 4 )"
    run.rank().draw(step, 30).draw(f"window ( {window} )").draw(step, 30)
    verdict = diagnose(run.open())
    assert (verdict.suspect, verdict.cause) == ("data_pipeline", "inline_data_preparation")
    assert verdict.share_ratio == pytest.approx(0.36)
    assert [(stage.detail, stage.share_ratio) for stage in verdict.stages] == [
        ("train.py:2", pytest.approx(0.36))
    ]
    assert verdict.evidence[1].text == (
        "encode (train.py:2) takes 36% of step time (text): pieces = re.findall(pattern, text)"
    )
    assert "move the work of encode (train.py:2) into a Dataset" in verdict.fixes[0].instructions
    assert not [stage for stage in verdict.stages if "loss" in stage.name]


def test_images_opened_in_the_forward_pass_are_data_preparation(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path / "run", code=CODE)
    run.rank().draw("forward 60 ( do:image 40 | do:model 20 ) | backward 30 | optimizer 10", 60)
    verdict = diagnose(run.open())
    assert (verdict.suspect, verdict.cause) == ("data_pipeline", "inline_data_preparation")
    assert verdict.share_ratio == pytest.approx(0.40)
    assert "as far as it does not need the results" in verdict.fixes[0].instructions


@pytest.mark.parametrize(("code", "is_library"), [("env", True), ("own", False)])
def test_stepping_an_environment_is_no_data_preparation(
    tmp_path: Path, code: str, is_library: bool
) -> None:
    run = RunBuilder(tmp_path / "run", code=CODE)
    run.rank().draw(f"do:{code} 60 | forward 20 ( do:model 20 ) | backward 15 | optimizer 5", 60)
    verdict = diagnose(run.open())
    assert (verdict.suspect, verdict.cause) == ("framework_overhead", "python_overhead")
    line = list(CODE).index(code) + 1
    assert f"(train.py:{line}) takes 60% of step time" in str(verdict.evidence)
    titles = [fix.title for fix in verdict.fixes]
    assert ("Step several environments at once" in titles) == is_library


@pytest.mark.parametrize(
    ("work", "title"),
    [
        ("ProgressBar.on_batch_end@lightning/bar.py", "Do less in ProgressBar.on_batch_end"),
        ("Results.get_cache@lightning/results.py", None),
    ],
)
def test_only_hooks_of_a_trainer_can_do_less(tmp_path: Path, work: str, title: str | None) -> None:
    """Other code of its library is not the user's to move."""
    fit = "main > fit@lightning/trainer.py > advance@lightning/loops.py"
    code = {
        "own": f"{fit} > {work} # trainer.fit(model)",
        "model": f"{fit} > Module.__call__@torch/nn/modules/module.py",
        "loop": fit,
    }
    run = RunBuilder(tmp_path / "run", code=code)
    passes = "forward 20 ( do:model 20 ) | backward 15 ( do:loop 15 ) | optimizer 5 ( do:loop 5 )"
    run.rank().draw(f"do:own 60 | {passes}", 60)
    verdict = diagnose(run.open())
    assert (verdict.suspect, verdict.cause) == ("framework_overhead", "python_overhead")
    assert [fix.title for fix in verdict.fixes][:1] == ([] if title is None else [title])


# --- causes that were not found -------------------------------------------------------------------


def test_imported_waits_without_stages_stay_at_the_suspect(new_run: RunMaker) -> None:
    run = new_run()
    run.rank().draw(f"wait=0 60 | {COMPUTE}", 60).fact("imported", form="SageMaker Debugger")
    run.metric("cpu_busy_ratio", 0.85)
    run.metric("gpu_busy_ratio", 0.2, device="0").metric("gpu_busy_ratio", 0.55, device="1")
    verdict = diagnose(run.open())
    assert (verdict.suspect, verdict.cause) == ("data_pipeline", "unknown")
    assert verdict.headline == (
        "Bottleneck: data pipeline, 60% of step time. Cause: not found. Stack samples of the "
        "processes that create batches would show it; the imported files contain none."
    )
    assert not verdict.fixes
    texts = [evidence.text for evidence in verdict.evidence]
    assert "Busy share of the time: the cores 85%, the GPUs 20% to 55%." in texts


def test_confidence_without_a_cause_is_that_of_the_suspect(new_run: RunMaker) -> None:
    run = new_run()
    run.rank().draw(f"wait=0 60 | {COMPUTE}", 60)
    unknown = diagnose(run.open())
    assert unknown.cause == "unknown"
    assert unknown.confidence_ratio > 0
    assert not unknown.also


def test_too_few_samples_of_batch_creation_name_no_cause(new_run: RunMaker) -> None:
    run = new_run(sampling_ms=400)
    run.rank(workers=0).draw(f"wait ( fetch=1 60 ( samples ( do:lookup 60 ) ) ) | {COMPUTE}", 60)
    verdict = diagnose(run.open())
    assert verdict.cause == "unknown"
    assert "20 are needed" in verdict.headline


def test_python_overhead_without_a_line_is_not_named(new_run: RunMaker) -> None:
    run = new_run()
    run.rank().draw("forward 20 | backward 20 | optimizer 5 | do 60", 60)
    verdict = diagnose(run.open())
    assert (verdict.suspect, verdict.cause) == ("framework_overhead", "unknown")
    assert "No stack sample shows the code" in verdict.headline


def test_calls_of_torch_between_the_phases_are_called_less_often(tmp_path: Path) -> None:
    """Of 100 ms, a distribution takes 40; operators have no gaps."""
    stack = "main > act > __init__@torch/distributions/categorical.py # dist = Categorical(p)"
    run = RunBuilder(tmp_path / "run", code={"act": stack})
    step = "forward 30 | backward 20 | optimizer 10"
    window = "forward 30 ( op:mm 30 ) | backward 20 ( op:mm 20 ) | optimizer 10 ( op:add 10 )"
    run.rank().draw(f"{step} | do:act 40", 30).draw(f"window ( {window} )").draw(
        f"{step} | do:act 40", 30
    )
    verdict = diagnose(run.open())
    assert (verdict.suspect, verdict.cause) == ("framework_overhead", "dispatch_overhead")
    first = verdict.fixes[0]
    assert first.title == CALL_LESS
    assert "train.py" in first.instructions
    assert first.prediction.saving_ratio == pytest.approx(0.4, abs=0.01)


def test_a_copy_of_the_model_has_a_fix_beside_a_small_batch(tmp_path: Path) -> None:
    """Of 48 ms, the copy takes 8, and operators are called for 30 or more."""
    stack = "main > Average.update > deepcopy@python:copy.py > Tensor.__deepcopy__@torch/_tensor.py"
    run = RunBuilder(tmp_path / "run", code={"copy": f"{stack} # new = copy.deepcopy(model)"})
    step, window = f"{COMPUTE} | do:copy 8", f"forward 20 ( {SMALL} ) | optimizer ( op:step 1 )"
    rank = run.rank().draw(step, 30).draw(f"window ( {window} )").draw(step, 30)
    rank.fact("model", model=1, parameter_count=1000, dtypes=["float32"])
    rank.fact("model_inputs", model=1, inputs=[{"name": "x", "shape": [2], "dtype": "float32"}])
    verdict = diagnose(run.open())
    assert (verdict.suspect, verdict.cause) == ("framework_overhead", "small_batch")
    copy = next(cause for cause in verdict.also if cause.cause == "dispatch_overhead")
    assert copy.text.startswith("Calls of the framework between the phases (train.py:1) take 1")
    assert copy.share_ratio == pytest.approx(8 / 48, abs=0.01)
    fix = next(fix for fix in verdict.fixes if fix.title == CALL_LESS)
    assert "train.py:1 runs between the phases: update a copy in place" in fix.instructions
    assert fix.prediction.saving_ratio == pytest.approx(8 / 48, abs=0.01)


def test_preparation_in_operations_of_jax_is_compiled() -> None:
    line = SimpleNamespace(phase="other", text="x = jnp.clip(x, 0, 1)")
    data_line = SimpleNamespace(name="augment (train.py:9)", line=line)
    facts: Any = SimpleNamespace(data_line=data_line, uses_jax=True, uses_torch=False, loader=None)
    title, instructions = list_inline_data_fixes(facts)[0]
    assert title == COMPILE_PREPARATION
    assert instructions.startswith("the work of augment (train.py:9) calls one operation of JAX")
    line.text = "x = np.clip(x, 0, 1)"
    assert COMPILE_PREPARATION not in dict(list_inline_data_fixes(facts))


def test_tracing_of_tensorflow_is_not_told_as_torch_compile(new_run: RunMaker) -> None:
    run = new_run()
    rank = run.rank().draw("wait 2 | optimizer 60 ( compile=1 40 )", 60)
    rank.spans[:] = [
        span._replace(name="tf.function train_step") if span.kind == "compile" else span
        for span in rank.spans
    ]
    verdict = diagnose(run.open())
    assert verdict.cause == "recompilation"
    text = next(evidence.text for evidence in verdict.evidence if "recompilations" in evidence.text)
    assert text.startswith("TensorFlow traced functions 54 times in the measured steps and took 40")
    assert "for new shapes, types or Python arguments." in text
    instructions = " ".join(fix.instructions for fix in verdict.fixes)
    assert "reduce_retracing=True" in instructions
    assert "input_signature=[tf.TensorSpec(" in instructions
    assert "torch" not in instructions


GPU_WORDS = re.compile(
    r"\bGPU|cuda|\bdevice\b|pin_memory|non_blocking|pinned|kornia|DALI|multiprocessor|tensor cores",
    re.IGNORECASE,
)
DEVICE_CAUSES = {
    "device_to_host_copies",
    "full_precision",
    "host_to_device_copies",
    "long_calls",
    "low_occupancy",
    "memory_allocation",
}
"""Causes that are times of a device: copies, kernels, allocations."""
DATA_RUN = CAUSE_RUNS["slow_augmentation"][1]


def speaks_of_gpu(texts: Iterable[Sequence[str]]) -> list[str]:
    return [part for text in texts for part in text if GPU_WORDS.search(part)]


def make_facts(*, has_gpus: bool) -> JobFacts:
    """Make the facts of a job of which nothing else is known."""
    unknown: dict[str, Any] = dict.fromkeys(JobFacts.__struct_fields__)
    flags = {"has_loop": True, "has_fused_attention": False, "transforms": []}
    return JobFacts(**(unknown | flags | {"has_gpus": has_gpus}))


@pytest.mark.parametrize(
    ("transforms", "titles"),
    [
        (["ToTensor", "Normalize"], [TRANSFORM_ONCE]),
        (["ToTensor", "RandomCrop"], [AUGMENT_BATCHES]),
        (["RandomResizedCrop", "ToTensor"], [STORE_SMALLER, AUGMENT_BATCHES]),
    ],
)
def test_advice_on_transforms_depends_on_what_they_do(
    transforms: list[str], titles: list[str]
) -> None:
    facts = msgspec.structs.replace(make_facts(has_gpus=False), transforms=transforms)
    fixes = list_augmentation_fixes(facts)
    assert [title for title, _ in fixes] == titles
    assert ", ".join(transforms) in fixes[-1][1]


@pytest.mark.seed("DIAG-05")
def test_every_fix_of_the_catalogue_that_speaks_of_a_gpu_requires_one() -> None:
    for cause, fixes in CAUSE_FIXES.items():
        assert cause in DEVICE_CAUSES or not speaks_of_gpu(fixes), cause
    on_host, on_gpu = make_facts(has_gpus=False), make_facts(has_gpus=True)
    for cause, list_texts in FACT_FIXES.items():
        assert not speaks_of_gpu(list_texts(on_host)), cause
    assert speaks_of_gpu(text for make in FACT_FIXES.values() for text in make(on_gpu))


def test_fixes_for_traces_of_the_host_speak_of_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_fixes, "is_overhead_in_optimizer", lambda inputs: True)
    inputs: Any = SimpleNamespace(
        on_host=True, copies_without_waits=False, traces=[], recorder=PYTORCH, issuer=None
    )
    for cause in set().union(*CAUSES.values()) - DEVICE_CAUSES:
        assert not speaks_of_gpu(trace_fixes._list_texts(cause, inputs)), cause


def texts_of(fixes: Iterable[Fix]) -> list[tuple[str, str, str]]:
    changes = ((fix, " ".join(change.name for change in fix.changes)) for fix in fixes)
    return [(fix.title, fix.instructions, names) for fix, names in changes]


def test_no_verdict_without_a_gpu_advises_one(judge_cause: Callable[[str], Verdict]) -> None:
    for cause in CAUSE_RUNS.keys() - DEVICE_CAUSES:
        verdict = judge_cause(cause)
        assert not speaks_of_gpu(texts_of(verdict.fixes)), cause
        assert not verdict.targets, cause


@pytest.mark.parametrize(
    ("devices", "is_sampled", "has_targets"),
    [(None, True, True), (["cuda"], False, True), (["cpu"], True, False), (None, False, False)],
)
@pytest.mark.seed("DIAG-08")
def test_targets_of_a_slow_pipeline_where_the_job_uses_a_gpu(
    new_run: RunMaker, devices: list[str] | None, is_sampled: bool, has_targets: bool
) -> None:
    """The parameters say where they are; only where they do not, the GPUs of the node count."""
    run = new_run()
    DATA_RUN(run)
    if devices is not None:
        run.processes[0].fact(
            "optimizer", name="SGD", parameter_count=9, tensor_count=1, devices=devices
        )
    if is_sampled:
        run.metric("gpu_busy_ratio", 0.4, device="0")
    verdict = diagnose(run.open())
    texts = [target.text for target in verdict.targets]
    expected = [
        "GPU utilization of 85% to 90% while training",
        "data loading below 20% of step time",
        "no issue found by DataloaderBottleneck and LowGPUUtilization",
    ]
    assert texts == (expected if has_targets else [])
    titles = [fix.title for fix in verdict.fixes]
    assert ("Move augmentation to the GPU" in titles) is has_targets


def test_other_suspects_have_no_targets(new_run: RunMaker) -> None:
    run = new_run()
    run.rank().draw(f"wait 2 | {COMPUTE} | communication 40", 60)
    run.metric("gpu_busy_ratio", 0.4, device="0")
    verdict = diagnose(run.open())
    assert verdict.suspect == "communication"
    assert not verdict.targets


def test_environments_in_processes_are_stepped_in_the_training_process() -> None:
    wait = LineWait(
        kind="process",
        pipeline="",
        file="stable_baselines3 SubprocVecEnv.step_wait",
        line=0,
        text="",
        caller="",
        phase="other",
        ratio=0.9,
        sample_count=50,
        function=None,
    )
    ((title, text),) = list_wait_fixes(StepWait(wait=wait, share=0.5), 2, uses_torch=True)
    assert title == "Step the environments in the training process"
    assert text.startswith("DummyVecEnv instead of SubprocVecEnv: ")


def test_an_optimizer_that_calls_operators_for_each_parameter(new_run: RunMaker) -> None:
    """Of 100 ms, 80 are the optimizer, none of whose operators is sizeable."""
    calls = " | ".join(["op:add 0.1 | do 0.7"] * 100)
    step = "forward 10 | backward 10 | optimizer 80"
    window = f"forward 10 ( op:mm 10 ) | backward 10 ( op:mm 10 ) | optimizer 80 ( {calls} )"
    run = new_run()
    process = run.rank().draw(step, 30).draw(f"window ( {window} )").draw(step, 30)
    process.fact(
        "optimizer", name="AdamW", parameter_count=1000, tensor_count=100, foreach=False, fused=None
    )
    verdict = diagnose(run.open())
    assert verdict.suspect == "framework_overhead"
    titles = [fix.title for fix in verdict.fixes]
    assert titles[0] == OPTIMIZER_KERNELS
    assert titles.count(OPTIMIZER_KERNELS) == 1
    assert verdict.fixes[0].prediction.saving_ratio == pytest.approx(0.8)


def test_a_fix_that_saves_nothing_alone_is_not_advised() -> None:
    def fix(title: str, step_ns: float | None, in_job: float | None = None) -> Fix:
        prediction = step_ns and Prediction.from_step(step_ns, 100.0, "it took no time")
        return Fix(
            title=title,
            instructions="change it",
            why="It takes time.",
            prediction=prediction or None,
            job_saving_ratio=in_job,
        )

    fixes = [
        *(fix("first", 100.0), fix("none", 100.0), fix("little", 99.6), fix("enough", 99.4)),
        *(fix("of the job", 100.0, 0.2), fix("unknown", None)),
    ]
    titles = [one.title for one in leave_out_useless(fixes)]
    assert titles == ["first", "enough", "of the job", "unknown"]
