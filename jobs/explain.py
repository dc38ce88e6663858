"""Show the life of one message: what landed, what was decided and why, and what comes next"""

from halfop.frame.cli import run_job
from halfop.jobs.explain import JOB

if __name__ == "__main__":
    run_job(JOB)
