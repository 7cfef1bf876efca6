# /// scenario
# suspect = "model"
# cause = "full_precision"
# stage = "computation"
# fix = "use tensor cores: autocast, set_float32_matmul_precision"
# severities = [1.0, 2.0, 3.0]
# drawn = "traces"
# ///
"""The trace of a job that multiplies float32 matrices on a GPU with tensor cores."""

from drawn import PLAIN_CORES, Step, run_traced

if __name__ == "__main__":
    run_traced(__doc__, lambda severity: [Step(matrix_name=PLAIN_CORES, kernel=400 * severity)])
