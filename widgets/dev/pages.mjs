/** Builds dev/out/live.html (make-believe kernel) and dev/out/offline-*.html (as Python exports them) from the current source. */
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { bundle } from "../bundle.mjs";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
await mkdir(here("out"), { recursive: true });

const node = await build({
  stdin: { contents: 'export * from "./kernel"; export * from "./fixture";', resolveDir: here("."), loader: "ts" },
  bundle: true,
  write: false,
  format: "esm",
  target: "es2022",
});
const dev = await import(`data:text/javascript;base64,${Buffer.from(node.outputFiles[0].contents).toString("base64")}`);
const text = async (entry) => Buffer.from(await bundle(entry)).toString();
const safe = (s) => s.replaceAll("</script", "<\\/script");
const style =
  "<style>body{margin:16px;background:#f3f4f6}@media(prefers-color-scheme:dark){body{background:#0e1115}}</style>";
const top = `<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>genai_lab</title>${style}<main>`;

await writeFile(here("out/live.html"), `${top}</main><script type="module">${safe(await text("dev/live.ts"))}</script>`);

const esm = await text("src/runtime.ts");
const host = safe(await text("src/standalone.ts"));
const json = (v) => JSON.stringify(v).replaceAll("<", "\\u003c");
const pages = { story: dev.storyWithBranches(), short: dev.answerRun("A", 0, 0), empty: null };
for (const [name, trace] of Object.entries(pages)) {
  const chunk = trace ? Buffer.from(await dev.chunkOf(trace)).toString("base64") : "";
  const entries = [
    { id: "rt", kind: "runtime", esm, state: {} },
    {
      id: "trace",
      kind: "trace",
      state: { selected: { run: 0, token: -1 } },
      buffers: [{ path: ["chunk"], data: chunk }],
    },
    ...["all", "ribbon", "pipeline", "timeline"].map((kind) => ({
      id: kind,
      kind: "view",
      state: { rt: "anywidget:rt", trace: "anywidget:trace", kind },
    })),
  ];
  const slots = (name === "short" ? ["ribbon", "pipeline", "timeline"] : ["all"])
    .map((id) => `<div class="genai-lab-slot" data-widget="${id}"></div>`)
    .join("");
  const data = `<script type="application/json" class="genai-lab-widgets">${json(entries)}</script>`;
  await writeFile(here(`out/offline-${name}.html`), `${top}${slots}</main>${data}<script type="module">${host}</script>`);
}
console.log(`pages in ${here("out")}`, await readFile(here("out/live.html")).then((b) => b.length));
