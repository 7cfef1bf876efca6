"""Operators of a trace: call counts, host and device times, tensor cores.

For the calls in one group (chains merged, see `operator_tree`):

    calls          number of calls
    host total     sum of durations
    host self      sum of: duration - durations of the operators called - own runtime calls
    device self    sum of durations of the kernels, copies and sets that own runtime calls launched
    device total   device self plus that of every operator below the call
    tensor cores   eligible: the name is one that has a 16-bit kernel on tensor cores, or the call
                   or one below it launched such a kernel
                   self ratio:  time of its kernels on tensor cores / time of its kernels
                   total ratio: the same for the call and all calls below it
                   unknown ratio: that of kernels whose names do not show it

The total of an operator that calls itself indirectly counts the inner call twice, as in other
tools. Device work that no operator launched is in rows of its own, by the reason: a replayed graph
launched it, it was launched before the window, or else. So the device self times of all rows sum to
the durations of all device work, unless a range of time cuts operators off from their work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import intervals, schema
from stepscope.analysis.arrays.columns import Columns, Grouping, group_rows, none_if_nan
from stepscope.analysis.kernel_classes import hides_tensor_cores, match_rows, uses_tensor_cores
from stepscope.analysis.operators import operator_tree

TABLE_COLUMNS = (*operator_tree.TREE_COLUMNS, "host_self_ns", "device_self_ns", "device_total_ns")
"""Columns of `operators` that `build_operator_table` reads; `input_dims` too to group by shape."""
LAUNCHED_WORK_COLUMNS = ("name", "operator", "duration_ns", "launch", "graph", "carry_over")
"""Columns of `kernels` and `copies` that `build_operator_table` reads."""
NO_OPERATOR = ("no operator (graph)", "no operator (carry-over)", "no operator")
"""Names of the rows of work that no operator launched: graphs did, it was launched before the
window, or else; in this order of precedence."""

_ELIGIBLE = frozenset(
    "aten::" + name
    for name in (
        *("conv1d", "conv2d", "conv3d", "conv_tbc", "convolution", "_convolution"),
        *("conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "_convolution_nogroup"),
        *("convolution_backward", "cudnn_convolution", "cudnn_convolution_transpose"),
        *("cudnn_convolution_backward", "cudnn_convolution_backward_input"),
        *("cudnn_convolution_backward_weight", "cudnn_convolution_transpose_backward"),
        *("cudnn_convolution_transpose_backward_input", "miopen_convolution"),
        *("cudnn_convolution_transpose_backward_weight", "miopen_convolution_transpose"),
        *("mm", "bmm", "matmul", "linear", "addmm", "addmm_", "addmv", "addr", "mv"),
        *("addbmm", "baddbmm", "chain_matmul", "linalg_multi_dot", "prelu", "_addmm_activation"),
        *("_thnn_fused_lstm_cell", "_thnn_fused_gru_cell", "lstm_cell", "gru_cell"),
        *("rnn_tanh_cell", "rnn_relu_cell"),
    )
)
_ELIGIBLE_GRADIENTS = frozenset(
    name + "Backward"
    for name in (
        *("CudnnConvolution", "CudnnConvolutionTranspose", "Convolution", "MiopenConvolution"),
        *("Mm", "Bmm", "Mv", "Addmm", "Addmv", "Addbmm", "Baddbmm"),
    )
)


class OperatorGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of one operator, or device work that no operator launched (then `calls` is 0).

    Device figures are null in a trace without a device.
    """

    name: Annotated[str, schema.field_label("operator")]
    calls: int
    device_self_ns: int | None
    """Kernels, copies and sets launched by the calls themselves."""
    device_self_ratio: Annotated[float | None, schema.field_label("device share", display="bar")]
    device_total_ns: int | None
    """Kernels, copies and sets launched by the calls and by all operators below them."""
    host_self_ns: int
    """Durations without the operators and runtime calls inside."""
    host_self_ratio: Annotated[float | None, schema.field_label("host share", display="bar")]
    host_total_ns: int
    tensor_core_eligible: bool | None
    tensor_core_self_ratio: Annotated[float | None, schema.field_label("self time on Tensor Cores")]
    """Share of the time of kernels launched by the calls themselves, guessed from kernel names."""
    tensor_core_total_ratio: Annotated[float | None, schema.field_label("on Tensor Cores")]
    """Share of the time of kernels launched by the calls and by all operators below them."""
    unknown_tensor_core_ratio: Annotated[float | None, schema.field_label("Tensor Cores unknown")]
    """Share of the same time in kernels whose names do not show whether they use tensor cores."""


