"""The one shape of a row: {"messages": [{"role": ..., "content": ...}, ...]}."""

from prepare.errors import BadRowError

Message = dict[str, str]
"""`role` and `content`, as chat templates want them."""

_ROLES = ("system", "user", "assistant")
_MESSAGE_FIELDS = ("role", "content")
# What a row may not hold besides messages, since it would change what a template renders.
_UNSUPPORTED_ROW_FIELDS = ("tools", "functions", "documents")


def parse_messages(row: object) -> list[Message]:
    """The row's messages: an optional system one, then user and assistant in turn."""
    if not isinstance(row, dict):
        raise BadRowError(f"is {_kind(row)} where an object with messages is needed")
    for name in _UNSUPPORTED_ROW_FIELDS:
        if name in row:
            raise BadRowError(f'has the field "{name}", which is not supported: remove it')
    if "messages" not in row:
        raise BadRowError('has no field "messages"')
    values = row["messages"]
    if not isinstance(values, list):
        raise BadRowError(f'has {_kind(values)} in "messages" where a list is needed')
    if not values:
        raise BadRowError('has an empty list "messages"')
    messages = [_parse_message(value, i + 1) for i, value in enumerate(values)]
    _check_order([message["role"] for message in messages])
    return messages


def _parse_message(value: object, number: int) -> Message:
    if not isinstance(value, dict):
        raise BadRowError(f"message {number} is {_kind(value)} where an object is needed")
    for name in value:
        if name not in _MESSAGE_FIELDS:
            raise BadRowError(
                f"message {number} has the field {name!r}, which is not supported: a message has "
                '"role" and "content"'
            )
    message = {name: _text_field(value, name, number) for name in _MESSAGE_FIELDS}
    if message["role"] not in _ROLES:
        raise BadRowError(
            f"message {number} has the unknown role {message['role']!r}: use system, user or "
            "assistant"
        )
    return message


def _text_field(message: dict[str, object], name: str, number: int) -> str:
    where = f'message {number}\'s field "{name}"'
    if name not in message:
        raise BadRowError(f"{where} is missing")
    text = message[name]
    if not isinstance(text, str):
        raise BadRowError(f"{where} is {_kind(text)} where text is needed")
    if not text.strip():
        raise BadRowError(f"{where} is empty")
    if "\0" in text:
        raise BadRowError(f"{where} holds a NUL character: remove it")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        raise BadRowError(
            f"{where} holds half of a surrogate pair (U+{code:04X}), which is no character"
        ) from error
    return text


def _check_order(roles: list[str]) -> None:
    if "assistant" not in roles:
        raise BadRowError("has no assistant turn, so there is nothing to learn from it")
    first = 1 if roles[0] == "system" else 0
    for i, role in enumerate(roles[first:], start=first):
        wanted = "user" if (i - first) % 2 == 0 else "assistant"
        if role != wanted:
            raise BadRowError(
                f"message {i + 1} is in the wrong order: its role is {role} where {wanted} is due "
                "(an optional system message, then user and assistant in turn)"
            )
    if roles[-1] != "assistant":
        raise BadRowError("ends with a user message: the last one must be the assistant's")


def _kind(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "text"
    return "a list" if isinstance(value, list) else "an object"
