/** Assembles the page of a run. */

const topControls = beginTop();
beginFront();
beginCurves();
beginParallel();
beginSlices();
beginTrials();
beginReadings();
beginSelectionBar();
beginContents();
const live = beginLive();
if (live) topControls.append(" ", live);
document.documentElement.dataset.ready = "true";
