"""Archives and texts with several traces: each is its own trace, or is refused by name."""

from __future__ import annotations

import gzip
import io
import random
import re
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest

from stepscope.importers import Copied, Imported, Refused, Result, content, documents, import_files
from stepscope.importers.kineto import blocks, reading
from stepscope.run import Run
from stepscope.schema import SCHEMA_VERSION, RunInfo
from stepscope.store import create_run, open_run
from tests.support.kineto_files import op, pretty, trace
from tests.support.packed_files import ARCHIVES, COMPRESSIONS, special_member, tar, zip_archive
from tests.support.xplane_files import training_space


def ranked(rank: int, count: int = 3) -> bytes:
    """Return a trace that states its rank."""
    events = [op(f"op{rank}", 100 * n, 50) for n in range(count)]
    return trace(*events, distributedInfo={"rank": rank, "world_size": 8})


def bare(rank: int) -> bytes:
    """Return a trace that is an array of events."""
    return ranked(rank).split(b'"traceEvents":')[1].rpartition(b"]")[0] + b"]"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    info = RunInfo(
        schema_version=SCHEMA_VERSION, run_id="r", created_ns=0, command=[],
        working_directory="/", stepscope_version="0",
    )  # fmt: skip
    create_run(tmp_path / "run", info)
    return tmp_path / "run"


def import_content(run: Path, name: str, packed: bytes, **more: bytes) -> list[Result]:
    for file, text in {name: packed, **more}.items():
        (run.parent / file).write_bytes(text)
    results = import_files([run.parent / file for file in (name, *more)], run, "n")
    assert not list(run.glob(f"{content.UNPACKED_PREFIX}*"))
    return results


def names_of(results: list[Result]) -> list[str]:
    assert all(isinstance(result, Imported) for result in results), results
    return [result.name for result in results if isinstance(result, Imported)]


@pytest.mark.parametrize("form", list(ARCHIVES))
def test_each_member_of_an_archive_is_a_trace(run: Path, form: str) -> None:
    members = {"a/r0.json": ranked(0), "r1.json.gz": gzip.compress(ranked(1)), "r2": ranked(2)}
    results = import_content(run, "all", ARCHIVES[form](members))
    assert names_of(results) == ["all/r0.json", "all/r1.json.gz", "all/r2"]
    assert [trace.rank for trace in Run(open_run(run)).traces] == [0, 1, 2]
    assert [trace.event_count for trace in Run(open_run(run)).traces] == [3, 3, 3]


@pytest.mark.parametrize("form", list(COMPRESSIONS))
def test_a_compressed_trace_has_the_name_of_its_file(run: Path, form: str) -> None:
    (result,) = import_content(run, "rank5.json.bz2", COMPRESSIONS[form](ranked(4)))
    assert isinstance(result, Imported)
    assert result.name == ("rank5.json" if form in {"bz2", "xz", "gz in gz"} else "rank5.json.bz2")
    assert result.rank == 4


TEXTS = {
    "objects": ranked(0) + ranked(1) + ranked(2),
    "pretty": b"\n".join(pretty(ranked(rank)) for rank in range(3)),
    "separated": ranked(0) + b"\0\n" + ranked(1) + b"\n\x1e" + ranked(2),
    "arrays": bare(0) + b"\n" + bare(1) + bare(2),
    "both": ranked(0) + bare(1) + b"  " + ranked(2),
    "array of traces": b"[" + ranked(0) + b",\n" + ranked(1) + b"," + ranked(2) + b"]",
    "first one cut off": ranked(0, 50)[:-90] + ranked(1) + ranked(2),
    "cut off in a name": ranked(0, 50)[: ranked(0, 50).rindex(b"op0") + 2] + ranked(1) + ranked(2),
    "after another document": b'{"made by":"me"}' + ranked(0) + ranked(1) + ranked(2),
    "members of gzip": b"".join(gzip.compress(ranked(rank)) for rank in range(3)),
    "one member of gzip": gzip.compress(ranked(0) + ranked(1) + ranked(2)),
    "large": ranked(0, 30_000) + ranked(1, 20_000) + ranked(2),
    "large, in gzip": gzip.compress(ranked(0, 30_000) + ranked(1, 20_000) + ranked(2), 1),
}


