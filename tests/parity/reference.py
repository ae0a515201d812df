"""What transformers and torch compute: the other side of the parity tests.

    reference.py FOLDER

For each toy model writes FOLDER/NAME/ with model/ (a Hugging Face folder), data.json (documents,
and which of their tokens are trained, by step), expected.json (losses and norms) and
expected.safetensors (gradients of the first step, weights at the end). Everything is computed in
float64 from the weights as they lie in the folder, one document at a time, and written in float32.
"""

import dataclasses
import json
import math
import pathlib
import sys
from typing import Any

import torch
import transformers
from safetensors.torch import save_file

Document = dict[str, list[int]]

_SHAPE = {
    "vocab_size": 101,
    "hidden_size": 48,
    "intermediate_size": 88,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
}
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}


@dataclasses.dataclass(frozen=True)
class Case:
    """A toy model and how it is trained."""

    name: str
    family: str
    tied: bool
    changes: dict[str, Any]
    dtype: torch.dtype = torch.float32
    steps: int = 20
    documents: int = 3  # of each step after the first, which has 8
    learning_rate: float = 1e-3
    max_gradient_norm: float = 0.5
    compute: torch.dtype = torch.float64


_LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
_WIDE_HEADS = {"head_dim": 16}
# Biases as long as the CUDA engine wants them: multiples of 64.
_WIDE_BIASES = {"head_dim": 32}
_CASES = [
    Case("llama_tied", "llama", True, _WIDE_HEADS),
    Case("llama_untied_llama3", "llama", False, {"rope_parameters": _LLAMA3} | _WIDE_HEADS),
    Case(
        "llama_untied_linear",
        "llama",
        False,
        {"rope_parameters": _LINEAR, "num_attention_heads": 6, "num_key_value_heads": 6},
    ),
    Case("qwen2_tied", "qwen2", True, {"num_key_value_heads": 1, "head_dim": 64}),
    Case("qwen2_untied", "qwen2", False, {"rms_norm_eps": 1e-6} | _WIDE_BIASES),
    Case("llama_bf16", "llama", False, _WIDE_HEADS, dtype=torch.bfloat16, steps=1),
    Case("qwen2_bf16", "qwen2", True, _WIDE_BIASES, dtype=torch.bfloat16, steps=1),
    # Long training at a small rate, where weights kept in bf16 would stand still.
    Case(
        "qwen2_slow",
        "qwen2",
        False,
        {},
        dtype=torch.bfloat16,
        steps=100,
        documents=1,
        learning_rate=1e-5,
        compute=torch.float32,
    ),
]


def make_model(case: Case) -> Any:
    """The model with random weights, every kind of them far from its neutral value."""
    shape = _SHAPE | case.changes
    if case.family == "llama":
        config = transformers.LlamaConfig(**shape, tie_word_embeddings=case.tied)
        model = transformers.LlamaForCausalLM(config)
    else:
        config = transformers.Qwen2Config(**shape, tie_word_embeddings=case.tied)
        model = transformers.Qwen2ForCausalLM(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn_like(parameter)
            if name.endswith("norm.weight"):
                parameter.copy_(1 + 0.2 * noise)
            elif name.endswith(".bias"):
                parameter.copy_(0.3 * noise)
            else:
                parameter.copy_(noise / math.sqrt(parameter.shape[1]))
    set_dtype(model, case.dtype)
    return model


def set_dtype(model: Any, dtype: torch.dtype) -> None:
    """Of the weights alone: the rotary frequencies stay as transformers made them."""
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)


def make_steps(case: Case) -> list[list[Document]]:
    """Random documents; the targets that are trained differ from document to document."""
    steps = []
    for step in range(case.steps):
        documents = []
        for index in range(8 if step == 0 else case.documents):
            length = 2 if index == 0 else int(torch.randint(3, 40, ()))
            tokens = torch.randint(0, 101, (length,)).tolist()
            trained = (torch.rand(length) < 0.6).int().tolist()
            trained[0], trained[-1] = 0, 1
            documents.append({"tokens": tokens, "trained": trained})
        steps.append(documents)
    return steps


def document_loss(model: Any, document: Document) -> torch.Tensor:
    """The sum of the losses of the trained tokens."""
    tokens = torch.tensor(document["tokens"])
    logits = model(input_ids=tokens[None]).logits[0, :-1]
    losses = torch.nn.functional.cross_entropy(logits, tokens[1:], reduction="none")
    mask: torch.Tensor = torch.tensor(document["trained"][1:]).to(losses.dtype)
    return (losses * mask).sum()


def optimizer_of(model: Any, case: Case) -> torch.optim.AdamW:
    """Decay on matrices alone."""
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": 0.1},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=case.learning_rate, betas=(0.9, 0.95), eps=1e-8)


def run(case: Case, folder: pathlib.Path) -> None:
    """Writes one case."""
    torch.manual_seed(sum(map(ord, case.name)))
    model = make_model(case)
    model.save_pretrained(folder / "model")
    steps = make_steps(case)
    set_dtype(model, case.compute)
    optimizer = optimizer_of(model, case)
    tensors = {}
    losses, norms = [], []
    for step, documents in enumerate(steps):
        count = sum(sum(document["trained"]) for document in documents)
        optimizer.zero_grad()
        total = 0.0
        for document in documents:
            loss = document_loss(model, document) / count
            loss.backward()
            total += loss.item()
        losses.append(total)
        if step == 0:
            for name, parameter in model.named_parameters():
                tensors["gradient/" + name] = parameter.grad.clone()
        norms.append(
            torch.nn.utils.clip_grad_norm_(model.parameters(), case.max_gradient_norm).item()
        )
        optimizer.step()
    for name, parameter in model.named_parameters():
        tensors["final/" + name] = parameter.detach().clone()
    save_file({n: t.float() for n, t in tensors.items()}, folder / "expected.safetensors")
    expected = {
        "losses": losses,
        "norms": norms,
        "learning_rate": case.learning_rate,
        "max_gradient_norm": case.max_gradient_norm,
        "inverse_frequencies": model.model.rotary_emb.inv_freq.float().tolist(),
    }
    (folder / "expected.json").write_text(json.dumps(expected))
    (folder / "data.json").write_text(json.dumps(steps))


def main() -> None:
    """All cases."""
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)  # toy products: more threads only wait for one another
    for case in _CASES:
        folder = pathlib.Path(sys.argv[1]) / case.name
        folder.mkdir(parents=True)
        run(case, folder)


if __name__ == "__main__":
    main()
