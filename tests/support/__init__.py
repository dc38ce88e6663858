"""Builders: what tests are made from, a module a subject. Tests import from here and from no other test."""
