"""Performance of the web UI on a large run: first picture, frames, queries, memory.

    open       from a click on the run in the list of jobs until the verdict is drawn; from a click
               on Timeline until its first slices are drawn; from a click on Distributed, for the
               run of --ranks, until its table is drawn
    frames     time per frame while the timeline is zoomed and panned by wheel and keyboard: in the
               page's thread, and until the frame is drawn
    queries    `timeline-slices` over HTTP as the page requests them, for random windows of every
               width; next to each, DuckDB counts the window's kernels in this process
    memory     proportional set size of the processes of the server and of the browser, with an
               empty page and after the overview and the moved timeline

Each round uses a new server and a new browser, which draws in software. Create the runs with
`stepscope import TRACE -o DIR/big`.

    python -m benchmarks.ui DIR/big [--ranks DIR/ranks64] [--rounds 3]

Writes benchmarks/results/ui.json.
"""

import argparse
import http.client
import json
import random
import statistics
import subprocess
import time
import urllib.parse
from contextlib import contextmanager
from pathlib import Path

import duckdb
import psutil

from benchmarks.measuring import OURS
from stepscope.cores import available_cores
from stepscope.testing.browser import chromium, collect_problems

HERE = Path(__file__).resolve().parent
PIXELS = 1500
QUERIES = 60
MOVES = 60
SHOT_S = 60
NO_ADDRESS_BAR = "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup"
"""Chromium draws the suggestions of its address bar with a separate page, loaded in another process
(50 MB) some time after any page. It is invisible here and would disturb the measurement."""


def memory_mb(processes):
    """Sum the proportional set sizes in MB: shared pages count once."""
    total = 0
    for process in processes:
        try:
            total += process.memory_full_info().pss
        except psutil.Error:
            continue
    return total / 1e6


def browser_processes():
    """Return the processes of Chromium, without the driver."""
    children = psutil.Process().children(recursive=True)
    return [process for process in children if "chrom" in process.name()]


class Server:
    """Process of `stepscope ui` for a directory."""

    def __init__(self, root, build=OURS):
        self._process = subprocess.Popen(
            build.command("ui", root, "--no-browser", "--port", "0"),
            stdout=subprocess.PIPE,
            env=build.environment,
            text=True,
        )
        self.pid = self._process.pid
        start = time.perf_counter()
        line = next(line for line in self._process.stdout if "http://" in line)
        self.printed_address = line.strip()
        address, _, self._token = self.printed_address.partition("/?token=")
        self.address = address
        self.start_s = time.perf_counter() - start
        self._connection = None

    def processes(self):
        parent = psutil.Process(self.pid)
        return [parent, *parent.children(recursive=True)]

    def get(self, path, **options):
        """Request an address of the API over a persistent connection, as a browser does."""
        if self._connection is None:
            self._connection = http.client.HTTPConnection(self.address.partition("//")[2])
        address = f"/api/{path}?{urllib.parse.urlencode(options)}"
        self._connection.request("GET", address, headers={"Authorization": f"Bearer {self._token}"})
        response = self._connection.getresponse()
        assert response.status == 200
        return response.read()

    def close(self):
        self._process.terminate()
        self._process.wait(20)


def quartiles(values):
    low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
    return {"p25": low, "p50": middle, "p75": high}


def p95(values):
    return sorted(values)[min(len(values) - 1, int(0.95 * len(values)))]


READY = "() => window.__stepscopeTimeline?.ready"
"""Condition that is true when the timeline shows its slices."""


def is_present(selector):
    return f"() => document.querySelector('{selector}') !== null"


def measure_until(page, action, condition):
    start = time.perf_counter()
    action()
    page.wait_for_function(condition, timeout=SHOT_S * 1000)
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
    return time.perf_counter() - start


def measure_opening(page, server, run):
    """Measure the seconds to the first meaningful pictures."""
    page.goto(server.address)
    page.wait_for_selector(f'a[href*="run={run}"]')
    return {
        "overview_s": measure_until(
            page,
            lambda: page.click(f'main a[href*="run={run}"]'),
            is_present('[data-testid="verdict-headline"]'),
        ),
        "timeline_s": measure_until(page, lambda: page.click('nav a[href^="/timeline"]'), READY),
    }


def measure_ranks(page, server, run):
    """Measure the seconds to the table of ranks."""
    page.goto(f"{server.address}/overview?run={run}")
    page.wait_for_selector('[data-testid="verdict-headline"]', timeout=SHOT_S * 1000)
    return {
        "distributed_s": measure_until(
            page,
            lambda: page.click('nav a[href^="/distributed"]'),
            is_present('[data-testid="table-ranks"]'),
        )
    }


