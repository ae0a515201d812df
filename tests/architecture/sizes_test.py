#!/usr/bin/python3
"""Files and functions stay short enough to be read in one go."""

import json
import subprocess
import unittest

import repository

_LONGEST_FILE = 600
_LONGEST_FUNCTION = 70
_LANGUAGES = (".cc", ".h", ".cu", ".cuh", ".py")


def _functions() -> list[tuple[str, int]]:
    """(place and name, lines) of every function that is defined."""
    command = [
        "ctags",
        "--output-format=json",
        "--fields=+ne",
        "--kinds-C++=f",
        "--kinds-Python=fm",
    ]
    command += ["--langmap=C++:+.h.cu.cuh", "-f", "-", "-L", "-"]
    listing = subprocess.run(
        command,
        cwd=repository.ROOT,
        check=True,
        input="\n".join(repository.files(*_LANGUAGES)),
        stdout=subprocess.PIPE,
        text=True,
    )
    tags = [json.loads(line) for line in listing.stdout.splitlines()]
    return [
        (f"{tag['path']}:{tag['line']} {tag['name']}", tag["end"] - tag["line"] + 1)
        for tag in tags
        if tag.get("_type") == "tag" and "end" in tag
    ]


class SizesTest(unittest.TestCase):
    def test_files(self) -> None:
        sizes = {
            path: repository.text(path).count("\n")
            for path in repository.files(*_LANGUAGES, ".proto", ".bzl", ".bazel")
        }
        long = {path: size for path, size in sizes.items() if size > _LONGEST_FILE}
        self.assertEqual({}, long)

    def test_functions(self) -> None:
        functions = _functions()
        self.assertGreater(len(functions), 100, "ctags finds no functions: the check is broken")
        long = [(place, size) for place, size in functions if size > _LONGEST_FUNCTION]
        self.assertEqual([], long)


if __name__ == "__main__":
    unittest.main()
