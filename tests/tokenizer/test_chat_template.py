"""Rendering as Hugging Face does it, errors that name the line, and templates that mean harm."""

from __future__ import annotations

from typing import Any

import pytest

from genai_lab.errors import ArgumentError, ArgumentTypeError, TemplateError
from genai_lab.tokenizer import ChatTemplate, sandbox
from genai_lab.tokenizer.chat_template import MAX_TEMPLATE_CHARS, as_messages, as_tools

MESSAGES = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": 'é "q" <b>'}]


def render(source: str, messages: Any = MESSAGES, **options: Any) -> str:
    return ChatTemplate(source).render(messages, **options)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{% for m in messages %}\n  {% if m.role == 'user' %}\n{{ m.content }}\n  {% endif %}\n{% endfor %}", "Hi\n"),
        (
            "{{ messages|tojson }}",
            '[{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "é \\"q\\" <b>"}]',
        ),
        ("{{ messages[:1]|tojson(indent=1) }}", '[\n {\n  "role": "user",\n  "content": "Hi"\n }\n]'),
        ("{{ {'b': 1, 'a': 2}|tojson(sort_keys=true, separators=(',', ':')) }}", '{"a":2,"b":1}'),
        ("{% for m in messages %}{% if loop.index0 %}{% break %}{% endif %}{{ m.role }}{% endfor %}", "user"),
        ("{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ m.role }}{% endfor %}", "assistant"),
        ("{% for m in messages %}{% generation %}{{ m.role }}{% endgeneration %};{% endfor %}", "user;assistant;"),
        ("{{ messages[-1].content[2:5] ~ '.' ~ 3 }}", '"q".3'),
        ("{{ messages[::-1][0]['role'] }}{{ 'ab'[::-1] }}", "assistantba"),
        ("{% macro tag(x) %}<{{ x }}>{{ caller() if caller }}{% endmacro %}{% call tag(1) %}in{% endcall %}", "<1>in"),
        ("{% set ns = namespace(n=0) %}{% for i in range(5) %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}", "10"),
        ("{% set x %}a{{ 1 }}{% endset %}{{ x|upper }}{{ (x + 'b') * 2 }}", "A1a1ba1b"),
        ("{{ '%s-%03d' % ('a', 7) }}{{ '{:>4}|{}'.format(1, 'b') }}{{ '%s'|format('c') }}", "a-007   1|bc"),
        ("{{ 'a,b'.split(',')|join('+') }}{{ ', '.join(['x', 'y']) }}{{ 'aXb'.replace('X', '--') }}", "a+bx, ya--b"),
        ("{{ tools is none }}{{ documents is none }}{{ nothing is defined }}{{ nothing }}", "TrueTrueFalse"),
        ("{{ strftime_now('%Y')|length }}{{ 7 % 4 }}{{ 2 ** 10 }}{{ [1] + [2] }}", "431024[1, 2]"),
        ("{{ messages|selectattr('role', 'equalto', 'user')|list|length }}{{ 'a\nb'|indent(2) }}", "1a\n  b"),
        ("{%- for k, v in {'a': 1}.items() -%} {{ k }}{{ v }} {%- endfor -%}", "a1"),
        ("{% for i in [1, [2, 3]] recursive %}{{ i if i is number else loop(i) }}{% endfor %}", "123"),
        ("{{ 'x' if enable_thinking else 'y' }}", "y"),
    ],
)
def test_rendering(source: str, text: str) -> None:
    assert render(source) == text


def test_variables_reach_the_template() -> None:
    assert (
        render("{{ a }}{{ bos_token }}{{ add_generation_prompt }}", special_tokens={"bos_token": "<s>"}, a=1)
        == "1<s>False"
    )
    assert render("{{ tools[0].name }}", tools=[{"name": "f"}], add_generation_prompt=True) == "f"


def test_templates_change_no_message() -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Hi"}]
    for harm in ("{{ messages.append(1) }}", "{{ messages.pop() }}", "{{ messages[0].update(a=1) }}"):
        with pytest.raises(TemplateError, match="unsafe"):
            render(harm, messages)
    assert messages == [{"role": "user", "content": "Hi"}]


