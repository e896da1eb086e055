"""The command line: `genai-lab demo "prompt"` answers in the terminal and writes the trace as one HTML file.

Receives arguments, returns an exit code: 0 done; 2 a wrong command line, 1 it cannot be done (the reason is on stderr);
130 interrupted. Errors speak of the flags that were typed, not of the functions behind them.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from genai_lab._version import __version__
from genai_lab.builder.cli import in_flags
from genai_lab.errors import ArgumentError, ArgumentTypeError, GenaiLabError
from genai_lab.paths import cannot_write

DONE, CANNOT, WRONG, INTERRUPTED = 0, 1, 2, 130
FLAGS = {"name_or_path": "--model", "path": "--out", "prompt": "PROMPT", "max_new_tokens": "--max-new-tokens"}
SAMPLING_FLAGS: dict[str, tuple[type[int] | type[float], str, str]] = {
    "temperature": (float, "T", "below 1 plays safe, above 1 takes risks"),
    "top_k": (int, "K", "keep the K most likely tokens; 0 keeps all"),
    "top_p": (float, "P", "keep the most likely tokens until their share reaches P"),
    "min_p": (float, "P", "drop tokens less likely than P times the most likely one"),
    "random_seed": (int, "N", "the same seed draws the same answer"),
    "repetition_penalty": (float, "X", "above 1 makes words that were used less likely"),
}
PROMPT = "Write one sentence about the sea."  # sensible however the small model is sampled
EXAMPLES = """examples:
  genai-lab demo "Why is the sky blue?"
  genai-lab demo --temperature 0.8 --seed 7 --out story.html "Tell me a story."
  genai-lab demo --model path/to/model/folder --raw "Once upon a time"
  genai-lab model-folder smollm2
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. The entry point of the `genai-lab` program."""
    try:
        args = _parser().parse_args(arguments)
        command: Callable[[argparse.Namespace], int] = args.command
        return command(args)
    except GenaiLabError as error:
        print(f"genai-lab: error: {in_flags(str(error), FLAGS)}", file=sys.stderr)
        return WRONG if isinstance(error, ArgumentError | ArgumentTypeError) else CANNOT
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
    from genai_lab.builder.options import Precision
    from genai_lab.workbench.default_model import MODELS

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
    folder.add_argument(
        "name", nargs="?", default="smollm2", choices=[*MODELS], help="a known model (default: smollm2)"
    )
    precisions = [str(precision) for precision in Precision]
    folder.add_argument("-p", "--precision", choices=precisions, help="of the weights (default: the model's own)")
    folder.set_defaults(command=print_model_folder)
    return parser


def _add_demo(commands: Any) -> None:
    words = "answer a prompt in the terminal and write the recorded run as one HTML file"
    parser = commands.add_parser("demo", help=words, description=f"{words[0].upper()}{words[1:]}.")
    add = parser.add_argument
    add("prompt", nargs="?", type=_text, default=PROMPT, help=f"what to ask (default: {PROMPT!r})")
    add("--out", type=Path, default=Path("trace.html"), metavar="FILE", help="the HTML file (default: trace.html)")
    add("--model", default="smollm2", help="a known model or the path of a model folder (default: smollm2)")
    words = "tokens of the answer at most (default: 256)"
    add("--max-new-tokens", type=_new_tokens, default=256, metavar="N", help=words)
    add("--raw", action="store_true", help="go on with the prompt as it is, without the chat template")
    sampling = parser.add_argument_group(
        "sampling", "Any of the first five draws at random; without them the most likely token is taken."
    )
    for name, (kind, metavar, words) in SAMPLING_FLAGS.items():
        flag = "--seed" if name == "random_seed" else f"--{name.replace('_', '-')}"
        sampling.add_argument(flag, type=_option(name, kind), dest=name, metavar=metavar, help=words)
    parser.set_defaults(command=demo)


def _search_options(args: argparse.Namespace) -> dict[str, float]:
    return {name: value for name in SAMPLING_FLAGS if (value := getattr(args, name)) is not None}


def _option(name: str, kind: type[int] | type[float]) -> Callable[[str], int | float]:
    """A reader of one search option's flag, by the option's own rule."""

    def read(text: str) -> int | float:
        from genai_lab.config.search import SearchOptions, allowed_values

        try:
            value = kind(text)
            SearchOptions(context_length=1).with_options(**{name: value})
        except ValueError as error:  # not a number, or not an allowed one
            raise argparse.ArgumentTypeError(f"{text!r:.60}: {allowed_values(name)} is needed") from error
        return value

    return read


def _new_tokens(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r:.60}: an integer of at least 1 is needed")
    return value


def _text(text: str) -> str:
    """What was typed, which a terminal in another encoding may have made no text at all."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise argparse.ArgumentTypeError(f"not UTF-8 text at character {error.start + 1}: {text!r:.60}") from error
    return text


def _writable(path: Path) -> Path:
    """The path, known to be writable: better to hear it now than after the answer."""
    new = not os.path.lexists(path)
    try:
        path.open("ab").close()
        if new:
            path.unlink()  # nothing is left behind when there will be no answer
    except OSError as error:
        raise cannot_write(path, "path", error) from error
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
