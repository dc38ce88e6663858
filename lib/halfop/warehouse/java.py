"""Names of Java classes and their static methods, looked up once: py4j asks the JVM at every mention of one."""

from __future__ import annotations

from collections.abc import Iterable
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
_SHORT = 200  # a text that may come again


def remember_names(jvm: Any, *, columns: bool) -> None:
    """Has py4j look up PySpark's own names once: an attribute that is set on its objects is not asked for again.

    `columns`: those of a name or a constant are made once, too. A column knows the line of Python that made it, if
    Spark is asked to show such lines.
    """
    if isinstance(jvm.PythonUtils, Names):
        return
    for name in _MENTIONED:
        setattr(jvm, name, Names(getattr(jvm, name)))
    jvm.py4j = Names(jvm.py4j)
    if isinstance(jvm.halfop.Seqs, JavaClass):
        jvm.PythonUtils.toSeq = _ToSeq(jvm, jvm.PythonUtils.toSeq)
    if columns:
        same = {name: _Same(getattr(jvm.functions, name)) for name in ("col", "lit")}
        for functions in (jvm.functions, getattr(jvm, "org.apache.spark.sql.functions")):
            vars(functions).update(same)


class _ToSeq:
    """PySpark's `toSeq` in a call for each 16 elements; py4j passes each element of a list by a call."""

    def __init__(self, jvm: Any, any_elements: Any) -> None:
        self._and, self._end, self._any_elements = getattr(jvm.halfop.Seqs, "and"), jvm.halfop.Seqs.END, any_elements

    def __call__(self, elements: Iterable[Any]) -> Any:
        if not isinstance(elements, (list, tuple)):
            return self._any_elements(elements)
        found = self._end
        for first in range(0, len(elements) + 1, _AT_ONCE):
            some = elements[first : first + _AT_ONCE]
            found = self._and(found, *some, *[self._end] * (_AT_ONCE - len(some)))
        return found


class _Same:
    """A function of Spark's that returns the same column for the same short text, whole number, bool or None."""

    def __init__(self, function: Any) -> None:
        # lru_cache reads a function's name and text, which py4j would ask Java for; a partial has neither
        self._function, self._same = function, lru_cache(maxsize=4096, typed=True)(partial(function))

    def __call__(self, value: Any) -> Any:
        is_plain = value is None or type(value) in (int, bool) or (type(value) is str and len(value) <= _SHORT)
        return (self._same if is_plain else self._function)(value)
