/** The table of all trials: headers sort, a box filters, and trial numbers pin the trials' best points. */

const HIGHEST_FIRST = new Set(["objective", "p", "s", "r"]);

function beginTrials() {
  const table = document.getElementById("trial-sheet");
  const container = unfold("trials-filter");
  if (!table || !container) return;
  const rows = [...table.tBodies[0].rows];
  rows.forEach((row, number) => makePinButton(row, number));
  for (const head of table.tHead.rows[0].cells) makeSortButton(head, table, rows);
  container.append(filterBox());
  const show = () => {
    rows.forEach((row, number) => {
      row.hidden = !isTrialSelected(number);
    });
  };
  const mark = () => {
    const pinned = pinnedTrial();
    rows.forEach((row, number) => row.classList.toggle("pinned", number === pinned));
  };
  onSelection((names) => {
    if (names.has("selected")) show();
    if (names.has("pinned")) mark();
  });
}

function makePinButton(row, number) {
  const trial = trials[number];
  if (trial.best == null) return;
  const button = element("button", { type: "button", class: "link", "aria-label": `Pin trial ${trial.trial}` }, String(trial.trial));
  button.addEventListener("click", () => pin(trial.best));
  row.cells[0].replaceChildren(button);
}

function makeSortButton(head, table, rows) {
  const button = element("button", { type: "button" }, ...head.childNodes);
  button.addEventListener("click", () => sortBy(head, table, rows));
  head.replaceChildren(button);
}

function sortBy(head, table, rows) {
  const key = head.dataset.key;
  const before = head.getAttribute("aria-sort");
  const first = HIGHEST_FIRST.has(key) ? "descending" : "ascending";
  const other = first === "ascending" ? "descending" : "ascending";
  const order = before === first ? other : first;
  for (const cell of head.parentElement.cells) cell.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", order);
  const numbers = rows.map((row, number) => number);
  numbers.sort((one, two) => compareValues(trialValue(trials[one], key), trialValue(trials[two], key), order) || one - two);
  table.tBodies[0].append(...numbers.map((number) => rows[number]));
  announce(`Sorted by ${head.textContent}, ${order}.`);
}

/** Missing values come last in either order. */
function compareValues(one, two, order) {
  if (one == null || two == null) return (one == null) - (two == null);
  const sign = order === "ascending" ? 1 : -1;
  if (typeof one === "number" && typeof two === "number") return sign * (one - two);
  return sign * String(one).localeCompare(String(two), "en", { numeric: true });
}

function filterBox() {
  const problems = element("span", { class: "hint", role: "status", id: "filter-problems" });
  const box = element("input", {
    type: "search",
    id: "filter",
    placeholder: `loss=triplet ${headingP}>=80`,
    "aria-describedby": "filter-problems filter-hint",
    spellcheck: "false",
    autocomplete: "off",
  });
  let waiting = null;
  box.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => change({ words: box.value }), 120);
  });
  onSelection((names) => {
    if (!names.has("words")) return;
    if (box.value !== selection.words) box.value = selection.words;
    problems.textContent = readFilter(selection.words).problems.join(" ");
  });
  const text = "Enter words, or compare columns with =, !=, <, <=, > and >=. The filter also applies to the charts.";
  const hint = element("p", { class: "hint", id: "filter-hint" }, text);
  return element("div", {}, element("div", { class: "controls" }, element("label", {}, "Filter", box), problems), hint);
}

/** Shows the number of remaining trials, with a button that shows all. */
function beginSelectionBar() {
  const bar = document.getElementById("selection-bar");
  const text = element("span");
  const clear = element("button", { type: "button" }, "Show all");
  clear.addEventListener("click", () => change({ area: null, axes: new Map(), words: "" }));
  bar.append(text, clear);
  onSelection((names) => {
    if (!names.has("selected")) return;
    bar.hidden = selected === null;
    if (selected !== null) text.textContent = `${selected.size.toLocaleString("en")} of ${trials.length.toLocaleString("en")} trials`;
  });
}
