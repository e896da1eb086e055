/** Writes the committed files into genai_lab/widgets/static/. */
import { mkdir, writeFile } from "node:fs/promises";
import { gzipSync } from "node:zlib";
import { bundle, here, outputs } from "./bundle.mjs";

const folder = here("../genai_lab/widgets/static/");
await mkdir(folder, { recursive: true });
for (const [entry, name] of Object.entries(outputs)) {
  const bytes = await bundle(entry);
  await writeFile(`${folder}${name}`, bytes);
  console.log(
    `${name}: ${(bytes.length / 1024).toFixed(1)} KiB, gzip ${(gzipSync(bytes).length / 1024).toFixed(1)} KiB`,
  );
}
