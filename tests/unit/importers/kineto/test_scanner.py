"""The compiled scanner: what it takes, what it leaves to Python, and tables that are the same."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from stepscope.cli import root
from stepscope.importers import trace_decoder
from stepscope.importers.kineto import decode
from stepscope.importers.kineto._scan import LIBRARY, SCANNER_VARIABLE, load_scanner, scanner_state
from stepscope.importers.kineto.blocks import Block
from tests.support.compiler import needs_compiler
from tests.support.decoded_blocks import decode_by_both
from tests.support.imported_runs import REAL_TRACES
from tests.support.kineto_files import (
    Event,
    imported,
    imported_file,
    kernel,
    launch,
    many_kinds,
    op,
    pretty,
    span,
    trace,
    training,
)

pytestmark = needs_compiler


@pytest.fixture(scope="module", autouse=True)
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Use a copy of the library, which is built if the installed one is of another source."""
    path = tmp_path_factory.mktemp("scanner") / "built.so"
    if scanner_state()[0]:
        shutil.copy(LIBRARY.path, path)
    else:
        assert LIBRARY.build(path) is None
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SCANNER_VARIABLE, str(path))
        patch.setattr("stepscope.importers.kineto.decode._scanners", threading.local())
        yield path


def block(*events: Event) -> bytes:
    content = trace(*events)
    return content[content.index(b"[") + 1 : content.rindex(b"]")]


def left_to_python(text: bytes) -> list[int] | None:
    """Return the indices of events that the scanner leaves to Python; None for all."""
    scanner = load_scanner()
    assert scanner is not None
    scanned = scanner.scan(text)
    return None if scanned is None else scanned.odd_order.tolist()


@pytest.mark.parametrize("layout", ["compact", "pretty", "reversed"])
def test_events_as_recorders_write_them_are_scanned(layout: str) -> None:
    events = training()
    if layout == "reversed":
        events = [dict(reversed(event.items())) for event in events]
    text = block(*events)
    if layout == "pretty":
        content = pretty(trace(*events))
        text = content[content.index(b"[") + 1 : content.rindex(b"]")]
    descriptions = [n for n, event in enumerate(events) if event["ph"] not in "Xsfti"]
    assert left_to_python(text) == descriptions
    scanned, decoded = decode_by_both(text)
    assert scanned == decoded


@pytest.mark.parametrize("key", ["n\\u0061me", "t\\u0073", "d\\u0075r", "\\u0070h"])
def test_keys_with_escapes_are_keys(key: str) -> None:
    plain = key.encode().decode("unicode_escape")
    events = [op(f"op{n}", 1_000 * n, 500) for n in range(8)]
    texts = [block(event) for event in events]
    for index in (3, 5, 6):
        texts[index] = texts[index].replace(b'"%s"' % plain.encode(), b'"%s"' % key.encode())
    scanned, decoded = decode_by_both(b",".join(texts))
    assert scanned == decoded
    names, _ = decode_by_both(block(*events))
    assert scanned == names


def test_blanks_after_a_key_may_change() -> None:
    events = [op(f"op{n}", 1_000 * n, 500) for n in range(8)]
    texts = [block(event) for event in events]
    texts[4] = texts[4].replace(b'":', b'":  ')
    assert left_to_python(b",".join(texts)) == []


@pytest.mark.parametrize(
    ("time", "expected_ns"),
    [
        ("0", 0),
        ("-0.0", 0),
        ("1.0005", 1_001),
        ("-1.0005", -1_001),
        ("1.00049", 1_000),
        ("1669783687464181", 1_669_783_687_464_181_000),
        ("4329280002211.731", 4_329_280_002_211_731),
        ("4611686018427386.999", 4_611_686_018_427_386_999),
        ("0.1", 100),
    ],
)
def test_times_are_exact(time: str, expected_ns: int) -> None:
    text = b'{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":%s,"dur":1}' % time.encode()
    assert left_to_python(text) == []
    scanned, decoded = decode_by_both(text)
    assert scanned == decoded
    assert scanned["<kind operator> start"] == [repr(expected_ns)]


