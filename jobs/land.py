"""Land half and op messages: from files, a broker's store or running brokers"""

from halfop.frame.cli import run_job
from halfop.jobs.land import JOB

if __name__ == "__main__":
    run_job(JOB)
