"""A conversation as token ids, with the tokens that are trained.

The trained tokens of an answer are found by rendering prefixes of the conversation, never by a
template's own marks: what the template adds to the rendered question, up to and with the token
that ends the turn, is what the model has to say.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from prepare.chat_template import ChatTemplate
from prepare.conversation import Message
from prepare.errors import BadRowError, RefusedError

_TOKENIZER_FILE = "tokenizer.json"


@dataclass(frozen=True)
class EncodedRow:
    """A row ready for training."""

    token_ids: list[int]
    trained: bytes  # per token: 1 if it is predicted with a loss
    was_cut: bool  # it was longer than the longest sequence


@dataclass(frozen=True)
class _Rendered:
    text: str
    ids: list[int]


def load_tokenizer(folder: Path) -> Tokenizer:
    """The model's own tokenizer, without the padding and truncation its file may ask for."""
    path = folder / _TOKENIZER_FILE
    if not path.exists():
        raise RefusedError(f"the model has no {_TOKENIZER_FILE}: add it and import the model again")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing narrower
        raise RefusedError(f"{_TOKENIZER_FILE} of the model cannot be read: {error}") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


class Encoder:
    """Encodes conversations for one model."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: ChatTemplate,
        max_sequence_length: int,
        vocabulary_size: int,
    ) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self._max_length = max_sequence_length
        self._vocabulary_size = vocabulary_size
        self._special_ids = {
            token_id
            for token_id, token in tokenizer.get_added_tokens_decoder().items()
            if token.special
        }

    def encode(self, messages: Sequence[Message]) -> EncodedRow:
        """Raises BadRowError when no trained token is left or the trained ones cannot be told,
        RefusedError when the template's renders of prefixes do not fit each other."""
        whole = self._render(messages)
        self._check_vocabulary(whole.ids)
        trained = bytearray(len(whole.ids))
        for i, message in enumerate(messages):
            if message["role"] != "assistant":
                continue
            prompt = self._render(messages[:i], add_generation_prompt=True)
            start = len(prompt.ids)
            if start >= self._max_length:
                break  # this answer and all later ones lie behind the cut
            answer = whole if i + 1 == len(messages) else self._render(messages[: i + 1])
            _check_prefix(prompt, answer, f"what stands before the answer in message {i + 1}")
            _check_prefix(answer, whole, f"the answer in message {i + 1}")
            end = self._end_of_turn(answer.ids, start)
            trained[start:end] = b"\1" * (end - start)
        return self._cut(whole.ids, bytes(trained))

    def _render(
        self, messages: Sequence[Message], *, add_generation_prompt: bool = False
    ) -> _Rendered:
        text = self._template.render(messages, add_generation_prompt=add_generation_prompt)
        return _Rendered(text, self._tokenizer.encode(text, add_special_tokens=False).ids)

    def _check_vocabulary(self, ids: list[int]) -> None:
        highest = max(ids, default=0)
        if highest >= self._vocabulary_size:
            raise RefusedError(
                f"the model's tokenizer gives token {highest}, but config.json says that its "
                f"vocabulary has {self._vocabulary_size}: the tokenizer belongs to another model"
            )

    def _end_of_turn(self, answer: list[int], start: int) -> int:
        """One past the special token that ends the answer which starts at `start`.

        Only white space may follow that token in the turn; otherwise the turn has no such token
        and all of it is trained.
        """
        for i in range(len(answer) - 1, start - 1, -1):
            if answer[i] in self._special_ids:
                rest = self._tokenizer.decode(answer[i + 1 :], skip_special_tokens=False)
                return len(answer) if rest.strip() else i + 1
        return len(answer)

    def _cut(self, ids: list[int], trained: bytes) -> EncodedRow:
        # The first token follows nothing that could predict it.
        trained = b"\0" + trained[1 : self._max_length]
        end = trained.rfind(b"\1") + 1
        if end == 0:
            raise BadRowError(
                f"has no token to learn within max_sequence_length = {self._max_length}: raise it, "
                "or shorten what stands before the answer"
            )
        return EncodedRow(ids[:end], trained[:end], len(ids) > self._max_length)


def _check_prefix(prefix: _Rendered, longer: _Rendered, what: str) -> None:
    if not longer.text.startswith(prefix.text):
        raise RefusedError(
            f"the model's chat template renders {what} differently once more follows (it may drop "
            "reasoning from the history), so the tokens to learn are not known: use conversations "
            "with one answer, or change the template"
        )
    if longer.ids[: len(prefix.ids)] != prefix.ids:
        raise BadRowError(
            f"the last token of {what} melts into the first one after it, so the tokens to learn "
            "are not known: remove white space at the start of the answer, or change the chat "
            "template"
        )