class OperatorShape(OperatorGroup, frozen=True, kw_only=True):
    """Calls of one operator with the same input shapes."""

    input_dims: Annotated[str | None, schema.field_label("input shapes")]
    """Shapes of the inputs as JSON; null where they were not recorded."""


class OperatorStack(OperatorGroup, frozen=True, kw_only=True):
    """Calls of one operator from the same Python stack."""

    stack: Annotated[str | None, schema.field_label("called from")]
    """Python stack, innermost first, joined by ';'; null where it was not recorded."""


class OperatorTable(msgspec.Struct, frozen=True, kw_only=True):
    """Groups of calls by descending device self time (host self time without a device)."""

    rows: list[OperatorGroup]
    """The first `top` groups."""
    group_count: int
    call_count: int
    host_self_ns: int
    """Host self time of all calls: the denominator of `host_self_ratio`."""
    device_self_ns: int | None
    """Device self time of all rows: the denominator of `device_self_ratio`."""


def build_operator_table(
    operators: Columns,
    kernels: Columns | None,
    copies: Columns | None = None,
    *,
    graph_calls: intervals.Int | None = None,
    shapes: operator_tree.RowLabels | None = None,
    stacks: operator_tree.RowLabels | None = None,
    top: int = 0,
) -> OperatorTable:
    """Group operator calls by name, and optionally by shape or by stack.

    Args:
        operators: `TABLE_COLUMNS` of the table.
        kernels, copies: `LAUNCHED_WORK_COLUMNS` of the tables; no kernels for a trace without
            device work.
        graph_calls: ids of the calls that launch graphs.
        shapes, stacks: additional labels to group by, at most one of them.
        top: group limit; 0 for all.
    """
    tree = operator_tree.build_operator_tree(operators)
    calls = np.flatnonzero(tree.counted)
    kind, labels = _choose_kind(shapes, stacks)
    keys = [tree.name, *(label.codes for label in labels.values())]
    groups = group_rows(*(key[calls] for key in keys))
    sums = {
        "host_self_ns": groups.sums(tree.sum_merged(operators["host_self_ns"])[calls]),
        "host_total_ns": groups.sums(operators["duration_ns"][calls]),
        "device_self_ns": groups.sums(tree.sum_merged(operators["device_self_ns"])[calls]),
        "device_total_ns": groups.sums(operators["device_total_ns"][calls]),
    }
    on_device = kernels is not None
    cores = _measure_tensor_cores(tree, calls, groups, kernels) if kernels is not None else None
    weight = sums["device_self_ns"] if on_device else sums["host_self_ns"]
    order = np.lexsort((tree.name[calls[groups.first]], -sums["host_self_ns"], -weight))
    counts = groups.counts()
    tables = [table for table in (kernels, copies) if table is not None]
    outside = _sum_outside_operators(tree, tables, graph_calls) if on_device else {}
    outside_ns = sum(work.device_ns for work in outside.values())
    host_ns = int(sums["host_self_ns"].sum())
    device_ns = int(sums["device_self_ns"].sum()) + outside_ns
    rows = _make_outside_rows(kind, labels, outside, device_ns)
    for group in order[: top or None].tolist():
        first = calls[groups.first[group]]
        device_self_ns = int(sums["device_self_ns"][group])
        rows.append(
            kind(
                **_write_labels(labels, int(first)),
                name=tree.names[tree.name[first]],
                calls=int(counts[group]),
                host_self_ns=int(sums["host_self_ns"][group]),
                host_total_ns=int(sums["host_total_ns"][group]),
                host_self_ratio=int(sums["host_self_ns"][group]) / host_ns if host_ns else 0.0,
                device_self_ns=device_self_ns if on_device else None,
                device_total_ns=int(sums["device_total_ns"][group]) if on_device else None,
                device_self_ratio=device_self_ns / device_ns if on_device and device_ns else None,
                tensor_core_eligible=bool(cores.eligible[group]) if cores else None,
                tensor_core_self_ratio=none_if_nan(cores.self_ratio[group]) if cores else None,
                tensor_core_total_ratio=none_if_nan(cores.total_ratio[group]) if cores else None,
                unknown_tensor_core_ratio=(
                    none_if_nan(cores.unknown_ratio[group]) if cores else None
                ),
            )
        )
    if outside:
        rows.sort(key=lambda row: -(row.device_self_ns or 0))
    return OperatorTable(
        rows=rows[: top or None],
        group_count=len(groups) + len(outside),
        call_count=len(calls),
        host_self_ns=host_ns,
        device_self_ns=device_ns if on_device else None,
    )


