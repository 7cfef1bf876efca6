"""Disks, interfaces and memory: fake files for the arithmetic, real ones for the formats."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stepscope.monitor.samplers.base import Rates, Sample, Unavailable
from stepscope.monitor.samplers.machine import (
    DiskSampler,
    MemorySampler,
    NetworkSampler,
    memory_total_bytes,
)
from stepscope.monitor.samplers.processes import JobTree
from stepscope.monitor.samplers.send_queue import SendQueueSampler, TcpDiagnostics, TcpTables

S = 1_000_000_000


def test_rates_need_two_readings_and_elapsed_time() -> None:
    rates = Rates("a", "b")
    assert list(rates.update(0, {"x": (0, 10)})) == []
    assert list(rates.update(0, {"x": (5, 10)})) == []
    assert list(rates.update(2 * S, {"x": (15, 10), "new": (1, 1)})) == [
        Sample("a", "x", 5.0),
        Sample("b", "x", 0.0),
    ]


def test_a_device_added_again_has_no_rates_for_one_tick() -> None:
    rates = Rates("a", "b")
    list(rates.update(0, {"x": (100, 100), "y": (0, 0)}))
    #        one counter of x has decreased, the other exceeds its old value already
    assert {s.device for s in rates.update(S, {"x": (3, 200), "y": (1, 1)})} == {"y"}
    assert list(rates.update(2 * S, {"x": (10, 201)})) == [Sample("a", "x", 7), Sample("b", "x", 1)]


def diskstats(**sectors: tuple[int, int]) -> str:
    return "".join(
        f" 259 0 {name.replace('_', '/')} 9 9 {read} 9 9 9 {written} 9 0 9 9 0 0 0 0 0 0\n"
        for name, (read, written) in sectors.items()
    )


def test_only_physical_disks_are_sampled(tmp_path: Path) -> None:
    for disk in ("nvme0n1", "cciss!c0d0"):
        (tmp_path / "block" / disk / "device").mkdir(parents=True)
    for virtual in ("loop0", "ram0", "dm-0"):
        (tmp_path / "block" / virtual).mkdir()
    names = ("nvme0n1", "nvme0n1p1", "loop0", "ram0", "cciss_c0d0")
    stats = tmp_path / "diskstats"
    stats.write_text(diskstats(**dict.fromkeys(names, (100, 100))))
    sampler = DiskSampler(proc=str(tmp_path), sys=tmp_path)
    assert list(sampler.sample(0)) == []
    stats.write_text(diskstats(**dict.fromkeys(names, (104, 110))))
    assert set(sampler.sample(2 * S)) == {
        Sample("disk_read_bytes_per_s", "nvme0n1", 4 * 512 / 2),
        Sample("disk_write_bytes_per_s", "nvme0n1", 10 * 512 / 2),
        Sample("disk_read_bytes_per_s", "cciss/c0d0", 4 * 512 / 2),
        Sample("disk_write_bytes_per_s", "cciss/c0d0", 10 * 512 / 2),
    }


def test_missing_disks_and_lines_of_memory_are_reasons(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="diskstats cannot be read"):
        DiskSampler(proc=str(tmp_path), sys=tmp_path)
    (tmp_path / "diskstats").write_text(diskstats(loop0=(1, 1)))
    with pytest.raises(Unavailable, match="no physical disk"):
        DiskSampler(proc=str(tmp_path), sys=tmp_path)
    (tmp_path / "meminfo").write_text("MemTotal: 1000 kB\n")
    with pytest.raises(Unavailable, match="available memory"):
        MemorySampler(proc=str(tmp_path))


def net_dev(**traffic: tuple[int, int]) -> str:
    header = "Inter-| Receive | Transmit\n face |bytes packets | bytes packets\n"
    return header + "".join(
        f"{name.replace('_', ':'):>6}:{received} 1 0 0 0 0 0 0 {sent} 1 0 0 0 0 0 0\n"
        for name, (received, sent) in traffic.items()
    )


def test_every_used_interface_except_loopback(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    path = tmp_path / "net" / "dev"
    path.write_text(net_dev(lo=(5, 5), eth0=(1000, 1), eth0_1=(7, 7), idle0=(0, 0)))
    sampler = NetworkSampler(proc=str(tmp_path))
    assert list(sampler.sample(0)) == []
    path.write_text(net_dev(lo=(9, 9), eth0=(3000, 11), eth0_1=(8, 7), idle0=(0, 0)))
    assert list(sampler.sample(4 * S)) == [
        Sample("network_received_bytes_per_s", "eth0", 500.0),
        Sample("network_sent_bytes_per_s", "eth0", 2.5),
        Sample("network_received_bytes_per_s", "eth0:1", 0.25),
        Sample("network_sent_bytes_per_s", "eth0:1", 0.0),
    ]


TCP = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt uid time inode
   0: 0100007F:8821 0100007F:1F90 01 00000100:00000000 00:00000000 00000000     0        0 700 1
   1: 0107D50A:8821 0207D50A:1F90 01 00002000:00000010 01:00000014 00000000     0        0 701 2
   2: 0107D50A:8822 0207D50A:1F91 01 00000001:00000000 00:00000000 00000000     0        0 702 1
   3: 0107D50A:8823 0207D50A:1F92 06 00000400:00000000 00:00000000 00000000     0        0 703 1
   4: 0107D50A:8824 0307D50A:1F92 01 00000800:00000000 00:00000000 00000000     0        0 799 1
"""
OWN6, LOOPBACK6, REMOTE6 = (
    f"0000000000000000FFFF0000{address}:1F90" for address in ("0107D50A", "0100007F", "0207D50A")
)
TCP6 = f"""  sl local remote st tx_queue rx_queue tr tm->when retrnsmt uid time inode
   0: {LOOPBACK6} {LOOPBACK6} 01 00000040:00000000 00:00000000 00000000     0        0 704 1
   1: {OWN6} {REMOTE6} 01 00000004:00000000 00:00000000 00000000     0        0 705 1
"""


