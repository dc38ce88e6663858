"""A real RocketMQ on loopback (5.5.1, 5.5.0, 5.3.3, 4.9.7, 4.3.2) and a real producer, which tests start and kill.

Its jars are fetched into .halfop/ on first use, as Delta's are. The fixtures `broker4` and `broker5` are shared by the
whole session: use topics of your own there, and remember that half and op topic hold what other tests sent too.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from random import randrange
from types import MappingProxyType
from typing import NamedTuple

import pytest
from support.fetched import fetching, same
from support.places import ROOT

_STATE = ROOT / ".halfop"
_SOURCE = Path(__file__).parent
_START_SECONDS = 90.0

_OPENS = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in ("java.nio", "sun.nio.ch", "jdk.internal.ref")]
_JVM = ["-Xms64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", *_OPENS]

# What 4.9 needs to start; 5.x has its own and ignores it.
_LOGBACK = """<configuration><appender name="file" class="ch.qos.logback.core.FileAppender"><file>{}</file>
<encoder><pattern>%d %-5level %logger - %msg%n</pattern></encoder></appender>
<root level="WARN"><appender-ref ref="file"/></root></configuration>"""

_SETTINGS: dict[str, object] = {
    "brokerName": "broker-a",
    "brokerIP1": "127.0.0.1",
    "brokerIP2": "127.0.0.1",
    "bindAddress": "127.0.0.1",
    "transactionCheckInterval": 1000,
    "transactionTimeOut": 1000,
    "transactionOpBatchInterval": 100,
    "mappedFileSizeCommitLog": 64 << 20,
    "mappedFileSizeConsumeQueue": 20 * 50_000,
    "mappedFileSizeTimerLog": 1 << 20,
    "maxHashSlotNum": 100_000,
    "maxIndexNum": 400_000,
    "timerWheelEnable": False,
    "diskMaxUsedSpaceRatio": 95,
    "cleanFileForciblyEnable": False,
    # nothing is refused or dropped because the machine is busy
    "waitTimeMillsInSendQueue": 60_000,
    "waitTimeMillsInTransactionQueue": 60_000,
    "osPageCacheBusyTimeOutMills": 60_000,
}


class Plan(NamedTuple):
    """A message to send. `answers`: the local transaction's, then one a check, the last for ever: C, R or U."""

    topic: str
    answers: str = "C"
    immunity: int | None = None
    slow_ms: int = 0
    body: int = 100


class Truth(NamedTuple):
    """A message's fate. `answers` is what was answered until the producer's end; half_offset is -1 for a message of
    an earlier producer, whose check this one answered. `asked_bytes`: of the body in the last check, or -1."""

    uniq: str
    topic: str
    plan: str
    answers: str
    queue: int
    half_offset: int
    asked_bytes: int


class Consumed(NamedTuple):
    """A message that a consumer got; `body` is its length."""

    topic: str
    queue: int
    uniq: str
    body: int


