"""Fixes whose text depends on what the job uses, most promising first, and titles of fixes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Literal

from msgspec import UNSET

from stepscope.diagnosis.causes import wait_causes
from stepscope.diagnosis.causes.job_facts import JobFacts

PREPARE_BESIDE = "Prepare batches beside the training thread"
COMPILE_PREPARATION = "Compile the preparation of batches"
PREPARE_ONCE = "Prepare less in every step"
SPARSE_UPDATES = "Update only what changed"
MOSTLY_TABLES_RATIO = 0.5
"""Sparse updates are the first advice where lookup tables are at least this share of the model."""
MAX_TRANSFORMS = 3
"""Transforms that the text of a fix names."""
_FIXED_TRANSFORMS = frozenset([
    "CenterCrop", "Compose", "ConvertImageDtype", "Grayscale", "Normalize", "PIL convert",
    "PIL resize", "PILToTensor", "Pad", "Resize", "ToDtype", "ToImage", "ToPureTensor",
    "ToTensor", "_Image_fromarray",
])  # fmt: skip
"""Transforms of torchvision and PIL without randomness."""
_RESIZING_TRANSFORMS = frozenset(["PIL resize", "RandomResizedCrop", "Resize"])
"""Transforms that make another size of an image."""
BUSY_HARDWARE = "the hardware is busy with the model and nothing else slows it down"
FixText = tuple[str, str]
"""Title and instructions."""

_FUSED = frozenset(["Adam", "AdamW", "SGD"])
"""Optimizers of torch with `fused=True` on CPUs and GPUs."""
_FUSED_ON_CPU = frozenset(["Adagrad"])
_FOREACH = frozenset(
    ["ASGD", "Adadelta", "Adafactor", "Adagrad", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop"]
)
"""Other optimizers of torch with `foreach=True`, the default on GPUs."""
_KERNEL_EFFECTS = {
    "fused": "all parameters in a few kernels",
    "foreach": "many parameters in one call",
}


def list_optimizer_fixes(facts: JobFacts) -> list[FixText]:
    """List the fixes for a large optimizer."""
    fixes = [_list_kernels_fix(facts), _list_sparse_fix(facts)]
    if facts.embedding_ratio is not None and facts.embedding_ratio >= MOSTLY_TABLES_RATIO:
        fixes.reverse()
    fixes.append(("Step less often", "accumulate gradients over several micro-batches"))
    return [fix for fix in fixes if fix is not None]


def list_evaluation_fixes(facts: JobFacts) -> list[FixText]:
    """List the fixes for much evaluation."""
    if facts.is_boosting:
        return [
            (
                "Evaluate less at a time",
                "XGBoost evaluates everything in evals (eval_set) after each round: leave out the "
                "training data, or pass a fixed part of the rows",
            )
        ]
    return [
        ("Evaluate less often", "every few epochs, or every N steps with a larger N"),
        (
            "Evaluate less at a time",
            "a fixed part of the data is enough to see the trend; larger batches under "
            "torch.inference_mode() make it cheaper",
        ),
    ]


def list_contention_fixes(facts: JobFacts) -> list[FixText]:
    """List the fixes for cores that other processes take."""
    return [
        (
            "Get the cores back",
            "stop or move the other processes, or reserve cores for the job (taskset, cpuset, a "
            "cgroup or container limit on the others); if they must stay, set "
            f"{_name_thread_counts(facts)} to the cores that are free",
        )
    ]


def list_limit_fixes(facts: JobFacts) -> list[FixText]:
    """List the fixes for a limit of CPU time."""
    return [
        (
            "Give the job more cores",
            "raise the CPU limit of its container or cgroup (Kubernetes: resources.limits.cpu), or "
            f"drop the limit and keep the request; until then set {_name_thread_counts(facts)} to "
            "the limit: with more threads the quota is exhausted sooner, and then all of them stop",
        )
    ]


def _name_thread_counts(facts: JobFacts) -> str:
    """Name the settings by which a job limits its threads and processes."""
    if facts.is_boosting:
        return "XGBoost's nthread (n_jobs of its classes for scikit-learn, or OMP_NUM_THREADS)"
    if facts.uses_tensorflow:
        return "tf.config.threading.set_intra_op_parallelism_threads and num_parallel_calls"
    return "torch.set_num_threads and num_workers"


def choose_optimizer_kernels(facts: JobFacts) -> Literal["fused", "foreach"] | None:
    """Choose the option by which the optimizer updates many parameters in one call; None where it
    has no such option, or uses it already."""
    optimizer = facts.optimizer
    if optimizer is None or optimizer.fused is True:
        return None
    if optimizer.name in _FUSED or (optimizer.name in _FUSED_ON_CPU and facts.is_cpu_job):
        return "fused"
    is_default = optimizer.foreach in {None, UNSET} and not facts.is_cpu_job
    if optimizer.name in _FOREACH and optimizer.foreach is not True and not is_default:
        return "foreach"
    return None


def _list_kernels_fix(facts: JobFacts) -> FixText | None:
    if facts.optimizer is None:
        instructions = "the optimizers of torch.optim update many parameters in one call with them"
        return OPTIMIZER_KERNELS, instructions
    kernels = choose_optimizer_kernels(facts)
    if kernels is None:
        return None
    call = f"torch.optim.{facts.optimizer.name}(..., {kernels}=True)"
    return OPTIMIZER_KERNELS, f"{call} updates {_KERNEL_EFFECTS[kernels]}"


def _list_sparse_fix(facts: JobFacts) -> FixText | None:
    """Advise sparse updates unless the model is known to have no lookup table."""
    if facts.embedding_ratio == 0:
        return None
    return (
        SPARSE_UPDATES,
        "embedding tables: nn.Embedding(sparse=True) with SparseAdam or Adagrad touches only the "
        "rows of the batch",
    )


def list_compute_fixes(facts: JobFacts) -> list[FixText]:
    """List the fixes for heavy arithmetic."""
    ways = [way for way in (_name_precision(facts), _name_compiler(facts)) if way]
    if facts.has_attention and not facts.has_fused_attention:
        ways.append("fused attention (scaled_dot_product_attention)")
    fixes = [("Make the arithmetic cheaper", ", ".join(ways))] if ways else []
    return [*fixes, (FASTER_DEVICES, BUSY_HARDWARE)]


def _name_precision(facts: JobFacts) -> str:
    model, settings = facts.model, facts.settings
    if model is not None and model.dtypes == ["float64"]:
        return "float32 instead of float64 parameters (model.float())"
    if model is not None and (model.autocast is not None or "float32" not in model.dtypes):
        return ""
    if facts.is_cpu_job:
        return (
            "bfloat16 where the CPU has instructions for it (torch.autocast('cpu', "
            "dtype=torch.bfloat16))"
        )
    tf32 = settings is not None and settings.float32_matmul_precision == "highest"
    return "mixed precision (torch.autocast)" + (
        ", torch.set_float32_matmul_precision('high')" if tf32 else ""
    )


def _name_compiler(facts: JobFacts) -> str:
    return "" if facts.is_compiled else "torch.compile"


def list_augmentation_fixes(facts: JobFacts) -> list[FixText]:
    """List the fixes for slow augmentation."""
    names = ", ".join(facts.transforms[:MAX_TRANSFORMS])
    if names and _FIXED_TRANSFORMS.issuperset(facts.transforms):
        return [
            (
                TRANSFORM_ONCE,
                f"the result of {names} is the same in every epoch unless a random transform comes "
                "first: store the transformed samples as one tensor or a memory-mapped array "
                "(numpy.memmap), or transform whole batches in collate_fn",
            )
        ]
    fixes: list[FixText] = []
    if not _RESIZING_TRANSFORMS.isdisjoint(facts.transforms):
        fixes.append(
            (
                STORE_SMALLER,
                "where files have many more pixels than the model gets, resize them once, before "
                "the training: decoding, converting and resizing take time for every pixel",
            )
        )
    fixes += [
        (
            AUGMENT_BATCHES,
            f"vectorise the transforms{f' ({names})' if names else ''} over the batch (NumPy or "
            "torch), in collate_fn or after it",
        )
    ]
    if not facts.is_cpu_job:
        fixes.append(
            (
                "Move augmentation to the GPU",
                "apply it to the batch after the copy (torchvision.transforms.v2, kornia, DALI)",
            )
        )
    return fixes


def list_handover_fixes(facts: JobFacts) -> list[FixText]:
    """List the fixes for slow handover of batches."""
    instructions = "return few large tensors rather than many small objects"
    if not facts.is_cpu_job:
        instructions += (
            "; use float16/uint8 until the device; pin_memory=True moves the copy off the training "
            "thread"
        )
    return [("Make batches cheaper to hand over", instructions)]


def list_dataset_fixes(facts: JobFacts) -> list[FixText]:
    """List the fixes for the dataset's own code."""
    function = facts.dataset_function
    if function is None:
        return []
    return [
        (
            "Make the dataset's own code cheaper",
            f"in {function}, do what does not depend on the epoch once and cache it, and replace "
            "loops over elements by operations on arrays",
        )
    ]


