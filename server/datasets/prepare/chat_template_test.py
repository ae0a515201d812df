"""Where templates are found, what they may use, and what they may not do."""

import json
import tempfile
import unittest
from datetime import UTC, datetime
from pathlib import Path

from prepare.chat_template import ChatTemplate, load_chat_template
from prepare.errors import BadRowError, RefusedError

_NOW = datetime(2026, 3, 4, tzinfo=UTC)
_MESSAGES = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "<b> & ü"}]


def _render(source: str, *, add_generation_prompt: bool = False) -> str:
    template = ChatTemplate(source, {"bos_token": "<s>"}, _NOW)
    return template.render(_MESSAGES, add_generation_prompt=add_generation_prompt)


class LoadTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self._folder = Path(folder.name)

    def _config(self, **fields: object) -> None:
        (self._folder / "tokenizer_config.json").write_text(json.dumps(fields))

    def _load(self) -> str:
        return load_chat_template(self._folder, _NOW).render(_MESSAGES)

    def test_field_of_the_configuration(self) -> None:
        self._config(chat_template="{{ bos_token }}x", bos_token={"content": "<s>"})
        self.assertEqual(self._load(), "<s>x")

    def test_the_file_goes_before_the_field(self) -> None:
        self._config(chat_template="field", eos_token="</s>")
        (self._folder / "chat_template.jinja").write_text("file{{ eos_token }}")
        self.assertEqual(self._load(), "file</s>")

    def test_a_list_of_named_templates(self) -> None:
        tools = {"name": "tool_use", "template": "tools"}
        self._config(chat_template=[tools, {"name": "default", "template": "plain"}])
        self.assertEqual(self._load(), "plain")
        self._config(chat_template=[tools])
        with self.assertRaisesRegex(RefusedError, r'no template named "default".*tool_use'):
            self._load()

    def test_tokens_of_the_legacy_file(self) -> None:
        self._config(chat_template="{{ bos_token }}{{ eos_token }}", bos_token="new")
        legacy = {"bos_token": "old", "eos_token": {"content": "end"}}
        (self._folder / "special_tokens_map.json").write_text(json.dumps(legacy))
        self.assertEqual(self._load(), "newend")

    def test_what_is_missing_or_broken_is_named(self) -> None:
        with self.assertRaisesRegex(RefusedError, "no chat template: add chat_template.jinja"):
            self._load()
        self._config(chat_template="{% if %}")
        with self.assertRaisesRegex(RefusedError, "chat template cannot be read"):
            self._load()
        for text in ("{", "[1]", "[" * 100_000):
            (self._folder / "tokenizer_config.json").write_text(text)
            with self.assertRaisesRegex(RefusedError, "tokenizer_config.json of the model is not"):
                self._load()


class RenderTest(unittest.TestCase):
    def test_what_templates_expect(self) -> None:
        for source, text in {
            "{{ messages[1].content | tojson }}": '"<b> & ü"',
            "{{ strftime_now('%d %b %Y') }}": "04 Mar 2026",
            "{% for m in messages %}{% if loop.last %}{% break %}{% endif %}x{% endfor %}": "x",
            "{% generation %}{{ messages[0].content }}{% endgeneration %}": "a",
            "{% set ns = namespace(n=1) %}{% set ns.n = 2 %}{{ ns.n }}": "2",
            "{% set ns = namespace({'n': 1}) %}{{ ns.n }}": "1",
            "{{ dict(a=1).a }}{{ tools is none }}{{ missing }}": "1True",
            "{% if true %}\n  x\n  {% endif %}": "  x\n",
        }.items():
            with self.subTest(source=source):
                self.assertEqual(_render(source), text)
        prompt = "{% if add_generation_prompt %}>{% endif %}"
        self.assertEqual(_render(prompt, add_generation_prompt=True), ">")

    def test_what_a_template_raises_is_the_rows_fault(self) -> None:
        for source in (
            "{{ raise_exception('roles must alternate') }}",
            "{{ 1 / 0 }}",
            "{{ messages[0]['content'] + 1 }}",
            "{{ missing.field }}",
        ):
            with self.subTest(source=source), self.assertRaises(BadRowError):
                _render(source)
        with self.assertRaisesRegex(BadRowError, "refuses it: roles must alternate"):
            _render("{{ raise_exception('roles must alternate') }}")

    def test_no_way_out_of_the_sandbox(self) -> None:
        for source in (
            "{{ ''.__class__.__mro__[1].__subclasses__() }}",
            "{{ messages.__class__.__base__ }}",
            "{{ raise_exception.__globals__ }}",
            "{{ strftime_now.__globals__['json'] }}",
            "{{ dict.__subclasses__() }}",
            "{{ messages.append(1) }}",
            "{% set ns = namespace(__init__=1) %}",
            "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
            "{{ self._TemplateReference__context.environment }}",
            "{{ '{0.__class__}'.format(1) }}",
            "{{ range(10000000) | list }}",
            "{% include '/etc/passwd' %}",
        ):
            with self.subTest(source=source):
                try:
                    text = _render(source)
                except BadRowError:
                    continue
                self.assertEqual(text, "")


if __name__ == "__main__":
    unittest.main()
