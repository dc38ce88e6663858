"""Write the state of the warehouse and what its newest runs did as one HTML page"""

from halfop.frame.cli import run_job
from halfop.jobs.report import JOB

if __name__ == "__main__":
    run_job(JOB)
