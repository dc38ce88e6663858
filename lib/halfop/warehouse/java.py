"""Names of Java classes and their static methods, looked up once: py4j asks the JVM at every mention of one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
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


# Classes that PySpark uses at almost every step. For a name without its package py4j searches all jars, each time.
_MENTIONED = (
    *("functions", "org.apache.spark.sql.functions", "PythonSQLUtils", "PythonUtils"),
    *("org.apache.spark.sql.classic.SparkSession", "org.apache.spark.sql.internal.SQLConf"),
)
_AT_ONCE = 16  # as many elements as halfop.Seqs takes
_PLAIN = (str, int, bool, type(None))


def remember_names(jvm: Any) -> None:
    """Has py4j look up PySpark's own names once: an attribute that is set on its objects is not asked for again."""
    if isinstance(jvm.PythonUtils, Names):
        return
    for name in _MENTIONED:
        setattr(jvm, name, Names(getattr(jvm, name)))
    jvm.py4j = Names(jvm.py4j)
    jvm.PythonUtils.toSeq = _ToSeq(jvm, jvm.PythonUtils.toSeq)
    same = {name: _Same(getattr(jvm.functions, name)) for name in ("col", "lit")}
    for functions in (jvm.functions, getattr(jvm, "org.apache.spark.sql.functions")):
        vars(functions).update(same)


class _ToSeq:
    """PySpark's `toSeq` in a call for 16 elements; py4j passes each element of a list by a call."""

    def __init__(self, jvm: Any, any_elements: Any) -> None:
        self._and, self._end, self._any_elements = getattr(jvm.halfop.Seqs, "and"), jvm.halfop.Seqs.END, any_elements

    def __call__(self, elements: Sequence[Any]) -> Any:
        if any(each is None for each in elements):
            return self._any_elements(elements)
        found = self._end
        for first in range(0, max(1, len(elements)), _AT_ONCE):
            some = elements[first : first + _AT_ONCE]
            found = self._and(found, *some, *[self._end] * (_AT_ONCE - len(some)))
        return found


class _Same:
    """A function of Spark's that returns what it has returned for the same text or number: columns do not change."""

    def __init__(self, function: Any) -> None:
        self._function, self._same = function, lru_cache(maxsize=4096, typed=True)(partial(function))

    def __call__(self, value: Any) -> Any:
        return (self._same if type(value) in _PLAIN else self._function)(value)
