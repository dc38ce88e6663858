"""Land and reconcile a real broker's store on a moving clock, and show what became of its messages."""

from halfop.frame.cli import run_job
from halfop.jobs.demo import JOB

if __name__ == "__main__":
    run_job(JOB)
