"""The text of views that are pictures over time: a line of bars for each row."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape

from stepscope import quantities, views
from stepscope.cli.text import table
from stepscope.cli.writers import generic

NAME_CELLS = 36
MAX_NAME_CELLS = 60


def write_heat(out: Console, payload: views.SystemHeatView) -> None:
    """Write heat maps as bars."""
    if payload.missing is not None:
        out.print(escape(payload.missing))
    for node in payload.nodes:
        _write_node(out, node.node, payload.column_ns)
        for row in node.rows:
            _write_line(
                out, row.name, row.shade_ratio, f"of {quantities.in_unit(row.full, row.unit)}"
            )
        if node.left_out_count:
            out.print(f"and {node.left_out_count} more cores: see --name {escape(node.node)}")
    if payload.left_out_nodes:
        out.print(f"and {len(payload.left_out_nodes)} more nodes: name one with --name")


def write_series(out: Console, payload: views.SystemSeriesView) -> None:
    """Write series as bars."""
    if payload.missing is not None:
        out.print(escape(payload.missing))
    for node in payload.nodes:
        _write_node(out, node.node, payload.piece_ns)
        for series in node.series:
            values = [value for value in series.largest if value is not None]
            maximum = quantities.in_unit(max(values, default=0.0), series.unit)
            _write_line(out, f"{series.metric} {series.device}", series.mean, f"up to {maximum}")
    if payload.left_out_count:
        out.print(f"{payload.left_out_count} series omitted")
    generic.write_sentences(out, payload.notes)


def write_tensors(out: Console, payload: views.TensorsView) -> None:
    """Write what was logged."""
    if payload.missing is not None:
        out.print(escape(payload.missing))
    elif payload.sentence:
        out.print(f"[bold]{escape(payload.sentence)}[/bold]")
    if payload.nan_origin is not None:
        out.print(f"[bold]origin of NaN[/bold]  {escape(payload.nan_origin)}")
    for finding in payload.findings:
        out.print(f"[bold]{escape(finding.rule)}[/bold]  {escape(' '.join(finding.sentences))}")
    for series in payload.scalars:
        name = series.name if series.rank is None else f"{series.name} rank {series.rank}"
        last = next((v for v in reversed(series.value) if v is not None), None)
        note = "no finite value" if last is None else f"last {quantities.number(last, 4)}"
        if series.nan_count:
            is_last = len(series.value) - 1 in series.non_finite_points
            count = quantities.count_of(series.nan_count, "value")
            note = "last NaN or infinite" if is_last else f"{note}; {count} NaN or infinite"
        _write_line(out, name, series.value, note)
    if payload.left_out_count:
        out.print(f"{payload.left_out_count} series omitted")
    if payload.tensors:
        _write_recorded_tensors(out, payload.tensors)
    if payload.left_out_tensor_count:
        out.print(f"{payload.left_out_tensor_count} tensors omitted")
    if payload.tensors_missing is not None:
        out.print(f"[dim]{escape(payload.tensors_missing)}[/dim]")


def _write_recorded_tensors(out: Console, tensors: Sequence[views.RecordedTensor]) -> None:
    rows = table("tensor", "shape", "last step", "L2 norm", "update / norm", "zeros", "NaN, inf")
    for tensor in tensors:
        name = tensor.name if tensor.rank is None else f"{tensor.name} rank {tensor.rank}"
        rows.add_row(
            escape(generic.cut(name, MAX_NAME_CELLS)),
            tensor.shape,
            quantities.count(tensor.step),
            _number(tensor.l2),
            _number(tensor.update_ratio),
            "" if tensor.zero_ratio is None else quantities.percent(tensor.zero_ratio),
            quantities.count(tensor.non_finite_count) if tensor.non_finite_count else "",
        )
    out.print(rows)


def _number(value: float | None) -> str:
    return "" if value is None else quantities.number(value, 3)


def write_dashboard(out: Console, payload: views.Dashboard) -> None:
    """Write what machines and devices did."""
    for name, share in (("GPUs", payload.gpu_active), ("CPUs", payload.cpu_active)):
        if share is not None:
            active = quantities.percent(share.active_ratio)
            out.print(f"{name} active {active} [dim]of {escape(share.share_of)}[/dim]")
    for kind, utilization in (("GPU", payload.gpu_utilization), ("CPU", payload.cpu_utilization)):
        if utilization is not None:
            out.print(f"{kind} utilization [dim]{escape(utilization.definition)}[/dim]")
            for series in utilization.series:
                _write_line(out, series.name, series.busy_ratio, "")
    steps = payload.step_durations
    if steps is not None:
        ends = (
            f"{quantities.duration(steps.edges_ns[0])} to {quantities.duration(steps.edges_ns[-1])}"
        )
        note = f"{ends}, {steps.above_count} above"
        _write_line(out, f"{quantities.count(steps.count)} steps", steps.counts, note)
        out.print(f"[dim]{escape(steps.timing)}[/dim]")
    for title, kernels in (
        ("kernels by time", payload.kernels_by_time),
        ("kernels by launches", payload.kernels_by_launches),
    ):
        _write_kernels(out, title, kernels)
    for title, pie in (
        ("precision", payload.precision),
        ("activity", payload.activity),
        ("memory operations", payload.memory_operations),
    ):
        if pie is not None:
            _write_pie(out, title, pie)
    for name, reason in payload.missing_parts.items():
        out.print(f"[dim]{name.replace('_', ' ')}:[/dim] {escape(reason)}")
    generic.write_quality(out, payload.quality)


def _write_kernels(out: Console, title: str, kernels: list[views.KernelTime]) -> None:
    if not kernels:
        return
    rows = table(title, "launches", "total", "share", "precision")
    for kernel in kernels:
        rows.add_row(
            escape(generic.cut(kernel.name, 2 * generic.MIN_TEXT_WIDTH)),
            quantities.count(kernel.launch_count),
            quantities.duration(kernel.total_ns),
            quantities.percent(kernel.share_ratio),
            kernel.precision or "",
        )
    out.print(rows)


def _write_pie(out: Console, title: str, pie: views.Breakdown) -> None:
    parts = ", ".join(f"{part.name} {quantities.percent(part.share_ratio)}" for part in pie.parts)
    out.print(f"{title}: {escape(parts)} [dim]of {escape(pie.share_of)}[/dim]")


def _write_node(out: Console, name: str, cell_ns: int) -> None:
    out.print(f"[bold]{escape(name)}[/bold]  [dim]{quantities.duration(cell_ns)} each[/dim]")


def _write_line(out: Console, name: str, values: Sequence[float | None], note: str) -> None:
    cells = max(1, min(out.width - NAME_CELLS - len(note) - 2, generic.MAX_CURVE_CELLS))
    bars = generic.curve([0.0 if value is None else value for value in values], cells)
    out.print(f"{escape(name[:NAME_CELLS]):<{NAME_CELLS}}{bars}  [dim]{escape(note)}[/dim]")
