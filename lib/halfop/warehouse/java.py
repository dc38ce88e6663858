"""Names of Java classes and their static methods, looked up once: py4j asks the JVM at every mention of one."""

from __future__ import annotations

from typing import Any

from py4j.java_gateway import JavaClass, JavaPackage


class Names:
    """A package or a class; what is below it is looked up when it is first mentioned."""

    def __init__(self, of: Any) -> None:
        self._of = of

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._of, name)
        if isinstance(found, (JavaPackage, JavaClass)):
            found = Names(found)
        setattr(self, name, found)
        return found

    def __call__(self, *arguments: Any) -> Any:
        return self._of(*arguments)
