"""Writes and checks model folders with Python's safetensors: make FOLDER | check SAME MOVED."""

import json
import pathlib
import sys

import torch
from safetensors.torch import load_file, save_file

CONFIG = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "vocab_size": 61,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
    "dtype": "bfloat16",
}


def tensors() -> dict[str, torch.Tensor]:
    """All weights of CONFIG, in three dtypes."""
    torch.manual_seed(1)
    shapes = {
        "model.embed_tokens.weight": (61, 24),
        "model.norm.weight": (24,),
        "lm_head.weight": (61, 24),
    }
    for layer in range(2):
        prefix = f"model.layers.{layer}."
        for name, rows in (("q", 24), ("k", 12), ("v", 12)):
            shapes[f"{prefix}self_attn.{name}_proj.weight"] = (rows, 24)
            shapes[f"{prefix}self_attn.{name}_proj.bias"] = (rows,)
        shapes[f"{prefix}self_attn.o_proj.weight"] = (24, 24)
        shapes[f"{prefix}mlp.gate_proj.weight"] = (40, 24)
        shapes[f"{prefix}mlp.up_proj.weight"] = (40, 24)
        shapes[f"{prefix}mlp.down_proj.weight"] = (24, 40)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"{prefix}{norm}.weight"] = (24,)
    dtypes = [torch.bfloat16, torch.float32, torch.float16]
    return {
        name: torch.randn(shape).to(dtypes[i % 3]) for i, (name, shape) in enumerate(shapes.items())
    }


def make(folder: pathlib.Path) -> None:
    """A model folder as transformers would leave it."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=2))
    save_file(tensors(), folder / "model.safetensors", metadata={"format": "pt"})


def check_same(folder: pathlib.Path) -> None:
    """Every tensor as `make` wrote it."""
    loaded = load_file(folder / "model.safetensors")
    expected = tensors()
    assert loaded.keys() == expected.keys()
    for name, tensor in expected.items():
        assert loaded[name].dtype == tensor.dtype and torch.equal(loaded[name], tensor), name


def check_moved(folder: pathlib.Path) -> None:
    """Every weight is the rounded sum of its old value and 1/1024, as the test made it."""
    loaded = load_file(folder / "model.safetensors")
    for name, tensor in tensors().items():
        moved = tensor.float() + 1 / 1024
        error = (loaded[name].float() - moved).abs()
        spacing = {torch.bfloat16: 2**-8, torch.float16: 2**-11, torch.float32: 0.0}[tensor.dtype]
        assert loaded[name].dtype == tensor.dtype, name
        assert (error <= moved.abs() * spacing).all(), name


if __name__ == "__main__":
    folders = [pathlib.Path(argument) for argument in sys.argv[2:]]
    if sys.argv[1] == "make":
        make(folders[0])
    else:
        check_same(folders[0])
        check_moved(folders[1])
