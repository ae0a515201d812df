"""A Llama small enough to train in a blink, as a Hugging Face folder with a real tokenizer."""

import json
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

HIDDEN_SIZE = 64
LAYER_COUNT = 2
HEAD_COUNT = 4
KEY_VALUE_HEAD_COUNT = 2
HEAD_SIZE = 16
INNER_SIZE = 128
_SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
_CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def rows(count: int) -> list[dict[str, object]]:
    """Conversations: sums of two numbers."""
    return [
        {
            "messages": [
                {"role": "user", "content": f"What is {i % 90 + 10} + {i * 7 % 90 + 10}?"},
                {"role": "assistant", "content": str(i % 90 + 10 + i * 7 % 90 + 10)},
            ]
        }
        for i in range(count)
    ]


def write_rows(path: Path, count: int) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows(count)), encoding="utf-8")
    return path


def _bf16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Round to nearest even."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def _tensors(vocabulary_size: int) -> dict[str, NDArray[np.float32]]:
    random = np.random.default_rng(7)

    def normal(*shape: int) -> NDArray[np.float32]:
        return (random.standard_normal(shape) * 0.08).astype(np.float32)

    query = HEAD_COUNT * HEAD_SIZE
    key = KEY_VALUE_HEAD_COUNT * HEAD_SIZE
    tensors = {
        "model.embed_tokens.weight": normal(vocabulary_size, HIDDEN_SIZE),
        "model.norm.weight": np.ones(HIDDEN_SIZE, np.float32),
    }
    for layer in range(LAYER_COUNT):
        prefix = f"model.layers.{layer}."
        tensors |= {
            prefix + "input_layernorm.weight": np.ones(HIDDEN_SIZE, np.float32),
            prefix + "post_attention_layernorm.weight": np.ones(HIDDEN_SIZE, np.float32),
            prefix + "self_attn.q_proj.weight": normal(query, HIDDEN_SIZE),
            prefix + "self_attn.k_proj.weight": normal(key, HIDDEN_SIZE),
            prefix + "self_attn.v_proj.weight": normal(key, HIDDEN_SIZE),
            prefix + "self_attn.o_proj.weight": normal(HIDDEN_SIZE, query),
            prefix + "mlp.gate_proj.weight": normal(INNER_SIZE, HIDDEN_SIZE),
            prefix + "mlp.up_proj.weight": normal(INNER_SIZE, HIDDEN_SIZE),
            prefix + "mlp.down_proj.weight": normal(HIDDEN_SIZE, INNER_SIZE),
        }
    return tensors


def _write_safetensors(path: Path, tensors: dict[str, NDArray[np.float32]]) -> None:
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    pieces: list[bytes] = []
    offset = 0
    for name in sorted(tensors):
        data = _bf16(tensors[name]).tobytes()
        header[name] = {
            "dtype": "BF16",
            "shape": list(tensors[name].shape),
            "data_offsets": [offset, offset + len(data)],
        }
        offset += len(data)
        pieces.append(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(pieces))


def _make_tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=_SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((json.dumps(row) for row in rows(200)), trainer)
    return tokenizer


def write_model(folder: Path) -> Path:
    """The whole folder; tied, bf16, the same bytes each time."""
    folder.mkdir(parents=True)
    tokenizer = _make_tokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    ids = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": tokenizer.get_vocab_size(),
        "hidden_size": HIDDEN_SIZE,
        "intermediate_size": INNER_SIZE,
        "num_hidden_layers": LAYER_COUNT,
        "num_attention_heads": HEAD_COUNT,
        "num_key_value_heads": KEY_VALUE_HEAD_COUNT,
        "head_dim": HEAD_SIZE,
        "hidden_act": "silu",
        "max_position_embeddings": 2048,
        "rope_theta": 10000.0,
        "rms_norm_eps": 1e-5,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        **ids,
    }
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": 2048,
        "bos_token": _SPECIAL[1],
        "eos_token": _SPECIAL[2],
        "pad_token": _SPECIAL[0],
        "clean_up_tokenization_spaces": False,
        "chat_template": _CHAT_TEMPLATE,
    }
    for name, content in (
        ("config.json", config),
        ("generation_config.json", ids),
        ("tokenizer_config.json", tokenizer_config),
    ):
        (folder / name).write_text(json.dumps(content, indent=1), encoding="utf-8")
    _write_safetensors(folder / "model.safetensors", _tensors(tokenizer.get_vocab_size()))
    return folder
