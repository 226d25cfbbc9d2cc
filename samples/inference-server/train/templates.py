#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes what Jinja makes of the chat templates of the tests, set up as transformers does it.

    train/templates.py src/test/resources/chat-templates

The folder's *.jinja are short templates with the features of well-known families. `rules.json` has a list of short
templates. The results are `families.json` and `rules-expected.json`; an error is null. Needs jinja2, 3.1 or newer.
"""

import json
import pathlib
import sys

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("text"), [], [], body).set_lineno(line)

    def text(self, caller):
        return caller()


def refuse(message):
    raise TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def environment():
    jinja = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    jinja.filters["tojson"] = tojson
    jinja.globals["raise_exception"] = refuse
    jinja.globals["strftime_now"] = lambda form: "28 Nov 2026"
    return jinja


def render(template, **variables):
    try:
        return environment().from_string(template).render(**variables)
    except (TemplateError, TypeError, ValueError, ArithmeticError, SyntaxError):
        return None


def main():
    folder = pathlib.Path(sys.argv[1])
    system = {"role": "system", "content": 'Be "brief" <b>.\n'}
    chats = [
        [{"role": "user", "content": "Hi!"}],
        [system, {"role": "user", "content": " H\u00e4llo\n\n"}],
        [
            system,
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": "<think>\nhm\n</think>\n\nb "},
            {"role": "user", "content": "c\r\nd"},
        ],
        [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
        [{"role": "assistant", "content": "b"}, system],
    ]
    expected = {
        file.stem: [
            render(
                file.read_text(),
                messages=chat,
                tools=None,
                documents=None,
                add_generation_prompt=True,
                bos_token="<s>",
                eos_token="</s>",
            )
            for chat in chats
        ]
        for file in sorted(folder.glob("*.jinja"))
    }
    rules = json.loads((folder / "rules.json").read_text())
    write(folder / "families.json", {"chats": chats, "expected": expected})
    write(folder / "rules-expected.json", [render(rule) for rule in rules])


def write(file, value):
    file.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
