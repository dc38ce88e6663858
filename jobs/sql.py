"""Ask the tables and topics by one statement of SQL that only reads."""

from halfop.frame.cli import run_job
from halfop.jobs.sql import JOB

if __name__ == "__main__":
    run_job(JOB)
