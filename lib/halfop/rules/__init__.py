"""The rules of docs/rules.md as Columns and frames: no session, no clock, no tables."""

VERSION = "2"
