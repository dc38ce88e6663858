"""Transactional (half) messages of RocketMQ, reconciled as sets on Spark and Delta."""

__version__ = "0.2.0.dev0"
