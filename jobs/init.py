"""Make a project folder: commented settings, a schedule, sample rows"""

from halfop.frame.cli import run_job
from halfop.jobs.init import JOB

if __name__ == "__main__":
    run_job(JOB)