# ---- errors


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (
            "one\n{{ raise_exception('roles must alternate.') }}",
            "line 2, refuses these messages: roles must alternate. Ch",
        ),
        ("one\ntwo\n{{ a.b.c }}", r"line 3 \(\{\{ a.b.c \}\}\): 'a' is undefined"),
        ("one\n{% if %}", "line 2 .*Expected an expression"),
        ("{% for m in messages %}", "line 1 .*Unexpected end of template"),
        ("{% nonsense %}", "line 1 .*unknown tag 'nonsense'"),
        ("\n{{ 1 / 0 }}", "line 2 .*ZeroDivisionError"),
        ("\n\n{{ 'a' + 1 }}", "line 3 .*TypeError"),
        ("{{ x|nonsense }}", "No filter named 'nonsense'"),
        ("{% include 'other' %}", "TypeError: no loader"),
        ("{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}", "RecursionError"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "RecursionError"),
    ],
)
def test_errors_name_the_line(source: str, words: str) -> None:
    with pytest.raises(TemplateError, match=words):
        render(source)


def test_a_template_of_a_megabyte_is_refused() -> None:
    assert ChatTemplate("x" * MAX_TEMPLATE_CHARS).render([]) == "x" * MAX_TEMPLATE_CHARS
    with pytest.raises(TemplateError, match="at most 1,048,576 are allowed"):
        ChatTemplate("x" * (MAX_TEMPLATE_CHARS + 1))


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.__class__.__base__.__subclasses__() }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ raise_exception.__globals__ }}",
        "{{ strftime_now.__globals__['datetime'] }}",
        "{{ '{0.__class__.__mro__}'.format(1)[0] }}",
        "{{ ('{0.__class__.__mro__}'|format(1)).x.y }}",
        "{{ (messages|attr('__class__')).x }}",
        "{{ (messages|map(attribute='__class__')|first).x }}",
        "{{ self.__init__.__globals__ }}",
        "{{ namespace.__init__.__globals__ }}",
        "{% set ns = namespace() %}{{ ns.__class__.__mro__ }}",
        "{{ joiner.__init__['__globals__'] }}",
        "{{ lipsum.__globals__ }}",
        "{{ environment.filters }}",
        "{{ (1).__class__.__base__ }}",
        "{{ [].__class__.__getattribute__ }}",
        "{{ render.__self__ }}",
        "{% import 'os' as os %}{{ os }}",
    ],
)
def test_no_way_out_of_the_sandbox(source: str) -> None:
    try:
        text = render(source)
    except TemplateError:
        return
    assert text == ""  # what is not safe to touch is undefined, and undefined is no text


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "MAX_ROUNDS", 5_000)
    monkeypatch.setattr(sandbox, "MAX_CHARS", 2**20)


DOUBLING = "{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = DOUBLE %}{% endfor %}"


