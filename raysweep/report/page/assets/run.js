/** What the page carries about the run, and ways to find things in it. */
const run = JSON.parse(document.getElementById("data").textContent);

const ABSENT = "–";
const points = run.points;
const trials = run.trials;
const placeOfTrial = new Map(trials.map((each, place) => [each.trial, place]));
const memberOfPoint = new Map(run.members.map((member) => [member.point, member]));
const standings = new Map(run.statuses.map((each) => [each.standing, each]));

/** Places of the points of each trial, in the order of training. */
const pointsOfTrial = new Map();
for (let place = 0; place < points.trial.length; place++) {
  const number = points.trial[place];
  if (!pointsOfTrial.has(number)) pointsOfTrial.set(number, []);
  pointsOfTrial.get(number).push(place);
}

const MEASURES = [
  ["objective", "objective"],
  ["p", "P, polarity"],
  ["s", "S, similarity"],
  ["r", "retention"],
];

function measureName(measure) {
  return MEASURES.find(([key]) => key === measure)[1];
}

function shownScore(score) {
  return score == null ? ABSENT : score.toFixed(1);
}

function shownShare(share) {
  return `${Math.round(100 * share)}%`;
}

/** A number as the tables and the command line have it: a whole one in full, any other as Python's ``.3g``. */
function shortNumber(value) {
  if (value == null) return ABSENT;
  if (typeof value !== "number" || Number.isInteger(value)) return String(value);
  const [digits, exponent] = value.toExponential(2).split("e").map(Number);
  if (-5 < exponent && exponent < 3) return String(Number(value.toPrecision(3)));
  const sign = exponent < 0 ? "-" : "+";
  return `${digits}e${sign}${String(Math.abs(exponent)).padStart(2, "0")}`;
}

/** A value of a parameter; of a very long text the beginning. */
function shortValue(value, most = 40) {
  const text = shortNumber(value);
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

function trialOfPoint(place) {
  return trials[placeOfTrial.get(points.trial[place])];
}

function kindName(place) {
  return points.kinds[points.kind[place]].name;
}

/** Scores of a point on a split, or null where it was not scored there. */
function scoresOn(place, split) {
  if (split === "dev") {
    return { p: points.p[place], s: points.s[place], r: points.r[place], a: points.a[place] };
  }
  const member = memberOfPoint.get(place);
  return member ? member.test : null;
}

/** Where a point lies in the front's chart, or null. */
function position(place, split) {
  const scores = scoresOn(place, split);
  return scores && scores.s != null && scores.p != null ? [scores.s, scores.p] : null;
}

/** How a trial stands, after its sign. */
function standingOf(trial) {
  const { sign, words } = standings.get(trial.standing);
  return `${sign} ${words}`;
}

/** One of a trial's measures by its best point. */
function bestMeasure(trial, measure) {
  if (measure === "objective") return trial.objective;
  return trial.best == null ? lastRung(trial, measure) : points[measure][trial.best];
}

const RUNG_FIELDS = { examples: 0, objective: 1, p: 2, s: 3, r: 4 };

function lastRung(trial, measure) {
  return trial.rungs.length ? trial.rungs[trial.rungs.length - 1][RUNG_FIELDS[measure]] : null;
}

/** The value of a trial under a key of the table, or of a parameter's name. */
function trialValue(trial, key) {
  if (key.startsWith("parameter ")) return trial.values[Number(key.slice(10))];
  if (key === "rungs") return trial.rungs.length;
  if (key === "examples") return lastRung(trial, "examples");
  if (key === "p" || key === "s" || key === "r" || key === "objective") return bestMeasure(trial, key);
  return trial[key];
}

/** The place of the point that ``name`` names, as ``export --point`` takes it, or null. */
function pointOfName(name) {
  const member = run.members.find((each) => each.name === name);
  return member ? member.point : null;
}
