"""A store on any file system that Hadoop reads, copied to a local folder unless it is local already."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from halfop.frame.errors import InputRefused, UsageError
from halfop.landing.paths import refusing
from halfop.rocketmq.store.dledger import FOLDERS, refusal
from halfop.warehouse.lock import local_folder
from halfop.warehouse.tables import Warehouse

_FOLDERS = ("commitlog", "consumequeue")


@contextmanager
def local_store(warehouse: Warehouse, path: str) -> Iterator[str]:
    """The local folder of a store; a remote store is copied for as long as the block runs."""
    folder = local_folder(path)
    if folder is not None:
        yield folder
        return
    if not str(warehouse.spark.sparkContext.master).startswith("local"):
        raise UsageError(f"{path}: on a cluster a store must be on a file system that all workers have mounted")
    with tempfile.TemporaryDirectory(prefix="halfop-store-") as copy:
        _copy(warehouse, path, copy)
        try:
            yield copy
        except InputRefused as error:
            at = error.path.replace(copy, path.rstrip("/"), 1)
            raise InputRefused(at, error.line, error.problem.replace(copy, path), error.hint) from error


def _copy(warehouse: Warehouse, path: str, target: str) -> None:
    jvm: Any = warehouse.spark._jvm
    jsc: Any = warehouse.spark._jsc
    hadoop, conf = jvm.org.apache.hadoop.fs, jsc.hadoopConfiguration()
    with refusing(path):
        root = hadoop.Path(path)
        system = root.getFileSystem(conf)
        if system.globStatus(hadoop.Path(root, f"{FOLDERS}/data")):
            raise refusal(path)
        found = [name for name in _FOLDERS if system.exists(hadoop.Path(root, name))]
        if _FOLDERS[0] not in found:
            raise InputRefused(path, None, "no broker's store: it has no folder commitlog")
        local = hadoop.FileSystem.getLocal(conf).getRawFileSystem()  # the other writes checksum files beside each
        for name in reversed(found):  # the queues first: what they name is then in the log
            hadoop.FileUtil.copy(system, hadoop.Path(root, name), local, hadoop.Path(target, name), False, conf)
