"""Remove personal data from every table that holds parts of messages."""

from halfop.frame.cli import run_job
from halfop.jobs.erase import JOB

if __name__ == "__main__":
    run_job(JOB)