def list_padding_fixes(facts: JobFacts) -> list[FixText]:
    """List the fixes for padding, the one that saves more first."""
    rounding = "" if facts.is_cpu_job else "; on a GPU to a multiple of 8 (pad_to_multiple_of=8)"
    fixes = [
        (
            "Pad to the longest sequence of the batch",
            "in the collate function: tokenizer(texts, padding=True) instead of "
            "padding='max_length', DataCollatorWithPadding for tokenised samples, or "
            f"torch.nn.utils.rnn.pad_sequence{rounding}; where the model is compiled, to one of a "
            "few lengths",
        ),
        (
            "Put sequences of similar length into one batch",
            "a batch sampler that shuffles groups of similar length; or pack several sequences "
            "into one row where the model can tell them apart",
        ),
    ]
    if facts.padding is not None and not facts.padding.is_fixed:
        fixes.reverse()
    return fixes[:1]


def list_sync_fixes(facts: JobFacts) -> list[FixText]:
    """List the fixes for reading values from tensors."""
    wait = "" if facts.is_cpu_job else "; each call waits for everything launched before it"
    return [
        (
            "Read values from tensors rarely",
            f"keep metrics as tensors and call .item() every N steps{wait}",
        ),
        ("Read many values in one call", "reduce or stack them to one tensor before reading it"),
    ]


