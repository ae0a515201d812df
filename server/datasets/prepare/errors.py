"""What ends a run or a row. Each text says what is wrong, where, and what to do."""


class RefusedError(Exception):
    """The whole run is refused, with a text for the user."""


class BadRowError(Exception):
    """One row is bad. The text follows "line N: " and names no line itself."""
