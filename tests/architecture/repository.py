"""The repository as the architecture tests see it: its files, its BUILD files, its targets."""

import ast
import subprocess
import unittest
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
unittest.TestCase.maxDiff = None  # a list of findings is of use only as a whole
_SELF = "tests/architecture/"


@dataclass(frozen=True)
class Target:
    """One call of a rule or macro in a BUILD file."""

    package: str
    rule: str
    name: str
    srcs: tuple[str, ...]
    data: tuple[str, ...]
    deps: tuple[str, ...]  # full labels, `//package:name` or `@repository//:name`
    visibility: tuple[str, ...]
    tags: tuple[str, ...]

    @property
    def label(self) -> str:
        return f"//{self.package}:{self.name}"


@cache
def files(*suffixes: str) -> tuple[str, ...]:
    """Paths from the root of what is, or would be, committed; the tests' own code left out."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return tuple(
        path
        for path in sorted(set(listing.stdout.splitlines()))
        if path.endswith(suffixes or "") and not path.startswith(_SELF) and (ROOT / path).is_file()
    )


@cache
def text(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8", errors="replace")


def lines(path: str) -> Iterator[tuple[str, str]]:
    """Each line with its place, `path:number`."""
    for number, line in enumerate(text(path).splitlines(), start=1):
        yield f"{path}:{number}", line


def _strings(node: ast.expr | None) -> tuple[str, ...]:
    """Every string constant in an expression: lists, sums of lists and select()s alike."""
    if node is None:
        return ()
    return tuple(
        part.value
        for part in ast.walk(node)
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
    )


def full_label(label: str, package: str) -> str:
    if label.startswith(":"):
        return f"//{package}{label}"
    if label.startswith("//") and ":" not in label:
        return f"{label}:{label.rsplit('/', 1)[-1]}"
    if label.startswith("@") and "//" not in label:
        return f"{label}//:{label[1:]}"
    return label


def calls(path: str) -> Iterator[tuple[str, dict[str, ast.expr], int]]:
    """The top-level calls of a BUILD file: the function, its keywords, the line."""
    for statement in ast.parse(text(path), path).body:
        call = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
            keywords = {k.arg: k.value for k in call.keywords if k.arg}
            yield call.func.id, keywords, call.lineno


def build_files() -> tuple[str, ...]:
    return files("/BUILD.bazel")


@cache
def targets() -> tuple[Target, ...]:
    found = []
    for path in build_files():
        package = path.removesuffix("/BUILD.bazel")
        for rule, keywords, _ in calls(path):
            if "name" not in keywords:
                continue
            found.append(
                Target(
                    package=package,
                    rule=rule,
                    name=_strings(keywords["name"])[0],
                    srcs=_strings(keywords.get("srcs")),
                    data=_strings(keywords.get("data")),
                    deps=tuple(full_label(d, package) for d in _strings(keywords.get("deps"))),
                    visibility=_strings(keywords.get("visibility")),
                    tags=_strings(keywords.get("tags")),
                )
            )
    return tuple(found)


@cache
def closure(label: str) -> frozenset[str]:
    """All that a target depends on, itself included."""
    by_label = {target.label: target for target in targets()}
    seen: set[str] = set()
    waiting = [label]
    while waiting:
        current = waiting.pop()
        if current not in seen:
            seen.add(current)
            waiting.extend(by_label[current].deps if current in by_label else ())
    return frozenset(seen)
