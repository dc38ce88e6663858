"""DuckDB on the same files: the half messages, the ops that end them, and the rules, as SQL; on 2 threads.

    python bench/duck.py --warehouse FOLDER --out FOLDER --now T

What is simpler than in a run: no op or half message comes twice, there are no put-back copies and no history, nothing
lands again, and no commit makes all tables' files visible at once. So it shows what the bytes cost.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import time
from pathlib import Path
from string import Template
from typing import Any

from command import HOME
from halfop.rocketmq import names

_LIBRARY = HOME / ".halfop" / "bench"
_MEMORY = "5GB"
_STATEMENTS = Path(__file__).with_suffix(".sql")


def library() -> Any:
    """DuckDB, installed beside the product's environment on first use."""
    sys.path.append(str(_LIBRARY))
    try:
        import duckdb  # noqa: PLC0415
    except ImportError:
        install = [sys.executable, "-m", "pip", "install", "-q", "--target", str(_LIBRARY), "duckdb"]
        subprocess.run(install, check=True)
        importlib.invalidate_caches()  # the folder may be new
        import duckdb  # noqa: PLC0415
    return duckdb


def _names() -> dict[str, Any]:
    """RocketMQ's names, as SQL writes them."""
    found = {name: value for name, value in vars(names).items() if isinstance(value, (str, int))}
    banned = ", ".join(f"'{name}'" for name in names.NOT_ALLOWED_SEND)
    return found | {"LEGAL_TOPIC": names.LEGAL_TOPIC[2:-2], "NOT_ALLOWED_SEND": banned}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--warehouse", "--out", "--now"):
        parser.add_argument(name, required=True)
    given = vars(parser.parse_args())
    duckdb = library()
    Path(given["out"]).mkdir(parents=True)
    database = duckdb.connect(config={"threads": 2, "memory_limit": _MEMORY, "temp_directory": given["out"] + "/spill"})
    database.execute("SET TimeZone = 'UTC'")
    database.execute("SET preserve_insertion_order = false")
    seconds = {}
    statements = Template(_STATEMENTS.read_text()).substitute(_names() | given).split(";\n")
    for phase, parts in {"plan": statements[:1], "apply": statements[1:]}.items():
        start = time.perf_counter()
        for statement in parts:
            database.execute(statement)
        seconds[phase] = round(time.perf_counter() - start, 1)
    counted = "SELECT decision, count(*) FROM read_parquet(?) GROUP BY 1 ORDER BY 1"
    decisions = dict(database.execute(counted, [f"{given['out']}/decisions.parquet"]).fetchall())
    print(json.dumps({"version": duckdb.__version__, "seconds": seconds, "decisions": decisions}))


if __name__ == "__main__":
    main()