@pytest.mark.parametrize("form", list(TEXTS))
def test_each_trace_in_a_text_is_one(run: Path, form: str) -> None:
    results = import_content(run, "all.json", TEXTS[form])
    assert names_of(results) == ["all.json/1", "all.json/2", "all.json/3"]
    reader = open_run(run)
    rows = reader.sql("SELECT DISTINCT trace, name FROM operators ORDER BY name")
    assert rows["name"].tolist() == ["op0", "op1", "op2"]
    assert len(set(rows["trace"].tolist())) == 3


@pytest.mark.parametrize("size", [1, 100, 1_000_000])
def test_one_trace_in_members_of_gzip_stays_whole(run: Path, size: int) -> None:
    text = ranked(3, 50)
    packed = b"".join(gzip.compress(text[n : n + size]) for n in range(0, len(text), size))
    end = gzip.compress(b"")  # as bgzip writes
    assert names_of(import_content(run, "r.json.gz", packed + end)) == ["r.json.gz"]
    (only,) = Run(open_run(run)).traces
    assert only.event_count == 50
    assert not only.quality_issues["clock_base"].detail.startswith("the end")


def test_damage_of_a_text_with_several_traces_is_said(run: Path) -> None:
    members = [bytearray(gzip.compress(ranked(rank))) for rank in range(3)]
    members[1][-5] ^= 1
    packed = b"".join(members[:2]) + members[2][:-20]
    *traces, damage = import_content(run, "all.json.gz", packed)
    assert names_of(traces) == [f"all.json.gz/{n}" for n in (1, 2, 3)]
    assert isinstance(damage, Refused)
    assert damage.reason == (
        f"{run.parent}/all.json.gz was not read as it was written: its compressed data is "
        "truncated; the checksum of its compressed data is wrong, so any of its values may be."
    )


@pytest.mark.parametrize("name", ["a}{", '}]} {"traceEvents":[', "][{", '}[{"ph":"X"'])
def test_names_are_no_border_of_traces(run: Path, name: str) -> None:
    text = trace(op(name, 0, 10), op(name, 20, 10, {name: name}), op("cut", 40, 10))
    (result,) = import_content(run, "r.json", text[: text.index(b'"cut"')])
    assert isinstance(result, Imported)
    assert result.event_count == 2


def test_what_a_member_is_refused_for(run: Path) -> None:
    """Nothing is written outside of the directory of the run."""
    outside = run.parent / "outside.json"
    archives = {
        "parent": tar({"../../../../outside.json": ranked(0), "fine.json": ranked(1)}),
        "absolute": tar({str(outside): ranked(0)}),
        "link": special_member("link.json", tarfile.SYMTYPE, str(outside)),
        "hard link": special_member("link.json", tarfile.LNKTYPE, str(outside)),
        "device": special_member("null", tarfile.CHRTYPE),
        "pipe": special_member("pipe", tarfile.FIFOTYPE),
        "twice": tar({"a": ranked(2)}) + tar({"a": ranked(3)}),
        "file and directory": tar({"a": ranked(4), "a/b": ranked(5)}),
        "in a zip": zip_archive({"../outside.json": ranked(6)}),
    }
    results = import_content(run, "none", b"", **archives)[1:]
    assert not outside.exists()
    reasons = {
        Path(result.path).relative_to(run.parent).parts[0]: result.reason
        for result in results
        if isinstance(result, Refused)
    }
    assert reasons.keys() == archives.keys()
    for name in ("parent", "absolute", "in a zip"):
        assert "has a path that leads out of the archive" in reasons[name]
    assert f"{run.parent}/link/link.json is a link; it was not" in reasons["link"]
    assert "is a link" in reasons["hard link"]
    assert "is a device" in reasons["device"]
    assert "is a device" in reasons["pipe"]
    assert "is in the archive twice" in reasons["twice"]
    assert "cannot be unpacked: " in reasons["file and directory"]
    ranks = sorted(result.rank or 0 for result in results if isinstance(result, Imported))
    assert ranks == [1, 2, 4]


