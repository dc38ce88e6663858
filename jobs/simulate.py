"""Show what other settings of the rules would have done over what has landed."""

from halfop.frame.cli import run_job
from halfop.jobs.simulate import JOB

if __name__ == "__main__":
    run_job(JOB)
