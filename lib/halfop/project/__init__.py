"""A project folder to begin with: settings, a schedule, sample rows, and the commands for them."""

from __future__ import annotations

import importlib.resources
import json
import os
import re
import shlex
import shutil
import sys
from pathlib import Path

from halfop.frame.errors import UsageError
from halfop.settings.home import checkout
from halfop.settings.load import default_config

SCHEDULES = ("cron", "airflow")
_SAMPLE = ("halves.jsonl", "ops.jsonl")
_NOT_QUOTED = frozenset('"$`\\')  # in the text that a crontab gives to sh -c
_WAREHOUSE = re.compile(r"(?m)^warehouse:.*$")


def begin(folder: Path, schedule: str) -> list[str]:
    """Writes a project into the folder, and returns the names of its files. Raises UsageError if one is there."""
    try:
        files = {name: text.encode() for name, text in _files(folder.absolute(), schedule).items()}
    except UnicodeEncodeError as error:
        raise UsageError(f"{str(folder)!r}: its name is no UTF-8; name another folder") from error
    there = [name for name in files if os.path.lexists(folder / name)]
    if there:
        raise UsageError(f"{folder} has {', '.join(there)} already, which would be overwritten: name another folder")
    try:
        for name, content in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
    except OSError as error:
        raise UsageError(f"{error.filename}: cannot be written: {error.strerror}; name another folder") from error
    return list(files)


def _files(folder: Path, schedule: str) -> dict[str, str]:
    """The text of each file, by its name."""
    texts = {"halfop.yaml": _settings(folder)}
    texts |= {f"sample/{name}": _template(name) for name in _SAMPLE}
    scheduled, hint = _cron(folder) if schedule == "cron" else _airflow(folder)
    command = shlex.quote(_command())
    readme = _template("README.md").replace("{folder}", shlex.quote(str(folder))).replace("{halfop}", command)
    return texts | scheduled | {"README.md": readme.replace("{schedule}", hint)}


def _settings(folder: Path) -> str:
    """The settings of this place, with the project's own warehouse."""
    own = f"warehouse: {json.dumps(str(folder / 'warehouse'), ensure_ascii=False)}"
    text = default_config(os.environ)[1].decode()
    return _WAREHOUSE.sub(lambda _: own, text, 1) if _WAREHOUSE.search(text) else f"{own}\n{text}"


def _cron(folder: Path) -> tuple[dict[str, str], str]:
    if "\n" in str(folder) or not _NOT_QUOTED.isdisjoint(_command()):
        raise UsageError(f"{str(folder)!r}, {_command()}: a crontab cannot name them, because of their characters")
    place, halfop = (shlex.quote(each).replace("%", r"\%") for each in (str(folder), _command()))
    text = _template("crontab").replace("{folder}", place).replace("{halfop}", halfop)
    return {"crontab": text}, "Name your source in `crontab`, then call `crontab -e`."


def _airflow(folder: Path) -> tuple[dict[str, str], str]:
    home = checkout(os.environ)
    if home is None:
        raise UsageError(
            "Airflow calls halfop in a checkout: call ./spark-submit.sh init there, or use --schedule cron"
        )
    options = ["--config", str(folder / "halfop.yaml")]
    variable = {"home": str(home), "options": options, "land": ["broker", "--namesrv", "127.0.0.1:9876"]}
    files = {
        "dags/halfop.py": (home / "dags" / "halfop.py").read_text(encoding="utf-8"),
        "variables.json": json.dumps({"halfop": variable}, indent=2) + "\n",
    }
    hint = "Name your source in `variables.json`, then `airflow variables import variables.json`: docs/airflow.md."
    return files, hint


def _template(name: str) -> str:
    return importlib.resources.files("halfop").joinpath("project").joinpath(name).read_text(encoding="utf-8")


def _command() -> str:
    """The absolute path of the command that users start jobs with."""
    home, here = checkout(os.environ), sys.argv[0]
    if home:
        return str(home / "spark-submit.sh")
    return os.path.abspath(here if os.sep in here else shutil.which(here) or here)
