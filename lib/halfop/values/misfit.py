"""The reason why a body is not what its topic's setting says."""


class Misfit(Exception):
    """The body does not fit. The message holds nothing of what the body holds: it names places and types."""
