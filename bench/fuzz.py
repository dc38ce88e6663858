"""Coverage-guided bytes into halfop's decoders (support/fuzzed), one target after the other, each in its process.

bench/run fuzz [--seconds N] [--only TARGET …]. The bound: nothing is found. A finding is a file in .halfop/fuzz/found;
a copy in tests/data/fuzz/TARGET is played by `test_fuzzed.py`. What widens coverage is kept in .halfop/fuzz/corpus.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import resource
import subprocess
import sys
import time
from pathlib import Path

from support.fetched import packages, state
from support.places import ROOT

_MEMORY_MIB, _LONGEST = 2048, 4096  # bytes of an input
_TOO_LONG = 10  # seconds for one input
_ROUND = 300  # seconds of a process: atheris keeps memory of each input


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--only", nargs="+", metavar="TARGET")
    parser.add_argument("--play", help=argparse.SUPPRESS)
    args, options = parser.parse_known_args()
    if args.play:
        play(args.play, options)
    else:
        from support.fuzzed.every import TARGETS  # noqa: PLC0415 - the process that plays instruments it

        found = [fuzzed(name, args.seconds) for name in args.only or TARGETS]
        raise SystemExit(1 if any(found) else 0)


def fuzzed(name: str, seconds: int) -> bool:
    """Fuzzes a target for so long; returns whether something was found."""
    corpus, found = state("fuzz") / "corpus" / name, state("fuzz") / "found" / name
    for folder in (corpus, found):
        folder.mkdir(parents=True, exist_ok=True)
    before, start = set(found.iterdir()), _cpu_seconds()
    limits = [f"-max_len={_LONGEST}", f"-timeout={_TOO_LONG}", f"-rss_limit_mb={_MEMORY_MIB}"]
    limits += [f"-artifact_prefix={found}/", "-print_final_stats=1", str(corpus)]
    status, log, end = 0, "", time.monotonic() + seconds
    while not status and (left := round(end - time.monotonic())) > 0:
        status, text = _played(name, [f"-max_total_time={min(left, _ROUND)}", *limits])
        log += text
    (found.parent / f"{name}.log").write_text(log)
    line = {"fuzzed": name, "cpu_s": round(_cpu_seconds() - start), **_measured(log), "status": status}
    line["found"] = sorted(str(path.relative_to(ROOT)) for path in set(found.iterdir()) - before)
    print(json.dumps(line), flush=True)
    if status:
        print(log[-3000:], file=sys.stderr)
    return status != 0


def _played(name: str, limits: list[str]) -> tuple[int, str]:
    """The status of a process that plays a target, and what it printed."""
    paths = [str(packages("fuzz", "packages", ROOT / "requirements/fuzz.lock")), os.environ["PYTHONPATH"]]
    command, environment = [sys.executable, __file__, "--play", name, *limits], {"PYTHONPATH": ":".join(paths)}
    out = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "errors": "replace"}
    done = subprocess.run(command, env=os.environ | environment, check=False, **out)
    return done.returncode, done.stdout


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _measured(log: str) -> dict[str, int]:
    """The inputs that were played, those that were kept, and the branches that they reached."""
    played, progress = re.findall(r"number_of_executed_units: (\d+)", log), re.findall(r"ft: (\d+) corp: (\d+)", log)
    features, kept = progress[-1] if progress else (0, 0)
    return {"inputs": sum(map(int, played)), "features": int(features), "corpus": int(kept)}


def play(name: str, options: list[str]) -> None:
    """Plays a target in this process until libFuzzer ends it."""
    import atheris  # noqa: PLC0415 - no part of the environment

    with atheris.instrument_imports(include=["halfop", "yaml"]):
        from support.fuzzed.every import TARGETS  # noqa: PLC0415
    logging.disable(logging.CRITICAL)
    target, corpus = TARGETS[name], Path(options[-1])
    for given, content in target.corpus():
        (corpus / given).write_bytes(content)
    atheris.Setup([sys.argv[0], *options], target.play)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
