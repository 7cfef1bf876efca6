"""One laboratory: what stepscope costs and how fast it is, as ratios to builds and peers.

    python -m benchmarks.laboratory [--quick] [--only REGEX] [--rounds N] [--today DIR]
                                    [--peers PYTHON ...] [--directory DIR] [--remark TEXT]

`rows` is the table of all measurements. A row has subjects: this build, an earlier one (--today, a
checkout with its libraries compiled), and peers (those of this interpreter or of --peers). In each
round every subject runs once, in random order, and ratios are computed within the round; reported
are median and quartiles over the rounds. A round is disturbed when processes outside the measured
commands used more than a tenth of a core meanwhile. Disturbed rounds do not count where at least
three others remain. A subject that fails has a sentence instead of a figure.

Results are in benchmarks/results/laboratory.json; `python -m tools.docs` writes docs/performance.md
and the figures of README.md from them.
"""
