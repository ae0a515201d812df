"""A model's chat template: a program of the model's author, run in a sandbox."""

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox
from jinja2.utils import Namespace

from prepare.conversation import Message
from prepare.errors import BadRowError, RefusedError

_TEMPLATE_FILE = "chat_template.jinja"
_CONFIG_FILE = "tokenizer_config.json"
_LEGACY_TOKENS_FILE = "special_tokens_map.json"
_TOKEN_NAMES = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)


class ChatTemplate:
    """Renders conversations as transformers' apply_chat_template does."""

    def __init__(self, source: str, special_tokens: dict[str, str], now: datetime) -> None:
        """`now` is what strftime_now tells the template, so that a render can be repeated."""
        self._special_tokens = special_tokens
        try:
            self._template = _environment(now).from_string(source)
        except (jinja2.TemplateError, RecursionError) as error:
            raise RefusedError(f"the model's chat template cannot be read: {error}") from error

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool = False) -> str:
        try:
            text: str = self._template.render(
                messages=list(messages),
                tools=None,
                documents=None,
                add_generation_prompt=add_generation_prompt,
                **self._special_tokens,
            )
        except MemoryError:
            raise
        except Exception as error:  # whatever an expression of the template can raise
            raise BadRowError(f"the model's chat template refuses it: {error}") from error
        return text


def load_chat_template(folder: Path, now: datetime) -> ChatTemplate:
    """Reads chat_template.jinja, else the field chat_template of tokenizer_config.json."""
    config = _read_object(folder / _CONFIG_FILE)
    file = folder / _TEMPLATE_FILE
    if file.exists():
        try:
            source = file.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise RefusedError(f"{_TEMPLATE_FILE} of the model is not UTF-8: {error}") from error
    else:
        source = _template_field(config.get("chat_template"))
    tokens = _special_tokens({**_read_object(folder / _LEGACY_TOKENS_FILE), **config})
    return ChatTemplate(source, tokens, now)


def _read_object(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise RefusedError(f"{path.name} of the model is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise RefusedError(f"{path.name} of the model is not a JSON object")
    return value


def _template_field(value: object) -> str:
    """The field's text, or of its list of named templates the one named "default"."""
    if isinstance(value, list):
        named = {item.get("name"): item.get("template") for item in value if isinstance(item, dict)}
        if not isinstance(named.get("default"), str):
            raise RefusedError(
                f'chat_template in {_CONFIG_FILE} of the model has no template named "default", '
                f"only {sorted(str(name) for name in named)}"
            )
        value = named["default"]
    if not isinstance(value, str):
        raise RefusedError(
            f"the model has no chat template: add {_TEMPLATE_FILE} to its folder and import it "
            "again"
        )
    return value


def _special_tokens(config: dict[str, Any]) -> dict[str, str]:
    tokens = {}
    for name in _TOKEN_NAMES:
        value = config.get(name)
        if isinstance(value, dict):
            value = value.get("content")
        if isinstance(value, str):
            tokens[name] = value
    return tokens


class _GenerationBlock(jinja2.ext.Extension):
    """{% generation %} marks an answer for tools that want it; here its body is just rendered."""

    tags = {"generation"}  # noqa: RUF012 - jinja2's own declaration

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        body: list[jinja2.nodes.Node] = parser.parse_statements(
            ("name:endgeneration",), drop_needle=True
        )
        return body


class _SafeNamespace(Namespace):
    """Jinja's namespace() without names that could reach into Python's internals."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, values = args[0], dict(*args[1:], **kwargs)
        for name in values:
            _check_name(name)
        Namespace.__init__(self, values)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.sandbox.SecurityError(f"a namespace may hold no name such as {name!r}")


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Unlike jinja2's own filter it escapes no HTML."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _make_dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    """In place of the class dict, whose attributes a template must not get."""
    return dict(*args, **kwargs)


def _environment(now: datetime) -> jinja2.sandbox.ImmutableSandboxedEnvironment:
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_GenerationBlock, jinja2.ext.loopcontrols],
    )
    strftime_now: Callable[[str], str] = now.strftime
    environment.filters["tojson"] = _tojson
    environment.globals.update(
        raise_exception=_raise_exception,
        strftime_now=lambda text: strftime_now(text),
        dict=_make_dict,
        namespace=_SafeNamespace,
    )
    return environment