class RealClients:
    """Producers of a version, which reach brokers by a name server. Their plans, truths and logs are below `home`."""

    def __init__(self, version: float | str, home: Path, namesrv: str, jvm: Sequence[str] = ()) -> None:
        self.version, self.home, self.namesrv = version, home, namesrv
        self._jars, self._jvm = _jars(version), [*_JVM, *jvm, f"-Duser.home={home}"]
        self._produced = 0
        self.seconds = 0.0  # that the last sends took

    def produce(
        self,
        plans: Iterable[Plan],
        *,
        linger: int = 0,
        expect: int | None = None,
        halt: bool = False,
        threads: int = 8,
        group: str = "producers",
        jvm: Sequence[str] = (),
    ) -> list[Truth]:
        """Send all, then wait until every answer of their plans was asked for, `linger` seconds at most.

        `expect` waits for that many messages, where checks of an earlier producer of the group are to be answered too.
        `halt` ends the process once all is sent, without a shutdown. `jvm`: -DaccessKey=, -DsecretKey=, -Dtls=true.
        """
        lines = ["\t".join("" if value is None else str(value) for value in plan) for plan in plans]
        self._produced += 1
        plan_file, truth_file = (self.home / f"{name}-{self._produced}" for name in ("plan", "truth"))
        plan_file.write_text("".join(f"{line}\n" for line in lines))
        options = {"namesrv": self.namesrv, "group": group, "threads": threads, "linger": linger}
        options |= {"expect": len(lines) if expect is None else expect, "halt": str(halt).lower()}
        command = self._java(f"-Drocketmq.client.logRoot={self.home}", "-Xmx192m", *jvm)
        command += [f"-D{name}={value}" for name, value in options.items()]
        checked("the producer", *command, "Producer", plan_file, truth_file)
        self.seconds = float(truth_file.with_name(f"{truth_file.name}.seconds").read_text())
        return [Truth(**json.loads(line)) for line in truth_file.read_text().splitlines()]

    def consume(self, topics: Sequence[str], expect: int, *, quiet: int = 3, linger: int = 120) -> list[Consumed]:
        """The messages that a consumer of a new group gets from the topics' beginnings.

        It ends `quiet` seconds after the last message once it has `expect`, and after `linger` seconds in any case.
        """
        self._produced += 1
        found = self.home / f"consumed-{self._produced}"
        command = self._java(f"-Drocketmq.client.logRoot={self.home}", "-Xmx192m")
        options = {"namesrv": self.namesrv, "group": f"consumers-{self._produced}", "expect": expect}
        command += [f"-D{name}={value}" for name, value in {**options, "quiet": quiet, "linger": linger}.items()]
        checked("the consumer", *command, "Consumer", found, *topics)
        lines = [line.split("\t") for line in found.read_text().splitlines()]
        return [Consumed(topic, int(queue), uniq, int(length)) for topic, queue, uniq, length in lines]

    def _java(self, *options: str) -> list[str]:
        return [java(), *self._jvm, *options, "-cp", f"{self._jars}/classes{os.pathsep}{self._jars}/*"]


class RealBroker(RealClients):
    """Addresses are `host:port`, `store` is the broker's store folder. Its output and logs are below `home`."""

    def __init__(self, version: float | str, home: Path, jvm: Sequence[str], settings: Mapping[str, object]) -> None:
        self._port = port = _free_ports()
        super().__init__(version, home, f"127.0.0.1:{port}", jvm)
        self.store, self.address = home / "store", f"127.0.0.1:{port + 3}"
        self.configure(settings)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def configure(self, settings: Mapping[str, object]) -> None:
        """Settings that count from the next start on, by the broker's own names."""
        _write_conf(self.home / "conf", self._port, {**settings, "storePathRootDir": self.store})

    def start(self) -> None:
        """Name server and broker, each where it does not run; after a kill or stop over what the store holds."""
        if "namesrv" not in self._processes:
            self._start("namesrv", "-Xmx96m")
        self._start("broker", "-Xmx384m", "-XX:MaxDirectMemorySize=256m")

    restart = start

    def kill(self) -> None:
        """SIGKILL to the broker; the name server lives on."""
        self._end("broker", subprocess.Popen.kill)

    def stop(self) -> None:
        """SIGTERM to the broker, which takes it 6-18 s."""
        self._end("broker", subprocess.Popen.terminate)

    def signal(self, number: int) -> None:
        """A signal to the broker, which stays ours: SIGSTOP and SIGCONT."""
        self._processes["broker"].send_signal(number)

    def calm(self) -> None:
        """Lets others have the CPU first, as far as the kernel has groups for it: an idle 5.5.1 takes a whole core."""
        with suppress(OSError):
            Path(f"/proc/{self._processes['broker'].pid}/autogroup").write_text("8")

    def close(self) -> None:
        for name in list(self._processes):
            self._end(name, subprocess.Popen.kill)

    def _start(self, name: str, *options: str) -> None:
        conf, out = self.home / "conf" / f"{name}.conf", self.home / f"{name}.out"
        command = [*self._java(*options), "Server", name, str(conf)]
        environment = os.environ | {"ROCKETMQ_HOME": str(self.home)}
        with out.open("wb") as file:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=file,
                cwd=self.home,
                env=environment,
                start_new_session=True,
            )
        self._processes[name] = process
        deadline = time.monotonic() + _START_SECONDS
        while "boot success" not in (said := out.read_text(errors="replace")):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"RocketMQ's {name} did not start; logs are in {self.home}:\n{said[-3000:]}")
            time.sleep(0.05)

    def _end(self, name: str, how: Callable[[subprocess.Popen[bytes]], None]) -> None:
        process = self._processes.pop(name)
        with process:  # waits, and closes its standard input
            how(process)


