"""Scores Hugging Face folders on held-out conversations, with transformers in fp32.

    score.py FOLDER... --rows FILE [--device DEVICE] [--min-exact PERCENT] [--max-loss LOSS]
             [--logits FILE]

Prints, each folder's value after the one before it:
  held-out exact match  greedy answers of at most 12 tokens, equal to the row's, in percent
  held-out loss         mean over the tokens of the rows' answers and their end-of-turn token
and two sample answers of each folder. With a bound, fails if the last folder misses it.
"""

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

_NEW_TOKENS = 12
_BATCH_ROWS = 50
_SAMPLES = 2


@dataclass(frozen=True)
class Row:
    question: str
    answer: str
    prompt: list[int]  # tokens up to the answer
    target: list[int]  # tokens of the answer and its end of turn


@dataclass(frozen=True)
class Score:
    exact_percent: float
    loss: float
    samples: list[str]


def _load_model(folder: Path, device: str) -> Any:
    """The model, with every tensor of the folder used and none missing."""
    model, info = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, local_files_only=True, output_loading_info=True
    )
    faults = {kind: sorted(names) for kind, names in info.items() if names}
    if faults:
        sys.exit(f"error: {folder}: transformers reports {faults}")
    return model.to(device).eval()


def _read_rows(path: Path, tokenizer: Any) -> list[Row]:
    rows = []
    with path.open(encoding="utf-8") as file:
        for line in file:
            messages = json.loads(line)["messages"]
            prompt_text = tokenizer.apply_chat_template(
                messages[:-1], tokenize=False, add_generation_prompt=True
            )
            whole_text = tokenizer.apply_chat_template(messages, tokenize=False)
            prompt = tokenizer.encode(prompt_text, add_special_tokens=False)
            whole = tokenizer.encode(whole_text, add_special_tokens=False)
            end = len(whole) - whole[::-1].index(tokenizer.eos_token_id)
            target = whole[len(prompt) : end]
            rows.append(Row(messages[-2]["content"], messages[-1]["content"], prompt, target))
    return rows


def _equally_long(rows: list[Row], length: Any) -> Iterator[list[Row]]:
    """Batches of rows of one length, so that nothing is padded."""
    groups = defaultdict(list)
    for row in rows:
        groups[length(row)].append(row)
    for group in groups.values():
        for start in range(0, len(group), _BATCH_ROWS):
            yield group[start : start + _BATCH_ROWS]


def _answers(model: Any, tokenizer: Any, rows: list[Row]) -> dict[str, str]:
    """Question -> greedy answer."""
    answers = {}
    for batch in _equally_long(rows, lambda row: len(row.prompt)):
        prompts = torch.tensor([row.prompt for row in batch], device=model.device)
        output = model.generate(
            prompts,
            attention_mask=torch.ones_like(prompts),
            max_new_tokens=_NEW_TOKENS,
            do_sample=False,
        )
        texts = tokenizer.batch_decode(output[:, prompts.shape[1] :], skip_special_tokens=True)
        answers.update({row.question: text.strip() for row, text in zip(batch, texts, strict=True)})
    return answers


def _loss(model: Any, rows: list[Row]) -> float:
    total, count = 0.0, 0
    for batch in _equally_long(rows, lambda row: (len(row.prompt), len(row.target))):
        tokens = torch.tensor([row.prompt + row.target for row in batch], device=model.device)
        first = len(batch[0].prompt)
        logits = model(tokens).logits[:, first - 1 : -1]
        losses = torch.nn.functional.cross_entropy(
            logits.transpose(1, 2), tokens[:, first:], reduction="sum"
        )
        total += float(losses)
        count += tokens[:, first:].numel()
    return total / count


def _write_logits(model: Any, row: Row, path: Path) -> None:
    """The first row's token ids and their logits [tokens, vocabulary]."""
    tokens = torch.tensor([row.prompt + row.target], device=model.device)
    save_file({"tokens": tokens[0], "logits": model(tokens).logits[0].contiguous()}, path)


def score(folder: Path, rows_path: Path, device: str, logits_path: Path | None) -> Score:
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = _load_model(folder, device)
    rows = _read_rows(rows_path, tokenizer)
    if logits_path:
        _write_logits(model, rows[0], logits_path)
    answers = _answers(model, tokenizer, rows)
    exact = sum(answers[row.question] == row.answer for row in rows)
    samples = [f"{row.question} -> {answers[row.question]}" for row in rows[:_SAMPLES]]
    return Score(100 * exact / len(rows), _loss(model, rows), samples)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Scores models on held-out conversations.")
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--rows", type=Path, required=True, help="JSONL file of conversations")
    parser.add_argument("--device", default="cpu", help="torch's: cpu (default) or cuda")
    parser.add_argument("--min-exact", type=float, help="lowest exact match allowed, in percent")
    parser.add_argument("--max-loss", type=float, help="highest loss allowed")
    parser.add_argument("--logits", type=Path, help="gets the last folder's logits of row 1")
    return parser.parse_args()


def main() -> None:
    arguments = _arguments()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    last = arguments.folders[-1]
    with torch.inference_mode():
        scores = [
            score(
                folder,
                arguments.rows,
                arguments.device,
                arguments.logits if folder == last else None,
            )
            for folder in arguments.folders
        ]
    exact = " -> ".join(f"{s.exact_percent:.1f} %" for s in scores)
    loss = " -> ".join(f"{s.loss:.4f}" for s in scores)
    print(f"held-out exact match: {exact}")
    print(f"held-out loss: {loss}")
    for folder, result in zip(arguments.folders, scores, strict=True):
        for sample in result.samples:
            print(f"sample answer of {folder.name}: {sample}")
    if arguments.min_exact is not None and scores[-1].exact_percent < arguments.min_exact:
        sys.exit(f"error: exact match is below {arguments.min_exact} %")
    if arguments.max_loss is not None and scores[-1].loss > arguments.max_loss:
        sys.exit(f"error: loss is above {arguments.max_loss}")


if __name__ == "__main__":
    main()
