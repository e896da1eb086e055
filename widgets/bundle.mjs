/** One entry file in, one minified ES module out. The same source gives the same bytes. */
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { build, transform } from "esbuild";

export const here = (path) => fileURLToPath(new URL(path, import.meta.url));

/** Entry file -> committed file. */
export const outputs = {
  "src/answers.ts": "genai_lab.js",
  "src/engine.ts": "genai_lab_engine.js",
  "src/standalone.ts": "standalone.js",
};

/** A style sheet becomes a string. */
const styles = {
  name: "styles",
  setup: (b) =>
    b.onLoad({ filter: /\.css$/ }, async ({ path }) => {
      const source = await readFile(path, "utf8");
      const { code } = await transform(source, { loader: "css", minify: true, target: "chrome120" });
      return { contents: code.trim(), loader: "text" };
    }),
};

export async function bundle(entry) {
  const { outputFiles } = await build({
    absWorkingDir: here("."),
    entryPoints: [entry],
    bundle: true,
    minify: true,
    write: false,
    format: "esm",
    target: "es2022",
    charset: "utf8",
    legalComments: "none",
    plugins: [styles],
  });
  return outputFiles[0].contents;
}
