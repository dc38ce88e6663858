"""Find what a real broker did wrong, in its half, op and real topics that have landed."""

from halfop.frame.cli import run_job
from halfop.jobs.audit import JOB

if __name__ == "__main__":
    run_job(JOB)
