/** While the run is active, a served page reloads periodically and restores the reader's selection. */
const RELOAD_SECONDS = 20;

function beginLive() {
  restore();
  addEventListener("pagehide", store);
  if (!run.isRunning || !location.protocol.startsWith("http")) return null;
  const box = element("input", { type: "checkbox", checked: recall("live") !== false });
  box.addEventListener("change", () => remember("live", box.checked));
  setInterval(reloadIfWanted, RELOAD_SECONDS * 1000);
  return element("label", {}, box, "follow the run");
}

function reloadIfWanted() {
  if (recall("live") !== false && !document.hidden && !isBusy()) location.reload();
}

/** Whether the reader is typing or moving through a chart; a reload would lose the text or the position. */
function isBusy() {
  const active = document.activeElement;
  return active !== null && active.matches("input[type=search], input[type=number], select, [role=application]:focus-visible");
}

function store() {
  const member = memberOfPoint.get(selection.pinned);
  remember("chosen", {
    pinned: member ? member.name : null,
    isUnpinned: selection.pinned === null,
    split: selection.split,
    area: selection.area,
    words: selection.words,
    isServed: location.protocol.startsWith("http"),
    scroll: scrollY,
  });
}

function restore() {
  const knee = run.members.find((member) => member.knee);
  const stored = run.isRunning && location.protocol.startsWith("http") ? recall("chosen") : null;
  if (!stored) {
    change({ pinned: knee ? knee.point : null });
    return;
  }
  const pinned = stored.isUnpinned ? null : (pointOfName(stored.pinned) ?? (knee ? knee.point : null));
  const split = run.splits.includes(stored.split) ? stored.split : selection.split;
  change({ pinned, split, area: stored.area, words: stored.words });
  requestAnimationFrame(() => scrollTo({ top: stored.scroll, behavior: "instant" }));
}
