#!/usr/bin/python3
"""tests/rules.txt: each acceptance rule names test cases, and they exist."""

import re
import unittest

import repository

_RULES = "tests/rules.txt"
# Rules that the product keeps by now; the list only grows.
_KEPT = {
    "R1",
    "R2",
    "R3",
    "R4",
    "R5",
    "R6",
    "R7",
    "R8",
    "R9",
    "R10",
    "R11",
    "R12",
    "R13",
    "R14",
    "R15",
    "R16",
    "R17",
    "R18",
    "R19",
    "R20",
    "R21",
    "R22",
    "R24",
    "R28",
    "R29",
    "R30",
    "R31",
}


def _entries() -> list[tuple[str, str, str]]:
    """(rule, target, test case), one a line."""
    rows = []
    for place, line in repository.lines(_RULES):
        if line.strip() and not line.startswith("#"):
            words = line.split()
            if len(words) != 3:
                raise AssertionError(f"{place}: expected RULE TARGET CASE")
            rows.append((words[0], words[1], words[2]))
    return rows


def _holds_case(source: str, case: str) -> bool:
    suite, _, name = case.rpartition(".")
    if source.endswith(".py"):
        pattern = rf"def {re.escape(name)}\("
    elif source.endswith(".cc"):
        pattern = rf"TEST(_[FP])?\(\s*{re.escape(suite)},\s*{re.escape(name)}\s*\)"
    else:
        return False
    return re.search(pattern, repository.text(source)) is not None


class RulesTest(unittest.TestCase):
    def test_every_kept_rule_has_a_test(self) -> None:
        self.assertEqual([], sorted(_KEPT - {rule for rule, _, _ in _entries()}))

    def test_targets_and_cases_exist(self) -> None:
        tests = {t.label: t for t in repository.targets() if t.rule.endswith("_test")}
        missing = []
        for rule, label, case in _entries():
            if label not in tests:
                missing.append(f"{rule}: no test target {label}")
                continue
            target = tests[label]
            names = [name.lstrip(":") for name in (*target.srcs, *target.data)]
            sources = set(repository.files()) & {f"{target.package}/{name}" for name in names}
            if not any(_holds_case(source, case) for source in sources):
                missing.append(f"{rule}: no case {case} in {label}")
        self.assertEqual([], missing)


if __name__ == "__main__":
    unittest.main()
