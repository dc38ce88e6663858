"""Completion in a shell: bash completes by the script as a user's bash does; other shells' scripts name the same."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from halfop import command, completion
from halfop.frame.errors import UsageError

pytestmark = pytest.mark.process

# As bash calls it: the command, the word to complete and the word before it.
COMPLETED = """
source "$1"; shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
$(complete -p | sed 's/.*-F \\([^ ]*\\) .*/\\1/') "$1" "${@: -1}" "${@: -2:1}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the script of each shell."""
    folder, jobs = tmp_path_factory.mktemp("completion"), list(map(command.job_of, command.job_names()))
    for shell in command.SHELLS:
        (folder / shell).write_text(completion.script(shell, jobs))
    return folder


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["rec"], "reconcile"),
        (["--master", "yarn", "exam"], "examine"),
        (["--driver-m"], "--driver-memory"),
        (["land", "st"], "store"),
        (["land", "store", "--pa"], "--path"),
        (["reconcile", "--log", "js"], "json"),
        (["reconcile", "--set", "rules.transaction_t"], "rules.transaction_timeout="),
        (["reconcile", "--config", "/etc/hos"], "/etc/host"),
        (["nosuch", "--no"], ""),
    ],
)
def test_bash_completes(scripts: Path, words: list[str], found: str) -> None:
    bash = ["bash", "--norc", "-c", COMPLETED, "bash", str(scripts / "bash")]
    done = subprocess.run([*bash, "halfop", *words], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert done.stdout.startswith(found)
    assert (done.stdout == "\n") == (found == "")


@pytest.mark.parametrize("shell", command.SHELLS)
def test_each_shell_knows_jobs_options_and_settings(scripts: Path, shell: str) -> None:
    script = (scripts / shell).read_text()
    assert [word for word in ("simulate", "rules.transaction_timeout=", "max-rows") if word not in script] == []


def test_a_host_of_gateways_completes_what_it_has(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job_of = command.job_of

    def only_gateway(name: str) -> object:
        if name != "gateway":
            raise UsageError("no Spark")
        return job_of(name)

    monkeypatch.setattr(command, "job_of", only_gateway)
    with pytest.raises(SystemExit) as ended:
        command.run(["completion", "bash"])
    assert ended.value.code == 0
    script = capsys.readouterr().out
    assert "--listen" in script
    assert "reconcile" not in script