@pytest.mark.parametrize(
    ("key", "value", "is_scanned"),
    [
        ("blocks per SM", "0.1", True),
        ("blocks per SM", "22.222221", True),
        ("blocks per SM", "123456789.012345", True),
        ("blocks per SM", "9007199254740993", False),
        ("blocks per SM", "0.30000000000000004", False),
        ("blocks per SM", "1e-7", False),
        ("blocks per SM", "-0.0", True),
        ("graph id", "0", True),
        ("graph id", "-5", True),
        ("queued", "0", True),
        ("queued", "5", True),
        ("context", "-0", False),
        ("correlation", "999999999999999999", True),
        ("correlation", "9223372036854775807", False),
        ("correlation", "3.0", False),
        ("correlation", '"3"', False),
        ("correlation", "true", False),
        ("kind", '""', True),
        ("kind", '"a b"', True),
        ("grid", "[]", True),
        ("grid", "[ 7 ]", True),
        ("grid", "[7, -2]", True),
        ("grid", "[7, 8, 2147483648]", True),
        ("grid", "[7, 8, 9, 10]", False),
        ("grid", "[7, 8.0, 9]", False),
        ("grid", "7", False),
        ("External id", '{"any": [1, "v a"]}', True),
        ("External id", '"caf\u00e9"', False),
        ("External id", '"\t"', False),
    ],
)
def test_arguments_are_those_of_python(key: str, value: str, is_scanned: bool) -> None:
    text = b'{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":5,"dur":1,"args":{"%s": %s}}'
    text %= key.encode(), value.encode()
    several = b",".join([block(op("a", 0, 1), kernel(40, 1, 3)), text])
    assert left_to_python(several) == ([] if is_scanned else [2])
    scanned, decoded = decode_by_both(several)
    assert scanned == decoded


UNUSUAL: list[Any] = [
    op("b", 20, 1, {"unknown": 1}),
    op('quoted "name"', 20, 1),
    op("café", 20, 1),
    op("b", 20, 1, {"External id": 2**70}),
    op("b", 20, 1, {"External id": 1.5}),
    op("b", 20, 1, {"Input Dims": ["\u00e9"]}),
    op("b", 20, 1, {"Collective name": "allreduce", "In msg nelems": 4}),
    op("b", 20, 1, tid=None),
    op("b", 20, 1, tid=1.5),
    kernel(20, 1, 3, {"occupancy": 1, "grid": [1, 2, 3, 4]}),
    span("cpu_op", "b", 20, 1, args=[1]),
    span("never heard of", "b", 20, 1, args={"a": [1]}),
    {"ph": "C", "name": "counter", "pid": 1, "tid": 1, "ts": 3, "args": {"a": 1}},
    {"ph": "M", "name": "process_name", "pid": 1, "tid": 1, "args": {"name": "x"}},
]


@pytest.mark.parametrize("event", UNUSUAL, ids=lambda event: json.dumps(event, default=str)[:60])
def test_unusual_events_are_left_to_python(event: Event) -> None:
    text = block(op("a", 0, 1), op("a2", 10, 1), event, launch(30, 1, 3), kernel(40, 1, 3))
    assert left_to_python(text) == [2]
    scanned, decoded = decode_by_both(text)
    assert scanned == decoded


def test_collectives_leave_the_block_to_the_scanner(monkeypatch: pytest.MonkeyPatch) -> None:
    of_collective = {"Collective name": "allreduce", "In msg nelems": 4}
    text = block(
        op("a", 0, 1, of_collective),
        kernel(20, 1, 3, of_collective),
        launch(30, 1, 3),
        op("b", 9, 1),
    )
    assert left_to_python(text) == [0, 1]
    monkeypatch.setattr(decode, "_decode_by_python", None)
    assert decode.decode_block(Block(text=text)).event_count == 4


@pytest.mark.parametrize(
    "member",
    [b'"pid":1,"pid":2', b'"args":{"cbid":1,"cbid":2}', b'"ts":1e3', b'"ts":"5"', b'"name":null'],
)
def test_repeated_keys_and_other_numbers_are_left_to_python(member: bytes) -> None:
    odd = b'{"ph":"X","cat":"cuda_runtime","name":"x",%s}' % member
    text = b",".join([block(op("a", 0, 1), op("b", 10, 1)), odd])
    assert left_to_python(text) == [2]
    scanned, decoded = decode_by_both(text)
    assert scanned == decoded


@pytest.mark.parametrize(
    "text", [b'{"name":"no phase"}', b"{}", b"{}," + block(op("a", 0, 1)) + b",{}"]
)
def test_objects_without_a_phase_are_skipped(text: bytes) -> None:
    assert left_to_python(text) is not None
    scanned, decoded = decode_by_both(text)
    assert scanned == decoded
    assert scanned["event_count"] == text.count(b'"ph"')


