#!/usr/bin/python3
"""Dependencies point down only: the layers of docs/ARCHITECTURE.md, read from the BUILD files."""

import ast
import re
import unittest

import repository

# From the bottom to the top. A package may depend on its own level and those below.
_LEVELS = [
    ["runtime/base"],
    ["proto", "runtime/config", "runtime/safetensors"],
    [
        "runtime/device",
        "runtime/hoststore",
        "runtime/kernels",
        "runtime/model",
        "runtime/ops",
        "runtime/optimizer",
    ],
    [
        "runtime/checkpoint",
        "runtime/data",
        "runtime/model_io",
        "runtime/pipeline",
        "runtime/planner",
        "runtime/schedule",
    ],
    ["runtime/benchmark", "runtime/machine", "runtime/trainer"],
    ["client/lib", "server/database", "server/errors"],
    ["client/cli", "server"],
    ["server/api", "server/engine"],
    ["server/main"],
    ["tests"],
]
_INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
_SORTED = ("data", "deps", "hdrs", "srcs", "tags", "textual_hdrs", "visibility")
# gRPC's types stay at the edges: the API, the engine's socket, the counting of calls.
_GRPC_USERS = re.compile(
    r"^//(proto|client|tests)\b"
    r"|^//server/(api|engine|engine_process|errors|main)\b"
    r"|^//server/metrics:grpc_metrics"
)


def _level(package: str) -> int:
    """Of the longest name in _LEVELS that is the package or a folder above it."""
    matches = [
        (len(name), level)
        for level, names in enumerate(_LEVELS)
        for name in names
        if package == name or package.startswith(name + "/")
    ]
    if not matches:
        raise AssertionError(f"//{package} is on no layer: add it to {__file__} and to the docs")
    return max(matches)[1]


def _package(label: str) -> str:
    return label.removeprefix("//").split(":")[0]


class LayersTest(unittest.TestCase):
    def test_dependencies_point_down(self) -> None:
        wrong = []
        for target in repository.targets():
            if target.package.startswith("bazel") or not target.package:
                continue
            for dep in target.deps:
                ours = dep.startswith("//") and not dep.startswith("//bazel")
                if ours and _level(_package(dep)) > _level(target.package):
                    wrong.append(f"{target.label} -> {dep}")
        self.assertEqual([], wrong)

    def test_client_and_server_share_the_protocol_only(self) -> None:
        wrong = [
            f"{target.label} -> {dep}"
            for target in repository.targets()
            for dep in target.deps
            if (target.package.startswith("client/") and dep.startswith("//server"))
            or (target.package.startswith("server/") and dep.startswith("//client"))
        ]
        self.assertEqual([], wrong)

    def test_daemon_and_client_never_link_libtorch(self) -> None:
        for binary in ("//server/main:megatraind", "//client/cli:megatrain"):
            torch = [dep for dep in repository.closure(binary) if dep.startswith("@libtorch")]
            self.assertEqual([], torch, binary)

    def test_only_what_is_tagged_cuda_needs_the_toolkit(self) -> None:
        needing = {t.label for t in repository.targets() if t.rule == "cuda_library"}
        needing |= {t.label for t in repository.targets() if "cuda" in t.tags}
        self.assertTrue(needing)
        wrong = [
            f"{target.label} -> {dep}"
            for target in repository.targets()
            if target.label not in needing
            for dep in target.deps
            if dep in needing or dep.startswith(("@cuda", "@cudnn"))
        ]
        self.assertEqual([], wrong)

    def test_runtime_knows_neither_protobuf_nor_grpc(self) -> None:
        wrong = [
            f"{target.label} -> {dep}"
            for target in repository.targets()
            if target.package.startswith("runtime/")
            for dep in repository.closure(target.label)
            if dep.startswith(("//proto", "@grpc", "@protobuf", "@googleapis"))
        ]
        self.assertEqual([], wrong)

    def test_grpc_stays_at_the_edges(self) -> None:
        wrong = [
            target.label
            for target in repository.targets()
            if any(dep.startswith("@grpc") for dep in target.deps)
            and not _GRPC_USERS.search(target.label)
        ]
        self.assertEqual([], wrong)


class BuildFilesTest(unittest.TestCase):
    def test_no_glob_of_sources(self) -> None:
        globs = [
            path
            for path in repository.build_files()
            if "glob(" in repository.text(path) and path not in self._may_glob
        ]
        self.assertEqual([], globs)

    # Build files and .proto files that other packages name one by one.
    _may_glob = ("bazel/system/BUILD.bazel", "proto/megatrain/v1/BUILD.bazel")

    def test_lists_are_sorted(self) -> None:
        wrong = []
        for path in repository.build_files():
            for rule, keywords, line in repository.calls(path):
                for key in _SORTED:
                    value = keywords.get(key)
                    if not isinstance(value, ast.List):
                        continue
                    labels = [str(ast.literal_eval(item)) for item in value.elts]
                    if labels != sorted(labels, key=_sort_key):
                        wrong.append(f"{path}:{line}: {rule}: {key}")
        self.assertEqual([], wrong)

    def test_targets_depend_on_what_they_include(self) -> None:
        """Clang's include layering says the same, but of what it compiles: not of CUDA."""
        exporters = {
            f"{target.package}/{name.lstrip(':')}": target.label
            for target in repository.targets()
            for name in target.hdrs
        }
        self.assertTrue(exporters)
        files = {path for path in repository.files() if not path.startswith("tests/neg/")}
        wrong = []
        for target in repository.targets():
            own = [f"{target.package}/{n.lstrip(':')}" for n in (*target.srcs, *target.hdrs)]
            for path in own:
                includes = _INCLUDE.findall(repository.text(path)) if path in files else []
                for name in includes:
                    exporter = exporters.get(name)
                    if name not in own and exporter and exporter not in target.deps:
                        wrong.append(f"{target.label}: {path} includes {name} of {exporter}")
        self.assertEqual([], wrong)

    def test_every_source_has_a_target(self) -> None:
        used = {
            f"{target.package}/{name.lstrip(':')}"
            for target in repository.targets()
            for name in (*target.srcs, *target.hdrs)
        }
        sources = repository.files(".cc", ".h", ".cu", ".cuh")
        self.assertEqual([], [path for path in sources if path not in used])


def _sort_key(label: str) -> tuple[int, str]:
    """Buildifier's order: files, this package, this repository, other repositories."""
    ranks = {":": 1, "/": 2, "@": 3}
    return ranks.get(label[:1], 0), label.replace(":", "!")


if __name__ == "__main__":
    unittest.main()
