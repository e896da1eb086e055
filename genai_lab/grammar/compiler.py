"""A grammar's text -> a `Guide`, or an error that says where the text is wrong.

Receives the bytes of every token (once) and grammars. The text is a stranger's: its size and the work it may cause are
limited. What was compiled is kept, so that many requests with one schema compile it once.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

from genai_lab.errors import ArgumentTypeError, GrammarError
from genai_lab.grammar.guide import Guide
from genai_lab.grammar.positions import describe

KINDS: Final = ("json_schema", "regex", "lark_grammar")
MAX_GRAMMAR_BYTES: Final = 1 << 19
KEPT: Final = 16  # compiled grammars

LIMITS: Final = {
    "max_items_in_row": 2_000,
    "initial_lexer_fuel": 1_000_000,
    "step_lexer_fuel": 200_000,
    "step_max_items": 50_000,
    "max_lexer_states": 50_000,
    "max_grammar_size": 500_000,
    "precompute_large_lexemes": False,  # one large repetition would take seconds before the first token
    "verbose_errors": False,
}
"""What a grammar may cost: the library's own limits (LLParserLimits), with less memory and no work ahead of need."""


@dataclass(frozen=True, slots=True)
class TokenTable:
    """A vocabulary as a grammar sees it."""

    tokens: Sequence[bytes]  # [V], what each token adds to a text; empty: an id without a token
    special_ids: Sequence[int]  # tokens that are no text
    end_ids: tuple[int, ...]  # tokens that end an answer; at least one
    encode: Callable[[str], Sequence[int]]  # text -> ids, for tokens that a grammar forces


class GrammarCompiler:
    """Compiles grammars for one vocabulary.

    Args:
        table: makes the vocabulary's bytes; called when the first grammar is compiled.
    """

    def __init__(self, table: Callable[[], TokenTable]) -> None:
        self._make_table = table
        self._tokenizer: Any = None
        self._table: TokenTable | None = None
        self._starts: OrderedDict[tuple[str, str], Any] = OrderedDict()
        self._lock = threading.Lock()

    def guide(self, kind: str, text: str) -> Guide:
        """A guide at the beginning of a grammar.

        Args:
            kind: "json_schema", "regex" or "lark_grammar".
            text: the grammar.

        Raises:
            GrammarError: an unknown kind, or a wrong text; says where.
            ArgumentTypeError: not strings.
        """
        check_text(kind, text)
        with self._lock:
            start = self._starts.get((kind, text))
            if start is None:
                start = self._compile(kind, text)
                self._starts[kind, text] = start
                if len(self._starts) > KEPT:
                    self._starts.popitem(last=False)
            self._starts.move_to_end((kind, text))
            if self._table is None:
                raise AssertionError("a compiled grammar has its vocabulary")
            return Guide(start, len(self._table.tokens), self._table.end_ids)

    def _compile(self, kind: str, text: str) -> Any:
        library = load_library()
        if self._tokenizer is None:
            self._table = self._make_table()
            self._tokenizer = make_tokenizer(library, self._table)
        limits = library.LLParserLimits(**LIMITS)

        def compiled(kind: str, text: str) -> tuple[Any, str]:
            matcher = library.LLMatcher(self._tokenizer, grammar_of(library, kind, text), log_level=0, limits=limits)
            return matcher, str(matcher.get_error()) if matcher.is_error() else ""

        return describe(kind, text, compiled)


def check_text(kind: object, text: object) -> None:
    """Raises GrammarError or ArgumentTypeError for what can be seen without compiling."""
    for name, value in (("type", kind), ("data", text)):
        if not isinstance(value, str):
            raise ArgumentTypeError(f"set_guidance: {name} is {type(value).__name__}; a string is allowed")
    if kind not in KINDS:
        raise GrammarError(f"set_guidance: Unsupported guidance type: {kind:.60}; allowed are {', '.join(KINDS)}")
    if not str(text).strip():
        raise GrammarError(f"set_guidance: data is empty; the text of a {kind} is needed")
    size = len(str(text).encode("utf-8", "surrogatepass"))
    if size > MAX_GRAMMAR_BYTES:
        raise GrammarError(
            f"set_guidance: data has {size:,} bytes; at most {MAX_GRAMMAR_BYTES:,} are read. Shorten the {kind}"
        )
    lone = next((i for i, c in enumerate(str(text)) if "\ud800" <= c <= "\udfff"), None)
    if lone is not None:
        raise GrammarError(f"set_guidance: data has half a surrogate pair at character {lone + 1}; no text has that")


def load_library() -> ModuleType:
    """llguidance, imported when it is needed."""
    import llguidance

    return llguidance


def grammar_of(library: ModuleType, kind: str, text: str) -> str:
    """The text in the library's own form."""
    make = {
        "json_schema": library.LLMatcher.grammar_from_json_schema,
        "regex": library.LLMatcher.grammar_from_regex,
        "lark_grammar": library.LLMatcher.grammar_from_lark,
    }[kind]
    return str(make(text))


def make_tokenizer(library: ModuleType, table: TokenTable) -> Any:
    """The library's tokenizer over our vocabulary."""
    return library.LLTokenizer(_Wrapped(table), n_vocab=len(table.tokens), eos_token=list(table.end_ids))


class _Wrapped:
    """What the library asks of a tokenizer (llguidance.TokenizerWrapper)."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, table: TokenTable) -> None:
        self.tokens = list(table.tokens)
        self.special_token_ids = list(table.special_ids)
        self.eos_token_id = table.end_ids[0]
        self._encode = table.encode

    def __call__(self, text: str | bytes) -> list[int]:
        return list(self._encode(text.decode() if isinstance(text, bytes) else text))
