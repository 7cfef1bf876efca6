"""Every command that a message, the page or a document suggests is accepted as typed, and those of
messages and of the page work. tests/e2e/test_documents.py runs those of documents."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from pathlib import Path
from unittest import mock

import click
import pytest

from stepscope.cli.options.common import FIRED
from stepscope.comparison import summarise_run
from stepscope.errors import StepscopeError
from stepscope.run import Run
from stepscope.store import open_run
from stepscope.testing import RunBuilder
from tests.support.command import run_command
from tests.support.served_runs import trace_events
from tests.support.stage_jobs import StageJob, play, write_parquet
from tests.support.suggested_commands import Suggestion, find_suggestions, parse_words

PLACEHOLDERS = {
    "BASE": "run",
    "CMD": "true",
    "CONDITION": "step_time>+5%",
    "DIR": "traces",
    "FILE": "trace.json",
    "FORMAT": "chrome",
    "NAME": "p3.2xlarge",
    "PID": "1",
    "PRICE": "3.06",
    "RULE": "StepOutlier",
    "RUN": "run",
    "S": "2",
    "SHELL": "bash",
    "SOURCE": "trace.json",
    "URL": "s3://bucket/runs",
    "VIEW": "overview",
    "K": "500",
    "M": "20",
    "N": "1",
}
EXAMPLES = {
    "ID": "verdict/suspect",
    "base": "run",
    "new": "run",
    "my-view": "overview",
    "source": "trace.json",
    "view": "overview",
}
"""Names in documents that stand for others."""
EXECUTED = {
    "show", "diagnose", "rules", "report", "export", "compare", "cost", "recover", "doctor",
    "import",
}  # fmt: skip
ELSEWHERE = re.compile(
    "s3:|https:|tcp:|--scheduler|\\.toml|quiet.py|memory.raw|job\\.parquet|execution_trace|graphs|nccl_trace"
    "|oom\\.pickle|\\.sqlite|\\.csv|\\.log"
)
"""What only exists in other tests."""


def arguments(suggestion: Suggestion) -> list[str]:
    """Return the words of the command with values in the place of placeholders."""
    words = []
    for word in suggestion.words:
        first = re.split(r"\||…", word)[0] or "true"  # one of the alternatives; CMD… or …
        first = re.sub(r"^stepscope-runs/.*|^\.\./(base|new).*", "run", first)
        first = EXAMPLES.get(first, first)
        words.append(re.sub(r"\b[A-Z]+\b", lambda name: PLACEHOLDERS.get(name[0], name[0]), first))
    return words


@pytest.fixture(scope="module")
def suggestions() -> list[Suggestion]:
    return find_suggestions()


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with what the commands name: a run and traces."""
    directory = tmp_path_factory.mktemp("suggested")
    run = RunBuilder(directory / "run")
    rank = run.rank(0, workers=1)
    rank.draw("wait 50 | forward 12 | backward 20 | optimizer 18", 140)
    rank.draw("window ( forward ( op:linear 5 | kernel:gemm 3 ) | optimizer 1 )")
    rank.workers[0].draw("fetch 80", 140)
    summary = summarise_run(Run(open_run(run.write())))
    (directory / "baseline.json").write_bytes(summary.encode())
    settings = "from stepscope.compat.debugger import *\nsettings = ProfilerConfig()\n"
    (directory / "settings.py").write_text(settings)
    (directory / "traces").mkdir()
    trace = json.dumps({"traceEvents": trace_events()}).encode()
    for name in ("trace.json", "traces/rank0.json"):
        (directory / name).write_bytes(trace)
    (directory / "trace.json.gz").write_bytes(gzip.compress(trace))
    job = StageJob(stages=2, data_ranks=2, microbatches=3, steps=2)
    write_parquet(play(job, job.draw_times(1)).operations, directory / "job.parquet")
    return directory


def test_many_are_found(suggestions: list[Suggestion]) -> None:
    assert len([suggestion for suggestion in suggestions if suggestion.is_message]) > 30
    assert any("{" in suggestion.text for suggestion in suggestions)  # an f-string
    for source in ("README.md", "docs/", "web/src", "src/stepscope/views", "src/stepscope/rules"):
        assert any(suggestion.source.startswith(source) for suggestion in suggestions)


def test_each_is_accepted(
    suggestions: list[Suggestion], directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(directory)
    refused = {}
    for suggestion in suggestions:
        try:
            if not suggestion.is_noun:
                check_accepted(suggestion)
        except (click.ClickException, StepscopeError) as error:
            refused[suggestion.source, suggestion.text] = str(error)
    assert refused == {}


def check_accepted(suggestion: Suggestion) -> None:
    context = parse_words(arguments(suggestion))
    if context.command.name == "run":
        with mock.patch("stepscope.cli.commands.run.record_job") as record_job:
            context.command.invoke(context)
        _command, options = record_job.call_args.args
        _ = options.planned  # refuses windows without a start


@pytest.mark.extended("runs a dozen commands; that each is accepted is shown above")
def test_what_a_recorded_run_suffices_for_works(
    suggestions: list[Suggestion], directory: Path, tmp_path: Path
) -> None:
    of_runs = {tuple(arguments(s)) for s in suggestions if s.is_message and s.words[0] in EXECUTED}
    for number, words in enumerate(sorted(of_runs)):
        if ELSEWHERE.search(" ".join(words)):
            continue
        copy = shutil.copytree(directory, tmp_path / str(number))
        if words[0] == "import":
            shutil.rmtree(copy / "run")  # the command creates it
        done = run_command(copy, *words)
        expected = {0, FIRED} if words[0] == "rules" else {0}
        assert done.returncode in expected, (words, done.stderr)
