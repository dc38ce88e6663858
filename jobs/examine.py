"""Find damage in the tables, and repair it."""

from halfop.frame.cli import run_job
from halfop.jobs.examine import JOB

if __name__ == "__main__":
    run_job(JOB)
