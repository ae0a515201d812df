#!/usr/bin/python3
"""Words that no file, or only some files, may hold."""

import re
import unittest

import repository

# What, where it is searched (a pattern of paths), where it is allowed all the same, and why.
_BANNED = [
    (
        r"\b(system|steady|high_resolution)_clock::now|\babsl::Now\(|\bclock_gettime\(|\btime\(nullptr\)",
        r"\.(cc|cuh?|h)$",
        r"^runtime/base/clock\.cc$|_test\.cc$",  # tests give calls a deadline
        "real time comes from runtime/base/clock.h",
    ),
    (
        r"\bsleep_for\b|\bsleep_until\b|\babsl::SleepFor\b|\b(u|nano)?sleep\(",
        r"\.(cc|cuh?|h)$",
        r"^runtime/base/|^server/engine_process/scripted_engine\.cc$",  # a process that plays work
        "wait on a condition or on the clock of runtime/base",
    ),
    (
        r"\bstd::random_device\b|\bs?rand\(|\bgetrandom\(",
        r"\.(cc|cuh?|h)$",
        r"^runtime/base/|_test\.cc$",  # tests draw a seed, and print it
        "results must not depend on unseeded randomness",
    ),
    (
        r"\babsl::Mutex\b|\bstd::(recursive_)?mutex\b|\bstd::condition_variable\b",
        r"\.(cc|cuh?|h)$",
        r"^runtime/base/",
        "locks are those of runtime/base/mutex.h, which the compiler checks",
    ),
    (
        r"torch/torch\.h|torch/extension\.h",
        r"\.(cc|cuh?|h)$",
        None,
        "include the narrow ATen headers",
    ),
    (
        r"\b(ATen|c10)/",
        r"^(server|client)/.*\.(cc|h)$",
        r"^server/engine/",
        "LibTorch stays in the engine",
    ),
    (r"\bTODO\b|\bFIXME\b|\bXXX\b", r".", None, "do it, or leave it out"),
    (r"(^|[\s\"'=(])/work/|\.\./shared\b", r".", None, "a path of one machine"),
    (
        r"^\s*(class|struct)\s+\w*(Manager|Helper|Util|Utils|Impl)\b",
        r"\.(cc|cuh?|h)$",
        None,
        "a name that says nothing",
    ),
]
_LONGEST_FILE_BYTES = 1 << 20


class WordsTest(unittest.TestCase):
    def test_no_banned_word(self) -> None:
        found = []
        for word, where, allowed, reason in _BANNED:
            for path in repository.files():
                if not re.search(where, path) or (allowed and re.search(allowed, path)):
                    continue
                found += [
                    f"{place}: {line.strip()[:80]} ({reason})"
                    for place, line in repository.lines(path)
                    if re.search(word, line)
                ]
        self.assertEqual([], found)

    def test_header_guards_are_named_by_path(self) -> None:
        wrong = []
        for path in repository.files(".h", ".cuh"):
            guard = re.sub(r"[^A-Z0-9]", "_", path.upper()) + "_"
            content = repository.text(path)
            if f"#ifndef {guard}\n#define {guard}\n" not in content:
                wrong.append(f"{path}: expected the guard {guard}")
        self.assertEqual([], wrong)

    def test_no_large_file(self) -> None:
        large = [
            path
            for path in repository.files()
            if (repository.ROOT / path).stat().st_size > _LONGEST_FILE_BYTES
        ]
        self.assertEqual([], large)


if __name__ == "__main__":
    unittest.main()