def test_hidden_files_of_an_archive_are_left_out_as_those_of_a_directory(run: Path) -> None:
    members = {"._r0.json": b"x", "__MACOSX/r0.json": b"x", ".git/a": b"x", "r0.json": ranked(0)}
    assert names_of(import_content(run, "a.tar", tar(members))) == ["a.tar/r0.json"]


def refuse_one(run: Path, name: str, packed: bytes) -> str:
    results = import_content(run, name, packed)
    (refused,) = [result for result in results if isinstance(result, Refused)]
    assert refused.reason.startswith(f"{run.parent / name} ")
    assert refused.reason.endswith(".")
    return refused.reason


def test_an_archive_of_zeros_fills_no_disk(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "MAX_INFLATED_BYTES", 1 << 20)
    for pack, command in ((ARCHIVES["tar.gz"], "tar -xf "), (zip_archive, "python -m zipfile -e ")):
        reason = refuse_one(run, "z", pack({"zeros": bytes(20 << 20)}))
        assert re.search(f"holds more than .* MiB. Unpack it with `{command}{run.parent}/z", reason)
    assert "holds more than 1 MiB. Decompress it with `xz -dc" in refuse_one(
        run, "z", COMPRESSIONS["xz"](bytes(20 << 20))
    )
    two = gzip.compress(ranked(0) + b" " * (20 << 20) + ranked(1))
    assert re.search(r"more than .* MiB. Decompress it with `gzip -dc", refuse_one(run, "z", two))


def test_an_archive_of_very_many_files(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "MAX_MEMBERS", 3)
    members = {str(n): ranked(n) for n in range(5)}
    assert "holds more than 3 files" in refuse_one(run, "many.tar", tar(members))
    for module in (blocks, reading):
        monkeypatch.setattr(module, "MAX_TRACES", 3)
    text = b"".join(members.values())
    assert "holds more than 3 traces, one after the other" in refuse_one(run, "many.json", text)


def test_names_of_members_may_be_as_long_as_names_of_files(run: Path) -> None:
    members = {
        "a" * 255: ranked(0),
        "b" * 255: zip_archive({"c" * 255: ranked(1)}),
        "d" * 252 + ".xz": COMPRESSIONS["xz"](ranked(2)),
        "e" * 256: ranked(3),
    }
    *imported, refused = import_content(run, "long.tar", tar(members))
    assert names_of(imported) == [
        f"long.tar/{'a' * 255}",
        f"long.tar/{'c' * 255}",
        "long.tar/" + "d" * 252,
    ]
    assert isinstance(refused, Refused)
    assert "cannot be unpacked: File name too long" in refused.reason


def test_archives_in_archives_have_a_limit(run: Path) -> None:
    packed = ranked(0)
    for _ in range(documents.MAX_DEPTH + 2):
        packed = tar({"a": packed})
    (refused,) = import_content(run, "deep", packed)
    assert isinstance(refused, Refused)
    assert refused.reason.endswith("/a is not unpacked: 3 archives are around it.")


@pytest.mark.parametrize("form", ["tar", "tar.gz", "tar.xz"])
@pytest.mark.parametrize("end", ["within a member", "between members", "within a header"])
def test_what_is_left_of_an_archive_is_imported(run: Path, form: str, end: str) -> None:
    """The missing part is named."""
    members = {"r0": ranked(0, 400), "r1": ranked(1, 400)}
    first = len(tar({"r0": members["r0"]}).rstrip(b"\0")) // 512 * 512 + 512
    cut = {"within a member": first + 5_000, "between members": first, "within a header": first + 9}
    text = tar(members)[: cut[end]]
    results = import_content(
        run, "a", COMPRESSIONS[form.removeprefix("tar").strip(".") or "plain"](text)
    )
    names = [result.name for result in results if isinstance(result, Imported)]
    assert names == ["a/r0"]
    (refused,) = [result for result in results if isinstance(result, Refused)]
    assert refused.reason.startswith(f"{run.parent}/a is a tar archive that is damaged: ")


