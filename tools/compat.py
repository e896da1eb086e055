"""docs/COMPATIBILITY.md: every member of onnxruntime-genai's Python module, and what it is here.

`python -m tools.compat` writes it from the installed onnxruntime-genai and the reasons in `compat_reasons`. `problems`
says what is wrong with it: a member without a row, a row without a member, a claim that a signature denies, a document
that is not what would be written now. What calls come to is tried by tests/parity/test_surface.py.
"""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import genai_lab
from tools.compat_calls import CALLS
from tools.compat_reasons import BEHAVIOURS, ROWS, Row, Status
from tools.compat_surface import Member, differences, members
from tools.files import ROOT

DOCUMENT = Path("docs/COMPATIBILITY.md")
HEAD = """# What of onnxruntime-genai's Python is here

Every member of onnxruntime-genai {version}, one row each. This file is written by `python -m tools.compat`; the reasons
are in `tools/compat_reasons.py`. A test makes small calls of every member on both libraries, and fails when a row says
what is not so.

{counts}

- **same**: called as there, it answers as there; an error here is also an error of the class there.
- **same, more**: and it also takes or gives what there it does not.
- **differs**: it is here, and some calls answer otherwise.
- **not here**: the name is here, and refuses with the reason, whatever it is given.

Rules of whole engines and of the module (threads, errors, the order in which conversations get their places) stand at
the end; a row does not repeat them.

`import genai_lab as og`, or run a script unchanged: `python -m genai_lab.as_og script.py`.
"""


def oracle() -> ModuleType | None:
    """The compiled module of the installed onnxruntime-genai; None when there is none."""
    try:
        og = importlib.import_module("onnxruntime_genai.onnxruntime_genai")
    except ImportError:
        return None
    og.disable_telemetry_events()  # its builds send some by default
    return og


def written(og: ModuleType) -> str:
    """The document as it should be."""
    found = members(og)
    rows = [(member, ROWS[member.id]) for member in found]
    counts = Counter(row.status for _, row in rows)
    words = ", ".join(f"{counts[status]} {status.value}" for status in Status)
    version = importlib.import_module("onnxruntime_genai").__version__
    parts = [HEAD.format(version=version, counts=f"{len(rows)} members: {words}.")]
    owners = list(dict.fromkeys(member.owner for member in found))
    for owner in owners:
        parts.append(f"## {owner or 'Functions'}\n\n| member | here | |\n|---|---|---|")
        parts[-1] += "".join(f"\n{_line(member, row)}" for member, row in rows if member.owner == owner) + "\n"
    parts.append("## Rules that show in no single call\n\n| about | there | here | looked at by |\n|---|---|---|---|")
    parts[-1] += "".join(f"\n| {b.about} | {b.there} | {b.here} | `{b.test}` |" for b in BEHAVIOURS) + "\n"
    return "\n".join(parts)


def _line(member: Member, row: Row) -> str:
    name = member.id if member.kind not in ("method", "function", "static method") else f"{member.id}({_words(member)})"
    name = f"{member.owner}({_words(member)})" if member.name == "()" else name
    return f"| `{name}` | {row.status.value} | {row.why.replace('|', chr(92) + '|')} |"


def _words(member: Member) -> str:
    """The arguments of the longest way to call it; those without a name as _."""
    way = max(member.ways, key=len, default=())
    words = [parameter.name or "_" for parameter in way if not parameter.keyword_only]
    words += ["*"] if any(parameter.keyword_only for parameter in way) else []
    words += [str(parameter.name) for parameter in way if parameter.keyword_only]
    return ", ".join([*words, *(["..."] if member.open_ended else [])])


def problems(root: Path = ROOT) -> list[str]:
    """What is wrong; nothing when onnxruntime-genai is not installed, as it need not be."""
    og = oracle()
    if og is None:
        return []
    found = {member.id: member for member in members(og)}
    complaints = [f"tools/compat_reasons.py: {name} has no row" for name in sorted(set(found) - set(ROWS))]
    complaints += [
        f"tools/compat_reasons.py: there is no {name} to have a row" for name in sorted(set(ROWS) - set(found))
    ]
    complaints += [f"tools/compat_calls.py: {name} is tried by no call" for name in sorted(set(ROWS) - set(CALLS))]
    complaints += [
        f"tools/compat_reasons.py: {name} is said to be {row.status.value!r} without a reason"
        for name, row in ROWS.items()
        if row.status is not Status.SAME and not row.why
    ]
    complaints += [
        f"tools/compat_reasons.py: {name} is met by a rule of its own ({b.about}), but its row says "
        f"{ROWS[name].status.value!r}"
        if name in ROWS
        else f"tools/compat_reasons.py: there is no {name} to have the rule {b.about!r}"
        for b in BEHAVIOURS
        for name in b.members.split()
        if name not in ROWS or ROWS[name].status is Status.SAME
    ]
    complaints += [f"{b.test}: named in a row, but does not exist" for b in BEHAVIOURS if not (root / b.test).is_file()]
    complaints += [f"genai_lab: {words}" for member in found.values() for words in differences(genai_lab, member)]
    if complaints:
        return complaints
    document = root / DOCUMENT
    if not document.is_file() or document.read_text(encoding="utf-8") != written(og):
        complaints.append(f"{DOCUMENT} is not what would be written now; run python -m tools.compat")
    return complaints


def main() -> int:
    """Write the document; say what is wrong."""
    og = oracle()
    if og is None:
        print("onnxruntime-genai is not installed: pip install -e .[dev]", file=sys.stderr)
        return 1
    complaints = [words for words in problems() if str(DOCUMENT) not in words]
    if not complaints:
        (ROOT / DOCUMENT).write_text(written(og), encoding="utf-8")
        print(f"wrote {DOCUMENT}")
    print("\n".join(complaints), end="\n" if complaints else "", file=sys.stderr)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
