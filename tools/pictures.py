"""The pictures of the README, made by the project itself: a real answer and a real engine's run, in JupyterLab.

`python -m tools.pictures` (`make pictures`) writes docs/workbench-*.png and docs/engine-*.png, light and dark.
With names (`python -m tools.pictures engine`) only those.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from tests.browser.jupyter import JupyterLab
from tests.browser.labpage import LabPage
from tools.chromium import find_chromium
from tools.files import ROOT

DOCS = ROOT / "docs"
WIDTH, HEIGHT, MARGIN = 1180, 2600, 3  # pixels; so high that nothing needs to be scrolled
ANSWER = """\
import genai_lab

trace = genai_lab.ask(
    genai_lab.load("smollm2"), "Write one sentence about the sea.", max_new_tokens=48,
    temperature=0.8, top_k=40, top_p=0.9, repetition_penalty=1.1, random_seed=4,
)
trace"""
CONVERSATIONS = """\
import genai_lab

model = genai_lab.load("smollm2")
tokenizer = genai_lab.Tokenizer(model)
system = "You are a patient teacher. Answer in one short sentence, in plain words, without lists."
questions = [
    "What is rain?", "Why do cats purr?", "What is a prime number?", "Who invented paper?",
    "Why is the sea salty?", "How far is the moon?", "What do bees eat?", "Why do we sleep?",
]
prompts = [
    tokenizer.encode(tokenizer.apply_chat_template(
        [{"role": "system", "content": system}, {"role": "user", "content": question}]
    ))
    for question in questions
]
with genai_lab.record() as trace:
    engine = genai_lab.Engine(
        model, max_batch_size=4, max_scheduled_tokens=48, max_session_tokens=160, chunk_size=32, num_blocks=10
    )
    engine.generate_all(prompts, max_generated_tokens=24)
trace"""


@dataclass(frozen=True)
class Picture:
    """One picture: a cell, and how many of the cards that it shows; clicks choose what they are about."""

    name: str
    cell: str
    cards: int
    clicks: tuple[str, ...] = ()


PICTURES = (
    Picture("workbench", ANSWER, 2),  # of three: the answer, and how one token was picked
    # who is served when, and where memory lies: where one answer loses its place, and who needed its memory
    Picture("engine", CONVERSATIONS, 2, (".gl-jump[data-kind='preempt']", ".gl-playhead [data-request='2']")),
)
DRAWN = """() => {
    const view = document.querySelector('.jp-OutputArea .gl');
    return view?.dataset.status === 'done' && view.dataset.kernel === 'present' && view.dataset.ready === '1';
}"""


def photograph(page: Page, cards: int, target: Path) -> None:
    """The bar and the first cards, whole, with a margin so small that the cell's own border stays out."""
    view, last = page.locator(".jp-OutputArea .gl").first, page.locator(".jp-OutputArea .gl .gl-card").nth(cards - 1)
    first_box, last_box = view.bounding_box(), last.bounding_box()
    assert first_box is not None and last_box is not None
    height = last_box["y"] + last_box["height"] - first_box["y"]
    clip = {
        "x": first_box["x"] - MARGIN,
        "y": first_box["y"] - MARGIN,
        "width": first_box["width"] + 2 * MARGIN,
        "height": height + 2 * MARGIN,
    }
    page.screenshot(path=target, clip=clip)  # type: ignore[arg-type]


def take(page: Page, server: JupyterLab, picture: Picture) -> None:
    """Run the cell, and photograph what it shows, light and dark."""
    name = server.write(f"{picture.name}.ipynb", picture.cell)
    notebook = LabPage(page, server, picture.name).open(name).hide_sidebar().run_all()
    page.wait_for_function(DRAWN)
    for selector in picture.clicks:
        notebook.output(selector).first.click()
    page.mouse.move(0, 0)
    for theme in ("light", "dark"):
        notebook.theme(theme)
        page.wait_for_selector(f".jp-OutputArea .gl[data-theme='{theme}']")
        photograph(page, picture.cards, DOCS / f"{picture.name}-{theme}.png")
    notebook.close()


def main(names: list[str]) -> int:
    executable = find_chromium()
    if executable is None:
        print("no Chromium: `make chromium` installs one", file=sys.stderr)
        return 1
    if unknown := set(names) - {picture.name for picture in PICTURES}:
        print(f"there are {', '.join(p.name for p in PICTURES)}, not {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    DOCS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, JupyterLab(Path(scratch)) as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox", "--disable-gpu"])
        for picture in PICTURES:
            if names and picture.name not in names:
                continue
            page = browser.new_page(
                viewport={"width": WIDTH, "height": HEIGHT}, device_scale_factor=1.5, reduced_motion="reduce"
            )
            page.set_default_timeout(120_000)
            take(page, server, picture)
            page.close()
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
