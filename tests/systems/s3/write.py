"""write.py STORE URI: one commit by that log store; prints `written`, or the error's class. No Spark, only its jars."""

from __future__ import annotations

import sys
from functools import reduce
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.java_gateway import launch_gateway


def main(store: str, uri: str) -> None:
    jvm: Any = launch_gateway().jvm  # type: ignore[no-untyped-call]
    conf = jvm.org.apache.spark.deploy.SparkHadoopUtil.get().newConfiguration(jvm.org.apache.spark.SparkConf())
    lines = jvm.java.util.Collections.singleton("ours").iterator()
    try:
        reduce(getattr, store.split("."), jvm)(conf).write(jvm.org.apache.hadoop.fs.Path(uri), lines, False, conf)
        print("written")
    except Py4JJavaError as error:
        print(error.java_exception.getClass().getName())


if __name__ == "__main__":
    main(*sys.argv[1:])
