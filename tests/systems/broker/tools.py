"""RocketMQ's mqadmin 5.5.0, which operators type."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from halfop.rocketmq.wire.remoting import Credentials

from systems.broker.real_broker import fetched, java

_JVM = ["-Xms32m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]
_SECONDS = 120.0


def jars() -> Path:
    """The folder with its jars."""
    return fetched("proxy", ())


class MqAdmin:
    """RocketMQ's mqadmin 5.5.0, with `namesrv` as its name server; its home is below `home`."""

    def __init__(self, home: Path, namesrv: str) -> None:
        self._home, self._namesrv, self._jars = home, namesrv, jars()

    def signs(self, key: Credentials) -> None:
        """Signs what it asks from now on."""
        (self._home / "conf").mkdir(exist_ok=True)
        text = f"accessKey: {key.access_key}\nsecretKey: {key.secret_key}\n"
        (self._home / "conf/tools.yml").write_text(text)

    def __call__(self, *arguments: str) -> str:
        """What it prints, errors as well."""
        own = [f"-Duser.home={self._home}", f"-Drocketmq.client.logRoot={self._home}/logs", "-cp", f"{self._jars}/*"]
        command = [java(), *_JVM, *own, "org.apache.rocketmq.tools.command.MQAdminStartup", *arguments]
        ran = subprocess.run(
            [*command, "-n", self._namesrv],
            capture_output=True,
            text=True,
            check=True,
            timeout=_SECONDS,
            cwd=self._home,
            env=os.environ | {"ROCKETMQ_HOME": str(self._home)},
        )
        return ran.stdout + ran.stderr
