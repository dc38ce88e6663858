"""Land half and op messages: from files, a broker's store or a live broker"""

from halfop.cli import run_job
from halfop.landing.job import JOB

if __name__ == "__main__":
    run_job(JOB)
