"""Take a broker's place for producers of transactional messages, and ask them about those that hang."""

from halfop.frame.cli import run_job
from halfop.jobs.gateway import JOB

if __name__ == "__main__":
    run_job(JOB)
