/** The bundle with the pictures of an engine's run. */
import { makeBatching } from "./batching";
import { makeBlocksMap } from "./blocks_map";
import { makeEngineBench } from "./engine_bench";
import { offer } from "./runtime";

export default offer({ engine: makeEngineBench, batching: makeBatching, blocks: makeBlocksMap, all: makeEngineBench });
