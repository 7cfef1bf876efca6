"""Account of the whole job: what its time went to, and what would save some of it.

The verdict divides the step, people pay for the job. The account speaks first where the steps are
less than half of it. Savings of the steps' fixes are given for the job as well.

A trial run of a long job spends most of its time before its steps. So where the planned number of
steps is known, times are scaled to it: what happens once (launch, imports, preparation, warm-up,
end) stays, all else grows with the number of steps. Fixes are ranked by the job as planned.

The interval between checkpoints follows J. W. Young, "A first order approximation to the optimum
checkpoint interval" (1974, https://doi.org/10.1145/361147.361115): sqrt(2 x duration of a
checkpoint x mean time between failures), of which J. T. Daly's estimate of 2006
(https://doi.org/10.1016/j.future.2004.11.016) is a refinement for frequent failures.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from stepscope import analysis, schema
from stepscope.diagnosis.fixes.what_if import find_classes_beside
from stepscope.diagnosis.job_account import (
    KEEP_RESULT,
    SHORTENED,
    JobAccount,
    JobFix,
    JobPart,
    PartFunction,
)
from stepscope.diagnosis.job_measures import (
    measure_before_steps,
    measure_between_steps,
    measure_compilation,
    measure_fetches,
    measure_saves,
)
from stepscope.diagnosis.verdict import LOOP_SHARE, Fix, Verdict
from stepscope.quantities import count_of, duration, percent
from stepscope.run import JobTime, Run, job_state, read_job_time

FIRST_RATIO = 0.5
"""The account speaks first where steps are a smaller share of the job."""
MIN_NAMED_RATIO = 0.1
"""Groups of classes of a smaller share of the job are not in the headline."""
MAX_NAMED_GROUPS = 2
MIN_FUNCTION_RATIO = 0.15
"""Functions of a smaller share of their group are not in the headline."""
MAX_FUNCTIONS = 3
MIN_FIX_RATIO = 0.03
"""Fixes that save a smaller share of the job are not listed."""
ONCE = frozenset(["launch", "importing", "rendezvous", "preparing", "warm_up", "finishing"])
"""Classes whose time does not depend on the number of steps."""
UNPLANNED = frozenset(["recording", "stuck", "down", "repeated", "not_seen"])
"""Classes that say nothing of a longer job."""
_GROUPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("{} pass before the first", ("launch", "importing", "rendezvous", "preparing")),
    ("The first steps take {} longer than later ones", ("warm_up",)),
    ("Evaluation takes {}", ("evaluation",)),
    ("Checkpoints take {}", ("checkpoints",)),
    ("{} pass between epochs", ("between_epochs",)),
    ("Other work between the steps takes {}", ("between_steps",)),
    ("stepscope itself takes {} to record", ("recording",)),
    ("{} pass after the last step", ("finishing",)),
    ("Nothing moves for {}", ("stuck",)),
    ("The job is down for {} between its starts", ("down",)),
    ("{} go to steps that a restart lost", ("repeated",)),
    ("Nothing is known of {}", ("not_seen",)),
)
"""Sentences of the headline, with the classes that each sums."""
_FRAMEWORKS = frozenset([
    "catboost", "equinox", "flax", "jax", "jaxlib", "keras", "lightgbm", "lightning", "sklearn",
    "spacy", "tensorflow", "torch", "transformers", "xgboost",
])  # fmt: skip
"""Packages that the training itself needs."""
_COMPILED_RATIO = 0.5
MIN_EVALUATIONS = 2


def account_for_job(run: Run, planned_step_count: int | None = None) -> JobAccount | None:
    """Account for the time of a job; None for traces alone, where no process was recorded, and for
    a job to which stepscope has attached: what it was before is unknown.

    Args:
        planned_step_count: steps of the job that this run is a trial of; None for those that
            the option `--for-steps` of the run or the trainer of the job stated.
    """
    if planned_step_count is None:
        planned_step_count = run.reader.info.options.get("planned_step_count")
    if planned_step_count is None:
        planned_step_count = _find_plan(run.whole_run)
    time = read_job_time(run)
    is_attached = run.reader.info.attached_pid is not None
    if is_attached or not time.ranks or time.duration_ns <= 0:
        return None
    return _Account.of(run.whole_run, time, planned_step_count).build()


def _find_plan(run: Run) -> int | None:
    """Find the steps that the only training of the job is going to take; None where its trainer did
    not state them, and for a job that has ended by itself: it was no trial."""
    statuses = run.reader.statuses().values()
    if job_state(statuses) is schema.JobState.COMPLETED:
        return None
    plans = [rank.facts(schema.PlannedStepsFact) for rank in run.ranks]
    counts = {fact.count for facts in plans for fact in facts}
    return counts.pop() if len(counts) == 1 and all(len(facts) == 1 for facts in plans) else None


def begin_with_job(run: Run, verdict: Verdict, planned_step_count: int | None) -> Verdict:
    """Add the account of the whole job, which speaks first where the steps are less than half."""
    job = account_for_job(run, planned_step_count)
    if job is None:
        return verdict
    is_first = job.is_first and run.is_whole and verdict.suspect != "insufficient_evidence"
    causes = {verdict.cause, *(cause.cause for cause in verdict.also)}
    main = next((stage for stage in verdict.job_stages if stage.is_main), None)
    total_ns = sum(stage.duration_ns for stage in verdict.job_stages)
    share = 1.0 if main is None else main.duration_ns / total_ns
    time = read_job_time(run)
    beside_ns = {
        "warm_up": measure_compilation(run.whole_run, time, again=True),
        "evaluation": measure_fetches(run.whole_run, time, "evaluation"),
    }
    return msgspec.structs.replace(
        verdict,
        job=job.omit_fixes(causes) if verdict.fixes else job,
        fixes=[_save_in_job(time, job, fix, share, beside_ns) for fix in verdict.fixes],
        headline=f"{job.headline} {verdict.headline}" if is_first else verdict.headline,
    )


def _save_in_job(
    time: JobTime, account: JobAccount, fix: Fix, stage_ratio: float, beside_ns: Mapping[str, float]
) -> Fix:
    """Add the share of the job that a fix of the step saves; of one that is mostly unknown, none.

    Checkpoints, and evaluation where the fix counts it, are part of its denominator as far as they
    are between the first step and the last. An upper bound includes what its cause may have outside
    of the steps.

    Args:
        stage_ratio: share of the time of steps that the judged stage has.
        beside_ns: time of recompilation in the first steps (`warm_up`), and of waits for batches in
            evaluation.
    """
    prediction = fix.prediction
    parts = {part.key: part for part in account.parts}
    steps = parts.get("steps")
    if prediction is None or account.goodput_ratio is None or steps is None:
        return fix
    keys = ("checkpoints", "evaluation") if prediction.share_of == LOOP_SHARE else ("checkpoints",)
    loop_ns = steps.time_ns + sum(measure_between_steps(time, key) for key in keys)
    whole_ns = account.planned_ns or account.duration_ns
    saved_ns = prediction.saving_ratio * loop_ns * _planned(steps) / steps.time_ns
    for key in find_classes_beside(prediction):
        if key in parts:
            part = parts[key]
            saved_ns += beside_ns.get(key, part.time_ns) * _planned(part) / part.time_ns
    return msgspec.structs.replace(fix, job_saving_ratio=saved_ns * stage_ratio / whole_ns)


def _planned(part: JobPart) -> float:
    return part.time_ns if part.planned_ns is None else part.planned_ns


class _Account(msgspec.Struct, frozen=True, kw_only=True):
    run: Run
    time: JobTime
    step_count: int
    planned_step_count: int | None
    parts: dict[str, JobPart]
    whole_ns: float
    """Duration of the job, as planned where that is known."""

    @classmethod
    def of(cls, run: Run, time: JobTime, planned_step_count: int | None) -> _Account:
        step_count = max((len(rank.steps) for rank in run.ranks), default=0)
        has_plan = (planned_step_count or 0) > step_count > 0 and not time.restarts
        planned_step_count = planned_step_count if has_plan else None
        growth = planned_step_count / step_count if planned_step_count else 1.0
        parts = {}
        for key in analysis.JOB_CLASSES:
            time_ns = time.time_of(key)
            if not time_ns:
                continue
            once_ns = time_ns if key in ONCE else measure_before_steps(time, key)
            planned_ns = 0.0 if key in UNPLANNED else once_ns + (time_ns - once_ns) * growth
            # A package counts with what it imports: without it, that would not be imported.
            functions = sorted(time.functions.get(key, []), key=lambda entry: -entry.total_ns)
            parts[key] = JobPart(
                key=key,
                title=analysis.title_job_class(key, has_steps=step_count > 0),
                time_ns=time_ns,
                share_ratio=time_ns / time.duration_ns,
                planned_ns=planned_ns if planned_step_count else None,
                functions=[
                    _describe(function, time.rank_count) for function in functions[:MAX_FUNCTIONS]
                ],
            )
        return cls(
            run=run,
            time=time,
            step_count=step_count,
            planned_step_count=planned_step_count,
            parts=parts,
            whole_ns=sum(_planned(part) for part in parts.values()),
        )

    def build(self) -> JobAccount:
        time = self.time
        step_ns = self.parts["steps"].time_ns if "steps" in self.parts else 0.0
        planned_ratio = self._planned("steps") / self.whole_ns
        unknown_ns = self.parts["not_seen"].time_ns if "not_seen" in self.parts else 0.0
        fixes = [fix for fix in self._list_fixes() if fix.saving_ratio >= MIN_FIX_RATIO]
        return JobAccount(
            headline=self._write_headline(step_ns),
            is_first=planned_ratio < FIRST_RATIO and 2 * unknown_ns < time.duration_ns,
            duration_ns=time.duration_ns,
            planned_ns=self.whole_ns if self.planned_step_count else None,
            planned_step_count=self.planned_step_count,
            step_count=self.step_count,
            goodput_ratio=time.goodput_ratio,
            device_goodput_ratio=time.device_goodput_ratio,
            first_step_ns=time.first_step_ns,
            is_final=time.is_final,
            parts=list(self.parts.values()),
            fixes=sorted(fixes, key=lambda fix: -fix.saving_ns),
            notes=[f"{reason[0].upper()}{reason[1:].rstrip('.')}." for reason in time.reasons],
        )

    def _planned(self, *keys: str) -> float:
        return sum(_planned(self.parts[key]) for key in keys if key in self.parts)

    def _write_headline(self, step_ns: float) -> str:
        steps = f"{duration(step_ns)} are steps" if step_ns else "none are steps"
        so_far = "" if self.time.is_final else " so far"
        sentences = [f"Of {duration(self.time.duration_ns)}{so_far}, {steps}."]
        if self.planned_step_count:
            sentences.append(
                f"With {count_of(self.planned_step_count, 'step')}, "
                f"{percent(self._planned('steps') / self.whole_ns)} of about "
                f"{duration(self.whole_ns)} would be."
            )
        groups = sorted(_GROUPS, key=lambda group: -self._planned(*group[1]))
        for text, keys in groups[:MAX_NAMED_GROUPS]:
            if self._planned(*keys) >= MIN_NAMED_RATIO * self.whole_ns:
                sentences.append(self._write_group(text, keys))
        return " ".join(sentences)

    def _write_group(self, text: str, keys: Sequence[str]) -> str:
        total_ns = sum(self.parts[key].time_ns for key in keys if key in self.parts)
        functions = [
            (function.time_ns, _name_function(key, function))
            for key in keys
            if key in self.parts
            for function in self.parts[key].functions[:1]
            if function.time_ns >= MIN_FUNCTION_RATIO * total_ns
        ]
        functions.sort(reverse=True)
        # The only class of a group, and its function, take about the same time.
        is_single = len(functions) == 1 and len(keys) == 1
        items = [name if is_single else f"{name} {duration(ns)}" for ns, name in functions]
        return text.format(duration(total_ns)) + (f": {', '.join(items)}." if items else ".")

    def _list_fixes(self) -> list[JobFix]:
        return [
            *self._fix_preparation(),
            *self._fix_imports(),
            *self._fix_compilation(),
            *self._fix_epochs(),
            *self._fix_evaluation(),
            *self._shorten("between_steps"),
            *self._fix_checkpoints(),
            *self._fix_restarts(),
            *self._fix_end(),
        ]

    def _make_fix(
        self,
        title: str,
        instructions: str,
        why: str,
        saving_ns: float,
        *,
        is_bound: bool = True,
        changes: Sequence[schema.Change] = (),
        step_cause: str | None = None,
    ) -> JobFix:
        return JobFix(
            title=title,
            instructions=instructions,
            why=why,
            saving_ns=saving_ns,
            saving_ratio=saving_ns / self.whole_ns,
            is_bound=is_bound,
            changes=list(changes),
            step_cause=step_cause,
        )

    def _find_function(self, key: str) -> PartFunction | None:
        """Find the function that has most of a class; None where no sample shows one."""
        functions = self.parts[key].functions if key in self.parts else []
        return functions[0] if functions else None

    def _shorten(self, key: str) -> list[JobFix]:
        """Advise on the function that has most of a class; none where it is not the script's."""
        function = self._find_function(key)
        entries = self.time.functions.get(key, [])
        longest = max(entries, key=lambda entry: entry.total_ns, default=None)
        if function is None or longest is None or not longest.is_user or not self.step_count:
            return []
        if key == "between_epochs" and longest.text.startswith(("for ", "async for ")):
            return []  # the loop over the data waits there for the first batch
        work, when, instructions = SHORTENED[key]
        location, part = _locate(function), self.parts[key]
        return [
            self._make_fix(
                f"Shorten the {work} {when}, {location}",
                instructions,
                f"{location} takes {duration(function.time_ns)} {when}.",
                function.time_ns * _planned(part) / part.time_ns,
            )
        ]

    def _fix_preparation(self) -> list[JobFix]:
        function = self._find_function("preparing")
        if function is None or not self.step_count:
            return []
        if function.name.startswith("<"):
            return self._shorten("preparing")
        return [
            self._make_fix(
                f"Keep what {function.name} prepares",
                KEEP_RESULT,
                f"{_locate(function)} takes {duration(function.time_ns)} before the first step.",
                function.time_ns,
            )
        ]

    def _fix_imports(self) -> list[JobFix]:
        packages = [  # a line is known of those that the script imports itself
            package
            for package in self.time.functions.get("importing", [])
            if package.line and package.function not in _FRAMEWORKS and not package.is_user
        ]
        if not packages or not self.step_count:
            return []
        # Its own time: what it imports may be needed anyway, as a framework is.
        package = max(packages, key=lambda package: package.time_ns)
        time_ns = package.time_ns / self.time.rank_count
        return [
            self._make_fix(
                f"Import {package.function} where it is used",
                "move the import into the function that needs it, or leave it out where the "
                "training does not need it; `python -X importtime` lists what it imports",
                f"Importing {package.function} takes {duration(time_ns)}, without what it imports.",
                time_ns,
            )
        ]

    def _fix_compilation(self) -> list[JobFix]:
        compiled_ns = measure_compilation(self.run, self.time)
        part = self.parts.get("warm_up")
        versions = set().union(*(rank.process.versions for rank in self.run.ranks))
        keeps_code = not versions.isdisjoint(["jax", "torch"])  # TensorFlow keeps none
        if part is None or compiled_ns < _COMPILED_RATIO * part.time_ns or not keeps_code:
            return []
        instructions = (
            'jax.config.update("jax_compilation_cache_dir", "/path/that/stays")'
            if "jax" in versions
            else "set TORCHINDUCTOR_CACHE_DIR to a directory that outlives the job and that all of "
            "its machines can read"
        )
        return [
            self._make_fix(
                "Keep compiled code between runs",
                instructions,
                f"Compilation takes {duration(compiled_ns)} of the first steps.",
                compiled_ns,
            )
        ]

    def _fix_epochs(self) -> list[JobFix]:
        loaders = [rank.loader for rank in self.run.ranks if rank.loader is not None]
        restarted = [ld for ld in loaders if ld.num_workers and not ld.persistent_workers]
        part = self.parts.get("between_epochs")
        if part is None or not restarted:
            return self._shorten("between_epochs")
        return [
            self._make_fix(
                "Keep the workers between epochs",
                "DataLoader(persistent_workers=True)",
                f"{duration(part.time_ns)} pass until the workers of a new epoch have made their "
                "first batch.",
                _planned(part),
                changes=[schema.Change(name="persistent_workers", value="True")],
                step_cause="worker_startup",
            )
        ]

    def _fix_evaluation(self) -> list[JobFix]:
        part, function = self.parts.get("evaluation"), self._find_function("evaluation")
        counts = [len(rank.steps.evaluation.start) for rank in self.run.ranks]
        if part is None or max(counts, default=0) < MIN_EVALUATIONS:
            return []
        name = "Evaluation" if function is None else _locate(function)
        return [
            self._make_fix(
                "Evaluate half as often, or on half of the data",
                "evaluate every second time, or on a fixed random part of the data, and on all of "
                "it at the end",
                f"{name} takes {duration(part.time_ns)}, {percent(part.share_ratio)} of the job.",
                (_planned(part) - measure_before_steps(self.time, part.key)) / 2,
                is_bound=False,
                step_cause="evaluation",
            )
        ]

    def _fix_checkpoints(self) -> list[JobFix]:
        part, function = self.parts.get("checkpoints"), self._find_function("checkpoints")
        count, save_ns = measure_saves(self.run)
        if part is None or not count:
            return []
        name = "Checkpoints" if function is None else _locate(function)
        verb = "take" if function is None else "takes"
        why = f"{name} {verb} {duration(part.time_ns)}, {percent(part.share_ratio)} of the job."
        interval = self._describe_interval(save_ns / count)
        return [
            self._make_fix(
                "Save beside the training, or less often",
                "torch.distributed.checkpoint.async_save, or a copy in memory that a thread "
                f"writes{interval}",
                why,
                _planned(part) - measure_before_steps(self.time, part.key),
                step_cause=None if interval else "checkpoint",
            )
        ]

    def _describe_interval(self, save_ns: float) -> str:
        """Describe the interval between checkpoints that the measured failures make best."""
        failures = len(self.time.restarts)
        if not failures:
            return ""
        best_ns = math.sqrt(2 * save_ns * self.time.duration_ns / failures)
        return (
            f"; with {count_of(failures, 'failure')} in {duration(self.time.duration_ns)} and "
            f"{duration(save_ns)} per checkpoint, one every {duration(best_ns)} costs least (Young)"
        )

    def _fix_restarts(self) -> list[JobFix]:
        part = self.parts.get("down")
        if part is None or not any("torch" in rank.process.versions for rank in self.run.ranks):
            return []
        restarts = count_of(len(self.time.restarts), "restart")
        return [
            self._make_fix(
                "Restart sooner after a failure",
                "torchrun --monitor-interval 0.1 looks at its processes ten times per second, and "
                "--max-restarts N starts them again at once, where a new job waits in a queue",
                f"The job was down for {duration(part.time_ns)} before {restarts}.",
                part.time_ns,
            )
        ]

    def _fix_end(self) -> list[JobFix]:
        function = self._find_function("finishing")
        if function is None or self.time.device_busy_ratio is None:
            return self._shorten("finishing")
        return [
            self._make_fix(
                f"Do the work of {function.name} without the devices",
                "in a job of its own, on a machine that costs less",
                f"{_locate(function)} takes {duration(function.time_ns)} after the last step.",
                function.time_ns,
            )
        ]


def _describe(function: analysis.ClassFunction, rank_count: int) -> PartFunction:
    file = function.file.rpartition("/")[2]
    line = f":{function.line}" if function.line else ""
    return PartFunction(
        name=function.function,
        location=f"{file}{line}" if file else "",
        time_ns=function.total_ns / rank_count,
    )


def _locate(function: PartFunction) -> str:
    if function.name.startswith("<") and function.location:
        return function.location
    return f"{function.name} ({function.location})" if function.location else function.name


def _name_function(key: str, function: PartFunction) -> str:
    return f"importing {function.name}" if key == "importing" else _locate(function)
