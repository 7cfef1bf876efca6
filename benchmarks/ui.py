"""What the web UI costs on a large run: time to the first picture, frames, queries, memory.

    open       a click on the run in the list of jobs until the verdict is drawn; a click on
               Timeline until its first slices are; a click on Distributed, of the run named by
               --ranks, until its table is
    frames     time per frame while the timeline is zoomed and panned by wheel and keyboard: that
               of the page, and that until the frame is drawn
    queries    `timeline-slices` as the page asks for them, over HTTP, at random windows of every
               width; beside each, DuckDB counts the rows of the window's kernels in this process
    memory     proportional set size of the server's processes and of the browser's, an empty page
               and one that has shown the overview and the moved timeline

Each round has a server and a browser of its own; the browser draws in software. The runs are
imported ones: `stepscope import TRACE -o DIR/big`.

    python benchmarks/ui.py DIR/big [--ranks DIR/ranks64] [--rounds 3]

Writes benchmarks/results/ui.json.
"""

import argparse
import http.client
import json
import random
import statistics
import subprocess
import sys
import time
import urllib.parse
from contextlib import contextmanager
from pathlib import Path

import duckdb
import psutil

from stepscope.store import available_cores
from stepscope.testing.browser import chromium, collect_problems

HERE = Path(__file__).resolve().parent
STEPSCOPE = str(Path(sys.executable).parent / "stepscope")
PIXELS = 1500
QUERIES = 60
MOVES = 60
SHOT_S = 60
NO_ADDRESS_BAR = "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup"
"""Chromium draws suggestions below its address bar with a page of its own, which it loads in a
process of its own (50 MB) some time after any page has come. Nobody sees it here."""


def memory_mb(processes):
    """Proportional set size, summed: shared pages are counted once."""
    total = 0
    for process in processes:
        try:
            total += process.memory_full_info().pss
        except psutil.Error:
            continue
    return total / 1e6


def browser_processes():
    """Those of Chromium, without the driver between it and this process."""
    return [each for each in psutil.Process().children(recursive=True) if "chrom" in each.name()]


class Server:
    """`stepscope ui` below a directory."""

    def __init__(self, root):
        self._process = subprocess.Popen(
            [STEPSCOPE, "ui", str(root), "--no-browser", "--port", "0"],
            stdout=subprocess.PIPE,
            text=True,
        )
        begin = time.perf_counter()
        line = next(line for line in self._process.stdout if "http://" in line)
        self.address = "http://" + line.split("http://")[1].split()[0].rstrip("/.")
        self.start_s = time.perf_counter() - begin
        self._connection = None

    def processes(self):
        parent = psutil.Process(self._process.pid)
        return [parent, *parent.children(recursive=True)]

    def get(self, view, **options):
        """On a connection that stays open, as a browser's do."""
        if self._connection is None:
            self._connection = http.client.HTTPConnection(self.address.partition("//")[2])
        self._connection.request("GET", f"/api/views/{view}?{urllib.parse.urlencode(options)}")
        answer = self._connection.getresponse()
        assert answer.status == 200
        return answer.read()

    def close(self):
        self._process.terminate()
        self._process.wait(20)


def quartiles(values):
    low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
    return {"p25": low, "p50": middle, "p75": high}


def p95(values):
    return sorted(values)[min(len(values) - 1, int(0.95 * len(values)))]


READY = "() => window.__stepscopeTimeline?.ready"
"""True once the timeline shows its slices."""


def there(selector):
    return f"() => document.querySelector('{selector}') !== null"


def seconds_until(page, action, condition):
    begin = time.perf_counter()
    action()
    page.wait_for_function(condition, timeout=SHOT_S * 1000)
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
    return time.perf_counter() - begin


def opened(page, server, run):
    """Seconds to the first meaningful pictures."""
    page.goto(server.address)
    page.wait_for_selector(f'a[href*="run={run}"]')
    return {
        "overview_s": seconds_until(
            page,
            lambda: page.click(f'main a[href*="run={run}"]'),
            there('[data-testid="verdict-headline"]'),
        ),
        "timeline_s": seconds_until(page, lambda: page.click('nav a[href^="/timeline"]'), READY),
    }


