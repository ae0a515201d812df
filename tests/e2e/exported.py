"""An exported model: its bytes, and transformers' view of it."""

import hashlib
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM


def load(folder: Path) -> Any:
    """The folder's model in float32; fails on a missing or unexpected key."""
    model, info = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True
    )
    problems = {
        kind: keys
        for kind, keys in info.items()
        if keys and kind in ("missing_keys", "unexpected_keys", "mismatched_keys")
    }
    if problems:
        raise AssertionError(f"{folder}: {problems}")
    return model.eval()


def content(folder: Path) -> dict[str, str]:
    """Digests of all files by their paths in the folder."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }
