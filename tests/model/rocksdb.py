"""Histories of brokers that keep their transactions in RocksDB: queues apart, and ops that name places in the log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from model.reference import ROCKSDB_QUEUES, Half, Key, Op
from model.strategies import History, Land, Resume, Step

R = TypeVar("R", Half, Op)
_NOWHERE = 50  # a place from which no half message lands


def in_rocksdb(history: History) -> History:
    """The same history of such brokers.

    A landing does not know the half offset of an op if no half message has landed from the place that it names. The
    one that brings the half message lands the op again.
    """
    steps = [_moved(step) for step in history.steps]
    halves = [half for step in reversed(steps) if isinstance(step, Land) for half in step.halves]
    places = {half.key: half.commit_log_offset for half in halves}
    landed: set[Key] = set()
    waiting: list[Op] = []
    for number, step in enumerate(steps):
        if isinstance(step, Land):
            landed |= {half.key for half in step.halves}
            ops = [_by_place(op, places) for op in step.ops]
            unknown = [op for op in ops if op.half_offset is not None and _named(op) not in landed]
            again = [op for op in waiting if _named(op) in landed]
            waiting = [op for op in [*waiting, *unknown] if op not in again]
            there = [replace(op, half_offset=None) if op in unknown else op for op in ops]
            steps[number] = replace(step, ops=(*there, *again))
    return replace(history, steps=tuple(steps))


def _named(op: Op) -> Key:
    return op.broker, op.queue, -1 if op.half_offset is None else op.half_offset


def _by_place(op: Op, places: Mapping[Key, int]) -> Op:
    return op if op.half_offset is None else replace(op, body=str(places.get(_named(op), _NOWHERE)))


def _moved(step: Step) -> Step:
    if isinstance(step, Land):
        known = {(broker, queue + ROCKSDB_QUEUES): until for (broker, queue), until in step.known_until.items()}
        halves, ops = tuple(map(_elsewhere, step.halves)), tuple(map(_elsewhere, step.ops))
        return replace(step, halves=halves, ops=ops, known_until=known)
    if isinstance(step, Resume):
        return replace(step, keys=tuple((broker, queue + ROCKSDB_QUEUES, at) for broker, queue, at in step.keys))
    return step


def _elsewhere(row: R) -> R:
    return replace(row, queue=row.queue + ROCKSDB_QUEUES)
