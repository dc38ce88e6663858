"""Make discarded messages open again, with check times 0."""

from halfop.frame.cli import run_job
from halfop.jobs.resume import JOB

if __name__ == "__main__":
    run_job(JOB)
