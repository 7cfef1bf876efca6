"""Jobs of each framework, and the records that they must have under stepscope."""

from __future__ import annotations

from dataclasses import dataclass, field

STEPS, RANKS = 40, 2
WINDOW_STEPS = 5
SCHEDULED = ("--start-step", "10", "--num-steps", str(WINDOW_STEPS))
TENSORS = ("--tensors-every", "10", "--tensors")


@dataclass(frozen=True)
class Cell:
    """One job.

    Args:
        way: arguments of the script.
        counts: records per rank, by kind or by `kind name`.
        options: options of `stepscope run`.
        tables: tables that must have rows.
        ranks: processes, started by torchrun if there are several.
        steps: steps of each rank.
    """

    way: str = "plain"
    counts: dict[str, int] = field(
        default_factory=lambda: {
            "forward": STEPS, "backward": STEPS, "optimizer": STEPS, "data_wait": STEPS + 1
        }
    )  # fmt: skip
    options: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    ranks: int = 1
    steps: int = STEPS


PYTORCH = {
    "loop with a DataLoader": Cell(),
    "workers of the DataLoader": Cell("workers"),
    "no modules, no optimizer": Cell("by hand", {"backward": STEPS}),
    "gradient accumulation": Cell(
        "accumulation",
        {"forward": STEPS, "backward": STEPS, "optimizer": STEPS // 2},
        steps=STEPS // 2,
    ),
    "AMP": Cell("amp"),
    "torch.compile": Cell("compile"),
    "DDP": Cell("ddp", ranks=RANKS),
    "FSDP": Cell("fsdp", ranks=RANKS),
    "window with stacks": Cell(
        options=(*SCHEDULED, "--stacks"), tables=("traces", "operators", "python_functions")
    ),
    # After some seconds, in which the profiler's own threads get ready for it.
    "window later": Cell(
        "slow", options=("--start-step", "30", "--stacks"), tables=("traces", "python_functions")
    ),
    "statistics of tensors": Cell(
        options=(*TENSORS, "weights,gradients,losses"), tables=("tensor_statistics",)
    ),
    "own profiler": Cell("own profiler"),
    "kill": Cell(
        "kill",
        {"forward": STEPS // 2, "backward": STEPS // 2, "optimizer": STEPS // 2},
        steps=STEPS // 2,
    ),
}
_TRAINED = {"backward": STEPS, "optimizer": STEPS}
_KILLED = {"backward": STEPS // 2, "optimizer": STEPS // 2}
LIGHTNING = {
    "fit": Cell(
        "plain",
        _TRAINED | {
            "annotation epoch": 1, "mode EVAL": 1,
            "annotation callback Observer.on_train_batch_end": STEPS,
        },
        tables=("scalars",),
    ),
    "kill": Cell("kill", _KILLED, steps=STEPS // 2),
}  # fmt: skip
TRANSFORMERS = {
    "train, then evaluate": Cell(
        "plain",
        _TRAINED | {
            "annotation epoch": 1, "mode EVAL": 1, "annotation callback Observer.on_step_end": STEPS
        },
        tables=("scalars",),
    ),
    "kill": Cell("kill", _KILLED, steps=STEPS // 2),
}  # fmt: skip
ACCELERATE = {
    "loop": Cell("plain", _TRAINED | {"checkpoint Accelerator.save_state": 1}, tables=("scalars",)),
    "gradient accumulation": Cell(
        "accumulation", {"backward": STEPS, "optimizer": STEPS // 2}, steps=STEPS // 2
    ),
    "kill": Cell("kill", _KILLED, steps=STEPS // 2),
}
_FITTED = {
    "annotation epoch": 1, "mode EVAL": 1, "annotation callback Observer.on_train_batch_end": STEPS
}  # fmt: skip
KERAS = {
    "fit on TensorFlow": Cell("tensorflow plain", _FITTED | {"optimizer": STEPS}),
    "fit on TensorFlow, eagerly": Cell("tensorflow eager", _FITTED | _TRAINED),
    "fit on JAX": Cell("jax plain", _FITTED | {"optimizer": STEPS}),
    "fit on PyTorch": Cell("torch plain", _FITTED | _TRAINED),
    "kill": Cell("tensorflow kill", {"optimizer": STEPS // 2}, steps=STEPS // 2),
}
_ENDS = 2
"""Waits for the end of the data, and for the iterator to be destroyed."""
TENSORFLOW = {
    "compiled steps": Cell("compiled", {"optimizer": STEPS, "data_wait": STEPS + _ENDS}),
    "eager steps": Cell("eager", _TRAINED | {"data_wait": STEPS + _ENDS}),
    "window with stacks": Cell(
        "compiled",
        {"optimizer": STEPS},
        options=(*SCHEDULED, "--stacks"),
        tables=("traces", "operators", "python_functions"),
    ),
    "kill": Cell("kill", {"optimizer": STEPS // 2}, steps=STEPS // 2),
}
JAX = {
    "jitted steps": Cell("plain", {"dispatch jit(step)": STEPS}),
    "steps compiled ahead of time": Cell("ahead of time", {}),
    "window with stacks": Cell(
        "plain", {}, options=(*SCHEDULED, "--stacks"), tables=("traces", "python_functions")
    ),
    "kill": Cell("kill", {"dispatch jit(step)": STEPS // 2}, steps=STEPS // 2),
}
_ROUNDS = {"optimizer": STEPS, "mode EVAL": STEPS}
XGBOOST = {
    "train": Cell("plain", _ROUNDS, tables=("scalars",)),
    "own objective": Cell("own objective", _ROUNDS),
    "cross-validation": Cell("cross-validation", {"optimizer": STEPS}),
    "statistics of tensors": Cell(
        options=(*TENSORS, "feature_importance,trees,labels,predictions"),
        counts=_ROUNDS,
        tables=("tensor_statistics",),
    ),
    "kill": Cell("kill", {"optimizer": STEPS // 2}, steps=STEPS // 2),
}
