"""A real model's loss by transformers, in fp32: real_model_reference.py FOLDER TEXT OUTPUT.

Writes OUTPUT, JSON with the token ids of the text as the model's own tokenizer gives them, the
mean loss of all of them but the first, and the norm of its gradient; and OUTPUT.logits, fp32
[LOGIT_ROWS, vocab] of the text's last tokens.
"""

import json
import pathlib
import sys

import tokenizers
import torch
import transformers

LOGIT_ROWS = 32


def main() -> None:
    """One document, whatever its paragraphs."""
    folder, text, output = map(pathlib.Path, sys.argv[1:])
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokens = tokenizer.encode(text.read_text(encoding="utf-8"), add_special_tokens=False).ids
    transformers.utils.logging.disable_progress_bar()
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids = torch.tensor(tokens)
    logits = model(input_ids=ids[None]).logits[0]
    logits[-LOGIT_ROWS:].detach().numpy().tofile(f"{output}.logits")
    loss = torch.nn.functional.cross_entropy(logits[:-1].double(), ids[1:])
    loss.backward()
    squares = [parameter.grad.double().square().sum() for parameter in model.parameters()]
    norm = torch.stack(squares).sum().sqrt()
    expected = {"tokens": tokens, "mean_loss": loss.item(), "gradient_norm": norm.item()}
    output.write_text(json.dumps(expected))


if __name__ == "__main__":
    main()
