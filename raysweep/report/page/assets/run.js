/** The page's data about the run, and lookups in it. */
const run = JSON.parse(document.getElementById("data").textContent);

const ABSENT = "–";
const points = run.points;
const trials = run.trials;
const indexOfTrial = new Map(trials.map((trial, index) => [trial.trial, index]));
const memberOfPoint = new Map(run.members.map((member) => [member.point, member]));
const standings = new Map(run.statuses.map((status) => [status.standing, status]));

/** The indexes of each trial's points, in training order. */
const pointsOfTrial = new Map();
for (let index = 0; index < points.trial.length; index++) {
  const number = points.trial[index];
  if (!pointsOfTrial.has(number)) pointsOfTrial.set(number, []);
  pointsOfTrial.get(number).push(index);
}

/** The scores of a point: their ``key`` in the data, ``heading`` in tables, ``label`` on axes, and ``title``. */
const scoreOf = new Map(run.scores.map((score) => [score.key, score]));
const headingP = scoreOf.get("p").heading;
const headingS = scoreOf.get("s").heading;

/** The scores of a trial's rungs and of its best point, in the order of a rung's values. */
const rungScores = run.scores.filter(({ key }) => key !== "a");

const MEASURES = [["objective", "objective"], ...rungScores.map(({ key, title }) => [key, title])];

function measureName(measure) {
  return MEASURES.find(([key]) => key === measure)[1];
}

function shownScore(score) {
  return score == null ? ABSENT : score.toFixed(1);
}

function shownShare(share) {
  return `${Math.round(100 * share)}%`;
}

/** Formats a number as the tables and the command line do: integers in full, others like Python's ``.3g``. */
function shortNumber(value) {
  if (value == null) return ABSENT;
  if (typeof value !== "number" || Number.isInteger(value)) return String(value);
  const [digits, exponent] = value.toExponential(2).split("e").map(Number);
  if (-5 < exponent && exponent < 3) return String(Number(value.toPrecision(3)));
  const sign = exponent < 0 ? "-" : "+";
  return `${digits}e${sign}${String(Math.abs(exponent)).padStart(2, "0")}`;
}

/** Formats a parameter's value; very long text is truncated. */
function shortValue(value, maxLength = 40) {
  const text = shortNumber(value);
  return text.length > maxLength ? `${text.slice(0, maxLength - 1)}…` : text;
}

function trialOfPoint(index) {
  return trials[indexOfTrial.get(points.trial[index])];
}

function kindName(index) {
  return points.kinds[points.kind[index]].name;
}

/** The scores of a point on a split, or null if it is not scored there. */
function scoresOn(index, split) {
  if (split === "dev") {
    return Object.fromEntries(run.scores.map(({ key }) => [key, points[key][index]]));
  }
  const member = memberOfPoint.get(index);
  return member ? member.test : null;
}

/** The position of a point in the front's chart, or null. */
function position(index, split) {
  const scores = scoresOn(index, split);
  return scores && scores.s != null && scores.p != null ? [scores.s, scores.p] : null;
}

/** A trial's status after its sign. */
function standingOf(trial) {
  const { sign, words } = standings.get(trial.standing);
  return `${sign} ${words}`;
}

/** A measure of a trial, taken at its best point. */
function bestMeasure(trial, measure) {
  if (measure === "objective") return trial.objective;
  return trial.best == null ? lastRung(trial, measure) : points[measure][trial.best];
}

const RUNG_FIELDS = Object.fromEntries(["examples", ...MEASURES.map(([key]) => key)].map((key, index) => [key, index]));

function lastRung(trial, measure) {
  return trial.rungs.length ? trial.rungs[trial.rungs.length - 1][RUNG_FIELDS[measure]] : null;
}

/** The value of a trial by a key of the table or a parameter's name. */
function trialValue(trial, key) {
  if (key.startsWith("parameter ")) return trial.values[Number(key.slice(10))];
  if (key === "rungs") return trial.rungs.length;
  if (key === "examples") return lastRung(trial, "examples");
  if (MEASURES.some(([measure]) => measure === key)) return bestMeasure(trial, key);
  return trial[key];
}

/** The index of the point called ``name``, in the syntax of ``export --point``, or null. */
function pointOfName(name) {
  const member = run.members.find((candidate) => candidate.name === name);
  return member ? member.point : null;
}
