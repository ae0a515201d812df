#!/usr/bin/python3
"""What users can see is documented, and what is documented exists."""

import re
import unittest

import repository

_FLAG = re.compile(r'add_(?:flag|option)\w*(?:<[^>]*>)?\(\s*"([^"]+)"')
# The daemon's table of settings, each a flag and a key.
_SETTING = re.compile(r'\b(?:Text|Texts|Number)\(\s*"([a-z_]+)"')
_COMMAND = re.compile(r'add_subcommand\(\s*"([^"]+)"')
_METRIC = re.compile(r'"((?:megatrain|process|grpc_server)_[a-z0-9_]+)"')
_RPC = re.compile(r"^  rpc (\w+)\(", re.MULTILINE)
_JOB_MESSAGES = (
    "TrainingSpec",
    "TrainOptions",
    "OptimizerOptions",
    "ScheduleOptions",
    "PlacementOptions",
    "RetryOptions",
    "CheckpointOptions",
    "EvaluationOptions",
)


def _found(pattern: re.Pattern[str], prefix: str) -> set[str]:
    """Group 1 of every match in the production sources under a path."""
    return {
        match
        for path in repository.files(".cc", ".h")
        if path.startswith(prefix) and not path.endswith("_test.cc")
        for match in pattern.findall(repository.text(path))
    }


def _flags(prefix: str) -> set[str]:
    return {
        name
        for names in _found(_FLAG, prefix)
        for name in names.split(",")
        if name.startswith("--")
    }


def _documented(document: str) -> set[str]:
    """Everything between backticks, and its words."""
    spans = re.findall(r"`([^`\n]+)`", repository.text(document))
    fences = re.findall(r"```.*?\n(.*?)```", repository.text(document), re.DOTALL)
    words = {word for span in spans + fences for word in re.split(r"[\s,=|\[\]{}:().]+", span)}
    return words | set(spans)


class DocsTest(unittest.TestCase):
    def check(self, names: set[str], document: str) -> None:
        self.assertTrue(names, f"nothing found that {document} should document: a broken check")
        self.assertEqual(set(), names - _documented(document), f"missing in {document}")

    def test_cli_flags(self) -> None:
        self.check(_flags("client/"), "docs/CLI.md")

    def test_cli_commands(self) -> None:
        self.check(_found(_COMMAND, "client/"), "docs/CLI.md")

    def test_job_file_keys(self) -> None:
        proto = repository.text("proto/megatrain/v1/job.proto")
        keys = set()
        for message in _JOB_MESSAGES:
            body = proto.split(f"message {message} {{")[1].split("\n}")[0]
            keys |= set(re.findall(r"^  (?:optional )?\w+ (\w+) = \d+;", body, re.MULTILINE))
        self.check(keys, "docs/CLI.md")

    def test_daemon_and_engine_flags(self) -> None:
        settings = {"--" + key.replace("_", "-") for key in _found(_SETTING, "server/config/")}
        self.assertTrue(settings)
        self.check(_flags("server/") | settings, "docs/CONFIG.md")

    def test_rpcs(self) -> None:
        rpcs = {
            name
            for path in repository.files(".proto")
            for name in _RPC.findall(repository.text(path))
        }
        self.check(rpcs, "docs/API.md")

    def test_metrics(self) -> None:
        names = _found(_METRIC, "server/")
        self.check(names, "docs/METRICS.md")
        rows = re.findall(r"^\| `(\w+)`", repository.text("docs/METRICS.md"), re.MULTILINE)
        self.assertEqual(set(), set(rows) - names, "documented, but not in the code")

    def test_dependencies_have_reasons(self) -> None:
        pins = re.findall(
            r"^(?:test-)?(?:deb|pip) ([^\s=]+)", repository.text("deploy/pins.txt"), re.MULTILINE
        )
        self.check(set(pins), "docs/DEPENDENCIES.md")

    def test_links_lead_somewhere(self) -> None:
        broken = []
        for path in repository.files(".md"):
            prose = re.sub(r"`[^`\n]*`", "", repository.text(path))
            for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", prose):
                target = (repository.ROOT / path).parent / link
                if not link.startswith(("http://", "https://")) and not target.exists():
                    broken.append(f"{path}: {link}")
        self.assertEqual([], broken)


if __name__ == "__main__":
    unittest.main()