@pytest.mark.parametrize(
    "text",
    [
        b'{"ph":"X"',
        b'{"ph":"X"},',
        b'{"ph":"X"}{"ph":"X"}',
        b'{"ph":"X","ts":01}',
        b'{"ph":"X","ts":1.}',
        b'{"ph":"X","args":{"a":[1,]}}',
        b'{"ph":"X","name":"a',
        b'{"ph":"X","name":"a\\',
        b'{"ph":"X","a":tru}',
        b'{"ph":"X","a":' + b"[" * 40 + b"]" * 40 + b"}",
        b'{"ph":null}',
        b'{"ph":"XX"}',
        b"1",
        b'"ph"',
    ],
)
def test_text_that_is_refused(text: bytes) -> None:
    assert left_to_python(text) is None


def test_columns_that_depend_on_the_whole_block() -> None:
    """An older key counts where the newer has no value; some keys only beside another one."""
    older = launch(0, 1, 3) | {"args": {"external id": 7, "correlation": 3}}
    newer = launch(10, 1, 4) | {"args": {"External id": 8, "correlation": 4}}
    with_cid = launch(20, 1, 5) | {"args": {"cid": 1, "kernel": "k", "bytes": 2}}
    without = launch(30, 1, 6) | {"args": {"bytes": 2, "correlation": 6}}
    for events in ([older], [older, newer], [with_cid, without], [without], [older, with_cid]):
        scanned, decoded = decode_by_both(block(*events))
        assert scanned == decoded
        unusual = span("cuda_runtime", "x", 50, 1, args={"unknown": 1, "external id": 9})
        scanned, decoded = decode_by_both(block(*events, *events, *events, unusual))
        assert scanned == decoded


@pytest.mark.parametrize("workers", [0, 2])
def test_tables_are_the_same_without_the_scanner(
    workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = trace(*training(), *many_kinds(), *UNUSUAL)
    scanned = imported(content, workers=workers)
    monkeypatch.setattr(decode, "scan_block", lambda *_: None)
    assert imported(content, workers=workers) == scanned


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("bert_small.h100", marks=pytest.mark.extended("a larger trace of its kind")),
        "alexnet_critical_path.a100",
        "minitoy.mi250",
        pytest.param("cpu_only", marks=pytest.mark.extended("a larger trace of its kind")),
    ],
)
def test_tables_of_real_traces_are_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = REAL_TRACES / f"{name}.json.gz"
    if not path.exists():
        pytest.skip("../shared/traces is not on this machine")
    scanned = imported_file(path)
    monkeypatch.setattr(decode, "scan_block", lambda *_: None)
    assert imported_file(path) == scanned


# --- the library -----------------------------------------------------------------------------


def test_doctor_says_which_decoder_is_in_use(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert trace_decoder() == (True, "by the compiled scanner")
    monkeypatch.setenv(SCANNER_VARIABLE, "python")
    assert trace_decoder() == (
        False,
        "by Python: STEPSCOPE_SCANNER=python switches the compiled scanner off",
    )
    assert load_scanner() is None
    monkeypatch.setenv(SCANNER_VARIABLE, str(tmp_path / "missing.so"))
    assert scanner_state()[1] == "by Python, slower: stepscope was installed without a C compiler"
    (tmp_path / "other.so").write_bytes(
        library.read_bytes()[:-1].replace(b"stepscope_", b"stepscape_")
    )
    monkeypatch.setenv(SCANNER_VARIABLE, str(tmp_path / "other.so"))
    assert "was built for another machine or version" in scanner_state()[1]


def test_a_library_of_another_source_is_not_loaded(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "older.so"
    digest = LIBRARY.source_digest().encode()
    path.write_bytes(library.read_bytes().replace(digest, b"0123456789abcdef"))
    monkeypatch.setenv(SCANNER_VARIABLE, str(path))
    assert not scanner_state()[0]


def test_without_a_compiler_nothing_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    stale = tmp_path / "stale.so"
    stale.write_bytes(b"")
    assert LIBRARY.build(stale) == "there is no C compiler"
    assert not stale.exists()


def test_doctor_names_the_decoder_of_traces(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(SCANNER_VARIABLE, "python")
    root.main(["doctor", "--json"], standalone_mode=False)
    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    assert checks["fast import of traces"]["available"] is False
    assert "STEPSCOPE_SCANNER=python" in checks["fast import of traces"]["detail"]
