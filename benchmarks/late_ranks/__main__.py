"""Run faults of ranks with several seeds, and print what was named.

    python -m benchmarks.late_ranks [--faults compute,input] [--seeds 3] [--healthy 5]

The results are in `benchmarks/results/late_ranks.json`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from benchmarks.late_ranks.faults import CAUSES, HEALTHY, Outcome, draw_case, run_case
from benchmarks.late_ranks.hosts import has_namespaces

RESULTS = Path(__file__).parents[1] / "results" / "late_ranks.json"
NEEDS_NAMESPACES = "bandwidth"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", default=",".join(CAUSES), help="separated by commas")
    parser.add_argument("--seeds", type=int, default=3, help="jobs per fault")
    parser.add_argument("--healthy", type=int, default=5, help="jobs without a fault")
    parser.add_argument("--steps", type=int, default=130, help="steps of a job: the rule needs 100")
    parser.add_argument("--keep", type=Path, help="directory for the runs")
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    isolated = has_namespaces()
    faults = [fault for fault in arguments.faults.split(",") if fault]
    cases = [draw_case(fault, seed) for fault in faults for seed in range(arguments.seeds)]
    cases += [draw_case(HEALTHY, seed) for seed in range(arguments.healthy)]
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory() as scratch:
        directory = arguments.keep or Path(scratch)
        for case in cases:
            if case.fault == NEEDS_NAMESPACES and not isolated:
                print(f"{case.fault}: skipped, it needs the right to make network namespaces")
                continue
            run = directory / f"{case.fault}-{case.seed}"
            outcome = run_case(case, run, steps=arguments.steps, isolated=isolated)
            outcomes.append(outcome)
            marks = [
                ("right" if is_right else "WRONG")
                for is_right in (
                    outcome.is_right_rank,
                    outcome.is_right_cause,
                    outcome.is_right_live,
                )
            ]
            print(
                f"{case.fault:<10} seed {case.seed}  {case.rank_count} ranks  rank {marks[0]}  "
                f"cause {marks[1]}  live {marks[2]} ({', '.join(outcome.rule_names) or 'none'}, "
                f"{outcome.rule_delay_scans} scans)  {outcome.sentence}",
                flush=True,
            )
    faulty = [outcome for outcome in outcomes if outcome.fault != HEALTHY]
    healthy = [outcome for outcome in outcomes if outcome.fault == HEALTHY]
    print(
        f"right rank {sum(o.is_right_rank for o in faulty)} of {len(faulty)}, right cause "
        f"{sum(o.is_right_cause for o in faulty)} of {len(faulty)}, live "
        f"{sum(o.is_right_live for o in faulty)} of {len(faulty)}, healthy jobs that name no rank "
        f"{sum(o.is_right_rank and o.is_right_live for o in healthy)} of {len(healthy)}"
    )
    result = {"isolated": isolated, "outcomes": [asdict(outcome) for outcome in outcomes]}
    arguments.output.write_text(json.dumps(result, indent=1) + "\n")
    return 0 if all(o.is_right_rank and o.is_right_live for o in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