@contextmanager
def broker(
    version: float | str,
    home: Path,
    settings: Mapping[str, object] = MappingProxyType({}),
    jvm: Sequence[str] = (),
    files: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[RealBroker]:
    """RocketMQ `version` (4.3, 4, 5, 5.5, or "proxy": 5.5.0) over the empty folder `home`, `settings` by its own names.

    `files` are written below `home` first (RocketMQ's home is there: "conf/plain_acl.yml"); `jvm` are options for both.
    """
    for name, text in files.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    running = RealBroker(version, home, jvm, settings)
    try:
        running.start()
        yield running
    finally:
        running.close()


@pytest.fixture(scope="session")
def broker4(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealBroker]:
    with broker(4, tmp_path_factory.mktemp("broker4")) as running:
        yield running


@pytest.fixture(scope="session")
def broker5(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealBroker]:
    with broker(5, tmp_path_factory.mktemp("broker5")) as running:
        yield running


def _write_conf(folder: Path, port: int, settings: Mapping[str, object]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    net = {"namesrvAddr": f"127.0.0.1:{port}", "listenPort": port + 3, "haListenPort": port + 2}
    commitlog = {"storePathCommitLog": f"{settings['storePathRootDir']}/commitlog"}
    namesrv = {"listenPort": port, "bindAddress": "127.0.0.1", "kvConfigPath": folder / "kvConfig.json"}
    namesrv["supportActingMaster"] = True
    for name, values in {"broker": {**_SETTINGS, **net, **commitlog, **settings}, "namesrv": namesrv}.items():
        (folder / f"logback_{name}.xml").write_text(_LOGBACK.format(folder.parent / f"{name}.log"))
        lines = (f"{key}={str(value).lower() if isinstance(value, bool) else value}\n" for key, value in values.items())
        (folder / f"{name}.conf").write_text("".join(lines))


def _free_ports() -> int:
    """The first of four that are free in a row: name server, broker - 2, high availability, broker."""
    while True:
        first = randrange(20_000, 32_000)
        try:
            for port in range(first, first + 4):
                with socket.socket() as probe:
                    probe.bind(("", port))
        except OSError:
            continue
        return first


def java() -> str:
    found = os.environ.get("HALFOP_JAVA") or shutil.which("java")
    if not found:
        raise RuntimeError("a real RocketMQ needs Java: run the tests by tests/run, which finds or installs one")
    return found


def _jars(version: float | str) -> Path:
    """The folder with the jars of that version, and in `classes` our own: fetched and compiled where need be."""
    return fetched(str(version), ("Server", "Producer", "Consumer"))


def fetched(name: str, programs: Sequence[str]) -> Path:
    """The folder with the jars of a lock, and in `classes` our own programs: fetched and compiled if need be."""
    folder, lock = _STATE / f"broker-{name}", _SOURCE / f"jars-{name}.lock"
    with fetching("broker"):
        if not same(lock, folder / lock.name):
            fetch = (sys.executable, ROOT / "tools/fetch_jars.py")
            checked("fetching RocketMQ's jars", *fetch, java(), os.environ["SPARK_HOME"], lock, folder)
        sources = [_SOURCE / f"{program}.java" for program in programs]
        if not all(same(source, folder / source.name) for source in sources):
            _compile(sources, folder, folder / "classes")
            for source in sources:
                shutil.copy(source, folder)
    return folder


def compiled(source: Path, jars: Path, classes: Path) -> Path:
    """The folder of classes of a Java file that needs those jars."""
    _jars(5)  # brings the compiler
    _compile([source], jars, classes)
    return classes


def _compile(sources: Sequence[Path], jars: Path, classes: Path) -> None:
    ecj = next((_STATE / "broker-5").glob("ecj-*.jar"), None) or next(jars.glob("ecj-*.jar"))
    path = os.pathsep.join(map(str, jars.glob("*.jar")))
    checked("compiling the tests' Java", java(), "-jar", ecj, "-17", "-nowarn", "-d", classes, "-cp", path, *sources)


def checked(what: str, *command: str | Path, folder: Path | None = None) -> None:
    """Runs a command. Raises RuntimeError with its output if it fails."""
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    if ran.returncode:
        raise RuntimeError(f"{what} failed:\n{ran.stdout[-3000:]}{ran.stderr[-3000:]}")
