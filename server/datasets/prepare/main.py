"""The command line: `check` and `tokenize`. The last line on stdout is the result as JSON.

Exit code 0 with {"ok": true, ...}; 1 with {"ok": false, "error": TEXT}, where the text is for the
user; anything else is a fault of this program, told on stderr.
"""

import argparse
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from prepare.confinement import confine
from prepare.errors import BadRowError, RefusedError
from prepare.rows import RowPolicy, read_rows

Result = dict[str, bool | int | str | list[str]]


def main(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    isolated = confine(
        options.memory_limit_bytes,
        options.cpu_limit_seconds,
        options.file_limit_bytes,
        options.parent_pid,
    )
    try:
        result: Result = {"ok": True, **options.run(options), "network_isolated": isolated}
    except RefusedError as error:
        result = {"ok": False, "error": str(error)}
    except MemoryError:
        result = {
            "ok": False,
            "error": f"it takes more than {options.memory_limit_bytes} bytes of memory: split rows",
        }
    except OSError as error:
        text = f"{error.filename or 'a file'}: {error.strerror}"
        result = {"ok": False, "error": text, "error_number": error.errno or 0}
    print(json.dumps(result))
    return 0 if result["ok"] else 1


def check(options: argparse.Namespace) -> Result:
    """Reads every row of the file."""
    policy = RowPolicy(skips=options.on_bad_row == "skip")
    row_count = sum(1 for _ in read_rows(options.input, options.max_row_bytes, policy))
    _check_not_empty(row_count, policy)
    return {"row_count": row_count, **_skipped(policy)}


def tokenize(options: argparse.Namespace) -> Result:
    """Writes the file's rows as a folder of tokens."""
    # Imported here: a check needs neither library.
    from prepare.chat_template import load_chat_template
    from prepare.encoding import Encoder, load_tokenizer
    from prepare.prepared_folder import PreparedFolder

    template = load_chat_template(options.model, options.now)
    tokenizer = load_tokenizer(options.model)
    encoder = Encoder(tokenizer, template, options.max_sequence_length, options.vocabulary_size)
    bad_rows = RowPolicy(skips=options.on_bad_row == "skip")
    untrained_rows = RowPolicy(skips=options.on_untrained_row == "skip")
    cut_row_count = 0
    with PreparedFolder(options.staging) as folder:
        for row in read_rows(options.input, options.max_row_bytes, bad_rows):
            try:
                encoded = encoder.encode(row.messages)
            except BadRowError as error:
                untrained_rows.refuse(row.line, error)
            except RefusedError as error:
                raise RefusedError(f"line {row.line}: {error}") from error
            else:
                cut_row_count += encoded.was_cut
                folder.add(encoded)
        _check_not_empty(folder.row_count, untrained_rows)
        if folder.trained_token_count == folder.token_count - folder.row_count:
            raise RefusedError(
                "every token would be trained, questions too: the model's chat template renders "
                "nothing before the answers"
            )
        folder.publish(options.output, options.fingerprint)
        return {**folder.counts(), "cut_row_count": cut_row_count, **_skipped(untrained_rows)}


def _check_not_empty(row_count: int, policy: RowPolicy) -> None:
    if row_count:
        return
    if policy.skipped_count:
        raise RefusedError(
            f"none of its {policy.skipped_count} rows can be used; the first: {policy.examples[0]}"
        )
    raise RefusedError("the data set is empty: it needs at least one row")


def _skipped(policy: RowPolicy) -> Result:
    return {"skipped_row_count": policy.skipped_count, "skipped_examples": policy.examples}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="prepare", description=__doc__, allow_abbrev=False)
    commands = parser.add_subparsers(required=True)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--input", type=Path, required=True, help="a JSONL file")
    common.add_argument("--max-row-bytes", type=int, required=True)
    common.add_argument("--on-bad-row", choices=("error", "skip"), required=True)
    common.add_argument("--memory-limit-bytes", type=int, required=True)
    common.add_argument("--cpu-limit-seconds", type=int, required=True)
    common.add_argument("--file-limit-bytes", type=int, required=True)
    common.add_argument("--parent-pid", type=int, default=0, help="dies with it; 0: with none")
    checker = commands.add_parser("check", parents=[common])
    checker.set_defaults(run=check)
    maker = commands.add_parser("tokenize", parents=[common])
    maker.add_argument("--model", type=Path, required=True, help="a Hugging Face folder")
    maker.add_argument("--staging", type=Path, required=True, help="does not exist; same disk")
    maker.add_argument("--output", type=Path, required=True, help="does not exist")
    maker.add_argument("--fingerprint", required=True)
    maker.add_argument("--max-sequence-length", type=int, required=True)
    maker.add_argument("--vocabulary-size", type=int, required=True)
    maker.add_argument("--on-untrained-row", choices=("error", "skip"), required=True)
    maker.add_argument("--now", type=_unix_time, required=True, help="for strftime_now, in seconds")
    maker.set_defaults(run=tokenize)
    return parser


def _unix_time(text: str) -> datetime:
    return datetime.fromtimestamp(int(text), UTC)
