"""java_options.py FOLDER JAVA JARS SPARK [JOB OPTIONS…]: print what SPARK_SUBMIT_OPTS gets, if Java can start here."""

import os
import sys
from pathlib import Path

HOME = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HOME / "lib"))

from halfop.frame.errors import UsageError  # noqa: E402
from halfop.start.java import Archive, refuse_too_little, spark_submit_opts  # noqa: E402

if __name__ == "__main__":
    try:
        refuse_too_little(os.environ)
    except UsageError as error:
        sys.stderr.write(f"halfop: {error}\n")
        sys.exit(error.exit_status)
    print(spark_submit_opts(Archive.at(*sys.argv[1:5]), os.environ, sys.argv[5:]))