def list_small_batch_fixes(facts: JobFacts) -> list[FixText]:
    """List the fixes for small batches."""
    instructions = "a larger batch costs little while operators are this small"
    if not facts.is_inference:
        instructions += (
            "; with micro-batches, use fewer and larger ones in a step; adapt the learning rate to "
            "match"
        )
    return [
        *_list_environment_fixes(facts),
        (TWICE_THE_BATCH, instructions),
        *_list_compiler_fixes(facts),
    ]


def list_tiny_operator_fixes(facts: JobFacts) -> list[FixText]:
    """List the fixes for operators that take less time than calling them."""
    loop_fix = (
        "Replace loops over elements by tensor operations",
        "nn.LSTM instead of a cell in a Python loop, einsum or batched matmul instead of many "
        "small ones",
    )
    return [
        *_list_optimizer_call_fixes(facts),
        *([loop_fix] if facts.has_loop and not facts.has_optimizer_calls else []),
        *_list_compiler_fixes(facts),
        (TWICE_THE_BATCH, "a larger batch costs little while operators are this small"),
    ]


def list_dispatch_fixes(facts: JobFacts) -> list[FixText]:
    """List the fixes for gaps between operators."""
    line = facts.framework_line
    if line is not None:
        change = (
            "update a copy in place (torch.optim.swa_utils.AveragedModel, torch._foreach_copy_) "
            "instead of making a new one, or once for several steps"
            if "copy(" in line.line.text
            else "call it once for many samples or steps, without checks of its arguments "
            "(validate_args=False for a distribution)"
        )
        return [(CALL_LESS, f"{line.location} runs between the phases: {change}")]
    return [
        *_list_optimizer_call_fixes(facts),
        *_list_compiler_fixes(facts),
        (TWICE_THE_BATCH, "a larger batch raises the share of real work"),
    ]


def _list_optimizer_call_fixes(facts: JobFacts) -> list[FixText]:
    """Advise to update many parameters in one call, where most calls are the optimizer's."""
    fix = _list_kernels_fix(facts) if facts.has_optimizer_calls else None
    return [] if fix is None else [fix]


def _list_compiler_fixes(facts: JobFacts) -> list[FixText]:
    """Advise torch.compile unless the model is compiled, or torch does not train it."""
    return (
        []
        if facts.is_compiled or not facts.uses_torch
        else [make_compiler_fix(on_host=facts.is_cpu_job)]
    )


GRAPHS_OF_COMPILED: FixText = (
    "Launch the compiled graphs as a whole",
    "the model is compiled already; with fixed shapes, torch.compile(model, "
    "mode='reduce-overhead') records what it launches in CUDA graphs",
)


def make_compiler_fix(*, on_host: bool) -> FixText:
    """Advise torch.compile, and CUDA graphs with it unless the host computes."""
    graphs = "; with fixed shapes also CUDA graphs (mode='reduce-overhead')"
    return COMPILE, "model = torch.compile(model)" + ("" if on_host else graphs)


_BESIDE_OTHER_FRAMEWORKS = (
    "processes that run ahead, such as those of grain.DataLoader(worker_count>0) or "
    "concurrent.futures.ProcessPoolExecutor"
)


_JAX_CALL = re.compile(r"\bj(ax|np)\.")


def list_inline_data_fixes(facts: JobFacts) -> list[FixText]:
    """List the fixes for data preparation by the training thread."""
    line = facts.data_line
    work = "the preparation" if line is None else f"the work of {line.name}"
    target = (
        _BESIDE_OTHER_FRAMEWORKS
        if not facts.uses_torch
        else "a Dataset, and let DataLoader(num_workers>0) run it ahead"
        if facts.loader is None
        else "the Dataset or collate_fn of the DataLoader, whose workers (num_workers>0) run it "
        "ahead"
    )
    condition = ""
    if line is not None and line.line.phase != "other":
        condition = f" as far as it does not need the results of the {line.line.phase} phase"
    is_eager = facts.uses_jax and line is not None and _JAX_CALL.search(line.line.text)
    compiled = f"{work} calls one operation of JAX at a time: call it in a function under jax.jit"
    return [
        *([(COMPILE_PREPARATION, compiled)] if is_eager else []),
        (PREPARE_BESIDE, f"move {work} into {target}{condition}"),
        (
            PREPARE_ONCE,
            f"of {work}, do what does not depend on the epoch once and keep the result; do the "
            "rest for the whole batch in one call",
        ),
    ]


