"""Names of Java classes and their static methods, looked up once: py4j asks the JVM at every mention of one."""

from __future__ import annotations

from collections.abc import Sequence
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


# Names that PySpark uses at almost every step. For a name without its package py4j searches all jars, each time.
_MENTIONED = {
    "functions": ("col", "lit", "when", "coalesce", "struct", "not", "greatest", "least"),
    "PythonSQLUtils": ("ddlToJson", "fn", "lambdaFunction", "unresolvedNamedLambdaVariable"),
    "org.apache.spark.sql.functions": ("col", "lit", "when", "coalesce", "struct", "not", "greatest", "least"),
    "org.apache.spark.sql.classic.SparkSession": ("getActiveSession", "setActiveSession"),
    "org.apache.spark.sql.internal.SQLConf": ("get",),
}
_FEW_ELEMENTS = 16  # as many as halfop.Seqs takes
_REFLECTION = ("py4j", "reflection", "TypeUtil", "isInstanceOf")


def remember_names(jvm: Any) -> None:
    """Has py4j look up PySpark's own names once: an attribute that is set on its objects is not asked for again."""
    for name, methods in _MENTIONED.items():
        _remembered(_remembered(jvm, name), *methods)
    utils = _remembered(jvm, "PythonUtils")
    if not isinstance(utils.toSeq, _ToSeq):
        utils.toSeq = _ToSeq(jvm, utils.toSeq)
    for name in _REFLECTION:
        jvm = _remembered(jvm, name)


class _ToSeq:
    """PySpark's `toSeq` in one call if the elements are few; py4j passes each element of a list by a call."""

    def __init__(self, jvm: Any, any_number: Any) -> None:
        self._few, self._any_number = jvm.halfop.Seqs.of, any_number

    def __call__(self, elements: Sequence[Any]) -> Any:
        missing = _FEW_ELEMENTS - len(elements)
        if missing < 0 or any(each is None for each in elements):
            return self._any_number(elements)
        return self._few(*elements, *[None] * missing)


def _remembered(of: Any, *names: str) -> Any:
    """Sets what `of` finds under the names as its own attributes; returns the last."""
    for name in names:
        setattr(of, name, getattr(of, name))
    return getattr(of, names[-1])
