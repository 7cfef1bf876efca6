"""Files that no importer reads: the refusal names the form and a way to use it."""

from __future__ import annotations

import gzip
import json
import sqlite3
from pathlib import Path

import pytest

from stepscope.importers import Refused
from stepscope.importers.forms import find_foreign_form
from tests.support.packed_files import zip_archive


def database(path: Path, table: str) -> bytes:
    """Return an SQLite database with one table."""
    with sqlite3.connect(path) as connection:
        connection.execute(f"CREATE TABLE {table} (id INTEGER)")
    connection.close()
    return path.read_bytes()


TEXTS = {
    "k.ncu-rep": (b"NVR\0\1\0", "a report of Nsight Compute. `ncu --import {}"),
    "report.nsys-rep": (b"\1\0\2", "a report of Nsight Systems. Convert it with `nsys"),
    "n.json": (b'{"Type":48,"NvtxEvent":{}}\n', "a JSON export of Nsight Systems. "),
    "k.csv": (b'"Kind","Agent_Id","Queue_Id"\n', "a CSV file of rocprof. "),
    "e.json": (b'{\n "workload_graph": []}', "a Chakra execution trace. "),
    "c.et": (b"\x07\x0a\x050.0.4\x08", "a Chakra execution trace. `chakra_jsonizer"),
    "x.pb": (b"\0\0\x12\x09/host:CPU\x1a\0", "an XPlane file that is damaged. Copy the file"),
    "w.json": (
        b"\n<!DOCTYPE html><html>",
        "a web page. If it was downloaded, a proxy or a login page",
    ),
    "z": (b"PK\x03\x04", "a zip archive whose end is missing. Copy it again, as binary data"),
}


@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("name", list(TEXTS))
def test_a_form_is_named_by_its_content(tmp_path: Path, name: str, is_packed: bool) -> None:
    content, sentence = TEXTS[name]
    path = tmp_path / name
    if is_packed and not content.startswith((b"NVR", b"PK")):
        content = gzip.compress(content)
    path.write_bytes(content)
    assert str(find_foreign_form(path)).startswith(sentence.format(path))


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ("rocpd_kernel_dispatch_1", "a rocpd database of rocprof. Convert it with `rocpd convert"),
        ("anything", "an SQLite database. "),
    ],
)
def test_databases_are_told_apart_by_their_tables(
    tmp_path: Path, table: str, sentence: str
) -> None:
    database(tmp_path / "a b.db", table)
    form = str(find_foreign_form(tmp_path / "a b.db"))
    assert form.startswith(sentence)
    assert ("'" in form) == (table != "anything")  # quoted for the shell
    content = (tmp_path / "a b.db").read_bytes()
    (tmp_path / "cut.db").write_bytes(content[:-1])
    cut = find_foreign_form(tmp_path / "cut.db")
    assert cut == "an SQLite database whose end is missing. Copy it again, as binary data"


def test_traces_and_texts_have_no_foreign_form(tmp_path: Path) -> None:
    for content in (b"", b"{}", json.dumps({"traceEvents": []}).encode(), b"what?", b"\x0a\x04"):
        (tmp_path / "t").write_bytes(content)
        assert find_foreign_form(tmp_path / "t") is None
    (tmp_path / "t").write_bytes(zip_archive({}))
    assert find_foreign_form(tmp_path / "t") is None
    assert Refused(Path("a"), "b").trace_starts == ()