class _OutsideWork(msgspec.Struct, frozen=True):
    """Device work that no operator launched, of one reason."""

    device_ns: int
    tensor_core_ratio: float | None
    unknown_tensor_core_ratio: float | None


def _sum_outside_operators(
    tree: operator_tree.OperatorTree, tables: Sequence[Columns], graph_calls: intervals.Int | None
) -> dict[str, _OutsideWork]:
    """Sum the device work that no operator launched, by the names `NO_OPERATOR`.

    Steps, loaders and optimizers that are recorded as operators are none.
    """
    is_operator = np.append(tree.counted[tree.merged], True)
    calls = np.empty(0, dtype=np.int64) if graph_calls is None else graph_calls
    device_ns, kernel_ns, core_ns, hidden_ns = (dict.fromkeys(NO_OPERATOR, 0) for _ in range(4))
    for table in tables:
        # An operator that is not in the range of time is one: row -1 is the appended one.
        launcher = is_operator[tree.find_rows(table["operator"])] & (table["operator"] >= 0)
        by_graph = np.isin(table["launch"], calls) | (table["graph"] > 0)
        reason = np.where(by_graph, 0, np.where(table["carry_over"] == 1, 1, 2))
        on_cores = match_rows(table["name"], uses_tensor_cores)
        is_hidden = match_rows(table["name"], hides_tensor_cores)
        for index, name in enumerate(NO_OPERATOR):
            rows = ~launcher & (reason == index)
            device_ns[name] += int(table["duration_ns"][rows].sum())
            if table is tables[0]:
                kernel_ns[name] += int(table["duration_ns"][rows].sum())
                core_ns[name] += int(table["duration_ns"][rows & on_cores].sum())
                hidden_ns[name] += int(table["duration_ns"][rows & is_hidden].sum())
    return {
        name: _OutsideWork(
            ns,
            core_ns[name] / kernel_ns[name] if kernel_ns[name] else None,
            hidden_ns[name] / kernel_ns[name] if kernel_ns[name] else None,
        )
        for name, ns in device_ns.items()
        if ns
    }


