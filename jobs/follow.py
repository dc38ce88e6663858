"""Land what is new and reconcile, again and again, in one process."""

from halfop.frame.cli import run_job
from halfop.jobs.follow import JOB

if __name__ == "__main__":
    run_job(JOB)
