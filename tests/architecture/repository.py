"""The repository as the architecture tests see it: its files, its BUILD files, its targets."""

import ast
import copy
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
    hdrs: tuple[str, ...]  # textual ones too
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


class _Substitution(ast.NodeTransformer):
    """Puts values in the place of names, and adds up what are strings then."""

    def __init__(self, values: dict[str, ast.expr]) -> None:
        self._values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:  # ast's name
        return self._values.get(node.id, node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        sides = (node.left, node.right)
        if all(isinstance(s, ast.Constant) and isinstance(s.value, str) for s in sides):
            return ast.Constant("".join(ast.literal_eval(side) for side in sides))
        return node


def _parts(node: ast.expr) -> list[ast.expr]:
    return node.elts if isinstance(node, ast.Tuple) else [node]


def _expanded(value: ast.expr, names: dict[str, ast.expr]) -> Iterator[ast.expr]:
    """The expression itself, or each element of `[... for name in [...]]`."""
    if not isinstance(value, ast.ListComp):
        yield _Substitution(names).visit(copy.deepcopy(value))
        return
    loop = value.generators[0]
    for item in loop.iter.elts if isinstance(loop.iter, ast.List) else []:
        variables = [ast.unparse(name) for name in _parts(loop.target)]
        known = {**names, **dict(zip(variables, _parts(item), strict=True))}
        yield _Substitution(known).visit(copy.deepcopy(value.elt))


def calls(path: str) -> Iterator[tuple[str, dict[str, ast.expr], int]]:
    """The top-level calls of a BUILD file: the function, its keywords, the line."""
    names: dict[str, ast.expr] = {}
    for statement in ast.parse(text(path), path).body:
        if isinstance(statement, ast.Assign):
            names[ast.unparse(statement.targets[0])] = statement.value
        elif isinstance(statement, ast.Expr):
            for call in _expanded(statement.value, names):
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
                    keywords = {k.arg: k.value for k in call.keywords if k.arg}
                    yield call.func.id, keywords, statement.lineno


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
                    hdrs=_strings(keywords.get("hdrs")) + _strings(keywords.get("textual_hdrs")),
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
