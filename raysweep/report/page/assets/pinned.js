/** The card of the pinned point: its scores, its configuration, and the command that exports it. */

function pin(place) {
  if (place == null || place === selection.pinned) return;
  change({ pinned: place });
  announce(`Pinned: ${spokenPoint(place)}`);
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
  const place = selection.pinned;
  if (place === null) {
    const text = "Nothing is pinned. Click a mark of the chart, or choose one by the arrow keys and press Enter.";
    return [element("h3", {}, "Pinned point"), element("p", { class: "soft" }, text)];
  }
  const trial = trialOfPoint(place);
  const member = memberOfPoint.get(place);
  const common = Object.entries(run.common).map(([name, value]) => [userText(shortValue(name)), userText(shortValue(value, 200))]);
  const configuration = configurationOf(trial, 200);
  const reason = trial.reason ? [": ", userText(trial.reason)] : [];
  return [
    element("h3", {}, pointTitle(place)),
    element("p", { class: "soft" }, marksOf(place).join(", ") || "not on the front"),
    scoreTable(place),
    ...guardParts(member),
    ...(configuration.length ? [facts(configuration)] : []),
    element("p", { class: "hint" }, standingOf(trial), ...reason),
    ...(common.length ? [element("details", {}, element("summary", {}, "Common to all trials"), facts(common))] : []),
    ...exportParts(member),
  ];
}

function scoreTable(place) {
  const splits = run.splits.filter((split) => scoresOn(place, split));
  const member = memberOfPoint.get(place);
  const names = [["P", "p"], ["S", "s"], ["retention", "r"], ["accuracy", "a"]];
  const head = [element("td"), ...splits.map((split) => element("th", { scope: "col", class: "n" }, split))];
  const rows = names.map(([name, key]) => {
    const cells = splits.map((split) => {
      const interval = intervalText(member, split, key).trim().replace(/[()]/g, "");
      const small = interval ? element("small", { class: "soft" }, interval) : null;
      return element("td", { class: "n" }, shownScore(scoresOn(place, split)[key]), small);
    });
    return element("tr", {}, element("th", { scope: "row" }, name), ...cells);
  });
  const certainties = splits.map((split) => (member ? member.intervals[split] : {}) || {});
  if (certainties.some((certainty) => certainty.stability != null)) {
    const cells = certainties.map(({ stability }) => element("td", { class: "n" }, stability == null ? ABSENT : shownShare(stability)));
    rows.push(element("tr", {}, element("th", { scope: "row" }, "stability"), ...cells));
  }
  const table = element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows));
  const level = certainties.map((certainty) => certainty.level).find((each) => each != null);
  const words = level == null ? "" : `Small: ${shownShare(level)} intervals over queries.`;
  const stable = rows.length > names.length ? " Stability: the share of resamples of the queries in which it is on the front." : "";
  const told = words ? element("p", { class: "hint" }, words + stable) : null;
  return element("div", { class: "scroll" }, table, told);
}

/** The guard scores of a member, and their limits. */
function guardParts(member) {
  if (!member || member.guards.length === 0) return [];
  const words = ({ isMet, minimum }) => (minimum == null ? "no limit" : `${isMet ? "meets" : "misses"} ≥ ${shownScore(minimum)}`);
  const rows = member.guards.map((guard) => element(
    "tr",
    {},
    element("th", { scope: "row" }, userText(guard.name), element("small", { class: "soft" }, userText(guard.metric))),
    element("td", { class: "n" }, shownScore(guard.score)),
    element("td", { class: guard.isMet ? null : "missed" }, words(guard)),
  ));
  const names = [["guard", null], ["score", "n"], ["asked for", null]];
  const head = names.map(([name, style]) => element("th", { scope: "col", class: style }, name));
  const table = element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows));
  return [element("div", { class: "scroll", id: "pinned-guards" }, table)];
}

function exportParts(member) {
  const letGo = element("button", { type: "button", on: { click: unpin } }, "Let go");
  if (!member) {
    const text = "Only members of the front have their weights kept, and can be exported.";
    return [element("p", { class: "hint" }, text), element("div", { class: "controls" }, letGo)];
  }
  const command = element("code", { class: "command", id: "export-command" }, member.command);
  const button = element("button", { type: "button" }, "Copy");
  button.addEventListener("click", () => copyText(member.command, command, button));
  return [element("div", { class: "hint" }, "As a model of its own:"), command, element("div", { class: "controls" }, button, letGo)];
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
  announce(isCopied ? "The command is copied." : "The command is selected.");
  setTimeout(() => (button.textContent = "Copy"), 2500);
}
