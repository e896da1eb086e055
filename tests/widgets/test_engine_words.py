"""Every number that the engine's sentences carry is one that the pictures have words for."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from string import Formatter

import pytest

from genai_lab.engine import plan, pool_log

ROOT = Path(__file__).resolve().parents[2]
ENGINE, SOURCES = ROOT / "genai_lab" / "engine", ROOT / "widgets" / "src"
SENTENCES = {str(reason): sentence for reason, sentence in plan._SENTENCES.items()}


def picture(name: str, pattern: str) -> str:
    """What a source of the pictures says; a test of another one has to be written when it is said otherwise."""
    found = re.search(pattern, (SOURCES / name).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert found, f"widgets/src/{name} has no {pattern!r} any more"
    return found[1]


def names_request(operand: str) -> bool:
    return re.search(picture("engine_words.ts", r"^const REQUESTS = /(.+?)/;"), operand) is not None


def in_rows() -> set[str]:
    """Operands that have words of their own in the row of facts."""
    table = picture("batching_words.ts", r"^const OPERANDS: Record<string, string> = \{(.+?)^\};")
    return set(re.findall(r"^  (\w+): \"", table, re.MULTILINE))


def compared() -> Iterator[str]:
    """Operands that the engine's code gives: keywords of `decide`, and the pairs ("name", number) of a Decision."""
    for path in ENGINE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "decide":
                yield from (keyword.arg for keyword in node.keywords if keyword.arg)
            if isinstance(node, ast.Tuple) and path.name in ("plan.py", "policies.py", "step.py"):
                match node.elts:
                    case [ast.Constant(str(name)), ast.Attribute() | ast.Name() | ast.Call() | ast.BinOp()]:
                        yield name


def operands(sentence: str) -> list[str]:
    return [name for _, name, _, _ in Formatter().parse(sentence) if name]


@pytest.mark.parametrize("reason", SENTENCES)
def test_a_reason_s_numbers_have_words_and_its_requests_letters(reason: str) -> None:
    sentence = SENTENCES[reason]
    assert set(operands(sentence)) <= in_rows()
    of_requests = set(re.findall(r"request \{(\w+)\}", sentence))
    assert {name for name in operands(sentence) if names_request(name)} == of_requests


def test_so_have_those_that_no_sentence_says() -> None:
    given = set(compared())
    assert given > {"budget", "winner", "head", "leader", "num_computed", "needs_blocks"}  # it does find them
    assert given <= in_rows()


def test_what_is_taken_out_of_a_sentence_on_the_cache_is_called_by_its_kind() -> None:
    assert set(pool_log._KINDS) == {"request", "id", "token"}
    for kind, name in (("id", "IDS"), ("token", "PLACES")):
        assert re.search(picture("engine_words.ts", rf"^const {name} = /(.+?)/;"), f"{kind}3")
    assert names_request("request3")
    assert not names_request("n3")
