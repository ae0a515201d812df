"""Reads a JSONL file of conversations, a line at a time and in bounded memory."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NoReturn

from prepare.conversation import Message, parse_messages
from prepare.errors import BadRowError, RefusedError

_EXAMPLE_COUNT = 5
_SKIP_CHUNK_BYTES = 1 << 16
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Row:
    """A conversation and the line it stands on, counted from 1."""

    line: int
    messages: list[Message]


@dataclass
class RowPolicy:
    """What a bad row does: it ends the run, or it is counted and left out."""

    skips: bool
    skipped_count: int = 0
    examples: list[str] = field(default_factory=list)

    def refuse(self, line: int, error: BadRowError) -> None:
        text = f"line {line}: {error}"
        if not self.skips:
            raise RefusedError(text) from error
        self.skipped_count += 1
        if len(self.examples) < _EXAMPLE_COUNT:
            self.examples.append(text)


def read_rows(path: Path, max_row_bytes: int, policy: RowPolicy) -> Iterator[Row]:
    """Yields every good row; the policy hears of the others.

    A line longer than `max_row_bytes` is refused by its bytes: it is never held whole.
    """
    with path.open("rb") as file:
        number = 0
        while line := file.readline(max_row_bytes + len(b"\r\n")):
            number += 1
            try:
                row = _strip_end(line)
                if len(row) > max_row_bytes:
                    _skip_line(file, line)
                    raise BadRowError(
                        f"the row is longer than {max_row_bytes} bytes: shorten it, or raise "
                        "max_row_bytes in the server's configuration"
                    )
                messages = parse_messages(_parse_json(row))
            except BadRowError as error:
                policy.refuse(number, error)
            else:
                yield Row(number, messages)


def _strip_end(line: bytes) -> bytes:
    return line.removesuffix(b"\n").removesuffix(b"\r")


def _skip_line(file: BinaryIO, start: bytes) -> None:
    """Goes to the next line; `start` is what of this one was read."""
    while start and not start.endswith(b"\n"):
        start = file.readline(_SKIP_CHUNK_BYTES)


def _parse_json(row: bytes) -> object:
    if row.startswith(_BOM):
        raise BadRowError("starts with a byte order mark: save the file as UTF-8 without one")
    if not row.strip():
        raise BadRowError("is empty: remove it")
    if (nul := row.find(b"\0")) >= 0:
        raise BadRowError(f"holds a NUL byte at byte {nul + 1}: remove it")
    try:
        text = row.decode("utf-8")
    except UnicodeDecodeError as error:
        bad = row[error.start]
        raise BadRowError(
            f"is not UTF-8: byte {error.start + 1} is 0x{bad:02x} ({error.reason})"
        ) from error
    try:
        value: object = json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise BadRowError(f"is not JSON: {error.msg} at column {error.colno}") from error
    except RecursionError as error:
        raise BadRowError("is JSON that is nested too deep") from error
    except ValueError as error:  # an integer of thousands of digits
        raise BadRowError(f"is not JSON that can be read: {error}") from error
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise BadRowError(f"is not JSON: {name} is no JSON value")
