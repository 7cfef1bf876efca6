"""Traces in archives and concatenated texts compared with those in files of their own."""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from stepscope.importers import Imported, import_files
from stepscope.importers.kineto.blocks import find_traces
from stepscope.schema import SCHEMA_VERSION, RunInfo
from stepscope.store import create_run, open_run
from tests.support.kineto_files import op, pretty, trace
from tests.support.packed_files import ARCHIVES, COMPRESSIONS

NAMES = st.text(st.sampled_from('ab{}[]":,\\ \n'), max_size=8) | st.sampled_from(
    ["}{", "}[{", '][{"ph":', '}{"traceEvents":[', "traceEvents", '"traceEvents":[{']
)
BETWEEN = st.sampled_from([b"", b"\n", b" \r\n", b"\0"])


@st.composite
def traces(draw: st.DrawFn) -> bytes:
    """Draw a trace: an object or an array, in one line or several."""
    names = draw(st.lists(NAMES, min_size=1, max_size=4))
    events = [op(name, 100 * n, 50, {"note": name}) for n, name in enumerate(names)]
    metadata = draw(st.dictionaries(NAMES, NAMES | st.lists(st.dictionaries(NAMES, NAMES))))
    metadata.pop("traceEvents", None)
    text = trace(*events, base=draw(st.integers(1, 10**18)), metadata=metadata)
    if draw(st.booleans()):
        text = json.dumps(json.loads(text)["traceEvents"]).encode()
    return pretty(text) if draw(st.booleans()) else text


@given(st.lists(traces(), min_size=1, max_size=4), st.data())
@settings(deadline=None)
def test_traces_start_where_a_parser_of_json_ends(texts: list[bytes], data: st.DataObject) -> None:
    text = b"".join(part + data.draw(BETWEEN) for part in texts)
    starts, position = [], 0
    while position < len(text.rstrip(b"\0 \r\n")):
        while text[position] in b"\0 \r\n":
            position += 1
        starts.append(position)
        _, end = json.JSONDecoder().raw_decode(text[position:].decode("ascii", "replace"))
        position += end
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "t.json")
        cut = data.draw(st.integers(0, len(text)))
        path.write_bytes(
            gzip.compress(text[:cut]) + gzip.compress(text[cut:])
            if data.draw(st.booleans())
            else text
        )
        assert find_traces(path) == starts


def operators_of(directory: Path, files: dict[str, bytes]) -> list[list[tuple[str, int]]]:
    """Import files, and return the operators of each trace."""
    for name, content in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(content)
    run = directory / "run"
    info = RunInfo(
        schema_version=SCHEMA_VERSION, run_id="r", created_ns=0, command=[],
        working_directory="/", stepscope_version="0",
    )  # fmt: skip
    create_run(run, info)
    results = import_files([directory / name for name in files], run, "n")
    assert all(isinstance(result, Imported) for result in results), results
    rows = open_run(run).sql("SELECT trace, name, start_ns FROM operators ORDER BY trace, start_ns")
    grouped: dict[int, list[tuple[str, int]]] = {}
    for number, name, start in zip(rows["trace"], rows["name"], rows["start_ns"], strict=True):
        grouped.setdefault(int(number), []).append((str(name), int(start)))
    return sorted(grouped.values())


@pytest.mark.slow("imports drawn traces twice")
@given(st.lists(st.integers(0, 2), min_size=1, max_size=5), st.data())
@settings(max_examples=8, deadline=None)
def test_traces_are_those_of_separate_files(groups: list[int], data: st.DataObject) -> None:
    """Each drawn trace is in a file, an archive, or a text with others."""
    texts = [trace(*(op(f"{i}.{n}", 10 * n, 5) for n in range(3))) for i in range(len(groups))]
    packed: dict[str, bytes] = {}
    for group in set(groups):
        members = {
            f"{data.draw(st.sampled_from(['', 'x/', 'x/y/']))}{index}.json": texts[index]
            for index, owner in enumerate(groups)
            if owner == group
        }
        layout = data.draw(st.sampled_from(["text", *ARCHIVES]))
        compress = COMPRESSIONS[data.draw(st.sampled_from(list(COMPRESSIONS)))]
        if layout == "text":
            separator = data.draw(BETWEEN)
            packed[f"{group}"] = compress(separator.join(members.values()))
        else:
            packed[f"{group}"] = ARCHIVES[layout](
                {name: compress(content) for name, content in members.items()}
            )
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        separate = {f"{index}.json": text for index, text in enumerate(texts)}
        assert operators_of(Path(first), packed) == operators_of(Path(second), separate)
