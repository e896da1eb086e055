/** Writes the two committed files into genai_lab/widgets/static/. */
import { mkdir, writeFile } from "node:fs/promises";
import { gzipSync } from "node:zlib";
import { bundle, here } from "./bundle.mjs";

const folder = here("../genai_lab/widgets/static/");
await mkdir(folder, { recursive: true });
const outputs = { "src/runtime.ts": "genai_lab.js", "src/standalone.ts": "standalone.js" };
for (const [entry, name] of Object.entries(outputs)) {
  const bytes = await bundle(entry);
  await writeFile(`${folder}${name}`, bytes);
  console.log(
    `${name}: ${(bytes.length / 1024).toFixed(1)} KiB, gzip ${(gzipSync(bytes).length / 1024).toFixed(1)} KiB`,
  );
}
