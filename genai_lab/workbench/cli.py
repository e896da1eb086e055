"""The command line: `genai-lab demo "prompt"` answers in the terminal and writes the trace as one HTML file.

Receives arguments, returns an exit code: 0 done, 2 it cannot be done (the reason is on stderr), 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from genai_lab._version import __version__
from genai_lab.errors import GenaiLabError

DONE, CANNOT, INTERRUPTED = 0, 2, 130
PROMPT = "What is the capital of France?"
EXAMPLES = """examples:
  genai-lab demo "Why is the sky blue?"
  genai-lab demo --temperature 0.8 --seed 7 --out story.html "Tell me a story."
  genai-lab demo --model path/to/model/folder --raw "Once upon a time"
  genai-lab model-folder smollm2
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. The entry point of the `genai-lab` program."""
    args = _parser().parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = args.command
    try:
        return command(args)
    except GenaiLabError as error:
        print(f"genai-lab: {error}", file=sys.stderr)
        return CANNOT
    except BrokenPipeError:  # whoever read the answer has left, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CANNOT
    except KeyboardInterrupt:
        print("\ngenai-lab: interrupted", file=sys.stderr)
        return INTERRUPTED


def demo(args: argparse.Namespace) -> int:
    """Answer one prompt as it streams, say how long it took, write the trace."""
    from genai_lab.workbench.ask import ask
    from genai_lab.workbench.load import load

    target = _writable(args.out)
    trace = ask(
        load(args.model),
        args.prompt,
        max_new_tokens=args.max_new_tokens,
        chat=not args.raw,
        on_text=_say,
        **_search_options(args),
    )
    code = DONE
    try:
        trace.wait()
    except KeyboardInterrupt:  # wait() has told it to stop; what there is of the answer is kept
        trace.wait()
        code = INTERRUPTED
    print(f"\n\n{_summary(trace)}")
    print(f"wrote {trace.to_html(target)}; open it in a browser, it needs no network", flush=True)
    return code


def print_model_folder(args: argparse.Namespace) -> int:
    """Make a known model's folder if need be, and print its path."""
    from genai_lab.workbench.default_model import model_folder

    print(model_folder(args.name, args.precision))
    return DONE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="genai-lab",
        description="Run a language model and look inside.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"genai-lab {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_demo(commands)
    folder = commands.add_parser("model-folder", help="make a known model's folder if need be, and print its path")
    folder.add_argument("name", nargs="?", default="smollm2", help="a known model (default: smollm2)")
    folder.add_argument("-p", "--precision", default="int4", help="int4, int8 or fp32 (default: int4)")
    folder.set_defaults(command=print_model_folder)
    return parser


def _add_demo(commands: Any) -> None:
    words = "answer a prompt in the terminal and write the recorded run as one HTML file"
    parser = commands.add_parser("demo", help=words, description=f"{words[0].upper()}{words[1:]}.")
    add = parser.add_argument
    add("prompt", nargs="?", default=PROMPT, help=f"what to ask (default: {PROMPT!r})")
    add("--out", type=Path, default=Path("trace.html"), metavar="FILE", help="the HTML file (default: trace.html)")
    add("--model", default="smollm2", help="a known model or the path of a model folder (default: smollm2)")
    add("--max-new-tokens", type=int, default=256, metavar="N", help="tokens of the answer at most (default: 256)")
    add("--raw", action="store_true", help="go on with the prompt as it is, without the chat template")
    sampling = parser.add_argument_group(
        "sampling", "Any of the first five draws at random; without them the most likely token is taken."
    )
    add = sampling.add_argument
    add("--temperature", type=float, metavar="T", help="below 1 plays safe, above 1 takes risks")
    add("--top-k", type=int, metavar="K", help="keep the K most likely tokens; 0 keeps all")
    add("--top-p", type=float, metavar="P", help="keep the most likely tokens until their share reaches P")
    add("--min-p", type=float, metavar="P", help="drop tokens less likely than P times the most likely one")
    add("--seed", type=int, dest="random_seed", metavar="N", help="the same seed draws the same answer")
    add("--repetition-penalty", type=float, metavar="X", help="above 1 makes words that were used less likely")
    parser.set_defaults(command=demo)


def _search_options(args: argparse.Namespace) -> dict[str, float]:
    names = ("temperature", "top_k", "top_p", "min_p", "random_seed", "repetition_penalty")
    return {name: value for name in names if (value := getattr(args, name)) is not None}


def _writable(path: Path) -> Path:
    """The path, known to be writable: better to hear it now than after the answer."""
    new = not path.exists()
    try:
        path.open("ab").close()
        if new:
            path.unlink()  # nothing is left behind when there will be no answer
    except OSError as error:
        raise GenaiLabError(f"--out {str(path)!r} cannot be written: {error.strerror}. Give another file.") from error
    return path


def _say(text: str) -> None:
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
    sys.stdout.flush()


def _summary(trace: Any) -> str:
    """One or two lines about the run: why it ended, and how long its tokens took."""
    from genai_lab.widgets.words import milliseconds, plural

    run = trace.runs().iloc[0]
    ends = {"eos": "the model ended its answer", "length": "as long as it may be", "stopped": "stopped"}
    lines = [
        f"{plural(run['new_tokens'], 'token')} ({ends.get(run['finish'], 'ended')}), {run['prompt_tokens']} of prompt"
    ]
    if run["new_tokens"] > 0:
        times = f"first token after {milliseconds(run['ttft_ms'])}"
        each = run["ms_per_token"]
        per_token = f", then {milliseconds(each)} a token ({1000 / each:.0f} tokens/s)" if each and each > 0 else ""
        lines.append(times + per_token)
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
