/** Assembles the page. */

function beginContents() {
  const place = unfold("contents");
  const list = element("ul");
  for (const title of document.querySelectorAll("main section > h2")) {
    const around = title.parentElement;
    if (!around.hidden) list.append(element("li", {}, element("a", { href: `#${around.id}` }, title.textContent)));
  }
  place.append(list);
}

function beginTop() {
  const place = unfold("top-controls");
  place.append(themeControl());
  return place;
}

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
