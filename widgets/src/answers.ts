/** The bundle with the pictures of answers. */
import { makePipeline } from "./pipeline";
import { makeRibbon } from "./ribbon";
import { offer } from "./runtime";
import { makeTimeline } from "./timeline";
import { makeWorkbench } from "./workbench";

export default offer({ ribbon: makeRibbon, pipeline: makePipeline, timeline: makeTimeline, all: makeWorkbench });
