"""Logs of TORCH_TRACE, as torch 2.13 writes them."""

from __future__ import annotations

import hashlib
import json
from typing import Any

FILE = "/home/u/train.py"
START_US = 1_796_035_121_000_000
BREAK = "Failed to trace builtin operator\n  Explanation: it prints"


def record(payload: str | None = None, /, *, at: str = "0/0", **fields: Any) -> bytes:
    """Return a record of a compilation, with its payload."""
    frame, _, number = at.partition("/")
    fields |= {"frame_id": int(frame), "frame_compile_id": int(number), "attempt": 0}
    return bare_record(payload, **fields)


def bare_record(payload: str | None = None, /, **fields: Any) -> bytes:
    """Return a record of no compilation."""
    text = ""
    if payload is not None:
        fields["has_payload"] = hashlib.md5(payload.encode()).hexdigest()  # noqa: S324 - its format
        text = "\t" + payload.replace("\n", "\n\t") + "\n"
    head = "V1130 10:38:42.054000 32070 torch/_dynamo/utils.py:2009] "
    return f"{head}{json.dumps(fields)}\n{text}".encode()


def artifact(name: str, payload: str, *, at: str = "0/0") -> bytes:
    """Return a record of an artifact."""
    return record(payload, at=at, artifact={"name": name, "encoding": "json"})


def start(function: str = "f", line: int = 5, *, at: str = "0/0") -> bytes:
    """Return the start of a compilation, with the record that numbers the name of its file."""
    stack = [{"line": 30, "name": "<module>", "filename": 1}]
    stack.append({"line": line, "name": function, "filename": 1})
    return bare_record(str=[FILE, 1]) + record(at=at, dynamo_start={"stack": stack})


def end(
    start_us: int = 0,
    duration_us: int = 2_000,
    *,
    at: str = "0/0",
    function: str = "f",
    line: int = 5,
    kind: str = "compilation_metrics",
    **more: Any,
) -> bytes:
    """Return the end of a compilation; the start counts from START_US."""
    metrics = {
        "start_time_us": START_US + start_us,
        "start_time": (START_US + start_us) / 1e6,
        "duration_us": duration_us,
        "restart_reasons": [],
    }
    if kind == "compilation_metrics":
        metrics |= {"co_name": function, "co_filename": FILE, "co_firstlineno": line}
        metrics |= {
            "entire_frame_compile_time_s": duration_us / 1e6,
            "aot_autograd_cumulative_compile_time_us": duration_us // 2,
            "inductor_cumulative_compile_time_us": duration_us // 4,
            "inductor_code_gen_cumulative_compile_time_us": duration_us // 8,
            "dynamo_time_before_restart_s": 1e-3,
            "guard_count": 13,
            "graph_op_count": 4,
            "num_graph_breaks": None,
            "cache_size": int(at.partition("/")[2]),
        }
    return record(at=at, **{kind: metrics | more})


def graph(key: str, *names: str, at: str = "0/0", outcome: str = "miss", **more: Any) -> bytes:
    """Return the code of a graph with kernels, and the look for it in the cache."""
    code = "".join(f"{name} = async_compile.triton('{name}', '''\n''')\n" for name in names)
    return record(
        f"async_compile = AsyncCompile()\n{code}def call(args):\n    pass\n",
        at=at,
        inductor_output_code={"filename": f"/cache/{key}.py"},
    ) + artifact(f"fx_graph_cache_{outcome}", json.dumps({"key": key, **more}), at=at)


def graph_break(*, at: str = "0/0") -> bytes:
    """Return the record of a graph break in line 8."""
    text = (
        f"Graph break in user code at {FILE}:8\n"
        "Graph Break Reason: Encountered graph break when attempting to trace CALL: a call:\n\n"
        f"{BREAK}\n\nUser code traceback:\n"
        f'  File "{FILE}", line 30, in <module>\n    f(x)\n'
    )
    return artifact("dynamo_graph_break_reason", text, at=at)


def failed_guards(*guards: str, at: str) -> bytes:
    """Return the guards that failed; the first is at line 7."""
    stack = f'User stack trace:\n  File "{FILE}", line 30, in <module>\n    f(x)\n'
    stack += f'  File "{FILE}", line 7, in f\n    y = x + n'
    first, *rest = (f"0/0: {guard}" for guard in guards)
    source = f"{first:60}  # y = x + n  # train.py:7 in f"
    return artifact("recompile_reasons", "\n".join([source, stack, *rest]), at=at)


def training_log() -> bytes:
    """Return the log of a function with a graph break that is compiled twice, and of a module whose
    gradients are compiled later, and which a cache has after a reset."""
    return b"".join(
        (
            *(start(), graph_break(), artifact("aotautograd_cache_miss", '{"key": "a1"}')),
            *(graph("f1", "triton_poi_fused_add_0"), end(restart_reasons=[BREAK])),
            *(start(at="0/1"), failed_guards("n == 4", at="0/1")),
            *(graph("f2", "triton_poi_fused_add_0", at="0/1"), end(3_000, 4_000, at="0/1")),
            *(start("forward", 13, at="1/0"), graph("f3", "triton_red_fused_sum_0", at="1/0")),
            end(8_000, 5_000, at="1/0", function="forward", line=13),
            graph("f4", "triton_poi_fused_mul_0", "triton_poi_fused_mul_1", at="1/0"),
            end(14_000, 3_000, at="1/0", kind="bwd_compilation_metrics"),
            *(start("forward", 13), graph("f3", "triton_red_fused_sum_0", outcome="hit")),
            artifact("aotautograd_cache_hit", '{"key": "a3", "time_saved_ms": 7.5}'),
            end(20_000, 500, function="forward", line=13),
        )
    )
