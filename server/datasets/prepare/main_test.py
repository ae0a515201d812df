"""The program as the daemon runs it: results, folders, limits, what is left after a death."""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import unittest
from array import array
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

_VOCABULARY = ["user", "assistant", "end", "a", "b", "c"]
_TEMPLATE = (
    "{% for m in messages %}{{ m.role }} {{ m.content }} end {% endfor %}"
    "{% if add_generation_prompt %}assistant {% endif %}"
)


def _row(question: str, answer: str) -> str:
    turns = [("user", question), ("assistant", answer)]
    return json.dumps({"messages": [{"role": r, "content": c} for r, c in turns]})


class MainTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self._folder = Path(folder.name)
        self._data = self._folder / "data.jsonl"
        self._output = self._folder / "prepared"
        self._model = self._folder / "model"
        self._model.mkdir()
        ids = {word: i for i, word in enumerate(_VOCABULARY)}
        tokenizer = Tokenizer(WordLevel(ids, unk_token="a"))
        tokenizer.pre_tokenizer = WhitespaceSplit()
        tokenizer.add_special_tokens(["end"])
        tokenizer.save(str(self._model / "tokenizer.json"))
        self._set_template(_TEMPLATE)

    def _set_template(self, template: str) -> None:
        (self._model / "chat_template.jinja").write_text(template)

    def _start(self, mode: str, *extra: str, **limits: int) -> subprocess.Popen[str]:
        limit = {"memory": 2 << 30, "cpu": 60, "file": 1 << 30, **limits}
        command = [sys.executable, "-m", "prepare", mode, "--input", str(self._data)]
        command += ["--max-row-bytes", "1000", "--memory-limit-bytes", str(limit["memory"])]
        command += ["--cpu-limit-seconds", str(limit["cpu"])]
        command += ["--file-limit-bytes", str(limit["file"])]
        if mode == "tokenize":
            command += ["--model", str(self._model), "--staging", str(self._folder / "staging")]
            command += ["--output", str(self._output), "--fingerprint", "f00d", "--now", "0"]
            command += ["--max-sequence-length", "8", "--vocabulary-size", "6"]
            command += ["--on-untrained-row", "error"] if "--on-untrained-row" not in extra else []
        command += ["--on-bad-row", "error"] if "--on-bad-row" not in extra else []
        environment = {"PYTHONPATH": os.environ["PYTHONPATH"]}
        return subprocess.Popen(
            [*command, *extra],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def _run(self, mode: str, *extra: str, **limits: int) -> dict[str, Any]:
        process = self._start(mode, *extra, **limits)
        out, err = process.communicate()
        self.assertTrue(out, err)
        result: dict[str, Any] = json.loads(out.splitlines()[-1])
        self.assertEqual(process.returncode, 0 if result["ok"] else 1, err)
        return result

    def _error(self, mode: str, *extra: str, **limits: int) -> str:
        result = self._run(mode, *extra, **limits)
        self.assertFalse(result["ok"])
        self.assertFalse(self._output.exists())
        return str(result["error"])

    def test_check_counts(self) -> None:
        self._data.write_text(f"{_row('a', 'b')}\nbad\n{_row('a', 'c')}\n")
        self.assertIn("line 2: is not JSON", self._error("check"))
        result = self._run("check", "--on-bad-row", "skip")
        self.assertEqual((result["row_count"], result["skipped_row_count"]), (2, 1))
        self.assertEqual(len(result["skipped_examples"]), 1)

    def test_an_empty_data_set_is_refused(self) -> None:
        self._data.write_text("")
        self.assertIn("the data set is empty", self._error("check"))
        self._data.write_text("bad\n")
        error = self._error("check", "--on-bad-row", "skip")
        self.assertIn("none of its 1 rows can be used; the first: line 1: is not JSON", error)

    def test_an_absent_file_is_named(self) -> None:
        self.assertIn("data.jsonl: No such file", self._error("check"))

    def test_tokenize_writes_the_folder(self) -> None:
        rows = [_row("a", "b c"), _row("a b c a", "b c"), _row("a", "c")]
        self._data.write_text("\n".join(rows))
        result = self._run("tokenize")
        # Each row: user QUESTION end assistant ANSWER end, cut at 8 tokens.
        tokens = [0, 3, 2, 1, 4, 5, 2, 0, 3, 4, 5, 3, 2, 1, 4, 0, 3, 2, 1, 5, 2]
        trained = [0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 1]
        self.assertEqual(
            self._output.joinpath("tokens.bin").read_bytes(), array("i", tokens).tobytes()
        )
        self.assertEqual(self._output.joinpath("trained.bin").read_bytes(), bytes(trained))
        self.assertEqual(
            self._output.joinpath("rows.bin").read_bytes(), array("q", [0, 7, 15, 21]).tobytes()
        )
        manifest = json.loads(self._output.joinpath("manifest.json").read_text())
        self.assertEqual(manifest["fingerprint"], "f00d")
        self.assertEqual(manifest["format"], 1)
        counts = {
            "row_count": 3,
            "token_count": 21,
            "trained_token_count": 6,
            "longest_row_tokens": 8,
        }
        self.assertEqual({name: manifest[name] for name in counts}, counts)
        self.assertEqual({name: result[name] for name in counts}, counts)
        self.assertEqual(result["cut_row_count"], 1)
        for name, facts in manifest["files"].items():
            data = self._output.joinpath(name).read_bytes()
            self.assertEqual(facts["size_bytes"], len(data))
            self.assertEqual(facts["sha256"], hashlib.sha256(data).hexdigest())
        self.assertFalse((self._folder / "staging").exists())

    def test_rows_without_a_trained_token(self) -> None:
        self._data.write_text(f"{_row('a', 'b')}\n{_row('a a a a a a', 'b')}\n")
        self.assertIn("line 2: has no token to learn", self._error("tokenize"))
        self._remove_staging()
        result = self._run("tokenize", "--on-untrained-row", "skip")
        self.assertEqual((result["row_count"], result["skipped_row_count"]), (1, 1))

    def _remove_staging(self) -> None:
        for file in (self._folder / "staging").iterdir():
            file.unlink()
        (self._folder / "staging").rmdir()

    def test_a_template_that_shows_no_question_is_refused(self) -> None:
        self._set_template("{% for m in messages[1:] %}{{ m.content }} end {% endfor %}")
        self._data.write_text(_row("a", "b"))
        self.assertIn("every token would be trained", self._error("tokenize"))

    def test_limits(self) -> None:
        self._data.write_text("\n".join([_row("a", "b")] * 2000))
        self.assertIn("File too large", self._error("tokenize", file=4096))
        self._remove_staging()
        self._set_template("{% set x = 'x' * 100000000000 %}" + _TEMPLATE)
        self.assertIn("bytes of memory", self._error("tokenize", memory=1 << 30))
        self._remove_staging()
        endless = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
        self._set_template(endless + _TEMPLATE)
        process = self._start("tokenize", cpu=2)
        process.communicate()
        self.assertLess(process.returncode, 0)
        self.assertFalse(self._output.exists())

    def test_has_no_network_where_the_kernel_lets_it_go(self) -> None:
        self._data.write_text(_row("a", "b"))
        result = self._run("check")
        probe = "import ctypes; print(ctypes.CDLL(None).unshare(0x50000000))"
        can = subprocess.run([sys.executable, "-c", probe], capture_output=True, check=True)
        self.assertEqual(result["network_isolated"], can.stdout.strip() == b"0")

    def test_dies_when_its_parent_is_another(self) -> None:
        self._data.write_text(_row("a", "b"))
        process = self._start("check", "--parent-pid", "1")
        process.communicate()
        self.assertEqual(process.returncode, -9)

    def test_killed_at_any_point_it_leaves_all_or_nothing(self) -> None:
        self._data.write_text("\n".join([_row("a", "b c")] * 20000))
        for wanted_bytes in (0, 1000, 200_000):
            process = self._start("tokenize")
            tokens = self._folder / "staging" / "tokens.bin"
            while not (tokens.exists() and tokens.stat().st_size >= wanted_bytes):
                self.assertIsNone(process.poll())
            process.kill()
            process.communicate()
            self.assertFalse(self._output.exists())
            self._remove_staging()
        self.assertEqual(self._run("tokenize")["row_count"], 20000)


if __name__ == "__main__":
    unittest.main()
