"""java_options.py FOLDER JAVA JARS SPARK [JOB ARGUMENT…]: print what SPARK_SUBMIT_OPTS gets."""

import os
import sys
from pathlib import Path

HOME = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HOME / "lib"))

from halfop.start.options import of_command_line  # noqa: E402

if __name__ == "__main__":
    print(of_command_line(sys.argv[1:], os.environ, HOME))
