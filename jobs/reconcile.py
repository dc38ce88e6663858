"""Run the rules over what has landed."""

from halfop.frame.cli import run_job
from halfop.jobs.reconcile import JOB

if __name__ == "__main__":
    run_job(JOB)
