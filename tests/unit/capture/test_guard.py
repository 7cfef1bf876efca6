"""Failing probes: disabled after one note, without an effect on the job."""

from __future__ import annotations

from typing import Any

import pytest

from stepscope.capture import guard, session
from stepscope.capture.guard import Probe, install_parts
from stepscope.spool import Flag, Kind


@pytest.fixture(autouse=True)
def _lenient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "STRICT", False)


def use(probe: Probe) -> None:
    """Record with every method of a probe."""
    span = probe.start(Kind.FORWARD, "model", -1)
    probe.end(span, value=-2, flags=Flag.NO_GRAD)
    probe.write(Kind.SAMPLE, "dataset", 1, 2, -3, Flag.NO_RESULT)
    probe.abandon(probe.start(Kind.OPTIMIZER, "SGD"))
    probe.fact("seen", x=1)


def test_records_of_a_probe(recording: Any) -> None:
    use(Probe("all", coarse=True))
    recorded = recording.drain()
    forward, optimizer, sample = sorted(recorded.records, key=lambda r: r.kind)
    assert (forward.value, forward.flags, forward.depth) == (-2, Flag.NO_GRAD, 0)
    assert (sample.start, sample.end, sample.value, sample.flags) == (1, 2, -3, Flag.NO_RESULT)
    assert optimizer.end == optimizer.start
    assert optimizer.flags == Flag.NO_RESULT
    assert {r.log[-1] for r in recorded.records} == {"c"}
    assert recorded.facts("seen") == [{"fact": "seen", "x": 1}]


def test_an_invalid_value_disables_the_probe_permanently(recording: Any) -> None:
    probe = Probe("bad values")
    for _ in range(3):
        assert probe.start(Kind.FORWARD, "x", "no number") is None  # type: ignore[arg-type]
    use(probe)
    assert not probe.alive
    recorded = recording.drain()
    (note,) = recorded.notes
    assert "stopped recording bad values after an error: TypeError" in note
    assert " at guard.py:" in note
    assert recorded.facts("seen") == []


def test_a_protected_function_fails_once(recording: Any) -> None:
    calls = []
    probe = Probe("listener")

    @probe.protect
    def listener(n: int) -> None:
        calls.append(n)
        print(1 / 0)

    for n in range(3):
        listener(n)
    assert calls == [0]
    assert len(recording.drain().notes) == 1
    assert listener.__name__ == "listener"


def test_other_probes_continue(recording: Any) -> None:
    broken, working = Probe("broken"), Probe("working")
    broken.fail(ValueError("x"))
    use(working)
    use(broken)
    assert working.alive
    assert len(recording.drain().records) == 3


def test_parts_after_one_that_fails_are_installed(recording: Any) -> None:
    installed = []
    install_parts("Torch", lambda: print(1 / 0), lambda: installed.append(1))
    assert installed == [1]
    (note,) = recording.drain().notes
    assert "stopped recording test guard of Torch after an error: ZeroDivisionError" in note


def test_an_error_whose_repr_fails(recording: Any) -> None:
    class Unspeakable(Exception):  # noqa: N818
        def __repr__(self) -> str:
            raise RuntimeError("no")

    probe = Probe("unspeakable")
    probe.fail(Unspeakable())
    assert not probe.alive


def test_a_missing_journal_disables_the_probe(recording: Any) -> None:
    current = session.current()
    assert current is not None
    current.journal.path = "/proc/no/such/place"
    probe = Probe("no journal")
    probe.fact("lost")
    assert not probe.alive
    use(probe)


def test_only_exceptions_are_suppressed(recording: Any) -> None:
    """Ctrl-C and exits are raised into the job, wherever they occur."""
    probe = Probe("interrupted")
    for kind in (KeyboardInterrupt, SystemExit, GeneratorExit):
        with pytest.raises(kind):
            probe.protect(lambda kind=kind: (_ for _ in ()).throw(kind))()
    assert probe.alive


def test_strict_mode_raises(recording: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "STRICT", True)
    probe = Probe("strict")
    with pytest.raises(TypeError):
        probe.start(Kind.FORWARD, "x", "no number")  # type: ignore[arg-type]
    with pytest.raises(ZeroDivisionError):
        probe.protect(lambda: 1 / 0)()
    assert probe.alive


def test_strict_mode_comes_from_the_environment(spool: Any) -> None:
    code = "from stepscope.capture import guard; print(guard.STRICT)"
    assert spool.run(code).stdout == "True\n"
    assert spool.run(code, STEPSCOPE_STRICT="0").stdout == "False\n"