def list_python_fixes(facts: JobFacts) -> list[FixText]:
    """List the fixes for the script's own Python code."""
    line = facts.python_line
    if line is None:
        return []
    if not line.line.line:
        hook = line.location.partition(" ")[2]
        instructions = (
            f"{line.location} runs in the loop: leave its callback out, let it do its work every "
            "N steps (the refresh rate of a progress bar), and log fewer values"
        )
        return [*_list_environment_fixes(facts), (f"Do less in {hook}", instructions)]
    if facts.is_undivided:
        instructions = (
            f"{line.name} is in the loop, as training itself may be: prepare what does not change "
            "before the loop, and call its library once for many rows or steps"
        )
        return [*_list_environment_fixes(facts), ("Move work out of the loop", instructions)]
    instructions = (
        f"{line.location} runs Python in the loop: do its work with tensor operations, once for "
        "several steps, or beside the training"
    )
    return [*_list_environment_fixes(facts), ("Move work out of the loop", instructions)]


def _list_environment_fixes(facts: JobFacts) -> list[FixText]:
    """Advise several environments at once, where the training thread simulates one."""
    line = facts.environment_line
    vectorised = _VECTORISED.get(line.line.source) if line is not None else None
    if line is None or vectorised is None:
        return []
    return [
        (
            "Step several environments at once",
            f"{line.location} steps one environment of {line.line.source}; {vectorised} steps "
            "several in processes of their own, and the model answers all in one call",
        )
    ]


_VECTORISED = {
    "gymnasium": "gymnasium.vector.AsyncVectorEnv",
    "gym": "gym.vector.AsyncVectorEnv",
    "pettingzoo": "supersuit.concat_vec_envs_v1",
}
"""Vectorised environments by library."""


def _make_wait_fixes(cause: str) -> Callable[[JobFacts], list[FixText]]:
    """Make the function that lists the fixes for a wait."""
    return lambda facts: wait_causes.list_wait_fixes(
        facts.find_wait(cause), facts.cores, uses_torch=facts.uses_torch
    )


def list_lock_fixes(facts: JobFacts) -> list[FixText]:
    """List the fixes for a lock, which the dataset or another line waits for."""
    if facts.locked_function is not None:
        return wait_causes.list_lock_fixes(facts.locked_function)
    return _make_wait_fixes("waiting_for_a_lock")(facts)


FACT_FIXES: Mapping[str, Callable[[JobFacts], list[FixText]]] = {
    **{cause: _make_wait_fixes(cause) for cause in wait_causes.WAIT_CAUSES},
    "waiting_for_a_lock": list_lock_fixes,
    "batch_handover": list_handover_fixes,
    "compute": list_compute_fixes,
    "cpu_contention": list_contention_fixes,
    "cpu_limit": list_limit_fixes,
    "dispatch_overhead": list_dispatch_fixes,
    "evaluation": list_evaluation_fixes,
    "host_sync": list_sync_fixes,
    "inline_data_preparation": list_inline_data_fixes,
    "optimizer": list_optimizer_fixes,
    "padding": list_padding_fixes,
    "python_overhead": list_python_fixes,
    "slow_augmentation": list_augmentation_fixes,
    "slow_dataset": list_dataset_fixes,
    "small_batch": list_small_batch_fixes,
    "tiny_operators": list_tiny_operator_fixes,
}
"""Fixes of causes by the facts of the job."""


CACHE = "Decode once and cache the result"
CALL_LESS = "Call torch less often between the phases"
COMPILE = "Let a compiler fuse the operators"
DEBUG = "Turn the debug switch off"
FASTER_DEVICES = "Use a smaller model, or more or faster devices"
KEEP_WORKERS = "Keep the workers alive between epochs"
LARGER_BATCH = "Give each operator more to do"
LOCAL_DATA = "Bring the data closer"
OPTIMIZER_KERNELS = "Use a fused or foreach optimizer"
OVERLAP = "Overlap the waiting"
PIN = "Pin and overlap the copies"
TOKENISE_ONCE = "Tokenise once"
TRANSFORM_ONCE = "Transform the samples once"
AUGMENT_BATCHES = "Augment whole batches instead of samples"
STORE_SMALLER = "Store smaller images"
TWICE_THE_BATCH = f"{LARGER_BATCH} with twice the batch"