@pytest.mark.slow
@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% for i in range(99999) %}{% for j in range(99) %}" + "x" * 99 + "{% endfor %}{% endfor %}",
        "{% for i in range(10 ** 9) %}{% endfor %}",
        "{{ range(10 ** 9)|list }}",
        DOUBLING.replace("DOUBLE", "ns.x ~ ns.x"),
        DOUBLING.replace("DOUBLE", "ns.x + ns.x"),
        DOUBLING.replace("DOUBLE", "[ns.x, ns.x]") + "{{ ns.x }}",
        DOUBLING.replace("DOUBLE", "[ns.x, ns.x]") + "{{ ns.x|tojson }}",
        DOUBLING.replace("DOUBLE", "[ns.x, ns.x]") + "{{ ns.x|string }}",
        DOUBLING.replace("DOUBLE", "[ns.x, ns.x]") + "{{ ns.x ~ '' }}",
        DOUBLING.replace("DOUBLE", "[ns.x, ns.x]") + "{{ '%s' % ns.x }}{{ '{}'.format(ns.x) }}",
        DOUBLING.replace("DOUBLE", "{'a': ns.x, 'b': ns.x}") + "{{ ns.x }}",
        DOUBLING.replace("DOUBLE", "ns.x.replace('a', ns.x)"),
        DOUBLING.replace("DOUBLE", "ns.x|replace('a', ns.x)"),
        DOUBLING.replace("DOUBLE", "ns.x.join(['a', 'b', 'c'])"),
        DOUBLING.replace("DOUBLE", "['a', 'b', 'c']|join(ns.x)"),
        "{% set big = 'a' * 10 ** 5 %}{% set ns = namespace(l=[]) %}"
        "{% for i in range(9999) %}{% set ns.l = ns.l + [big[i:]] %}{% endfor %}",
        "{% set y %}{{ 'a' * 10 ** 5 }}{% endset %}{% set z %}" + "{{ y }}" * 99 + "{% endset %}",
        "{% macro m() %}{{ 'a' * 10 ** 5 }}{% endmacro %}" + "{{ m() }}" * 99,
        "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(99) }}",
        "{{ 'a' * 10 ** 12 }}",
        "{{ [1] * 10 ** 12 }}",
        "{{ 10 ** (10 ** 10) }}",
        "{% set ns = namespace(n=9) %}{% for i in range(99) %}{% set ns.n = ns.n * ns.n %}{% endfor %}",
        "{{ 'a'.center(10 ** 10) }}",
        "{{ 'a'.ljust(10 ** 10) }}{{ '1'.zfill(10 ** 10) }}",
        "{{ '\t'.expandtabs(10 ** 10) }}",
        "{{ ('a' * 10 ** 5).translate({97: 'b' * 10 ** 5}) }}",
        "{{ 'a'|center(10 ** 10) }}",
        "{{ 'a\nb'|indent(10 ** 10) }}",
        "{{ ('a\n' * 10 ** 5)|indent('b' * 10 ** 5) }}",
        "{{ 'a'|batch(10 ** 10, 'x')|list }}",
        "{{ 1|round(10 ** 10) }}",
        "{{ '%010000000000d' % 1 }}",
        "{{ '%*d' % (10 ** 10, 1) }}",
        "{{ '%010000000000d'|format(1) }}",
        "{{ '{:10000000000}'.format(1) }}",
        "{{ '{:{}}'.format(1, 10 ** 10) }}",
    ],
)
@pytest.mark.usefixtures("small_limits")
def test_no_template_runs_or_grows_without_end(source: str) -> None:
    with pytest.raises(TemplateError, match=r"more than|more text is made|wider than|number above|str.translate"):
        render(source)


def test_no_template_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "MAX_SECONDS", -1.0)
    with pytest.raises(TemplateError, match="more than -1 seconds"):
        render("{% for m in messages %}{% endfor %}")


def test_long_conversations_are_fine() -> None:
    messages = [{"role": "user", "content": "word " * 2000}] * 300  # three million characters
    source = "{% for m in messages %}{{ '<' ~ m.role + '>' }}{{ m.content | trim }}{{ m['content'][1:] }}{% endfor %}"
    assert len(render(source, messages)) == 300 * (6 + 9999 + 9999)


# ---- what people hand over


def test_messages_from_json_and_from_lists() -> None:
    assert as_messages('[{"role": "user", "content": "Hi"}]') == [{"role": "user", "content": "Hi"}]
    assert as_messages(({"role": "user"},)) == [{"role": "user"}]
    assert as_messages([]) == []
    assert as_tools('[{"a": 1}]') == [{"a": 1}]
    assert as_tools(None) is as_tools("") is as_tools([]) is None


@pytest.mark.parametrize(
    ("messages", "error", "words"),
    [
        ("", ArgumentError, "messages is text but not JSON"),
        ("Hello", ArgumentError, "messages is text but not JSON"),
        ("[" * 100_000, ArgumentError, "messages is text but not JSON"),
        ("{}", ArgumentTypeError, "messages is dict; a list of dicts"),
        ("null", ArgumentTypeError, "messages is NoneType"),
        (5, ArgumentTypeError, "messages is int"),
        (["Hi"], ArgumentTypeError, r"messages\[0\] is 'Hi'; a dict with a string 'role'"),
        ([{"role": "user"}, {"role": 1}], ArgumentTypeError, r"messages\[1\] is"),
    ],
)
def test_wrong_messages(messages: object, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        as_messages(messages)


@pytest.mark.parametrize(
    ("tools", "error"), [("x", ArgumentError), ({"a": 1}, ArgumentTypeError), ([print], ArgumentTypeError)]
)
def test_wrong_tools(tools: object, error: type[Exception]) -> None:
    with pytest.raises(error, match="tools is"):
        as_tools(tools)