def measure_frames(page, *, drawn):
    """Measure milliseconds per frame while the timeline moves.

    With `drawn`, a frame ends when the software renderer has drawn it, else in the page's thread.
    """
    canvas = page.locator('[data-testid="timeline-canvas"]')
    box = canvas.bounding_box()
    page.evaluate(f"window.__stepscopeTimeline.finish = {str(drawn).lower()}")
    page.evaluate("window.__stepscopeTimeline.frames.length = 0")
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + min(200, box["height"] / 2))
    canvas.focus()
    for move in range(MOVES):
        if move % 3 == 0:
            page.keyboard.press("d" if move % 2 else "a")
        else:
            page.keyboard.down("Control")  # the wheel alone scrolls
            page.mouse.wheel(0, -120 if move < MOVES * 2 / 3 else 160)
            page.keyboard.up("Control")
        page.wait_for_timeout(40)
    page.wait_for_timeout(500)
    frames = page.evaluate("window.__stepscopeTimeline.frames")
    name = "frame_drawn" if drawn else "frame"
    return {
        f"{name}_p50_ms": statistics.median(frames),
        f"{name}_p95_ms": p95(frames),
        f"{name}_count": len(frames),
    }


def measure_queries(server, run, path):
    """Measure milliseconds of slices for random windows, and of counting their kernels."""
    tree = json.loads(server.get("views/timeline", run=run))
    end = tree["end_after_ns"]
    tracks = [track["id"] for track in iterate_tracks(tree["groups"]) if track["kind"] != "counter"]
    files = [str(file) for file in Path(path).glob("tables/kernels/**/*.parquet")]
    engine = duckdb.connect()
    rng = random.Random(7)
    slices, counts, sizes = [], [], []
    for _ in range(QUERIES):
        width = int(end * 10 ** rng.uniform(-6, 0))
        start = rng.randrange(max(1, end - width))
        request_start = time.perf_counter()
        payload = server.get(
            "views/timeline-slices",
            run=run,
            from_ns=start,
            to_ns=start + max(1, width),
            tracks=",".join(tracks[:40]),
            pixels=PIXELS,
        )
        slices.append(1e3 * (time.perf_counter() - request_start))
        sizes.append(len(payload))
        if files:
            request_start = time.perf_counter()
            origin = int(tree["origin_ns"])
            engine.execute(
                "SELECT count(*) FROM read_parquet(?) WHERE start_ns BETWEEN ? AND ?",
                [files, origin + start, origin + start + width],
            ).fetchall()
            counts.append(1e3 * (time.perf_counter() - request_start))
    return {
        "slices_p50_ms": statistics.median(slices),
        "slices_p95_ms": p95(slices),
        "answer_p95_bytes": p95(sizes),
        "count_p50_ms": statistics.median(counts) if counts else None,
        "count_p95_ms": p95(counts) if counts else None,
    }


def iterate_tracks(groups):
    for group in groups:
        yield from group["tracks"]
        yield from iterate_tracks(group["groups"])


@contextmanager
def open_page(server):
    """Open an empty page in a new browser; AssertionError if errors occurred on it."""
    with chromium(NO_ADDRESS_BAR) as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.context.request.get(server.printed_address)  # for the cookie
        problems = collect_problems(page, lambda request: request.url.startswith(server.address))
        yield page
        assert not problems, problems


def run_round(run, ranks):
    server = Server(run.parent)
    try:
        with open_page(server) as page:
            figures = {"server_start_s": server.start_s}
            figures["browser_blank_mb"] = memory_mb(browser_processes())
            figures |= measure_opening(page, server, run.name)
            figures |= measure_frames(page, drawn=False)
            figures["browser_mb"] = memory_mb(browser_processes())
            figures |= measure_frames(page, drawn=True)
            figures |= measure_queries(server, run.name, run)
            figures["server_mb"] = memory_mb(server.processes())
        if ranks is not None:
            with open_page(server) as page:
                figures |= measure_ranks(page, server, ranks.name)
        return figures
    finally:
        server.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=Path)
    parser.add_argument("--ranks", type=Path, help="run of many ranks in the same directory")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    rounds = []
    for number in range(arguments.rounds):
        ranks = arguments.ranks and arguments.ranks.resolve()
        rounds.append(run_round(arguments.run.resolve(), ranks))
        print(f"round {number + 1}: {json.dumps(rounds[-1])}", flush=True)
    results = {
        "cores": available_cores(),
        "rounds": arguments.rounds,
        **{
            name: quartiles([figures[name] for figures in rounds])
            for name in rounds[0]
            if rounds[0][name] is not None
        },
    }
    target = HERE / "results" / "ui.json"
    target.write_text(json.dumps(results, indent=2) + "\n")
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