def test_what_the_job_waits_to_send_by_the_tables_of_procfs(tmp_path: Path) -> None:
    job = JobTree(os.getpid(), lambda: (), lambda: ())
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "tcp").write_text(TCP)
    sampler = SendQueueSampler(job, proc=str(tmp_path), source=TcpTables(str(tmp_path)))
    assert list(sampler.sample(0)) == [], "no socket is its"
    descriptors = tmp_path / str(os.getpid()) / "fd"
    descriptors.mkdir(parents=True)
    for number in range(700, 706):  # but not 799: that is another process's
        (descriptors / str(number)).symlink_to(f"socket:[{number}]")
    # Established connections, without those to the node itself.
    assert list(sampler.sample(100 * S)) == [Sample("network_unsent_bytes", "", 0x2001)]
    (tmp_path / "net" / "tcp6").write_text(TCP6)
    assert list(sampler.sample(100 * S + 1)) == [], "reading takes a thousandth of the time"
    assert list(sampler.sample(200 * S)) == [Sample("network_unsent_bytes", "", 0x2001 + 4)]


def test_tables_are_read_where_netlink_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> None:
        raise PermissionError

    job = JobTree(os.getpid(), lambda: (), lambda: ())
    monkeypatch.setattr(TcpDiagnostics, "list_connections", refuse)
    with pytest.raises(Unavailable, match="net/tcp cannot be read: No such file or directory"):
        SendQueueSampler(job, proc=str(tmp_path))
    with connected() as sender:
        waiting_bytes = fill(sender)
        (sample,) = SendQueueSampler(job).sample(0)
        assert 0 < sample.value <= waiting_bytes


@pytest.mark.parametrize("address", ["127.0.0.2", "::ffff:127.0.0.2"])
def test_bytes_that_were_not_sent_yet(idle_process: int, address: str) -> None:
    job, idle_job = (JobTree(pid, lambda: (), lambda: ()) for pid in (os.getpid(), idle_process))
    with connected(address) as sender:
        sampler = SendQueueSampler(job)
        assert list(sampler.sample(0)) == [Sample("network_unsent_bytes", "", 0)]
        waiting_bytes = fill(sender)
        (sample,) = sampler.sample(100 * S)
        assert 0 < sample.value < waiting_bytes, "the receiver has room for some"
        assert list(SendQueueSampler(idle_job).sample(0)) == []
    assert list(sampler.sample(200 * S)) == [], "the connection has ended"


def test_another_connection_of_the_same_ports_is_not_read() -> None:
    source = TcpDiagnostics()
    with connected() as sender:
        inode = os.fstat(sender.fileno()).st_ino
        (connection,) = (row for row in source.list_connections() if row.inode == inode)
        assert source.read_connections([connection]) == [connection]
        earlier = connection._replace(identity=connection.identity[:-8] + bytes(8))
        assert source.read_connections([earlier, connection]) == [connection]


@contextmanager
def connected(address: str = "127.0.0.2") -> Iterator[socket.socket]:
    """Yield one of two connected sockets. Only 127.0.0.1 counts as the node itself."""
    with (
        socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server,
        socket.create_connection((address, server.getsockname()[1])) as sender,
        server.accept()[0],
    ):
        sender.setblocking(False)
        yield sender


def fill(sender: socket.socket) -> int:
    """Send until there is no room; return the bytes."""
    sent_bytes = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            sent_bytes += sender.send(bytes(1 << 16))
    return sent_bytes


@pytest.fixture
def idle_process() -> Iterator[int]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process.pid
        process.kill()


def test_memory_is_bytes_and_adds_up(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text(
        "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    400 kB\n"
        "SwapCached:        9 kB\nSwapTotal:       300 kB\nSwapFree:        250 kB\n"
    )
    assert list(MemorySampler(proc=str(tmp_path)).sample(0)) == [
        Sample("memory_used_bytes", "", 600 * 1024),
        Sample("memory_available_bytes", "", 400 * 1024),
        Sample("swap_used_bytes", "", 50 * 1024),
    ]


def test_the_real_node_can_be_read() -> None:
    values = {sample.metric: sample.value for sample in MemorySampler().sample(0)}
    total = values["memory_used_bytes"] + values["memory_available_bytes"]
    assert total == memory_total_bytes()
    network = NetworkSampler()
    assert list(network.sample(0)) == []
    assert all(sample.value >= 0 for sample in network.sample(S))
