/** The reader's selection, which the whole page follows. */
const selection = {
  split: "dev",
  pinned: null, // index of a point
  area: null, // {s: [low, high], p: [low, high]} in the front's chart
  axes: new Map(), // intervals by the key of a trial's value
  words: "", // text of the table's filter
  color: "",
  measure: "objective",
};

const listeners = [];
let selected = null; // indexes of the selected trials; null without a filter

/** ``listener`` is called with the names of the changed fields. */
function onSelection(listener) {
  listeners.push(listener);
}

function change(values) {
  Object.assign(selection, values);
  const names = new Set(Object.keys(values));
  const narrowing = ["area", "axes", "words", "split"].some((name) => names.has(name));
  if (narrowing) {
    selected = findSelected();
    names.add("selected");
  }
  for (const listener of listeners) listener(names);
}

function isNarrowed() {
  return selection.area !== null || selection.axes.size > 0 || selection.words.trim() !== "";
}

/** The index of the trial whose point is pinned, or null. */
function pinnedTrial() {
  return selection.pinned === null ? null : indexOfTrial.get(points.trial[selection.pinned]);
}

function isTrialSelected(index) {
  return selected === null || selected.has(index);
}

/** Whether a point is within the reader's selection. */
function isPointSelected(index) {
  if (!isTrialSelected(indexOfTrial.get(points.trial[index]))) return false;
  return selection.area === null || isInside(position(index, selection.split));
}

function isInside(coordinates) {
  if (coordinates === null) return false;
  const { s, p } = selection.area;
  const [x, y] = coordinates;
  return s[0] <= x && x <= s[1] && p[0] <= y && y <= p[1];
}

function findSelected() {
  if (!isNarrowed()) return null;
  const { accepts } = readFilter(selection.words);
  const indexes = new Set();
  trials.forEach((trial, index) => {
    if (accepts(trial) && isOnAxes(trial) && hasPointInside(trial)) indexes.add(index);
  });
  return indexes;
}

function hasPointInside(trial) {
  if (selection.area === null) return true;
  const indexes = pointsOfTrial.get(trial.trial) || [];
  return indexes.some((index) => isInside(position(index, selection.split)));
}

function isOnAxes(trial) {
  for (const [key, axis] of selection.axes) {
    const value = axis.coordinate(trialValue(trial, key));
    if (value == null || !axis.intervals.some(([low, high]) => low <= value && value <= high)) return false;
  }
  return true;
}

const FILTER_TERM = /^([^<>=!]+?)(<=|>=|!=|=|<|>)(.*)$/;

/** Parses ``loss=triplet margin<0.2 P>=85 word`` into a predicate and the terms that are invalid. */
function readFilter(words) {
  const problems = [];
  const tests = [];
  for (const term of words.match(/"[^"]*"|\S+/g) || []) {
    const parts = FILTER_TERM.exec(term.replaceAll('"', ""));
    const test = parts ? comparison(parts, problems) : containsWord(term.replaceAll('"', "").toLowerCase());
    if (test) tests.push(test);
  }
  return { problems, accepts: (trial) => tests.every((test) => test(trial)) };
}

const FILTER_NAMES = new Map([
  ["trial", "trial"],
  ["status", "status"],
  ["objective", "objective"],
  ...rungScores.map(({ key, heading }) => [heading.toLowerCase(), key]),
  ["rungs", "rungs"],
  ["examples", "examples"],
  ["seconds", "seconds"],
  ["reason", "reason"],
]);
run.parameters.forEach((parameter, index) => {
  const name = parameter.name.toLowerCase();
  if (!FILTER_NAMES.has(name)) FILTER_NAMES.set(name, `parameter ${index}`);
});

function comparison([, name, sign, wanted], problems) {
  const key = FILTER_NAMES.get(name.trim().toLowerCase());
  if (key === undefined) {
    problems.push(`Unknown column: ${name.trim()}.`);
    return null;
  }
  const number = Number(wanted);
  if (sign !== "=" && sign !== "!=" && (wanted.trim() === "" || Number.isNaN(number))) {
    problems.push(`${name.trim()}${sign} must be followed by a number.`);
    return null;
  }
  return (trial) => compares(trialValue(trial, key), sign, wanted, number);
}

function compares(value, sign, wanted, number) {
  if (value == null) return sign === "!=";
  const isEqual = typeof value === "number" ? value === number : String(value).toLowerCase() === wanted.toLowerCase();
  if (sign === "=") return isEqual;
  if (sign === "!=") return !isEqual;
  if (typeof value !== "number") return false;
  if (sign === "<") return value < number;
  if (sign === ">") return value > number;
  return sign === "<=" ? value <= number : value >= number;
}

function containsWord(word) {
  return (trial) => trialText(trial).includes(word);
}

const trialTexts = new Map();

function trialText(trial) {
  if (!trialTexts.has(trial.trial)) {
    const values = trial.values.filter((value) => value != null).map(shortNumber);
    trialTexts.set(trial.trial, [trial.trial, trial.status, trial.reason, ...values].join(" ").toLowerCase());
  }
  return trialTexts.get(trial.trial);
}
