"""Every way in which a line can be bad, and what is said about it."""

import json
import tempfile
import tracemalloc
import unittest
from pathlib import Path

from prepare.errors import RefusedError
from prepare.rows import RowPolicy, read_rows

_MAX_ROW_BYTES = 1000


def _row(*messages: tuple[str, str]) -> bytes:
    turns = [{"role": role, "content": content} for role, content in messages]
    return json.dumps({"messages": turns}).encode()


_GOOD = _row(("user", "a"), ("assistant", "b"))
_MESSAGE = '{"messages":[{"role":"user","content":"a"},{"role":"assistant",%s}]}'

# What a line holds -> a part of what is said about it.
_BAD_LINES = {
    b"": "is empty",
    b"  \t ": "is empty",
    b"{": "is not JSON: Expecting property name",
    b'{"messages": NaN}': "NaN is no JSON value",
    b'{"messages": ' + b"1" * 900 + b"}": "a number",
    _GOOD + b" x": "is not JSON: Extra data at column",
    b"\xef\xbb\xbf" + _GOOD: "byte order mark",
    _GOOD[:-5] + b"\0" + _GOOD[-5:]: "NUL byte",
    _GOOD.replace(b'"a"', b'"\xff"'): "is not UTF-8: byte 44 is 0xff",
    _GOOD.replace(b'"a"', b'"\xed\xa0\x80"'): "is not UTF-8",  # a surrogate, encoded
    _GOOD.replace(b'"a"', b'"\xe2\x82'): "is not UTF-8",  # cut within a character
    _GOOD.replace(b'"a"', rb'"\ud83d"'): "half of a surrogate pair (U+D83D)",
    _GOOD.replace(b'"a"', rb'"\u0000"'): "NUL character",
    b"[" * 500 + b"]" * 500: "a list where an object",
    b"17": "is a number where an object",
    b"null": "is null where an object",
    b"{}": 'has no field "messages"',
    b'{"messages": null}': 'has null in "messages" where a list is needed',
    b'{"messages": []}': 'has an empty list "messages"',
    b'{"messages": [1]}': "message 1 is a number where an object is needed",
    b'{"messages": [{"content": "a"}]}': 'message 1\'s field "role" is missing',
    (_MESSAGE % '"x":1').encode(): "message 2 has the field 'x', which is not supported",
    (_MESSAGE % '"content":null').encode(): 'message 2\'s field "content" is null',
    (_MESSAGE % '"content":["b"]').encode(): "is a list where text is needed",
    (_MESSAGE % '"content":true').encode(): "is a boolean where text is needed",
    (_MESSAGE % '"content":" \\n"').encode(): 'message 2\'s field "content" is empty',
    _GOOD[:-1] + b', "tools": []}': 'has the field "tools", which is not supported',
    _row(("user", "a"), ("tool", "b")): "message 2 has the unknown role 'tool'",
    _row(("user", "a")): "no assistant turn",
    _row(("system", "s"), ("user", "a")): "no assistant turn",
    _row(
        ("assistant", "a"),
    ): "message 1 is in the wrong order: its role is assistant",
    _row(("user", "a"), ("user", "a"), ("assistant", "b")): "message 2 is in the wrong order",
    _row(("user", "a"), ("assistant", "b"), ("system", "s")): "message 3 is in the wrong order",
    _row(("user", "a"), ("assistant", "b"), ("user", "c")): "ends with a user message",
    _row(("user", "x" * _MAX_ROW_BYTES), ("assistant", "b")): "longer than 1000 bytes",
}


class RowsTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self._path = Path(folder.name) / "data.jsonl"

    def _read(
        self, data: bytes, *, skips: bool = False, max_row_bytes: int = _MAX_ROW_BYTES
    ) -> tuple[list[int], RowPolicy]:
        """The lines of the good rows."""
        self._path.write_bytes(data)
        policy = RowPolicy(skips=skips)
        return [row.line for row in read_rows(self._path, max_row_bytes, policy)], policy

    def test_every_bad_line_is_named_with_its_reason(self) -> None:
        for line, reason in _BAD_LINES.items():
            with self.subTest(line=line[:60]):
                with self.assertRaises(RefusedError) as raised:
                    self._read(_GOOD + b"\n" + line + b"\n" + _GOOD + b"\n")
                self.assertTrue(str(raised.exception).startswith("line 2: "), raised.exception)
                self.assertIn(reason, str(raised.exception))

    def test_skipped_lines_are_counted_and_the_others_kept(self) -> None:
        data = b"\n".join([_GOOD, *_BAD_LINES, _GOOD])
        lines, policy = self._read(data, skips=True)
        self.assertEqual(lines, [1, len(_BAD_LINES) + 2])
        self.assertEqual(policy.skipped_count, len(_BAD_LINES))
        self.assertEqual(len(policy.examples), 5)
        self.assertTrue(policy.examples[0].startswith("line 2: "))

    def test_any_end_of_line_and_none_at_the_end(self) -> None:
        self.assertEqual(self._read(_GOOD + b"\r\n" + _GOOD + b"\n" + _GOOD)[0], [1, 2, 3])
        self.assertEqual(self._read(b"")[0], [])

    def test_the_longest_row_fits_exactly_with_any_end_of_line(self) -> None:
        for end in (b"\n", b"\r\n", b""):
            self.assertEqual(self._read(_GOOD + end, max_row_bytes=len(_GOOD))[0], [1])
            with self.assertRaisesRegex(RefusedError, "line 1: the row is longer than"):
                self._read(_GOOD + end, max_row_bytes=len(_GOOD) - 1)

    def test_json_that_is_nested_100000_deep(self) -> None:
        for deep in (b"[" * 100_000 + b"]" * 100_000, b'{"a":' * 100_000 + b"1" + b"}" * 100_000):
            with self.assertRaisesRegex(RefusedError, "line 2: is JSON that is nested too deep"):
                self._read(_GOOD + b"\n" + deep, max_row_bytes=1 << 20)

    def test_an_integer_of_5000_digits(self) -> None:
        with self.assertRaisesRegex(RefusedError, "line 1: is not JSON that can be read"):
            self._read(b'{"id": ' + b"1" * 5000 + b"}", max_row_bytes=1 << 20)

    def test_a_huge_line_is_never_held_whole(self) -> None:
        data = _GOOD + b"\n" + b"x" * (32 << 20) + b"\n" + _GOOD
        self._path.write_bytes(data)
        del data
        policy = RowPolicy(skips=True)
        tracemalloc.start()
        lines = [row.line for row in read_rows(self._path, _MAX_ROW_BYTES, policy)]
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        self.assertEqual(lines, [1, 3])
        self.assertLess(peak_bytes, 1 << 20)


if __name__ == "__main__":
    unittest.main()