def test_archives_that_cannot_be_read(run: Path) -> None:
    packed = zip_archive({"r0.json": ranked(0)})
    damaged = bytearray(packed)
    damaged[60] ^= 0xFF
    assert "is a zip archive that cannot be read: " in refuse_one(run, "d.zip", bytes(damaged))
    directory = packed.index(b"PK\x01\x02")
    encrypted = bytearray(packed)
    encrypted[6] |= 1
    encrypted[directory + 8] |= 1
    (refused,) = import_content(run, "e.zip", bytes(encrypted))
    assert isinstance(refused, Refused)
    assert refused.reason == (
        f"{run.parent}/e.zip/r0.json is encrypted: unpack the archive with its password, and "
        "import the files in it; it was not imported."
    )
    unknown = bytearray(packed)
    unknown[8], unknown[directory + 10] = 9, 9
    assert refuse_one(run, "u.zip", bytes(unknown)).endswith(
        "compression method is not supported. Unpack it, and import the files in it."
    )
    assert "is a zip archive whose end is missing" in refuse_one(run, "c.zip", packed[:40])
    assert "holds no files" in refuse_one(run, "n.zip", zip_archive({".hidden": b""}))
    checkpoint = {"archive/data.pkl": b"", "archive/data/0": b"", "archive/version": b"3"}
    assert "is a checkpoint that torch.save" in refuse_one(run, "m.pt", zip_archive(checkpoint))
    text = COMPRESSIONS["xz"](random.Random(1).randbytes(100_000))
    for end in (12, len(text) // 2):
        assert "cannot be decompressed: " in refuse_one(run, "t.xz", text[:end])


def test_links_in_a_zip(run: Path) -> None:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        link = zipfile.ZipInfo("link.json")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    (result,) = import_content(run, "l.zip", target.getvalue())
    assert isinstance(result, Refused)
    assert "/l.zip/link.json is a link" in result.reason


def test_a_member_that_is_no_trace_is_refused_by_name(run: Path) -> None:
    results = import_content(run, "a.tar", tar({"r0": ranked(0), "notes/README": b"Ranks."}))
    assert isinstance(results[1], Refused)
    assert results[1].path == run.parent / "a.tar/notes/README"
    assert results[1].reason.startswith(f"{run.parent}/a.tar/notes/README is not a trace")


def test_the_same_trace_counts_once(run: Path) -> None:
    """Whatever its compression, directory or name is; others are not compared with it."""
    text = ranked(0, 50)
    copies = {
        "r0.gz": gzip.compress(text),
        "copy": text,
        "all.tar": tar({"r1": ranked(1), "again": text}),
        "all.json": text + ranked(2),
    }
    results = import_content(run, "r0", text, **copies)
    copied = [result for result in results if isinstance(result, Copied)]
    assert [Path(result.name).relative_to(run.parent).as_posix() for result in copied] == [
        "r0.gz", "copy", "all.tar/again", "all.json/1",
    ]  # fmt: skip
    assert {result.original for result in copied} == {f"{run.parent}/r0"}
    loaded = Run(open_run(run))
    assert [trace.rank for trace in loaded.traces] == [0, 1, 2]
    issue = loaded.traces[0].quality_issues["copy"]
    assert issue.count == 4
    assert "all.json/1" in str(issue.detail)


def test_equal_texts_of_ranks_that_only_names_tell_apart(run: Path) -> None:
    text = trace(op("a", 0, 10))
    results = import_content(
        run, "rank0.json", text, **{"rank1.json": text, "rank1.json.gz": gzip.compress(text)}
    )
    assert [type(result) for result in results] == [Imported, Imported, Copied]


def test_a_copy_of_what_cannot_be_read_is_none(run: Path) -> None:
    results = import_content(run, "a", b"what?", b=b"what?")
    assert all(isinstance(result, Refused) for result in results)


def test_one_recording_in_two_formats_counts_once(run: Path) -> None:
    """JAX writes XPlane and JSON; the JSON counts where the XPlane cannot be read."""
    planes = training_space().SerializeToString()
    text = b'{"displayTimeUnit":"ns","metadata":{"highres-ticks":true},' + ranked(0)[1:]
    beside = {"h.trace.json.gz": gzip.compress(text), "other.trace.json": ranked(1)}
    results = import_content(run, "h.xplane.pb", planes, **beside)
    assert [type(result) for result in results] == [Imported, Copied, Imported]
    assert isinstance(results[1], Copied)
    assert "in another format" in results[1].sentence
