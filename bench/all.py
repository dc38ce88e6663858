"""All benchmarks that have a bound, one after the other, as a table; the status is 1 if one is missed.

bench/run all [--only NAME …]
"""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path

_BENCHES = {
    "cycle": ["cycle"],
    "cold": ["cold"],
    "topics": ["topics"],
    "layout": ["layout"],
    "land": ["land", "--rows", "3000000"],
    "backlog": ["backlog", "--rows", "3000000", "--rounds", "3"],
    "values": ["backlog", "--values", "--rows", "3000000", "--rounds", "3"],
    "apart": ["apart"],
    "backlog-hdfs": ["backlog", "--rows", "3000000", "--rounds", "3", "--hdfs"],
    "store": ["store"],
    "broker": ["broker"],
    "open": ["open", "--rounds", "3"],
    "resolve": ["resolve", "--rounds", "3"],
    "grow": ["grow"],
    "cluster": ["cluster"],
    "follow": ["follow"],
    "follow_topics": ["follow_topics"],
    "sparks": ["sparks"],
    "gateway": ["gateway"],
}
_SHOWN = 160


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=list(_BENCHES))
    found = {name: _run(name) for name in parser.parse_args().only}
    print("| bench | held | last line |\n| --- | --- | --- |")
    for name, (held, line) in found.items():
        print(f"| {name} | {'yes' if held else 'no'} | `{line[:_SHOWN]}` |")
    raise SystemExit(0 if all(held for held, _ in found.values()) else 1)


def _run(name: str) -> tuple[bool, str]:
    """Returns whether the bounds of a benchmark hold, and its last line; its lines are shown as they come."""
    command = [str(Path(__file__).with_name("run")), *_BENCHES[name]]
    last = ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as bench:
        for line in bench.stdout or ():
            print(line, end="", flush=True)
            last = line.strip() or last
    return bench.returncode == 0, json.dumps(json.loads(last)) if last.startswith("{") else last


if __name__ == "__main__":
    main()
