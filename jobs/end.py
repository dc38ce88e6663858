"""End open or discarded transactions in the brokers that own them."""

from halfop.frame.cli import run_job
from halfop.jobs.end import JOB

if __name__ == "__main__":
    run_job(JOB)
