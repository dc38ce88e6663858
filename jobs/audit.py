"""Compare half, op and real topics of a landed real broker, and write down what it did wrong."""

from halfop.frame.cli import run_job
from halfop.jobs.audit import JOB

if __name__ == "__main__":
    run_job(JOB)
