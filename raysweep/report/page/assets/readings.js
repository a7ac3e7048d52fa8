/** The reading panel: the sentences that the reference and the pinned point retrieve for a query, side by side. */

let readQuery = 0;

function beginReadings() {
  const container = unfold("readings-panel");
  if (!container) return;
  const readings = run.readings;
  const list = element("select", { id: "query", on: { change: () => show(Number(list.value)) } });
  list.append(...readings.queries.map((query, number) => element("option", { value: number }, queryName(query, number))));
  const step = (by) => {
    show((readQuery + by + readings.queries.length) % readings.queries.length);
    announce(`Query ${queryName(readings.queries[readQuery], readQuery)}`);
  };
  const before = element("button", { type: "button", on: { click: () => step(-1) } }, "Previous");
  const after = element("button", { type: "button", on: { click: () => step(1) } }, "Next");
  const content = element("div", { id: "reading" });
  const show = (number) => {
    readQuery = number;
    list.value = String(number);
    content.replaceChildren(...readingOf(readings, number));
  };
  container.append(element("div", { class: "controls" }, element("label", {}, "Query", list), before, after), content);
  onSelection((names) => {
    if (names.has("pinned")) show(readQuery);
  });
  show(0);
}

function queryName(query, number) {
  return `${number + 1}. ${shortened(query.text, 60)}`;
}

function readingOf(readings, number) {
  const query = readings.queries[number];
  const name = readPoint(readings);
  const columns = [["reference", "Reference encoder R"]];
  if (name !== null) columns.push([name, pointTitle(pointOfName(name))]);
  const sentenceSets = columns.map(([point]) => new Set(readings.retrieved[point] ? readings.retrieved[point][number][0] : []));
  const lists = columns.map(([point, title], column) => {
    const others = columns.length > 1 ? sentenceSets[1 - column] : null;
    return readingList(readings, point, number, title, others);
  });
  return [
    element("p", { class: "query" }, labelChip(query.label, "own", ""), " ", sentence(query.text)),
    ...(isPinnedRead(readings) ? [] : [element("p", { class: "hint" }, notStoredText(name))]),
    element("div", { class: "readings" }, ...lists),
  ];
}

function isPinnedRead(readings) {
  const member = memberOfPoint.get(selection.pinned);
  return member !== undefined && readings.retrieved[member.name] !== undefined;
}

function notStoredText(name) {
  const text = "No front member with stored sentences is pinned.";
  return name === null ? text : `${text} The list shows the knee or another member instead.`;
}

/** The pinned member, else the knee, else any member with stored readings, or null. */
function readPoint(readings) {
  const pinned = memberOfPoint.get(selection.pinned);
  const candidates = [pinned, ...run.members.filter((member) => member.knee), ...run.members];
  const shown = candidates.find((member) => member && readings.retrieved[member.name]);
  return shown ? shown.name : null;
}

function readingList(readings, name, number, title, others) {
  const retrieved = readings.retrieved[name];
  if (!retrieved) return element("p", { class: "soft" }, "The sentences that the reference encoder retrieves are not stored.");
  const [sentences, cosines] = retrieved[number];
  const own = readings.queries[number].label;
  const numSame = sentences.filter((index) => readings.labels[index] === own).length;
  const mean = cosines.reduce((sum, cosine) => sum + cosine, 0) / 1000 / (cosines.length || 1);
  const items = sentences.map((index, rank) => {
    const label = readings.labels[index];
    const isOnlyHere = others !== null && !others.has(index);
    return element(
      "li",
      {},
      element("span", { class: "rank" }, String(rank + 1)),
      element(
        "span",
        {},
        label === own ? labelChip(label, "same", "✓ ") : labelChip(label, "other", "✗ "),
        " ",
        sentence(readings.texts[index]),
        isOnlyHere ? element("small", { class: "soft" }, " only here") : null,
      ),
      element("span", { class: "cosine", title: "cosine to the query under R" }, (cosines[rank] / 1000).toFixed(3)),
    );
  });
  const counts = `${numSame} of ${sentences.length} have the query's label; mean cosine under R ${mean.toFixed(3)}`;
  return element("div", {}, element("h3", {}, title), element("p", { class: "hint" }, counts), element("ol", {}, ...items));
}

function sentence(text) {
  return element("span", { class: "sentence", dir: "auto" }, text);
}

/** A label; its sign and border show whether it matches the query's. */
function labelChip(label, kind, sign) {
  return element("span", { class: `label ${kind}` }, sign, userText(label));
}
