"""Find the outcomes of open transactions in business data, and plan to end them."""

from halfop.frame.cli import run_job
from halfop.jobs.resolve import JOB

if __name__ == "__main__":
    run_job(JOB)