def _make_outside_rows(
    kind: type[OperatorGroup],
    labels: Mapping[str, operator_tree.RowLabels],
    outside: Mapping[str, _OutsideWork],
    device_ns: int,
) -> list[OperatorGroup]:
    return [
        kind(
            **dict.fromkeys(labels),
            name=name,
            calls=0,
            host_self_ns=0,
            host_total_ns=0,
            host_self_ratio=0.0,
            device_self_ns=work.device_ns,
            device_total_ns=work.device_ns,
            device_self_ratio=work.device_ns / device_ns,
            tensor_core_eligible=None,
            tensor_core_self_ratio=work.tensor_core_ratio,
            tensor_core_total_ratio=work.tensor_core_ratio,
            unknown_tensor_core_ratio=work.unknown_tensor_core_ratio,
        )
        for name, work in outside.items()
    ]


def _choose_kind(
    shapes: operator_tree.RowLabels | None, stacks: operator_tree.RowLabels | None
) -> tuple[type[OperatorGroup], dict[str, operator_tree.RowLabels]]:
    """Choose the type of the rows, and the labels that fill its own fields."""
    if shapes is not None:
        return OperatorShape, {"input_dims": shapes}
    return (OperatorStack, {"stack": stacks}) if stacks is not None else (OperatorGroup, {})


def is_tensor_core_eligible(name: str) -> bool:
    """Guess from its name if an operator can run on tensor cores with 16-bit inputs."""
    return name in _ELIGIBLE or name.rstrip("0123456789") in _ELIGIBLE_GRADIENTS


def measure_eligible_ratio(operators: Columns, kernels: Columns) -> float | None:
    """Measure the share of kernel time that operators launched which could use tensor cores.

    An operator could if it, or one that it calls, is eligible by name.

    Args:
        operators: `TREE_COLUMNS` of the table.
        kernels: columns `operator` and `duration_ns`.

    Returns:
        The share, None without kernel time.
    """
    tree, duration = operator_tree.build_operator_tree(operators), kernels["duration_ns"]
    if not duration.any():
        return None
    launcher = tree.find_rows(kernels["operator"])
    eligible = np.append(tree.totals(tree.mask(is_tensor_core_eligible)) > 0, False)
    return int(duration[eligible[launcher]].sum()) / int(duration.sum())


def _write_labels(labels: Mapping[str, operator_tree.RowLabels], row: int) -> dict[str, Any]:
    return {field: label.text(int(label.codes[row])) for field, label in labels.items()}


class _TensorCores(msgspec.Struct, frozen=True, eq=False):
    eligible: NDArray[np.bool_]
    self_ratio: NDArray[np.float64]
    total_ratio: NDArray[np.float64]
    unknown_ratio: NDArray[np.float64]


def _measure_tensor_cores(
    tree: operator_tree.OperatorTree, calls: intervals.Int, groups: Grouping, kernels: Columns
) -> _TensorCores:
    """Measure the eligibility and the share of kernel time on tensor cores by group."""
    launcher = tree.find_rows(kernels["operator"])
    duration = kernels["duration_ns"]
    on_cores = match_rows(kernels["name"], uses_tensor_cores)
    is_hidden = match_rows(kernels["name"], hides_tensor_cores)
    hidden_ns = operator_tree.sum_by_row(launcher, np.where(is_hidden, duration, 0), len(tree))
    kernel_ns = operator_tree.sum_by_row(launcher, duration, len(tree))
    core_ns = operator_tree.sum_by_row(launcher, np.where(on_cores, duration, 0), len(tree))
    eligible = tree.mask(is_tensor_core_eligible) | (core_ns > 0)

    def divide_sums(numerator: intervals.Int, denominator: intervals.Int) -> NDArray[np.float64]:
        divisor = groups.sums(denominator[calls])
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(divisor > 0, groups.sums(numerator[calls]) / divisor, np.nan)

    return _TensorCores(
        eligible=groups.sums(tree.totals(eligible)[calls]) > 0,
        self_ratio=divide_sums(tree.sum_merged(core_ns), tree.sum_merged(kernel_ns)),
        total_ratio=divide_sums(tree.totals(core_ns), tree.totals(kernel_ns)),
        unknown_ratio=divide_sums(tree.totals(hidden_ns), tree.totals(kernel_ns)),
    )
