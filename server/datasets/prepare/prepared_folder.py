"""The folder of tokens that the engine reads: complete and durable, or not there."""

import hashlib
import json
import os
import sys
from array import array
from pathlib import Path
from types import TracebackType
from typing import Self

from prepare.encoding import EncodedRow

_FORMAT = 1


class _HashedFile:
    """A new file whose sha256 is known when it is complete."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("xb")
        self._sha256 = hashlib.sha256()
        self._size_bytes = 0

    def write(self, data: bytes) -> None:
        self._file.write(data)
        self._sha256.update(data)
        self._size_bytes += len(data)

    def finish(self) -> dict[str, int | str]:
        """Makes the file durable and says what it holds."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return {"size_bytes": self._size_bytes, "sha256": self._sha256.hexdigest()}

    def close(self) -> None:
        self._file.close()


class PreparedFolder:
    """Writes one folder: tokens.bin (int32), trained.bin (uint8, a byte per token), rows.bin
    (int64: where each row starts, in tokens, and the end of the last), all little-endian and
    without headers, and last manifest.json."""

    def __init__(self, staging: Path) -> None:
        """`staging` does not exist yet and lies on the disk of the final place."""
        staging.mkdir()
        self._staging = staging
        self._files = {
            name: _HashedFile(staging / name) for name in ("tokens.bin", "trained.bin", "rows.bin")
        }
        self._files["rows.bin"].write(_integers("q", [0]))
        self.row_count = 0
        self.token_count = 0
        self.trained_token_count = 0
        self.longest_row_tokens = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for file in self._files.values():
            file.close()

    def add(self, row: EncodedRow) -> None:
        self._files["tokens.bin"].write(_integers("i", row.token_ids))
        self._files["trained.bin"].write(row.trained)
        self.row_count += 1
        self.token_count += len(row.token_ids)
        self.trained_token_count += row.trained.count(1)
        self.longest_row_tokens = max(self.longest_row_tokens, len(row.token_ids))
        self._files["rows.bin"].write(_integers("q", [self.token_count]))

    def publish(self, target: Path, fingerprint: str) -> None:
        """Makes the folder durable at its final place, which must not hold anything yet."""
        manifest = _HashedFile(self._staging / "manifest.json")
        content = {
            "format": _FORMAT,
            **self.counts(),
            "fingerprint": fingerprint,
            "files": {name: file.finish() for name, file in self._files.items()},
        }
        manifest.write(json.dumps(content, indent=1).encode())
        manifest.finish()
        _sync_folder(self._staging)
        self._staging.rename(target)
        _sync_folder(target.parent)

    def counts(self) -> dict[str, int]:
        return {
            "row_count": self.row_count,
            "token_count": self.token_count,
            "trained_token_count": self.trained_token_count,
            "longest_row_tokens": self.longest_row_tokens,
        }


def _integers(code: str, values: list[int]) -> bytes:
    data = array(code, values)
    if sys.byteorder != "little":
        data.byteswap()
    return data.tobytes()


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
