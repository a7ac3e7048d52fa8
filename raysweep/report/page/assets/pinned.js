/** The card of the pinned point: its scores, its configuration, and the command that exports it. */

function pin(index) {
  if (index == null || index === selection.pinned) return;
  change({ pinned: index });
  announce(`Pinned: ${spokenPoint(index)}`);
}

function unpin() {
  if (selection.pinned === null) return;
  change({ pinned: null });
  announce("Nothing is pinned.");
}

function pinnedCard() {
  const card = element("aside", { class: "card", id: "pinned", "aria-label": "Pinned point", tabindex: "-1" });
  const draw = () => card.replaceChildren(...pinnedContent());
  onSelection((names) => {
    if (names.has("pinned")) draw();
  });
  draw();
  return card;
}

function pinnedContent() {
  const index = selection.pinned;
  if (index === null) {
    const text = "Nothing is pinned. Click a mark in the chart, or select one with the arrow keys and press Enter.";
    return [element("h3", {}, "Pinned point"), element("p", { class: "soft" }, text)];
  }
  const trial = trialOfPoint(index);
  const member = memberOfPoint.get(index);
  const common = Object.entries(run.common).map(([name, value]) => [userText(shortValue(name)), userText(shortValue(value, 200))]);
  const configuration = configurationOf(trial, 200);
  const reason = trial.reason ? [": ", userText(trial.reason)] : [];
  return [
    element("h3", {}, pointTitle(index)),
    element("p", { class: "soft" }, marksOf(index).join(", ") || "not on the front"),
    scoreTable(index),
    ...guardParts(member),
    ...(configuration.length ? [facts(configuration)] : []),
    element("p", { class: "hint" }, standingOf(trial), ...reason),
    ...(common.length ? [element("details", {}, element("summary", {}, "Common to all trials"), facts(common))] : []),
    ...exportParts(member),
  ];
}

function scoreTable(index) {
  const splits = run.splits.filter((split) => scoresOn(index, split));
  const member = memberOfPoint.get(index);
  const names = run.scores.map(({ heading, key }) => [heading, key]);
  const head = [element("td"), ...splits.map((split) => element("th", { scope: "col", class: "n" }, split))];
  const rows = names.map(([name, key]) => {
    const cells = splits.map((split) => {
      const interval = intervalText(member, split, key).trim().replace(/[()]/g, "");
      const small = interval ? element("small", { class: "soft" }, interval) : null;
      return element("td", { class: "n" }, shownScore(scoresOn(index, split)[key]), small);
    });
    return element("tr", {}, element("th", { scope: "row" }, name), ...cells);
  });
  const certainties = splits.map((split) => (member ? member.intervals[split] : {}) || {});
  if (certainties.some((certainty) => certainty.stability != null)) {
    const cells = certainties.map(({ stability }) => element("td", { class: "n" }, stability == null ? ABSENT : shownShare(stability)));
    rows.push(element("tr", {}, element("th", { scope: "row" }, "stability"), ...cells));
  }
  const table = element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows));
  const level = certainties.map((certainty) => certainty.level).find((value) => value != null);
  if (level == null) return element("div", { class: "scroll" }, table);
  const sentences = [`Small numbers are ${shownShare(level)} intervals over queries.`];
  if (rows.length > names.length) sentences.push("Stability is the share of query resamples in which the point is on the front.");
  return element("div", { class: "scroll" }, table, element("p", { class: "hint" }, sentences.join(" ")));
}

/** The guard scores of a member, and their limits. */
function guardParts(member) {
  if (!member || member.guards.length === 0) return [];
  const limitText = ({ isMet, minimum }) => {
    if (minimum == null) return "no limit";
    return `${isMet ? "meets" : "misses"} ≥ ${shownScore(minimum)}`;
  };
  const rows = member.guards.map((guard) => element(
    "tr",
    {},
    element("th", { scope: "row" }, userText(guard.name), element("small", { class: "soft" }, userText(guard.metric))),
    element("td", { class: "n" }, shownScore(guard.score)),
    element("td", { class: guard.isMet ? null : "missed" }, limitText(guard)),
  ));
  const names = [["guard", null], ["score", "n"], ["limit", null]];
  const head = names.map(([name, style]) => element("th", { scope: "col", class: style }, name));
  const table = element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows));
  return [element("div", { class: "scroll", id: "pinned-guards" }, table)];
}

function exportParts(member) {
  const unpinButton = element("button", { type: "button", on: { click: unpin } }, "Unpin");
  if (!member) {
    const text = "Only front members can be exported; the weights of other points are not stored.";
    return [element("p", { class: "hint" }, text), element("div", { class: "controls" }, unpinButton)];
  }
  const command = element("code", { class: "command", id: "export-command" }, member.command);
  const button = element("button", { type: "button" }, "Copy");
  button.addEventListener("click", () => copyText(member.command, command, button));
  return [element("div", { class: "hint" }, "Export this point as a model:"), command, element("div", { class: "controls" }, button, unpinButton)];
}

async function copyText(text, shown, button) {
  let isCopied = false;
  try {
    await navigator.clipboard.writeText(text);
    isCopied = true;
  } catch {
    getSelection().selectAllChildren(shown); // fallback: a page opened from a file may not write to the clipboard
    isCopied = document.execCommand("copy");
  }
  button.textContent = isCopied ? "Copied" : "Press Ctrl+C";
  announce(isCopied ? "Command copied." : "Command selected.");
  setTimeout(() => (button.textContent = "Copy"), 2500);
}
