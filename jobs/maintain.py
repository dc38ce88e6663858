"""Compact, trim and vacuum the tables by retention."""

from halfop.frame.cli import run_job
from halfop.jobs.maintain import JOB

if __name__ == "__main__":
    run_job(JOB)
