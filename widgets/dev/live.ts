/** The page for looking at a live trace: `?kind=all&what=story|stream|short`. */
import runtime from "../src/answers";
import { answerRun } from "./fixture";
import { LiveModel, longStory, storyWithBranches, storyWithProcessors } from "./kernel";

const query = new URLSearchParams(location.search);
const what = query.get("what") ?? "story";
const model = new LiveModel(Number(query.get("every") ?? 40));
const el = document.querySelector("main");
const font = query.get("font");
if (font) document.body.style.setProperty("--jp-ui-font-family", font);
if (!el) throw new Error("the page has no main element");
if (what === "story") model.trace = storyWithBranches();
if (what === "processors") model.trace = storyWithProcessors();
if (what === "long") model.trace = longStory(Number(query.get("n") ?? 4000));
if (what === "short") model.trace = answerRun("A", 0, 0);
const { createStore, mount } = runtime.initialize();
mount(query.get("kind") ?? "all", { el }, createStore(model.asModel()));
if (what === "stream") model.stream(answerRun("B", 0, 12));
Object.assign(window, { model });