def opened_ranks(page, server, run):
    """Seconds to the table of ranks."""
    page.goto(f"{server.address}/overview?run={run}")
    page.wait_for_selector('[data-testid="verdict-headline"]', timeout=SHOT_S * 1000)
    return {
        "distributed_s": seconds_until(
            page,
            lambda: page.click('nav a[href^="/distributed"]'),
            there('[data-testid="table-ranks"]'),
        )
    }


def moved(page, *, drawn):
    """Milliseconds of each frame while the timeline moves: of the page's own thread, or until the
    software that stands for a GPU has drawn it."""
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
            page.mouse.wheel(0, -120 if move < MOVES * 2 / 3 else 160)
        page.wait_for_timeout(40)
    page.wait_for_timeout(500)
    frames = page.evaluate("window.__stepscopeTimeline.frames")
    name = "frame_drawn" if drawn else "frame"
    return {
        f"{name}_p50_ms": statistics.median(frames),
        f"{name}_p95_ms": p95(frames),
        f"{name}_count": len(frames),
    }


def queried(server, run, path):
    """Milliseconds of slices at random windows, and of counting kernels beside them."""
    tree = json.loads(server.get("timeline", run=run))
    end = tree["end_after_ns"]
    tracks = [track["id"] for track in every_track(tree["groups"]) if track["kind"] != "counter"]
    files = [str(each) for each in Path(path).glob("tables/kernels/**/*.parquet")]
    engine = duckdb.connect()
    chance = random.Random(7)
    slices, counts, sizes = [], [], []
    for _ in range(QUERIES):
        width = int(end * 10 ** chance.uniform(-6, 0))
        begin = chance.randrange(max(1, end - width))
        started = time.perf_counter()
        answer = server.get(
            "timeline-slices",
            run=run,
            from_ns=begin,
            to_ns=begin + max(1, width),
            tracks=",".join(tracks[:40]),
            pixels=PIXELS,
        )
        slices.append(1e3 * (time.perf_counter() - started))
        sizes.append(len(answer))
        if files:
            started = time.perf_counter()
            origin = int(tree["origin_ns"])
            engine.execute(
                "SELECT count(*) FROM read_parquet(?) WHERE start_ns BETWEEN ? AND ?",
                [files, origin + begin, origin + begin + width],
            ).fetchall()
            counts.append(1e3 * (time.perf_counter() - started))
    return {
        "slices_p50_ms": statistics.median(slices),
        "slices_p95_ms": p95(slices),
        "answer_p95_bytes": p95(sizes),
        "count_p50_ms": statistics.median(counts) if counts else None,
        "count_p95_ms": p95(counts) if counts else None,
    }


def every_track(groups):
    for group in groups:
        yield from group["tracks"]
        yield from every_track(group["groups"])


@contextmanager
def opened_page(server):
    """An empty page of a browser of its own; AssertionError when something went wrong on it."""
    with chromium(NO_ADDRESS_BAR) as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        problems = collect_problems(page, lambda request: request.url.startswith(server.address))
        yield page
        assert not problems, problems


def one_round(run, ranks):
    server = Server(run.parent)
    try:
        with opened_page(server) as page:
            found = {"server_start_s": server.start_s}
            found["browser_blank_mb"] = memory_mb(browser_processes())
            found |= opened(page, server, run.name)
            found |= moved(page, drawn=False)
            found["browser_mb"] = memory_mb(browser_processes())
            found |= moved(page, drawn=True)
            found |= queried(server, run.name, run)
            found["server_mb"] = memory_mb(server.processes())
        if ranks is not None:
            with opened_page(server) as page:
                found |= opened_ranks(page, server, ranks.name)
        return found
    finally:
        server.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=Path)
    parser.add_argument("--ranks", type=Path, help="a run of many ranks, beside the other one")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    rounds = []
    for number in range(given.rounds):
        rounds.append(one_round(given.run.resolve(), given.ranks and given.ranks.resolve()))
        print(f"round {number + 1}: {json.dumps(rounds[-1])}", flush=True)
    results = {
        "cores": available_cores(),
        "rounds": given.rounds,
        **{
            name: quartiles([each[name] for each in rounds])
            for name in rounds[0]
            if rounds[0][name] is not None
        },
    }
    place = HERE / "results" / "ui.json"
    place.write_text(json.dumps(results, indent=2) + "\n")
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
